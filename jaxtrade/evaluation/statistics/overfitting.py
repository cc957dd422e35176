"""The probability of backtest overfitting (PBO), by combinatorially symmetric cross-validation
(CSCV).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.estimate import finite

MIN_TRIALS = 10  # of fewer trials the rank of one says next to nothing
NULL_DRAWS = 200
_NULL_WAYS = (
    1000  # ways of halving the days that a null matrix tries: all of S <= 12, a sample above
)
_FLAT = 1e-12  # a half with a smaller share of its trial's spread does not vary, up to rounding


class Overfitting(NamedTuple):
    """value: PBO, from 0 to 1. null_low, null_high: 5 and 95 % points of the PBO of trials without
    skill (`pbo` says which). why: the reason where they are None, else None.

    Within the band, the trials cannot be told from noise. PBO has no interval: its ways of halving
    share their days.
    """

    value: float | None
    null_low: float | None
    null_high: float | None
    why: str | None


def pbo(net: np.ndarray, splits: int = 16, draws: int = NULL_DRAWS, seed: int = 0) -> Overfitting:
    """How often the trial that is best in one half of the days is below the median of trials in the
    other half.

    net: float[D, N], daily net profit of N trials: days down, trials across. The days are cut into
        `splits` blocks of
    consecutive days, the first ones a day longer where they do not divide. Every way of taking half
    of the blocks is in-sample once, the rest is out-of-sample. PBO is the share of ways in which
    the trial with the highest Sharpe ratio in-sample has a rank below (N + 1) / 2 out-of-sample
    (Bailey, Borwein, Lopez de Prado and Zhu, Journal of Computational Finance 20, 2017). A half in
    which a trial earns the same every day has ratio 0, so never to trade is no skill. With odd N,
    the median trial is not below the median, so noise gives (N - 1) / 2N on average.

    The null band is simulated with `draws` matrices from `seed`: each day less its trial's mean,
    and all trials of a day mirrored together with probability 1/2. That keeps the shape, the tails,
    and how trials resemble each other.

    n/a below `MIN_TRIALS` trials, below two days a block, and where no trial varies.
    Raises ValueError where `splits` is odd or below 2, or a figure is not finite.
    """
    net = finite(net, "[D, N]", 2)
    days, trials = net.shape
    if splits < 2 or splits % 2:
        raise ValueError(
            f"the days are cut into an even number of blocks, at least 2, got {splits}"
        )
    if why := _undefined(net, splits):
        return Overfitting(None, None, None, why)
    value = below_median(net, splits, halves(splits))
    generator = np.random.default_rng([seed, days, trials, splits])
    ways = halves(splits)
    if len(ways) > _NULL_WAYS:
        ways = ways[np.sort(generator.choice(len(ways), _NULL_WAYS, replace=False))]
    centred = net - net.mean(axis=0)
    null = [
        below_median(centred * generator.choice([-1.0, 1.0], (days, 1)), splits, ways)
        for _ in range(draws)
    ]
    low, high = np.quantile(null, [0.05, 0.95])
    return Overfitting(value, float(low), float(high), None)


def halves(splits: int) -> np.ndarray:
    """float64[C(S, S / 2), S]: 1 where a block is in-sample, one row for each way of taking half of
    the blocks.
    """
    chosen = np.array(list(itertools.combinations(range(splits), splits // 2)))
    inside = np.zeros((len(chosen), splits))
    np.put_along_axis(inside, chosen, 1.0, axis=1)
    return inside


def below_median(net: np.ndarray, splits: int, ways: np.ndarray) -> float:
    """Share of `ways`, float64[W, S], in which the best trial in-sample is below the median
    out-of-sample.

    All halves at once, by matrix products: a half's ratio needs only its number of days, its sum
    and its sum of squares. Deviations from the trial's mean over all days are summed, so that no
    digits cancel.
    """
    mean = net.mean(axis=0)
    centred = net - mean
    starts = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(len(net)), splits))])[
        :-1
    ]
    sums = np.add.reduceat(centred, starts, axis=0)
    squares = np.add.reduceat(centred**2, starts, axis=0)
    counts = np.diff([*starts, len(net)]).astype(np.float64)
    inside = _ratios(ways, counts, sums, squares, mean)
    outside = _ratios(1 - ways, counts, sums, squares, mean)
    rows = np.arange(len(ways))
    best = outside[rows, inside.argmax(axis=1)][:, None]
    rank = (outside < best).sum(axis=1) + (
        (outside == best).sum(axis=1) + 1
    ) / 2  # ties share their mean rank
    return float((rank < (net.shape[1] + 1) / 2).mean())


def _ratios(
    half: np.ndarray, counts: np.ndarray, sums: np.ndarray, squares: np.ndarray, mean: np.ndarray
) -> np.ndarray:
    """float64[W, N]: Sharpe ratio per day of each trial in each half; 0 where it earns the same on
    all days of it.
    """
    days = (half @ counts)[:, None]
    total = half @ sums
    variance = (half @ squares - total**2 / days) / (days - 1)
    varies = variance > _FLAT * squares.sum(axis=0) / counts.sum()
    return np.where(varies, (mean + total / days) / np.sqrt(np.where(varies, variance, 1.0)), 0.0)


def _undefined(net: np.ndarray, splits: int) -> str | None:
    days, trials = net.shape
    if trials < MIN_TRIALS:
        return f"it needs {MIN_TRIALS} trials, there are {trials}"
    if days < 2 * splits:
        return f"{splits} blocks need {2 * splits} days, there are {days}"
    return "no trial varies from day to day" if np.ptp(net, axis=0).max() == 0 else None
