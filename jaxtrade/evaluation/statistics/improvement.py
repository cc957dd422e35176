"""The probability that a training run of one kind earns more than a training run of another."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from jaxtrade.evaluation.statistics.aggregate import student_over_normal
from jaxtrade.evaluation.statistics.blocks import DRAWS, block_count, block_days, day_lots
from jaxtrade.evaluation.statistics.estimate import IntervalEstimate, finite, too_few
from jaxtrade.evaluation.statistics.intervals import LEVEL

ONE_POLICY = "a single policy either does better or does not; it needs several seeds"  # why a caller shows no figure
_GRID = 10_001  # probabilities that are tried as ends of the interval


def wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """float64[...]: share of pairs of float[..., S] and float[..., S'] in which x is above y; a tie
    counts one half.
    """
    x, y = x[..., :, None], y[..., None, :]
    return (x > y).mean(axis=(-1, -2)) + (x == y).mean(axis=(-1, -2)) / 2


def probability_of_improvement(
    x: np.ndarray,
    y: np.ndarray,
    *,
    rule: bool = False,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> IntervalEstimate:
    """P(a seed of x earns more than a seed of y on the same days), a tie counting one half, with
    its interval.

    x: float[S, D], y: float[S', D], dollars by seed and day, on the same days. The value is the
        share of pairs of
    seeds whose mean over days is higher in x (Mann and Whitney's statistic; Agarwal et al., NeurIPS
    2021). rule: y is a rule that no training seed changes, such as a baseline; its rows must agree.

    The interval holds every probability p with |p - value| <= z sqrt(V(p) + W(p)). V is the
    variance that seeds give at
    p: p (1 - p) / S against a rule, else that of Newcombe's method 5 (Statistics in Medicine 25,
        2006). W is the
    variance under resampled blocks of days, with the factor for few blocks. A plain bootstrap of
    seeds fails here: where all seeds of x beat all of y it gives the interval [1, 1], however few
    the seeds. No interval below `MIN_DAYS` days, below `LEAST_SEEDS` seeds of x or, unless `rule`,
    of y. Raises ValueError where the shapes do not fit or a figure is not finite.
    """
    x, y = finite(x, "[S, D]", 2), finite(y, "[S, D]", 2)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the days must be the same, got {x.shape[1]} and {y.shape[1]} of them")
    if rule and (y != y[0]).any():
        raise ValueError("`rule` says that no seed changes y, but its rows differ")
    y = y[:1] if rule else y
    days = x.shape[1]
    value = float(wins(x.mean(axis=1), y.mean(axis=1)))
    if why := too_few(days, len(x), *([] if rule else [len(y)])):
        return IntervalEstimate(value, None, None, why)
    if (
        np.ptp(x, axis=0).max() == 0
        and (rule or np.ptp(y, axis=0).max() == 0)
        and (x[0] == y[0]).all()
    ):
        return IntervalEstimate(value, None, None, "both do the same on every day with every seed")
    block = block_days(days)
    lots = day_lots(np.random.default_rng([seed, days, block]), days, block, draws)
    blocks = block_count(days, block)
    tail = (1 - level) / 2
    by_day = (
        float(wins(lots @ x.T, lots @ y.T).var())
        * blocks
        / (blocks - 1)
        * student_over_normal(tail, blocks - 1) ** 2
    )
    tried = np.linspace(0.0, 1.0, _GRID)
    spread = _seed_variance(tried, len(x), None if rule else len(y)) + by_day * _shrink(
        tried, value
    )
    inside = tried[np.abs(tried - value) <= NormalDist().inv_cdf(1 - tail) * np.sqrt(spread)]
    return IntervalEstimate(
        value,
        float(min(inside.min(initial=1.0), value)),
        float(max(inside.max(initial=0.0), value)),
        None,
    )


def _seed_variance(p: np.ndarray, x: int, y: int | None) -> np.ndarray:
    """Variance of the share of pairs where its expectation is `p`: of x seeds against y, or against
    a rule (None).
    """
    if y is None:
        return p * (1 - p) / x
    half = (x + y) / 2 - 1
    return p * (1 - p) * (1 + half * ((1 - p) / (2 - p) + p / (1 + p))) / (x * y)


def _shrink(p: np.ndarray, value: float) -> np.ndarray:
    """How much of the variance over days, known at `value`, there is at `p`: less towards 0 and 1,
    and never more.
    """
    if not 0 < value < 1:
        return np.ones_like(p)
    return np.minimum(p * (1 - p) / (value * (1 - value)), 1.0)
