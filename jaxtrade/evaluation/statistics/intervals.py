"""Intervals: percentiles of resampled figures, stretched where few units stand behind them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.blocks import block_count

LEVEL = 0.95
MIN_DAYS = 5  # with fewer days there is no interval


class Interval(NamedTuple):
    """The interval from `low` to `high`, both included, in the unit of the differences."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


def degrees_of_freedom(difference: np.ndarray, block: int) -> float:
    """Degrees of freedom of the estimated spread of the mean (Satterthwaite 1946).

    The units are the blocks of days and the seeds. The one with the larger variance counts more.
    """
    seeds, days = difference.shape
    parts = [(difference.mean(axis=0).var(ddof=1) / days, block_count(days, block) - 1.0)]
    if seeds > 1:
        parts.append((difference.mean(axis=1).var(ddof=1) / seeds, seeds - 1.0))
    total = sum(variance for variance, _ in parts)
    if total <= 0:
        return parts[0][1]
    return total**2 / sum(variance**2 / freedom for variance, freedom in parts)


def interval(
    means: np.ndarray, mean: float, freedom: float, level: float = LEVEL, comparisons: int = 1
) -> Interval:
    """Percentile interval of resampled means, stretched about `mean` to correct for a small number
    of units.

    Plain percentiles are too narrow by the factor t / z * sqrt(n / (n - 1)), n = freedom + 1, so
    the interval is stretched by it (Hesterberg's expanded percentile interval, The American
    Statistician 69, 2015).

    comparisons: number of intervals for which the chance of any error is to be 1 - level
        (Bonferroni). Only t uses the
    corrected level, so no percentile beyond the range of the draws is needed.
    """
    from scipy.stats import t as student  # imported here because it takes about a second to load

    tail = (1.0 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    stretch = (
        float(student.ppf(1 - tail / comparisons, freedom))
        / NormalDist().inv_cdf(1 - tail)
        * math.sqrt((freedom + 1) / freedom)
    )
    return Interval(float(mean - stretch * (mean - low)), float(mean + stretch * (high - mean)))
