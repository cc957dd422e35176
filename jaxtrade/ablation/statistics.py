"""Paired differences between agents, day by day, with intervals that show how much may be due to chance.

Two agents of one seed act on the same days, so a day's difference removes what the market did to both. The intervals
come from a bootstrap over days and seeds. Days are resampled in blocks of consecutive days, because neighbouring days
resemble each other. Seeds are resampled too: days alone would only show how these same policies fare on other days, not
what another training run would give. All draws use stated random seeds.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
DRAWS = 10_000
MIN_DAYS = 5  # with fewer days there is no interval
# Nor with fewer seeds: two show their spread too badly. Where seeds differ as much as days, a 95 % interval of two
# held the truth 87 to 90 times in 100 (tests/ablation/test_statistics.py simulates it).
MIN_SEEDS = 3


class Interval(NamedTuple):
    """The interval from `low` to `high`, both included, in the unit of the differences."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


class Comparison(NamedTuple):
    """One kind minus another, in dollars per day.

    mean: over days and seeds. interval: 95 %, with days and seeds resampled. deflated: the same, with a Bonferroni
    correction for the number of kinds compared. days_only: 95 %, with days resampled and the seeds fixed. sigmas: the
    mean in standard errors. All four are None with fewer than `MIN_DAYS` days, and all but `days_only` with fewer than
    `MIN_SEEDS` seeds; `sigmas` also where there is no spread. seeds_above: of `seeds`, how many have a mean above 0.
    days_above: of `days`, how many have a mean over seeds above 0.
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
    """Compare `net` minus `base`, both float64[S seeds, D days] in dollars, paired by seed and day.

    kinds: number of comparisons read together. block: number of consecutive days resampled together, by default
    `block_days(D)`. draws: number of bootstrap samples. seed: of the resampling; equal seeds resample the same days for
    every kind.
    Raises ValueError where the shapes differ or are empty.
    """
    if net.shape != base.shape or net.ndim != 2 or not net.size:
        raise ValueError(f"paired differences need the same seeds and days, got {net.shape} and {base.shape}")
    difference = np.asarray(net, np.float64) - np.asarray(base, np.float64)
    seeds, days = difference.shape
    mean = float(difference.mean())
    both = only = deflated = sigmas = None
    block = block_days(days) if block is None else block
    if days >= MIN_DAYS and seeds >= MIN_SEEDS:
        means = resampled_means(difference, block, draws, seed)
        freedom = degrees_of_freedom(difference, block)
        both = interval(means, mean, freedom)
        deflated = interval(means, mean, freedom, comparisons=kinds)
        error = float(means.std())
        sigmas = mean / error if error > 0 else None
    if days >= MIN_DAYS:
        averaged = difference.mean(axis=0, keepdims=True)  # one row, so that only days are resampled
        only = interval(resampled_means(averaged, block, draws, seed), mean, degrees_of_freedom(averaged, block))
    return Comparison(mean, both, deflated, only, sigmas, int((difference.mean(axis=1) > 0).sum()), seeds,
                      int((difference.mean(axis=0) > 0).sum()), days)


def block_days(days: int) -> int:
    """Days per block: the cube root of the number of days.

    This rate is optimal for the bootstrap's estimate of a variance (Hall, Horowitz and Jing, Biometrika 82, 1995).
    """
    return max(1, round(days ** (1 / 3)))


def resampled_means(difference: np.ndarray, block: int, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """float64[draws]: means of float64[S, D] over days and seeds that are drawn with replacement.

    Days are drawn in blocks of `block` consecutive days, where the first day follows the last (circular block
    bootstrap, Politis and Romano 1992). The last block is cut so that a sample has D days. Where S > 1, seeds are drawn
    independently of days (pigeonhole bootstrap, Owen 2007: a little too wide, never too narrow).
    Raises ValueError where `block` is not from 1 to D.
    """
    seeds, days = difference.shape
    if not 1 <= block <= days:
        raise ValueError(f"blocks of {block} days out of {days}")
    generator = np.random.default_rng([seed, days, block])
    blocks = -(-days // block)
    starts = generator.integers(0, days, (draws, blocks))
    # chosen[r, i]: the i-th day of draw r. lots[r, d]: how often draw r contains day d, over D.
    chosen = ((starts[:, :, None] + np.arange(block)) % days).reshape(draws, -1)[:, :days]
    cells = (chosen + days * np.arange(draws)[:, None]).ravel()
    lots = np.bincount(cells, minlength=draws * days).reshape(draws, days) / days
    if seeds == 1:
        return lots @ difference[0]
    shares = generator.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return np.einsum("rs,sd,rd->r", shares, difference, lots, optimize=True)


def degrees_of_freedom(difference: np.ndarray, block: int) -> float:
    """Degrees of freedom of the estimated spread of the mean (Satterthwaite 1946).

    The units are the blocks of days and the seeds. The one with the larger variance counts more.
    """
    seeds, days = difference.shape
    parts = [(difference.mean(axis=0).var(ddof=1) / days, max(days / block, 2.0) - 1.0)]
    if seeds > 1:
        parts.append((difference.mean(axis=1).var(ddof=1) / seeds, seeds - 1.0))
    total = sum(variance for variance, _ in parts)
    if total <= 0:
        return parts[0][1]
    return total**2 / sum(variance**2 / freedom for variance, freedom in parts)


def interval(means: np.ndarray, mean: float, freedom: float, level: float = LEVEL, comparisons: int = 1) -> Interval:
    """Percentile interval of resampled means, stretched about `mean` to correct for a small number of units.

    Plain percentiles are too narrow by the factor t / z * sqrt(n / (n - 1)), n = freedom + 1, so the interval is
    stretched by it (Hesterberg's expanded percentile interval, The American Statistician 69, 2015).

    comparisons: number of intervals for which the chance of any error is to be 1 - level (Bonferroni). Only t uses the
    corrected level, so no percentile beyond the range of the draws is needed.
    """
    from scipy.stats import t as student  # imported here because it takes about a second to load

    tail = (1.0 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    stretch = (float(student.ppf(1 - tail / comparisons, freedom)) / NormalDist().inv_cdf(1 - tail)
               * math.sqrt((freedom + 1) / freedom))
    return Interval(float(mean - stretch * (mean - low)), float(mean + stretch * (high - mean)))
