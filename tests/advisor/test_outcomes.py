"""What became of advice, by hand: hits, costs, horizons, forgetting, the trust that follows."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.advisor.outcomes import (
    bin_of,
    hit_rate,
    independent,
    log_odds,
    no_outcomes,
    score_delta,
    what_followed,
)
from jaxtrade.advisor.table import Delta
from jaxtrade.config import AdvisorConfig

LONG, SHORT, HOLD = (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)


def nothing_scored(bins, evidence="blocks", bars=1000, horizon=30):
    return no_outcomes(
        AdvisorConfig.model_validate({"bins": bins, "evidence": evidence, "horizon": horizon}), bars
    )


def delta(*rows, padding=0):
    bars = [bar for bar, _, _ in rows] + [1000] * padding
    values = [[*logits, confidence, 0.0, 30.0] for _, logits, confidence in rows] + [
        [0.0] * 6
    ] * padding
    return Delta(np.array(bars, np.int32), np.array(values, np.float32), np.array(1, np.int32))


def test_a_move_over_the_horizon_beyond_the_costs_in_the_same_session():
    """Two sessions: decision bars 0 to 2 (flat bar 3) and 4 to 6 (flat bar 7). The open of the bar
    asked about is never read.
    """
    open_ = np.array([20, 10, 10, 10, 10, 10, 10, 10], np.int32)
    close = np.array([0, 10, 14, 13, 10, 4, 10, 99], np.int32)
    first, last = np.array([0, 4]), np.array([2, 6])
    found = what_followed(open_, close, first, last, 2, 3)
    # bar 0: close[2] - open[1] = 4 > 3; bar 1: close[3] - open[2] = 3, within costs; bar 2 has no
    # full horizon; bar 4: close[6] - open[5] = 0; bar 5: close[7] - open[6] = 89
    assert found.tolist() == [1, 0, 0, 0, 0, 1, 0, 0]
    second = what_followed(open_, close, first[1:], last[1:], 1, 3)
    assert second.tolist() == [0, 0, 0, 0, -1, 0, 1, 0]
    assert not what_followed(open_, close, first, last, 5, 0).any()


def test_hits_are_counted_by_confidence_and_hold_and_small_moves_abstain():
    followed = jnp.array([1, -1, 0, 1, 1], jnp.int8)
    sure = [(0, LONG, 0.9), (1, LONG, 0.9), (2, LONG, 0.9), (3, HOLD, 0.9), (4, SHORT, 0.2)]
    found = score_delta(nothing_scored(2), delta(*sure, padding=3), followed, 1e9)
    assert found.count.tolist() == pytest.approx([1, 2])
    assert found.hits.tolist() == pytest.approx([0, 1])
    assert found.brier.tolist() == pytest.approx([0.2**2, 0.1**2 + 0.9**2])
    assert (int(found.seen), float(hit_rate(found))) == (3, pytest.approx(1 / 3))
    assert bin_of(jnp.array([0.0, 0.19, 0.2, 0.999, 1.0]), 5).tolist() == [0, 0, 1, 4, 4]


def test_old_outcomes_fade_in_the_order_in_which_rows_came():
    followed, memory, keep = jnp.ones(4, jnp.int8), 10.0, 1 - 1 / 10
    rows = ((0, SHORT, 0.5), (1, LONG, 0.5), (2, LONG, 0.5))
    at_once = score_delta(nothing_scored(1), delta(*rows), followed, memory)
    assert at_once.count.tolist() == pytest.approx([keep**2 + keep + 1])
    assert at_once.hits.tolist() == pytest.approx([keep + 1])
    one_by_one = nothing_scored(1)
    for row in (*rows, ()):
        one_by_one = score_delta(one_by_one, delta(*[row][: len(row)], padding=2), followed, memory)
    for name in ("count", "hits", "blocks"):
        parts = getattr(one_by_one, name), getattr(at_once, name)
        np.testing.assert_allclose(*map(np.asarray, parts), rtol=1e-6)


@pytest.mark.parametrize(
    ("hits", "count", "expected"),
    [
        (0, 0, 0.0),  # nothing known
        (52, 100, 0.0),  # within two standard errors of a coin
        (70, 100, math.log(75 / 35)),  # (70 + 5) / 110
        (30, 100, math.log(35 / 75)),  # mostly wrong: turned round
        (1000, 1000, 2.0),  # the cap
    ],
)
def test_by_the_earlier_rule_trust_is_the_clipped_log_odds_of_the_hit_rate(hits, count, expected):
    outcomes = nothing_scored(1, "answers").replace(
        hits=jnp.array([hits], jnp.float32), count=jnp.array([count], jnp.float32)
    )
    assert float(log_odds(outcomes, 10.0, 2.0, 2.0)[0]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_rows_are_summed_by_block_and_range():
    followed = jnp.array([1, -1, 1, 0] * 20, jnp.int8)
    rows = [(0, LONG, 0.9), (1, LONG, 0.9), (2, SHORT, 0.2), (3, LONG, 0.9), (64, SHORT, 0.9)]
    found = score_delta(nothing_scored(2, bars=80), delta(*rows, padding=2), followed, 1e9).blocks
    assert found.shape == (3, 2, 5)  # 80 bars in blocks of 30
    np.testing.assert_allclose(found[0, 1], [2, 2, 2, 0, 0])  # a hit and a miss, both long
    np.testing.assert_allclose(found[0, 0], [1, 1, -1, 1, -1])
    np.testing.assert_allclose(found[2, 1], [1, 1, -1, 1, -1])
    earlier = nothing_scored(2, "answers")
    assert float(independent(score_delta(earlier, delta(rows[0]), followed, 1e9))) == 1.0
    assert float(independent(nothing_scored(2))) == 0.0


def answers(share, bars, random, followed):
    right = random.random(bars) < share
    order = random.permutation(bars).tolist()  # as a run asks: by demand, not by time
    return delta(*((i, LONG if (followed[i] > 0) == right[i] else SHORT, 0.6) for i in order))


@pytest.mark.slow
def test_trust_is_the_log_odds_of_the_balanced_rate_drawn_towards_one_half():
    """1,000 answers, 0.7 right and independent: worth 1,000 or somewhat fewer, so log(0.7 / 0.3)
    less the prior.
    """
    random = np.random.default_rng(1)
    followed = random.choice([-1, 1], 1000).astype(np.int8)
    given = answers(0.7, 1000, random, followed)
    found = score_delta(nothing_scored(1), given, jnp.asarray(followed), 1e9)
    worth = float(independent(found))
    assert 600 < worth <= 1000.5
    total = np.asarray(found.blocks, np.float64).sum(axis=(0, 1))
    bias, drift, both = total[2:] / total[0]
    balanced = 0.5 + (both - bias * drift) / (2 * (1 - drift**2))
    expected = 0.5 + (balanced - 0.5) * worth / (worth + 10)
    odds = float(log_odds(found, 10.0, 2.5, 2.0)[0])
    assert odds == pytest.approx(math.log(expected / (1 - expected)), abs=1e-4)
    assert float(log_odds(found, 10.0, 2.5, 0.3)[0]) == pytest.approx(0.3)  # the cap


@pytest.mark.slow
def test_an_advisor_that_turns_is_found_out():
    """0.7 right, then 0.3: with a memory of 200 the trust has turned after 1,000 more."""
    random, outcomes = np.random.default_rng(0), nothing_scored(1)
    followed = random.choice([-1, 1], 1000).astype(np.int8)
    for share, sign in ((0.7, 1), (0.3, -1)):
        given = answers(share, 1000, random, followed)
        outcomes = score_delta(outcomes, given, jnp.asarray(followed), 200.0)
        assert sign * float(log_odds(outcomes, 10.0, 2.5, 2.0)[0]) > 0.4
