"""IQM and probability of improvement: hand-worked figures, scipy, properties, and what has no
interval.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import mannwhitneyu, trim_mean

from jaxtrade.evaluation.statistics import iqm, iqm_estimate, probability_of_improvement
from jaxtrade.evaluation.statistics.resampling import SpreadPart, stretch_interval, wins

vectors = arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000))
nets = arrays(
    np.float64, st.tuples(st.integers(5, 8), st.integers(5, 12)), elements=st.integers(-1000, 1000)
)
NOISE = np.random.default_rng(7).normal(0, 100, (8, 40))


@given(vectors)
def test_iqm_is_the_trimmed_mean_of_scipy(values):
    assert float(iqm(values)) == pytest.approx(float(trim_mean(values, 0.25)), abs=1e-9)


def test_iqm_by_hand():
    """Of five the lowest and the highest go, of eight two on each side, of three none."""
    assert float(iqm(np.array([100.0, 1, 2, 3, -900]))) == 2
    assert float(iqm(np.array([8.0, 7, 6, 5, 4, 3, 2, 1]))) == pytest.approx((3 + 4 + 5 + 6) / 4)
    assert float(iqm(np.array([0.0, 3, 30]))) == 11
    assert iqm(np.array([[1.0, 1, 1, 1], [0, 2, 4, 90]])).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("shape", "rule", "says"),
    [
        ((4, 40), False, "5 seeds, there are 4"),
        ((1, 40), False, "5 seeds, there is 1"),
        ((8, 4), False, "5 days, there are 4"),
        ((1, 4), True, "5 days, there are 4"),
    ],
)
def test_few_seeds_or_days_have_no_interval(shape, rule, says):
    estimate = iqm_estimate(NOISE[: shape[0], : shape[1]], rule=rule)
    assert estimate.value == pytest.approx(
        float(trim_mean(NOISE[: shape[0], : shape[1]].mean(axis=1), 0.25))
    )
    assert (estimate.low, estimate.high) == (None, None)
    assert says in estimate.why


def test_an_agent_that_never_trades_has_no_interval():
    estimate = iqm_estimate(np.zeros((6, 20)))
    assert estimate[:3] == (0.0, None, None)
    assert "no spread" in estimate.why


def test_a_rule_needs_no_seeds():
    """Its interval is of days alone, so copies of the rule change nothing."""
    one = iqm_estimate(NOISE[:1], rule=True, draws=500)
    assert one.low < one.value < one.high
    assert iqm_estimate(np.repeat(NOISE[:1], 6, axis=0), rule=True, draws=500) == pytest.approx(
        (*one[:3], None)
    )


def test_seeds_are_drawn_in_each_fold_on_their_own():
    """Seeds that are good in one fold and bad in the other. As one fold they never differ (days
    alternate, so that every block of two holds a day of each); as two folds, each of days that are
    all the same, they do."""
    good = np.arange(6.0)[:, None]
    assert iqm_estimate(np.tile(np.hstack([good, 5 - good]), 4), draws=200)[:3] == pytest.approx(
        (2.5, 2.5, 2.5)
    )
    net = np.hstack([np.repeat(good, 10, axis=1), np.repeat(5 - good, 10, axis=1)])
    apart = iqm_estimate(net, np.repeat([0, 1], 10), draws=2000)
    assert apart.value == pytest.approx(2.5)
    assert apart.high - apart.low > 1


def test_days_are_drawn_within_their_fold():
    """A rule whose days differ from fold to fold and not within one: with the folds, days add no
    spread.
    """
    net = np.repeat([[-3.0, 9.0]], 10, axis=1)
    assert iqm_estimate(net, np.repeat([0, 1], 10), rule=True, draws=200)[:3] == pytest.approx(
        (3, 3, 3)
    )
    alone = iqm_estimate(net, rule=True, draws=200)
    assert alone.low < 0
    assert alone.high > 6


def test_short_folds_draw_days_together():
    """A day for each fold says nothing about days of a fold: they are one fold to the days, in
    their order.
    """
    assert iqm_estimate(NOISE[:1], np.arange(40), rule=True, draws=200) == iqm_estimate(
        NOISE[:1], rule=True, draws=200
    )
    # the last two days, a fold of their own, go with the fold before them
    folds, joined = np.repeat([0, 1, 2], [19, 19, 2]), np.repeat([0, 1], [19, 21])
    assert iqm_estimate(NOISE[:1], folds, rule=True, draws=200)[:3] == pytest.approx(
        iqm_estimate(NOISE[:1], joined, rule=True, draws=200)[:3], rel=1e-12
    )


def test_the_names_of_folds_do_not_matter():
    fold = np.repeat([0, 1], 20)
    assert iqm_estimate(NOISE, fold, draws=100) == iqm_estimate(NOISE, 2020 + fold, draws=100)
    with pytest.raises(ValueError, match="each of 40 days"):
        iqm_estimate(NOISE, fold[:-1])


@settings(max_examples=30, deadline=None)
@given(nets, st.integers(-100, 100), st.integers(1, 9))
def test_dollars_or_cents_and_a_daily_fee(net, shift, scale):
    assume(np.ptp(net) > 0)
    plain, moved = iqm_estimate(net, draws=100), iqm_estimate(scale * net + shift, draws=100)
    assert moved[:3] == pytest.approx([scale * edge + shift for edge in plain[:3]], abs=1e-6)


def test_another_seed_gives_another_interval():
    assert iqm_estimate(NOISE, draws=100, seed=3) != iqm_estimate(NOISE, draws=100, seed=4)


@pytest.mark.parametrize("net", [np.zeros(5), np.zeros((5, 0)), np.array([[1.0, np.nan]])])
def test_what_is_no_record_is_refused(net):
    with pytest.raises(ValueError, match=r"\[S, D\]"):
        iqm_estimate(net)


def test_a_stretch_by_hand():
    """One part of 9 units: t(8) / z = 2.306 / 1.960, sqrt(9 / 8). Two equal parts in 5 strata of 3:
    10 degrees each.
    """
    values = np.linspace(-1.0, 1.0, 1001)
    assert stretch_interval(values, 0.0, [SpreadPart(0.3, 9)])[1] == pytest.approx(
        0.95 * 2.306 / 1.960 * (9 / 8) ** 0.5, abs=1e-3
    )
    twice = stretch_interval(values, 0.0, [SpreadPart(0.2, 3, 5), SpreadPart(0.2, 3, 5)])[1]
    assert twice == pytest.approx(0.95 * 2.086 / 1.960 * (3 / 2) ** 0.5, abs=1e-3)
    assert stretch_interval(np.zeros(9), 4.0, [SpreadPart(0.0, 9)]) == (4.0, 4.0)


@given(vectors, vectors)
def test_wins_are_those_of_mann_and_whitney(x, y):
    expected = mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert float(wins(x, y)) == pytest.approx(float(expected))


def test_improvement_by_hand():
    """Means 1, 2, 3, 4, 5 against five of 2.5: three of five win. The days of both move together
    and cancel.
    """
    days = np.random.default_rng(0).normal(0, 50, 20)
    x = np.arange(1.0, 6)[:, None] + days
    estimate = probability_of_improvement(x, np.full((1, 20), 2.5) + days, rule=True, draws=500)
    assert estimate.value == pytest.approx(0.6)
    # Wilson's interval of 3 of 5
    assert (estimate.low, estimate.high) == pytest.approx((0.231, 0.882), abs=2e-3)


def test_to_win_every_time_is_not_certain():
    """Five of five wins against a rule: Wilson's interval begins at 1 / (1 + 1.96^2 / 5)."""
    x = np.full((5, 20), 3.0) + np.arange(5)[:, None]
    estimate = probability_of_improvement(x, np.zeros((1, 20)), rule=True, draws=50)
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(1 / (1 + 1.96**2 / 5), abs=1e-3)
    apart = probability_of_improvement(x, -x, draws=50)
    assert apart.value == 1.0
    assert 0.4 < apart.low < 0.8


@settings(max_examples=30, deadline=None)
@given(nets)
def test_sides_change(x):
    """P(x > y) + P(y > x) = 1, ends of intervals included."""
    y = NOISE[:6, : x.shape[1]]
    one, other = (
        probability_of_improvement(x, y, draws=100),
        probability_of_improvement(y, x, draws=100),
    )
    assert one[:3] == pytest.approx((1 - other.value, 1 - other.high, 1 - other.low), abs=1e-9)
    assert 0 <= one.low <= one.value <= one.high <= 1


def test_improvement_without_interval():
    x = NOISE[:, :20]
    assert "5 seeds, there are 4" in probability_of_improvement(x, x[:4]).why
    assert "5 days" in probability_of_improvement(x[:, :3], x[:, 3:6]).why
    same = probability_of_improvement(np.ones((5, 9)), np.ones((1, 9)), rule=True)
    assert (same.value, same.low, same.high) == (0.5, None, None)
    assert "every day" in same.why
    with pytest.raises(ValueError, match="its rows differ"):
        probability_of_improvement(x, x, rule=True)
    with pytest.raises(ValueError, match="days must"):
        probability_of_improvement(x, x[:, 1:])
