"""Means over days and seeds, with intervals from days drawn again in blocks of consecutive days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from jaxtrade.text import state_shortfall

DRAWS = 10_000


def block_days(days: int) -> int:
    """Return days per block: the cube root of the number of days.

    This rate is optimal for the bootstrap's estimate of a variance (Hall, Horowitz and Jing,
    Biometrika 82, 1995).
    """
    return max(1, round(days ** (1 / 3)))


def block_count(days: int, block: int) -> float:
    """Return how many blocks stand behind the days, as units of an interval.

    It is at least 2, or nothing could be said at all.
    """
    return max(days / block, 2.0)


def day_blocks(
    generator: np.random.Generator, count: int, length: int, days: int, block: int
) -> np.ndarray:
    """Draw days 0..days - 1 in blocks of consecutive ones (int64[count, length]).

    The first day follows the last (circular block bootstrap, Politis and Romano 1992). The last
    block is cut.
    """
    starts = generator.integers(0, days, (count, -(-length // block)))
    return ((starts[:, :, None] + np.arange(block)) % days).reshape(count, -1)[:, :length]


def day_lots(generator: np.random.Generator, days: int, block: int, draws: int) -> np.ndarray:
    """Draw how often each draw contains each day, divided by the number of days.

    float64[draws, days]; rows sum to 1. A product of it with daily metrics gives their means over
    the drawn days. A draw has as many days as there are, in blocks (`day_blocks`).
    """
    chosen = day_blocks(generator, draws, days, days, block)
    cells = (chosen + days * np.arange(draws)[:, None]).ravel()
    return np.bincount(cells, minlength=draws * days).reshape(draws, days) / days


def resampled_means(
    difference: np.ndarray, block: int, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Return means of float64[S, D] over days and seeds drawn with replacement (float64[draws]).

    Days are drawn in blocks (`day_lots`). Where S > 1, seeds are drawn independently of days
    (pigeonhole bootstrap, Owen 2007: a little too wide, never too narrow). Raises ValueError where
    `block` is not from 1 to D.
    """
    seeds, days = difference.shape
    if not 1 <= block <= days:
        raise ValueError(f"blocks of {block} days out of {days}")
    generator = np.random.default_rng([seed, days, block])
    lots = day_lots(generator, days, block, draws)
    if seeds == 1:
        return lots @ difference[0]
    shares = generator.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return np.einsum("rs,sd,rd->r", shares, difference, lots, optimize=True)


LEVEL = 0.95
TAIL = (1 - LEVEL) / 2  # on each side of an interval
MIN_DAYS = 5  # with fewer days there is no interval


class Interval(NamedTuple):
    """The interval from `low` to `high`, both included, in the unit of the differences."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


def degrees_of_freedom(difference: np.ndarray, block: int) -> float:
    """Return degrees of freedom of the estimated spread of the mean (Satterthwaite 1946).

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


def interval(means: np.ndarray, mean: float, freedom: float, comparisons: int = 1) -> Interval:
    """Return the percentile interval of resampled means, stretched about `mean`.

    The stretch corrects for a small number of units. Plain percentiles are too narrow by the factor
    t / z * sqrt(n / (n - 1)), n = freedom + 1, so the interval is stretched by it (Hesterberg's
    expanded percentile interval, The American Statistician 69, 2015).

    comparisons: number of intervals for which the chance of any error is to be 1 - LEVEL
        (Bonferroni). Only t uses the corrected level, so no percentile beyond the range of the
        draws is needed.
    """
    factor = student_over_normal(freedom, comparisons) * math.sqrt((freedom + 1) / freedom)
    return _stretched_by(factor, means, mean)


def _stretched_by(factor: float, values: np.ndarray, value: float) -> Interval:
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return Interval(float(value - factor * (value - low)), float(value + factor * (high - value)))


# Fewer seeds have no interval. `compare` needs fewer (`MIN_SEEDS`): it takes means, and an
# interquartile mean of three or four seeds is hardly different from their median.
LEAST_SEEDS = 5


class IntervalEstimate(NamedTuple):
    """An estimate and its interval, both ends included, in the unit of the estimate.

    value: None where the estimate is undefined.
    low, high: None where there is no such end.
    why: the reason where any of the three is None, else None.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str | None = None


def too_few(days: int, *seeds: int) -> str | None:
    """Say why there is no interval of so many days and seeds; None where there is one."""
    if days < MIN_DAYS:
        return f"an interval {state_shortfall(MIN_DAYS, 'day', days)}"
    if seeds and min(seeds) < LEAST_SEEDS:
        return f"an interval {state_shortfall(LEAST_SEEDS, 'seed', min(seeds))}"
    return None


def finite(values: np.ndarray, shape: str, dimensions: int) -> np.ndarray:
    """Return `values` as float64.

    Raises ValueError where they have not so many dimensions, are empty, or are not finite.
    """
    checked = np.asarray(values, np.float64)
    if checked.ndim != dimensions or not checked.size:
        raise ValueError(f"expected figures of shape {shape}, got {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError(f"figures of shape {shape} hold a value that is not finite")
    return checked


class SpreadPart(NamedTuple):
    """What one kind of unit adds to the spread of resampled values.

    variance: of the values when only these units are drawn again.
    units: how many are drawn from in each stratum.
    strata: how many draw on their own.
    """

    variance: float
    units: float
    strata: int = 1


def iqm(values: np.ndarray) -> np.ndarray:
    """Return the interquartile mean of float[..., S] over the last axis.

    It is the mean without the lowest and the highest quarter. From each end floor(S / 4) values are
    left out, as `scipy.stats.trim_mean(values, 0.25)` does. One broken seed does not move it, and
    it uses more of the seeds than the median (Agarwal et al., NeurIPS 2021).
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def iqm_estimate(
    net: np.ndarray,
    fold: np.ndarray | None = None,
    *,
    rule: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> IntervalEstimate:
    """Estimate the interquartile mean over seeds of the mean daily net profit, with its interval.

    The unit is that of `net`. The folds are taken as given: how much the market changes from fold
    to fold is not in the interval. No interval below `MIN_DAYS` days or, unless `rule`, below
    `LEAST_SEEDS` seeds, or where nothing varies. Raises ValueError where the shapes do not fit or a
    value is not finite.

    Args:
        net: float[S, D], dollars by seed and day.
        fold: int[D], the fold of each day; None: one fold. Policies of different folds were trained
            apart, so a draw picks S seeds with replacement in each fold on its own (stratified
            bootstrap). It picks days, the same for all seeds, in blocks within the fold. A fold
            below `MIN_DAYS` days draws days together with the one before it.
        rule: the agent is a rule that no training seed changes, so only days are drawn.
    """
    net = finite(net, "[S, D]", 2)
    seeds, days = net.shape
    value = float(iqm(net.mean(axis=1)))
    if why := too_few(days, *([] if rule else [seeds])):
        return IntervalEstimate(value, why=why)
    if np.ptp(net) == 0:
        return IntervalEstimate(
            value, why="every day earns the same with every seed, which shows no spread"
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
    parts = [SpreadPart(float(iqm(by_day).var()), float(np.mean(blocks)), len(blocks))]
    if not rule:
        parts.append(SpreadPart(float(iqm(by_seed).var()), seeds, len(folds)))
    low, high = stretch_interval(iqm(both), value, parts)
    return IntervalEstimate(value, low, high)


def stretch_interval(
    values: np.ndarray, value: float, parts: Sequence[SpreadPart]
) -> tuple[float, float]:
    """Return the percentile interval of resampled `values`, stretched about `value`.

    The stretch corrects for a small number of units. A bootstrap of u units has (u - 1) / u of the
    right variance, and few units need Student's t in place of z (Hesterberg, The American
    Statistician 69, 2015). With several parts v_i of strata k_i and units u_i, c_i = v_i u_i / (u_i
    - 1), the factor is t(f) / z sqrt(sum c / sum v), f = (sum c)^2 / sum(c_i^2 / (k_i (u_i - 1)))
    (Satterthwaite 1946). Where nothing varies, both ends are `value`.
    """
    total = sum(part.variance for part in parts)
    if total <= 0:
        return value, value
    corrected = [part.variance * part.units / (part.units - 1) for part in parts]
    freedom = sum(corrected) ** 2 / sum(
        c**2 / (part.strata * (part.units - 1)) for c, part in zip(corrected, parts, strict=True)
    )
    factor = student_over_normal(freedom) * math.sqrt(sum(corrected) / total)
    return _stretched_by(factor, values, value)


def student_over_normal(freedom: float, comparisons: int = 1) -> float:
    """Return Student's quantile at an end of an interval over that of a normal distribution.

    comparisons: by which the tail of Student's is divided.
    """
    from scipy.special import stdtrit  # takes a moment to load

    return float(stdtrit(freedom, 1 - TAIL / comparisons)) / NormalDist().inv_cdf(1 - TAIL)


def _folds(fold: np.ndarray | None, days: int) -> list[np.ndarray]:
    """Return the days of each fold, as positions."""
    if fold is None:
        return [np.arange(days)]
    fold = np.asarray(fold)
    if fold.shape != (days,):
        raise ValueError(f"expected the fold of each of {days} days, got shape {fold.shape}")
    return [np.flatnonzero(fold == one) for one in np.unique(fold)]


def _lots_by_fold(
    generator: np.random.Generator, folds: Sequence[np.ndarray], days: int, draws: int
) -> tuple[np.ndarray, list[float]]:
    """Draw lots of `day_lots` within each fold, and count the blocks in each.

    The lots are float64[draws, D]. A fold that is too short for an interval of its own, or that
    follows such a one, is joined to the one before it.
    """
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


# With fewer seeds there is no interval: two show their spread too badly. Where seeds differ as much
# as days, a 95 % interval of two held the truth 87 to 90 times in 100
# (tests/evaluation/statistics/test_comparison.py simulates it).
MIN_SEEDS = 3


class Comparison(NamedTuple):
    """One kind minus another, in dollars per day.

    mean: over days and seeds.
    interval: 95 %, with days and seeds resampled.
    deflated: the same, with a Bonferroni correction for the number of kinds compared.
    days_only: 95 %, with days resampled and the seeds fixed.
    sigmas: the mean in standard errors. All four are None with fewer than `MIN_DAYS` days, and all
        but `days_only` with fewer than `MIN_SEEDS` seeds; `sigmas` also where there is no spread.
    seeds_above: of `seeds`, how many have a mean above 0.
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
        low, high = self.deflated or (0, 0)
        return int(low > 0) - int(high < 0)


def compare(
    net: np.ndarray,
    base: np.ndarray,
    kinds: int = 1,
    block: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare `net` minus `base`, both float64[S seeds, D days] in dollars, paired by seed and day.

    Args:
        kinds: number of comparisons read together.
        block: number of consecutive days resampled together, by default `block_days(D)`.
        draws: number of bootstrap samples.
        seed: of the resampling; equal seeds resample the same days for every kind.
    Raises ValueError where the shapes differ or are empty.
    """
    if net.shape != base.shape or net.ndim != 2 or not net.size:
        raise ValueError(
            f"paired differences need the same seeds and days, got {net.shape} and {base.shape}"
        )
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
        averaged = difference.mean(
            axis=0, keepdims=True
        )  # one row, so that only days are resampled
        only = interval(
            resampled_means(averaged, block, draws, seed), mean, degrees_of_freedom(averaged, block)
        )
    return Comparison(
        mean,
        both,
        deflated,
        only,
        sigmas,
        int((difference.mean(axis=1) > 0).sum()),
        seeds,
        int((difference.mean(axis=0) > 0).sum()),
        days,
    )


def holm(p: np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values (float64[n]; Scandinavian Journal of Statistics 6, 1979).

    With p sorted upwards, the i-th of n is max over j <= i of min(1, (n - j + 1) p_j). To reject
    where the adjusted p is at most alpha keeps the chance of any false rejection at or below alpha,
    however the tests depend on each other. p: float[n]. Raises ValueError where a p is not from 0
    to 1.
    """
    values = np.asarray(p, np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p-values are a vector of numbers from 0 to 1, got {values}")
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


ONE_POLICY = "a single policy either does better or does not; it needs several seeds"  # why a caller shows no figure
_GRID = 10_001  # probabilities that are tried as ends of the interval


def wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the share of pairs in which x is above y (float64[...]).

    A tie counts one half. x: float[..., S]. y: float[..., S'].
    """
    x, y = x[..., :, None], y[..., None, :]
    return (x > y).mean(axis=(-1, -2)) + (x == y).mean(axis=(-1, -2)) / 2


def probability_of_improvement(
    x: np.ndarray,
    y: np.ndarray,
    *,
    rule: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> IntervalEstimate:
    """Estimate P(a seed of x earns more than a seed of y on the same days), with its interval.

    A tie counts one half. The value is the share of pairs of seeds whose mean over days is higher
    in x (Mann and Whitney's statistic; Agarwal et al., NeurIPS 2021).

    The interval holds every probability p with |p - value| <= z sqrt(V(p) + W(p)). V is the
    variance that seeds give at p: p (1 - p) / S against a rule, else that of Newcombe's method 5
    (Statistics in Medicine 25, 2006). W is the variance under resampled blocks of days, with the
    factor for few blocks. A plain bootstrap of seeds fails here: where all seeds of x beat all of y
    it gives the interval [1, 1], however few the seeds. No interval below `MIN_DAYS` days, below
    `LEAST_SEEDS` seeds of x or, unless `rule`, of y. Raises ValueError where the shapes do not fit
    or a value is not finite.

    Args:
        x: float[S, D], dollars by seed and day.
        y: float[S', D], dollars by seed and day, on the same days.
        rule: y is a rule that no training seed changes, such as a baseline; its rows must agree.
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
        return IntervalEstimate(value, why=why)
    if (
        np.ptp(x, axis=0).max() == 0
        and (rule or np.ptp(y, axis=0).max() == 0)
        and (x[0] == y[0]).all()
    ):
        return IntervalEstimate(value, why="both do the same on every day with every seed")
    block = block_days(days)
    lots = day_lots(np.random.default_rng([seed, days, block]), days, block, draws)
    blocks = block_count(days, block)
    by_day = (
        float(wins(lots @ x.T, lots @ y.T).var())
        * blocks
        / (blocks - 1)
        * student_over_normal(blocks - 1) ** 2
    )
    tried = np.linspace(0.0, 1.0, _GRID)
    spread = _seed_variance(tried, len(x), None if rule else len(y)) + by_day * _shrink(
        tried, value
    )
    inside = tried[np.abs(tried - value) <= NormalDist().inv_cdf(1 - TAIL) * np.sqrt(spread)]
    return IntervalEstimate(
        value,
        float(min(inside.min(initial=1.0), value)),
        float(max(inside.max(initial=0.0), value)),
    )


def _seed_variance(p: np.ndarray, x: int, y: int | None) -> np.ndarray:
    """Return the variance of the share of pairs where its expectation is `p`.

    The pairs are of x seeds against y, or against a rule (None).
    """
    if y is None:
        return p * (1 - p) / x
    half = (x + y) / 2 - 1
    return p * (1 - p) * (1 + half * ((1 - p) / (2 - p) + p / (1 + p))) / (x * y)


def _shrink(p: np.ndarray, value: float) -> np.ndarray:
    """Return how much of the variance over days, known at `value`, there is at `p`.

    It is less towards 0 and 1, and never more.
    """
    if not 0 < value < 1:
        return np.ones_like(p)
    return np.minimum(p * (1 - p) / (value * (1 - value)), 1.0)
