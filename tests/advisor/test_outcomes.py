"""What became of advice, by hand: hits, costs, horizons, forgetting, the trust that follows."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.advisor.outcomes import bin_of, hit_rate, log_odds, no_outcomes, scored, what_followed
from jaxtrade.advisor.table import Delta

LONG, SHORT, HOLD = (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)


def delta(*rows: tuple[int, tuple[float, float, float], float], padding: int = 0) -> Delta:
    bars = [bar for bar, _, _ in rows] + [1000] * padding
    values = [[*logits, confidence, 0.0, 30.0] for _, logits, confidence in rows] + [[0.0] * 6] * padding
    return Delta(np.array(bars, np.int32), np.array(values, np.float32), np.array(1, np.int32))


def test_a_move_over_the_horizon_beyond_the_costs_in_the_same_session() -> None:
    open_ = np.array([20, 10, 10, 10, 10, 10, 10, 10], np.int32)  # of the bar asked about: never read
    close = np.array([0, 10, 14, 13, 10, 4, 10, 99], np.int32)
    # two sessions: decision bars 0..2 (flat bar 3) and 4..6 (flat bar 7); h = 2, a round turn costs 3 ticks
    found = what_followed(open_, close, np.array([0, 4]), np.array([2, 6]), 2, 3)
    # bar 0: close[2] - open[1] = 4 > 3; bar 1: close[3] - open[2] = 3, within costs; bar 2 has no full horizon;
    # bar 4: close[6] - open[5] = 0; bar 5: close[7] - open[6] = 89
    assert found.tolist() == [1, 0, 0, 0, 0, 1, 0, 0]
    assert what_followed(open_, close, np.array([4]), np.array([6]), 1, 3).tolist() == [0, 0, 0, 0, -1, 0, 1, 0]
    assert not what_followed(open_, close, np.array([0, 4]), np.array([2, 6]), 5, 0).any()


def test_hits_are_counted_by_confidence_and_hold_and_small_moves_abstain() -> None:
    followed = jnp.array([1, -1, 0, 1, 1], jnp.int8)
    found = scored(no_outcomes(2), delta((0, LONG, 0.9), (1, LONG, 0.9), (2, LONG, 0.9), (3, HOLD, 0.9),
                                         (4, SHORT, 0.2), padding=3), followed, 1e9)
    assert found.count.tolist() == pytest.approx([1, 2])
    assert found.hits.tolist() == pytest.approx([0, 1])
    assert found.brier.tolist() == pytest.approx([0.2**2, 0.1**2 + 0.9**2])
    assert int(found.seen) == 3
    assert float(hit_rate(found)) == pytest.approx(1 / 3)
    assert bin_of(jnp.array([0.0, 0.19, 0.2, 0.999, 1.0]), 5).tolist() == [0, 0, 1, 4, 4]


def test_old_outcomes_fade_in_the_order_in_which_rows_came() -> None:
    followed, memory = jnp.ones(4, jnp.int8), 10.0
    keep = 1 - 1 / memory
    at_once = scored(no_outcomes(1), delta((0, SHORT, 0.5), (1, LONG, 0.5), (2, LONG, 0.5)), followed, memory)
    assert at_once.count.tolist() == pytest.approx([keep**2 + keep + 1])
    assert at_once.hits.tolist() == pytest.approx([keep + 1])
    one_by_one = no_outcomes(1)
    for row in ((0, SHORT, 0.5), (1, LONG, 0.5), (2, LONG, 0.5)):
        one_by_one = scored(one_by_one, delta(row, padding=2), followed, memory)
    assert one_by_one.count.tolist() == pytest.approx(at_once.count.tolist())
    assert one_by_one.hits.tolist() == pytest.approx(at_once.hits.tolist())
    nothing = scored(one_by_one, delta(padding=3), followed, memory)
    np.testing.assert_array_equal(nothing.count, one_by_one.count)


@pytest.mark.parametrize(("hits", "count", "expected"), [
    (0, 0, 0.0),  # nothing known
    (52, 100, 0.0),  # within two standard errors of a coin
    (70, 100, math.log(75 / 35)),  # (70 + 5) / 110
    (30, 100, math.log(35 / 75)),  # mostly wrong: turned round
    (1000, 1000, 2.0),  # the cap
])
def test_trust_is_the_clipped_log_odds_of_the_hit_rate(hits: float, count: float, expected: float) -> None:
    outcomes = no_outcomes(1).replace(hits=jnp.array([hits], jnp.float32), count=jnp.array([count], jnp.float32))
    assert float(log_odds(outcomes, 10.0, 2.0, 2.0)[0]) == pytest.approx(expected, abs=1e-6)


def test_an_advisor_that_turns_is_found_out() -> None:
    """0.7 right, then 0.3: with a memory of 200 the trust has turned after 400 more."""
    random = np.random.default_rng(0)
    followed = jnp.ones(1000, jnp.int8)
    outcomes = no_outcomes(1)
    trusts = []
    for share in (0.7, 0.3):
        rows = [(i, LONG if random.random() < share else SHORT, 0.6) for i in range(400)]
        outcomes = scored(outcomes, delta(*rows), followed, 200.0)
        trusts.append(float(log_odds(outcomes, 10.0, 2.0, 2.0)[0]))
    assert trusts[0] > 0.4
    assert trusts[1] < -0.4
