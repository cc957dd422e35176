"""The interquartile mean over seeds, with an interval over seeds and days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.blocks import DRAWS, block_count, block_days, day_lots
from jaxtrade.evaluation.statistics.estimate import IntervalEstimate, finite, too_few
from jaxtrade.evaluation.statistics.intervals import LEVEL, MIN_DAYS


class Part(NamedTuple):
    """What one kind of unit adds to the spread of resampled figures.

    variance: of the figures when only these units are drawn again. units: how many are drawn from
        in each stratum.
    strata: how many draw on their own.
    """

    variance: float
    units: float
    strata: int = 1


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean of float[..., S] over the last axis: the mean without the lowest and the
    highest quarter.

    From each end floor(S / 4) values are left out, as `scipy.stats.trim_mean(values, 0.25)` does.
    One broken seed does not move it, and it uses more of the seeds than the median (Agarwal et al.,
    NeurIPS 2021).
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def iqm_estimate(
    net: np.ndarray,
    fold: np.ndarray | None = None,
    *,
    rule: bool = False,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> IntervalEstimate:
    """Interquartile mean over seeds of the mean daily net profit, in the unit of `net`, with its
    interval.

    net: float[S, D], dollars by seed and day. fold: int[D], the fold of each day: policies of
        different folds were
    trained apart, so a draw picks S seeds with replacement in each fold on its own (stratified
    bootstrap). It picks days, the same for all seeds, in blocks within the fold. A fold below
    `MIN_DAYS` days draws days together with the one before it. None: one fold. rule: the agent is a
    rule that no training seed changes, so only days are drawn.

    The folds are taken as given: how much the market changes from fold to fold is not in the
    interval. No interval below `MIN_DAYS` days or, unless `rule`, below `LEAST_SEEDS` seeds, or
    where nothing varies. Raises ValueError where the shapes do not fit or a figure is not finite.
    """
    net = finite(net, "[S, D]", 2)
    seeds, days = net.shape
    value = float(iqm(net.mean(axis=1)))
    if why := too_few(days, *([] if rule else [seeds])):
        return IntervalEstimate(value, None, None, why)
    if np.ptp(net) == 0:
        return IntervalEstimate(
            value, None, None, "every day earns the same with every seed, which shows no spread"
        )
    folds = _folds(fold, days)
    generator = np.random.default_rng([seed, days, block_days(days)])
    lots, blocks = _lots_by_fold(generator, folds, days, draws)
    # [draws, S] mean daily net: with both drawn again, with only days, with only seeds
    both, by_day, by_seed = np.zeros((3, draws, seeds))
    for chosen in folds:
        means = lots[:, chosen] @ net[:, chosen].T
        picked = np.arange(seeds) if rule else generator.integers(0, seeds, (draws, seeds))
        both += np.take_along_axis(means, np.broadcast_to(picked, means.shape), axis=1)
        by_day += means
        by_seed += (net[:, chosen].sum(axis=1) / days)[picked]
    parts = [Part(float(iqm(by_day).var()), float(np.mean(blocks)), len(blocks))]
    if not rule:
        parts.append(Part(float(iqm(by_seed).var()), seeds, len(folds)))
    low, high = stretched(iqm(both), value, parts, level)
    return IntervalEstimate(value, low, high, None)


def stretched(
    values: np.ndarray, value: float, parts: Sequence[Part], level: float = LEVEL
) -> tuple[float, float]:
    """Percentile interval of resampled `values`, stretched about `value` to correct for a small
    number of units.

    A bootstrap of u units has (u - 1) / u of the right variance, and few units need Student's t in
    place of z (Hesterberg, The American Statistician 69, 2015). With several parts v_i of strata
    k_i and units u_i, c_i = v_i u_i / (u_i - 1), the factor is t(f) / z sqrt(sum c / sum v), f =
    (sum c)^2 / sum(c_i^2 / (k_i (u_i - 1))) (Satterthwaite 1946). Where nothing varies, both ends
    are `value`.
    """
    total = sum(part.variance for part in parts)
    if total <= 0:
        return value, value
    corrected = [part.variance * part.units / (part.units - 1) for part in parts]
    freedom = sum(corrected) ** 2 / sum(
        c**2 / (part.strata * (part.units - 1)) for c, part in zip(corrected, parts, strict=True)
    )
    tail = (1 - level) / 2
    factor = student_over_normal(tail, freedom) * math.sqrt(sum(corrected) / total)
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(value - factor * (value - low)), float(value + factor * (high - value))


def student_over_normal(tail: float, freedom: float) -> float:
    """Student's quantile of 1 - tail, divided by that of a normal distribution."""
    from scipy.special import stdtrit  # takes a moment to load

    return float(stdtrit(freedom, 1 - tail)) / NormalDist().inv_cdf(1 - tail)


def _folds(fold: np.ndarray | None, days: int) -> list[np.ndarray]:
    """The days of each fold, as positions."""
    if fold is None:
        return [np.arange(days)]
    fold = np.asarray(fold)
    if fold.shape != (days,):
        raise ValueError(f"expected the fold of each of {days} days, got shape {fold.shape}")
    return [np.flatnonzero(fold == one) for one in np.unique(fold)]


def _lots_by_fold(
    generator: np.random.Generator, folds: Sequence[np.ndarray], days: int, draws: int
) -> tuple[np.ndarray, list[float]]:
    """(float64[draws, D] lots of `day_lots`, drawn within each fold; the number of blocks in each).
    A fold that is too short for an interval of its own, or that follows such a one, is joined to
    the one before it."""
    groups: list[np.ndarray] = []
    for fold in folds:
        if groups and min(len(groups[-1]), len(fold)) < MIN_DAYS:
            groups[-1] = np.concatenate([groups[-1], fold])
        else:
            groups.append(fold)
    lots, blocks = np.zeros((draws, days)), []
    for group in groups:
        block = block_days(len(group))
        lots[:, group] = day_lots(generator, len(group), block, draws) * (len(group) / days)
        blocks.append(block_count(len(group), block))
    return lots, blocks
