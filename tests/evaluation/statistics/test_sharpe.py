"""PSR, DSR and MinTRL: published and hand-worked numbers, scipy's moments, and what is
undefined.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxtrade.evaluation.statistics import dsr, min_trl, psr, sharpe, trial_variance
from jaxtrade.evaluation.statistics.selection import (
    DailyMoments,
    autocorrelation_inflation,
    best_of_noise,
    min_track_record_days,
    moments,
    probabilistic_ratio,
    standard_error,
)
from tests.messages import missing

YEAR = 250
VARIANCE = 0.5 / YEAR  # of trials' annual ratios one half
BAD_TAILS = DailyMoments(2.5 / math.sqrt(YEAR), 1250, -3.0, 10.0)
NORMAL = BAD_TAILS._replace(skew=0.0, kurtosis=3.0)
NET = np.random.default_rng(11).standard_t(4, 80) * 100 + 30


@pytest.mark.parametrize(
    ("of", "trials", "expected"),
    [(BAD_TAILS, 100, 0.9004), (BAD_TAILS, 46, 0.9505), (NORMAL, 88, 0.9505)],
)
def test_the_published_example(of, trials, expected):
    """Bailey and Lopez de Prado 2014: annual ratio 2.5 over five years, ratios of trials with a
    variance of 1/2.
    """
    assert round(probabilistic_ratio(of, best_of_noise(trials, VARIANCE)), 4) == expected


def test_the_ratio_that_noise_reaches():
    assert round(best_of_noise(100, VARIANCE), 4) == 0.1132
    assert best_of_noise(1, VARIANCE) == 0.0
    assert best_of_noise(50, 0.0) == 0.0


def test_the_days_that_an_annual_ratio_of_one_needs():
    assert round(min_track_record_days(DailyMoments(1 / math.sqrt(252), 100)), 1) == 684.1
    assert min_track_record_days(DailyMoments(0.1, 100), benchmark=0.1) == math.inf


@pytest.mark.parametrize("trials", [2, 10, 100])
def test_the_best_of_noise_in_simulation(trials):
    """The mean of the best of N standard normal figures, within the approximation's error (2
    trials: 0.56 is 0.52).
    """
    best = np.random.default_rng(trials).standard_normal((40_000, trials)).max(axis=1).mean()
    assert best_of_noise(trials, 1.0) == pytest.approx(best, abs=0.05)


def test_moments_are_those_of_scipy():
    of = moments(NET)
    assert of.ratio == pytest.approx(NET.mean() / NET.std(ddof=1))
    assert of.skew == pytest.approx(stats.skew(NET))
    assert of.kurtosis == pytest.approx(stats.kurtosis(NET, fisher=False))
    assert of.days == 80


def test_figures_of_a_record_by_their_formulas():
    of = moments(NET)
    assert of.memory > 1.05  # by chance
    error = math.sqrt(
        of.memory * (1 - of.skew * of.ratio + (of.kurtosis - 1) / 4 * of.ratio**2) / 79
    )
    assert standard_error(of) == pytest.approx(error)
    half = stats.t.ppf(0.975, 80 / of.memory - 1) * error
    assert sharpe(NET)[:3] == pytest.approx((of.ratio, of.ratio - half, of.ratio + half))
    assert sharpe(NET, 252)[:3] == pytest.approx(
        [math.sqrt(252) * figure for figure in sharpe(NET)[:3]]
    )
    for benchmark in (0.0, 0.1):
        ratios = np.array([of.ratio, of.ratio - half, of.ratio + half])
        expected = stats.norm.cdf((ratios - benchmark) / error)
        assert psr(NET, benchmark)[:3] == pytest.approx(expected)
    assert dsr(NET, 20, 0.01) == psr(NET, best_of_noise(20, 0.01))
    assert dsr(NET, 1, None) == psr(NET)


@pytest.mark.parametrize(
    ("scaled", "memory"),
    [
        # part in the ratio = z: 1 1 1 -1 -1 -1 has r = (1 + 1 - 1 + 1 + 1) / 6 = 1/2, and 1/2 +
        # 5/12 is held at 1 - 4/6
        ([1, 1, 1, -1, -1, -1], 2.0),
        # (5 - 1 + 5) / 12 = 3/4, and 3/4 + 13/48 is held at 1 - 4/12
        ([1] * 6 + [-1] * 6, 5.0),
        ([1, -1, 1, -1, 1, -1], 1.0),  # negative: no gain
        ([1, 1, -1, -1], 1.0),
    ],
)  # too short
def test_the_memory_of_days_by_hand(scaled, memory):
    assert autocorrelation_inflation(np.array(scaled, float), 0.0) == pytest.approx(memory)


def test_the_memory_of_many_days_is_that_of_their_process():
    """(1 + 0.5) / (1 - 0.5) = 3 of an autoregression. Its squares have an autocorrelation of 0.25,
    so their part has 1.25 / 0.75, and it weighs SR^2 / 2 to 1: with SR = 8.664, (3 + 37.5 * 1.667)
    / 38.5 = 1.70."""
    generator, net = np.random.default_rng(0), np.zeros(100_000)
    for day, shock in enumerate(generator.standard_normal(len(net) - 1), 1):
        net[day] = 0.5 * net[day - 1] + shock
    assert moments(net).memory == pytest.approx(3, rel=0.03)
    assert moments(net + 10).memory == pytest.approx(1.70, rel=0.03)


def test_a_record_of_the_required_length_is_just_enough():
    of = moments(NET)
    assert min_trl(NET).value == pytest.approx(min_track_record_days(of))
    days = min_track_record_days(of, 0.05)
    assert of.ratio > 0.05
    # PSR is 0.95 where D - 1 days have that standard error
    error = standard_error(of._replace(days=2)) / math.sqrt(days - 1)
    assert stats.norm.cdf((of.ratio - 0.05) / error) == pytest.approx(0.95)


def test_the_interval_of_a_required_length():
    good = np.random.default_rng(2).standard_normal(300) + 0.5
    estimate = min_trl(good)
    assert estimate.low < estimate.value < estimate.high < 300
    weak = np.random.default_rng(2).standard_normal(30) + 0.15
    assert sharpe(weak).low < 0 < sharpe(weak).value
    open_end = min_trl(weak)
    assert open_end.low < open_end.value
    assert open_end.high is None
    assert "no upper end" in open_end.why


@pytest.mark.parametrize("figure", [psr, min_trl, lambda net: dsr(net, 20, 0.01), sharpe])
def test_what_does_not_vary_is_undefined(figure):
    for same in (0.0, 0.1, -7.3):
        estimate = figure(np.full(30, same))
        assert estimate[:3] == (None, None, None)
        assert "same" in estimate.why


def test_what_is_undefined_otherwise():
    assert sharpe(NET[:4])[1:3] == (None, None)
    assert not missing(sharpe(NET[:4]).why, "5 days", "are 4")
    assert "one day" in sharpe(NET[:1]).why
    assert psr(NET[:4])[:3] == (None, None, None)
    assert not missing(psr(NET[:4])[3], "5 days", "are 4")
    assert min_trl(-NET).value is None
    assert "no length is enough" in min_trl(-NET).why
    assert dsr(NET, 20, None)[0] is None
    assert "20 trials is unknown" in dsr(NET, 20, None).why


def test_days_of_two_values_may_have_no_error():
    """One day of six earns more: skew is 4 / sqrt(5). Where SR skew / 2 = 1, the error of the ratio
    vanishes.
    """
    net = np.array([6.0, 0, 0, 0, 0, 0])
    net += 5**0.5 / 2 * net.std(ddof=1) - net.mean()
    assert moments(net).ratio * moments(net).skew == pytest.approx(2)
    assert standard_error(moments(net)) == pytest.approx(0, abs=1e-6)
    assert "two values" in psr(net).why
    assert "two values" in min_trl(net).why


@pytest.mark.parametrize(("trials", "variance"), [(0, 0.1), (5, -0.1), (5, float("nan"))])
def test_what_is_no_search_is_refused(trials, variance):
    with pytest.raises(ValueError, match="at least one trial"):
        dsr(NET, trials, variance)


def test_records_are_vectors_of_numbers():
    with pytest.raises(ValueError, match=r"\[D\]"):
        psr(NET[None])
    with pytest.raises(ValueError, match="not finite"):
        sharpe(np.array([1.0, np.inf, 2, 3, 4]))


def test_variance_of_trials():
    trials = np.random.default_rng(0).standard_normal((50, 4)) + np.array([0, 0.1, 0.2, 0.3])
    expected = np.var(trials.mean(axis=0) / trials.std(axis=0, ddof=1), ddof=1)
    assert trial_variance(trials) == pytest.approx(expected)
    assert trial_variance(np.column_stack([trials, np.zeros(50)])) == pytest.approx(expected)
    assert trial_variance(trials[:, :1]) is None


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.integers(1, 500))
def test_more_trials_and_another_unit(seed, scale, trials):
    """More trials only lower the DSR; dollars or cents change nothing; a mirrored record has the
    opposite PSR.
    """
    net = np.random.default_rng(seed).standard_normal(40)
    assert psr(scale * net)[:3] == pytest.approx(psr(net)[:3])
    assert psr(-net).value == pytest.approx(1 - psr(net).value)
    assert dsr(net, trials + 1, 0.01).value <= dsr(net, trials, 0.01).value <= psr(net).value
