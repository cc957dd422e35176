"""How often 95 % intervals hold the truth, and how often tests reject where nothing is there:
figures of the page.
"""

import numpy as np
import pytest
from scipy.stats import norm

from jaxtrade.evaluation.statistics import (
    iqm_estimate,
    probability_of_improvement,
    psr,
    sharpe,
    spa,
)
from jaxtrade.evaluation.statistics.selection import DailyMoments, min_track_record_days

pytestmark = pytest.mark.slow
EXPERIMENTS = 1000  # so that chance alone gives 95 % +- 0.7 %

# How much days (with heavy tails), seeds in all folds, seeds in each fold and single results vary.
VARIED = {
    "days": (1.0, 0.0, 0.0, 0.0),
    "seeds less": (1.0, 0.0, 0.3, 1.0),
    "seeds as much": (1.0, 0.0, 1.0, 1.0),
    "seeds more": (0.3, 0.0, 3.0, 1.0),
    "seeds alike in all folds": (1.0, 0.2, 0.3, 1.0),
}


def made(generator, fold, seeds, varied):
    """float64[S, D] of an experiment whose truth is 0."""
    of_day, of_seed, of_fold, of_both = varied
    days = len(fold)
    by_fold = generator.standard_normal((seeds, fold.max() + 1))[:, fold]
    return (
        of_day * generator.standard_t(4, (1, days))
        + of_seed * generator.standard_normal((seeds, 1))
        + of_fold * by_fold
        + of_both * generator.standard_normal((seeds, days))
    )


@pytest.mark.parametrize(
    ("seeds", "days", "folds"),
    [
        (5, 20, 1),
        (10, 60, 6),
    ],
)
def test_iqm(seeds, days, folds):
    fold = np.arange(days) * folds // days
    for name, varied in VARIED.items():
        generator, held = np.random.default_rng([seeds, days, folds]), 0
        for i in range(EXPERIMENTS):
            estimate = iqm_estimate(made(generator, fold, seeds, varied), fold, draws=300, seed=i)
            held += estimate.low <= 0 <= estimate.high
        print(seeds, days, folds, name, held / EXPERIMENTS)
        assert 0.92 <= held / EXPERIMENTS <= 0.98, name


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize(
    ("seeds", "days"),
    [(5, 20), (10, 60)],
)
def test_probability_of_improvement(seeds, days, rule):
    """The truth: how probable it is that a new seed of x earns more than a new one of y on new
    days.
    """
    for of_seed, of_day, of_both in ((0.5, 0.0, 0.5), (0.5, 0.3, 0.5), (0.3, 1.0, 1.0)):
        for apart in (
            0.0,
            0.5,
            1.0,
            1.5,
        ):  # the distance, in standard deviations of the difference of two runs
            generator, held = np.random.default_rng([seeds, days, int(10 * apart)]), 0
            varies = 1 if rule else 2
            distance = (
                apart
                * (varies * of_seed**2 + varies * of_both**2 / days + 2 * of_day**2 / days) ** 0.5
            )
            for i in range(EXPERIMENTS):
                x, y = (
                    of_seed * generator.standard_normal((seeds, 1))
                    + of_day * generator.standard_normal((1, days))
                    + of_both * generator.standard_normal((seeds, days))
                    for _ in range(2)
                )
                if rule:
                    y = of_day * generator.standard_normal((1, days))
                estimate = probability_of_improvement(x + distance, y, rule=rule, draws=200, seed=i)
                held += estimate.low <= norm.cdf(apart) <= estimate.high
            print(seeds, days, rule, (of_seed, of_day, of_both), apart, held / EXPERIMENTS)
            # Five runs can be 0 to 5 times better. So few intervals are possible, and some hold the
            # truth too often: 98.9 % at most with these seeds, where 98 % would be asked for.
            assert 0.92 <= held / EXPERIMENTS <= (0.98 if seeds > 5 else 0.993)


NOISES = {
    "heavy tails": lambda generator, days: generator.standard_t(5, days) / (5 / 3) ** 0.5,
    "rare large gains": lambda generator, days: generator.exponential(size=days) - 1,
    "rare large losses": lambda generator, days: 1 - generator.exponential(size=days),
}


def shares(nets, ratio):
    """How often the interval holds the true ratio, and how often the PSR against it is above 95 %."""
    held = sure = 0
    for net in nets:
        estimate, likely = sharpe(net), psr(net, ratio)
        held += estimate.low <= ratio <= estimate.high
        # the interval of a PSR holds the PSR of the true ratio, which against itself is 1/2
        assert (likely.low <= 0.5 <= likely.high) == (estimate.low <= ratio <= estimate.high)
        sure += likely.value > 0.95
    return held / len(nets), sure / len(nets)


@pytest.mark.parametrize("days", [20, 60, 250])
def test_sharpe_and_psr(days):
    for name, noise in NOISES.items():
        for ratio in (0.0, 0.15, 0.3):
            generator = np.random.default_rng(days)
            nets = [noise(generator, days) + ratio for _ in range(2 * EXPERIMENTS)]
            held, sure = shares(nets, ratio)
            print(days, name, ratio, held, sure)
            assert 0.92 <= held <= 0.98
            # should be 5 %; rare large losses are missing from many short records, which look too
            # good
            assert sure <= (0.085 if days > 20 else 0.11)


def following(generator, records, days, memory):
    """float64[records, days] of a stationary AR(1) with mean 0 and deviation 1."""
    net = generator.standard_normal((records, days))
    for day in range(1, days):
        net[:, day] = memory * net[:, day - 1] + (1 - memory**2) ** 0.5 * net[:, day]
    return net


@pytest.mark.parametrize("days", [20, 60, 250])
def test_sharpe_and_psr_of_days_that_follow_each_other(days):
    for memory in (0.0, 0.3, 0.6):
        for ratio in (0.0, 0.3):
            nets = following(np.random.default_rng(days), 2 * EXPERIMENTS, days, memory) + ratio
            held, sure = shares(nets, ratio)
            print(days, memory, ratio, held, sure)
            least, most, often = (0.92, 0.97, 0.085) if days > 20 else (0.88, 0.985, 0.13)
            assert least <= held <= most
            assert sure <= often


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6])
def test_a_record_as_long_as_min_trl_says_is_sure_in_half_of_all_cases(memory):
    """The length is where the PSR of the expected record reaches 95 %, so about half of the records
    reach it.
    """
    days, sure = min_track_record_days(DailyMoments(0.15, 2, memory=(1 + memory) / (1 - memory))), 0
    for net in following(np.random.default_rng(5), 2 * EXPERIMENTS, round(days), memory) + 0.15:
        sure += psr(net).value > 0.95
    print(memory, round(days), sure / (2 * EXPERIMENTS))
    assert 0.42 <= sure / (2 * EXPERIMENTS) <= 0.58


@pytest.mark.parametrize(
    ("days", "policies"),
    [
        (60, 1),
        (60, 10),
        (120, 24),
    ],
)
def test_the_size_of_spa(days, policies):
    """No policy is better than the baseline and all are as good: 500 such markets, 3 to 7 %
    rejected at 5 %.
    """
    generator, rejected = np.random.default_rng([days, policies]), 0
    for i in range(500):
        baseline = generator.standard_normal(days)
        noise = generator.standard_normal((days, policies)) * np.linspace(0.5, 3, policies)
        rejected += spa(baseline[:, None] + noise, baseline, draws=500, seed=i).consistent <= 0.05
    print(days, policies, rejected / 500)
    assert 0.03 <= rejected / 500 <= 0.07
