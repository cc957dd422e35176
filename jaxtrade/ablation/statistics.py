"""Paired differences between agents, day by day, and how far chance alone could have brought them.

Two agents of one seed act on the same days, so a day's difference is free of what the market did to both. Its interval
comes from resampling whole days, in blocks of consecutive ones (days that follow each other resemble each other), and
the seeds too: days alone would say how these very policies fare on other days, and nothing of what the next training
run would give. Everything is drawn from stated seeds.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
DRAWS = 10_000
MIN_DAYS = 5  # no interval of fewer


class Interval(NamedTuple):
    """From `low` to `high`, in the unit of the differences."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


class Comparison(NamedTuple):
    """One kind less another, dollars per day.

    mean: over days and seeds. interval: 95 %, days and seeds resampled. deflated: the same, Bonferroni-deflated for
    the number of kinds compared. days_only: 95 %, days resampled, these very seeds. sigmas: the mean in standard
    errors. None where there are too few days (or no spread, for `sigmas`). seeds_above, days_above: how many seeds'
    means, and days' means over seeds, are above 0; of `seeds` and `days`.
    """

    mean: float
    interval: Interval | None
    deflated: Interval | None
    days_only: Interval | None
    sigmas: float | None
    seeds_above: int
    seeds: int
    days_above: int
    days: int

    @property
    def certain(self) -> int:
        """+1 or -1 where the deflated interval lies on one side of 0, else 0."""
        if self.deflated is None:
            return 0
        return int(self.deflated.low > 0) - int(self.deflated.high < 0)


def compare(net: np.ndarray, base: np.ndarray, kinds: int = 1, block: int | None = None, draws: int = DRAWS,
            seed: int = 0) -> Comparison:
    """`net` less `base`, float64[S seeds, D days] dollars each, paired by seed and day.

    kinds: how many such comparisons are looked at together. block: days that are resampled together, default
    `block_days(D)`. seed: of the resampling; the same one resamples the same days for every kind.
    Raises ValueError where the two are no pairs.
    """
    if net.shape != base.shape or net.ndim != 2 or not net.size:
        raise ValueError(f"paired differences need the same seeds and days, got {net.shape} and {base.shape}")
    difference = np.asarray(net, np.float64) - np.asarray(base, np.float64)
    seeds, days = difference.shape
    mean = float(difference.mean())
    both = only = deflated = sigmas = None
    if days >= MIN_DAYS:
        block = block_days(days) if block is None else block
        means = resampled_means(difference, block, draws, seed)
        freedom = degrees_of_freedom(difference, block)
        both = interval(means, mean, freedom)
        deflated = interval(means, mean, freedom, comparisons=kinds)
        averaged = difference.mean(axis=0, keepdims=True)
        only = interval(resampled_means(averaged, block, draws, seed), mean, degrees_of_freedom(averaged, block))
        error = float(means.std())
        sigmas = mean / error if error > 0 else None
    return Comparison(mean, both, deflated, only, sigmas, int((difference.mean(axis=1) > 0).sum()), seeds,
                      int((difference.mean(axis=0) > 0).sum()), days)


def block_days(days: int) -> int:
    """Days per block: the cube root of their number, the rate at which the bootstrap's variance is best (Hall, Horowitz
    and Jing, Biometrika 82, 1995)."""
    return max(1, round(days ** (1 / 3)))


def resampled_means(difference: np.ndarray, block: int, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """float64[draws]: means of float64[S, D] with its days and its seeds drawn anew, both with replacement.

    Days come in blocks of `block` consecutive ones, the last followed by the first (circular block bootstrap, Politis
    and Romano 1992), the last block cut so that there are D again. Where S > 1, seeds are drawn independently of days
    (pigeonhole bootstrap, Owen 2007: a little too wide, never too narrow).
    """
    seeds, days = difference.shape
    if not 1 <= block <= days:
        raise ValueError(f"blocks of {block} days out of {days}")
    generator = np.random.default_rng([seed, days, block])
    blocks = -(-days // block)
    starts = generator.integers(0, days, (draws, blocks))
    chosen = ((starts[:, :, None] + np.arange(block)) % days).reshape(draws, -1)[:, :days]
    cells = (chosen + days * np.arange(draws)[:, None]).ravel()
    lots = np.bincount(cells, minlength=draws * days).reshape(draws, days) / days
    if seeds == 1:
        return lots @ difference[0]
    shares = generator.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return np.einsum("rs,sd,rd->r", shares, difference, lots, optimize=True)


def degrees_of_freedom(difference: np.ndarray, block: int) -> float:
    """How many independent units, less one, the mean's spread was estimated from (Satterthwaite 1946): the days' blocks
    and the seeds, whichever spread more counting more."""
    seeds, days = difference.shape
    parts = [(difference.mean(axis=0).var(ddof=1) / days, max(days / block, 2.0) - 1.0)]
    if seeds > 1:
        parts.append((difference.mean(axis=1).var(ddof=1) / seeds, seeds - 1.0))
    total = sum(variance for variance, _ in parts)
    if total <= 0:
        return parts[0][1]
    return total**2 / sum(variance**2 / freedom for variance, freedom in parts)


def interval(means: np.ndarray, mean: float, freedom: float, level: float = LEVEL, comparisons: int = 1) -> Interval:
    """Percentiles of resampled means, stretched about the mean for the few units that they come from.

    The stretch is t / z * sqrt(n / (n - 1)), n = freedom + 1, as in Hesterberg's expanded percentile interval (The
    American Statistician 69, 2015), which percentiles alone are too narrow by. comparisons: of how many the chance of
    one error is to be 1 - level (Bonferroni): t is taken there, so that no percentile beyond the draws is needed.
    """
    from scipy.stats import t as student  # a second to load

    tail = (1.0 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    stretch = (float(student.ppf(1 - tail / comparisons, freedom)) / NormalDist().inv_cdf(1 - tail)
               * math.sqrt((freedom + 1) / freedom))
    return Interval(float(mean - stretch * (mean - low)), float(mean + stretch * (high - mean)))
