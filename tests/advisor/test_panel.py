"""A panel of advisors: common errors by hand, and its log-odds against the exact posterior of
simulated advisors.
"""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.outcomes import (
    correlation,
    first_outcomes,
    of_advisor,
    panel_scored,
    together,
)
from jaxtrade.advisor.table import (
    AdviceSeen,
    Delta,
    consensus,
    empty_table,
    look_up,
    make_view,
    write_delta,
)
from jaxtrade.config import AdvisorConfig, EnvConfig
from jaxtrade.rl.advice import Trust, make_fusion

ROWS = 500  # a divisor of the bars of the large test, so that one advisor's rows come apart from another's


def config_of(advisors, **keys):
    return AdvisorConfig.model_validate({"kind": "panel", "panel": ["rules"] * advisors, **keys})


def delta_of(entries, bars, most, version=1):
    """entries: (advisor, bar, direction). bars: T. The rows are padded to `most`."""
    where = np.full(most, 10 * bars, np.int32)
    rows = np.zeros((most, 6), np.float32)
    for i, (advisor, bar, direction) in enumerate(entries):
        where[i] = advisor * bars + bar
        rows[i] = [
            0.5 * (direction == 0),
            1.8 * (direction > 0),
            1.8 * (direction < 0),
            0.6,
            0.2,
            30,
        ]
    return Delta(where, rows, np.array(version, np.int32))


def scored_all(
    config,
    advised,
    followed,
    memory,
    order,
):
    """Every advisor's advice int[A, T], ROWS at a time: in random order, or (None) one advisor
    after the other.
    """
    number, bars = advised.shape
    table, outcomes = empty_table(number * bars), first_outcomes(config, bars)

    @jax.jit
    def step(table, outcomes, delta):
        table = write_delta(table, delta)
        return table, panel_scored(outcomes, delta, table, jnp.asarray(followed, jnp.int8), memory)

    slots = np.arange(number * bars) if order is None else order.permutation(number * bars)
    for version, first in enumerate(range(0, len(slots), ROWS), 1):
        advisors, where = np.divmod(slots[first : first + ROWS], bars)
        chosen = list(zip(advisors, where, advised[advisors, where], strict=True))
        table, outcomes = step(table, outcomes, delta_of(chosen, bars, ROWS, version))
    return outcomes


# --- log-odds together, by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odds", "common", "expected"),
    [
        ([0.4, 0.3, -0.2], 0.0, 0.5),  # independent ones add up
        ([0.4, 0.4], 1.0, 0.4),  # copies count once
        ([0.4] * 5, 1.0, 0.4),
        ([0.4, -0.4], 1.0, 0.0),
        ([0.4, 0.4], 0.9, 0.8 / 1.9),  # common errors lower the weight of both
        ([0.4, 0.0], 0.9, 0.4),  # the other is silent or has no trust
        ([0.8, 0.2], 0.9, 0.8 / 1.225 + 0.2 / 1.9),  # by 1 + 0.9 * 0.2 / 0.8, and 1 + 0.9
    ],
)
def test_log_odds_together_by_hand(odds, common, expected):
    assert float(together(jnp.array(odds), shared(len(odds), common))) == pytest.approx(expected)


def shared(advisors, common):
    """The same correlation of errors between any two."""
    return jnp.full((advisors, advisors), common).at[jnp.diag_indices(advisors)].set(1.0)


@pytest.mark.slow
@given(st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=6), st.floats(0, 1))
@settings(max_examples=60)
def test_no_panel_is_worth_more_than_independent_advisors(odds, common):
    matrix, whole = shared(len(odds), common), jnp.array(odds)
    found = float(together(jnp.abs(whole), matrix))
    assert found <= float(jnp.abs(whole).sum()) + 1e-5
    assert found >= float(jnp.abs(whole).max()) / 2 - 1e-5  # weak ones do not drown a strong one
    turned = float(together(-whole, matrix))
    assert turned == pytest.approx(-float(together(whole, matrix)), abs=1e-6)


# --- correlation of errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 0])
def test_the_correlation_of_errors_by_hand_in_any_order(seed):
    """Four common bars, errors 1 1 0 0 and 1 0 0 0: covariance 1/8, deviations 1/2 and sqrt(3)/4,
    so 1 / sqrt(3).
    """
    followed, advised = np.ones(ROWS), np.zeros((2, ROWS), int)
    advised[0, :4], advised[1, :4] = (-1, -1, 1, 1), (-1, 1, 1, 1)
    advised[0, 10:20] = 1  # bars on which the other has no direction
    order = None if seed is None else np.random.default_rng(seed)
    outcomes = scored_all(config_of(2), advised, followed, 1e9, order)
    root = 1 / math.sqrt(3)
    np.testing.assert_allclose(correlation(outcomes.pairs, 1e-6), [[1, root], [root, 1]], atol=1e-4)


@pytest.mark.slow
def test_advisors_without_common_outcomes_count_as_one_and_a_negative_correlation_as_none():
    nothing = first_outcomes(config_of(3), 60)
    np.testing.assert_array_equal(correlation(nothing.pairs, 10.0), np.ones((3, 3)))
    advised = np.ones((2, 60), int)
    advised[0, ::2], advised[1, 1::2] = -1, -1
    against = scored_all(config_of(2), advised, np.ones(60), 1e9, np.random.default_rng(0))
    assert float(correlation(against.pairs, 1e-6)[0, 1]) == pytest.approx(0.0, abs=1e-4)
    # Each is scored alone.
    np.testing.assert_allclose(against.each.hits.sum(axis=1), [30, 30])
    own = of_advisor(delta_of([(0, 3, 1), (1, 5, -1), (1, 0, 1)], 40, 4), jnp.int32(1), 40)
    assert own.bars.tolist() == [40, 5, 0, 40]


@pytest.mark.slow
def test_a_panel_comes_within_a_tenth_of_the_exact_posterior():
    """Two advisors of skill 0.6 whose errors have the correlation 0.9, and a random one; 40,000
    bars.

    If both agree, P(both right) = 0.36 + 0.9 * 0.24 and P(both wrong) = 0.16 + 0.9 * 0.24, so the
    exact log-odds are log(0.576 / 0.376). If they differ, each is as likely right: 0. The random
    one changes nothing.
    """
    random, bars = np.random.default_rng(5), 40_000
    followed = random.choice([-1, 1], bars)
    wrong = random.random((3, bars)) < np.array([0.4, 0.4, 0.5])[:, None]
    wrong[1] = np.where(random.random(bars) < 0.9, wrong[0], wrong[1])
    advised = np.where(wrong, -followed, followed)
    config = config_of(3, memory=1_000_000)
    outcomes = scored_all(config, advised, followed, config.memory, random)
    trust = make_fusion(config, EnvConfig()).trust(outcomes)
    odds = trust.log_odds[:, 3]  # the range of confidence 0.6
    assert float(odds[2]) == 0.0
    assert float(trust.correlation[0, 1]) == pytest.approx(0.9, abs=0.02)
    exact = math.log(0.576 / 0.376)
    for second, expected in ((1, exact), (-1, 0)):
        found = float(together(odds * jnp.array([1, second, 1]), trust.correlation))
        assert found == pytest.approx(expected, abs=0.1 * exact)
    # As independent evidence, the panel would claim nearly twice as much.
    assert float(odds[:2].sum()) > 1.7 * exact


# --- what environments see --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_panel_is_read_row_by_row_and_its_consensus_is_the_mean():
    bars = 10
    table = write_delta(
        empty_table(2 * bars), delta_of([(0, 4, 1), (1, 4, -1), (1, 5, -1)], bars, 6)
    )
    view = make_view(table, np.zeros(bars, np.int32), latency=(1,), max_age=3)
    both, one = look_up(view, jnp.int32(5)), look_up(view, jnp.int32(6))
    assert both.each.direction.tolist() == [1, -1]
    assert (both.each.version.tolist(), one.each.version.tolist()) == ([1, 1], [0, 1])
    np.testing.assert_allclose(both.logits, [0, 0.9, 0.9])
    assert (int(both.direction), float(both.confidence), float(both.age)) == (0, 0.0, 1.0)
    assert (int(one.direction), float(one.confidence)) == (-1, pytest.approx(0.6))
    for hidden in (look_up(view, jnp.int32(7)), look_up(view, jnp.int32(5), True)):
        assert not bool(hidden.valid)
        assert not np.any(hidden.values)


@pytest.mark.slow
@pytest.mark.parametrize(("buy", "sell", "tilt"), [(0.8, -0.5, 1.3), (2.0, -2.0, 2.0)])
def test_the_fusion_tilts_by_the_log_odds_of_the_panel_and_clips_them(buy, sell, tilt):
    """Advisor 0 says buy and is trusted; advisor 1 says sell and is mostly wrong: both speak for
    buying."""
    rows = jnp.array([[0, 1.8, 0, 0.6, 0, 1], [0, 0, 2.7, 0.9, 0, 1]], jnp.float32)
    seen = SimpleNamespace(aux=consensus(AdviceSeen(rows, jnp.array([1, 1]))))
    trust = Trust(jnp.zeros((2, 5)).at[0, 3].set(buy).at[1, 4].set(sell), jnp.eye(2))
    terms = make_fusion(config_of(2), EnvConfig()).terms(trust, seen)
    assert float(terms.advice) == pytest.approx(0.5 * tilt)
