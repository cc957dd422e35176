"""RL-Trainer's indicators over one feature window. Prices are in ticks.

RL-Trainer is the earlier system whose observations the seed scaling reproduces. If its formula
differs from the textbook, the formula is kept and the docstring states the difference.

Every function returns float64[n], unless its docstring says otherwise, with NaN until the look-back
is full. A quotient 0/0 gets the neutral value that the docstring names; it is never filled from a
neighbouring bar.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxtrade.data.features.rolling import (
    cumulative_sum,
    highest,
    lowest,
    percent_rank,
    sample_std,
    shifted,
    sum_of_last,
)
from jaxtrade.data.features.schema import RANK_BARS, RANK_LEAST, TRUE_RANGES


def true_ranges(high: np.ndarray, low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """True range: max(high, previous close) - min(low, previous close) in ticks, int64[n]; 0 at the
    first bar, which has no previous close."""
    high, low, close = (np.asarray(x, np.int64) for x in (high, low, close))
    ranges = np.zeros(len(close), np.int64)
    ranges[1:] = np.maximum(high[1:], close[:-1]) - np.minimum(low[1:], close[:-1])
    return ranges


def true_range_sum(high: np.ndarray, low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """S, the sum of the last 14 true ranges of one window in ticks, int64[n]; -1 until there are
    14.
    """
    total = cumulative_sum(true_ranges(high, low, close), TRUE_RANGES)
    total[:TRUE_RANGES] = -1
    return total


def quotient(over: np.ndarray, under: np.ndarray, neutral: float) -> np.ndarray:
    """over / under, or `neutral` where under is 0. NaN stays NaN."""
    empty = under == 0
    return np.where(empty, neutral, over / np.where(empty, 1.0, under))


def simple_rsi(close: np.ndarray, n: int, tick_size: float) -> np.ndarray:
    """RSI = 100 - 100/(1 + G/(L + 1e-8)), where G and L are the means of the last n rises and falls
    in points.

    Not the textbook's RSI, which uses Wilder's smoothing in place of simple means. Without any move
    the value is 0.
    """
    change = np.diff(close)
    gain, loss = (cumulative_sum(np.maximum(side, 0), n) / n for side in (change, -change))
    epsilon = 1e-8 / tick_size  # RL-Trainer's 1e-8 is in points, `close` in ticks
    return np.concatenate([[np.nan], 100 - 100 / (1 + gain / (loss + epsilon))])


def returns(close: np.ndarray, n: int) -> np.ndarray:
    """Return over n bars: close / (close n bars ago) - 1."""
    out = np.full(len(close), np.nan)
    out[n:] = close[n:] / close[:-n] - 1
    return out


def slope(values: np.ndarray, n: int) -> np.ndarray:
    """Change per bar over the last n bars, divided by the current value; 0 where the current value
    is 0.
    """
    return quotient(values - shifted(values, n), n * values, 0.0)


def mean_slope(close: np.ndarray, of: int, n: int) -> np.ndarray:
    """`slope` over n bars, of the mean of the last `of` closes."""
    return slope(
        sum_of_last(close, of), n
    )  # sum and mean give the same quotient, and the sum is a whole number


def bollinger_width(close: np.ndarray, n: int = 20) -> np.ndarray:
    """Four standard deviations of the last n closes, divided by their mean. The divisor is n - 1,
    as in pandas.
    """
    return 4 * sample_std(close, n) / (sum_of_last(close, n) / n)


def bollinger_position(close: np.ndarray, n: int = 20) -> np.ndarray:
    """(close - mean) / (2 standard deviations) of the last n closes; 0 where they are equal. The
    divisor is n - 1.
    """
    return quotient(close - sum_of_last(close, n) / n, 2 * sample_std(close, n), 0.0)


def stochastic(high: np.ndarray, low: np.ndarray, close: np.ndarray, n: int = 14) -> np.ndarray:
    """Fast %K: 100 (close - lowest low) / (highest high - lowest low) over n bars; 50 where both
    are equal.
    """
    bottom = lowest(low, n)
    return quotient(100 * (close - bottom), highest(high, n) - bottom, 50.0)


def commodity_channel(
    high: np.ndarray, low: np.ndarray, close: np.ndarray, n: int = 20
) -> np.ndarray:
    """CCI: (P - SMA) / (0.015 mean |P - SMA|), where P = (high + low + close)/3; 0 where the mean
    deviation is 0.

    Not the textbook's CCI: each |P - SMA| in the mean uses the SMA of its own bar. The textbook
    uses the current SMA.
    """
    total = np.asarray(high) + low + close
    away = n * total - sum_of_last(total, n)  # 3n (P - SMA), a whole number
    return quotient(away, 0.015 * sum_of_last(np.abs(away), n) / n, 0.0)


def directional(
    high: np.ndarray, low: np.ndarray, close: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """+DI and -DI: 100 sum(DM) / S over 14 bars; 0 where S is 0.

    DM is the rise of the high for +DI and the fall of the low for -DI, where that is positive. Not
    the textbook's
    indicator: a bar may count for both (the textbook takes the larger of the two), and the sums are
        simple, not
    Wilder's.
    """
    high, low = np.asarray(high, np.int64), np.asarray(low, np.int64)
    ranges = true_range_sum(high, low, close)
    up, down = (np.concatenate([[0], np.maximum(x, 0)]) for x in (np.diff(high), -np.diff(low)))
    plus, minus = (
        np.where(ranges < 0, np.nan, quotient(100.0 * cumulative_sum(x, TRUE_RANGES), ranges, 0.0))
        for x in (up, down)
    )
    return plus, minus


def average_directional(high: np.ndarray, low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """ADX: mean of the last 14 values of DX = 100 |(+DI) - (-DI)| / ((+DI) + (-DI)), see
    `directional`.

    A DX of 0/0 is 0.
    """
    plus, minus = directional(high, low, close)
    return (
        sum_of_last(quotient(100 * np.abs(plus - minus), plus + minus, 0.0), TRUE_RANGES)
        / TRUE_RANGES
    )


def trend_flag(adx: np.ndarray) -> np.ndarray:
    """+1 where ADX > 25, -1 where ADX < 20, else 0."""
    return np.where(np.isnan(adx), np.nan, (adx > 25).astype(np.float64) - (adx < 20))


def money_flow(
    high: np.ndarray, low: np.ndarray, close: np.ndarray, volume: np.ndarray, n: int = 14
) -> np.ndarray:
    """MFI: 100 P/(P + N). P sums typical price times volume over those of the last n bars in which
    the typical price rose, N over those in which it fell. 50 where both sums are 0 (no volume, or
    no change of price).
    """
    total = np.asarray(high, np.int64) + low + close
    change, flow = np.diff(total), total[1:] * volume[1:]
    positive, negative = (
        sum_of_last(np.where(side, flow, 0.0), n) for side in (change > 0, change < 0)
    )
    return np.concatenate([[np.nan], quotient(100 * positive, positive + negative, 50.0)])


def volume_ratio(volume: np.ndarray, n: int) -> np.ndarray:
    """Volume divided by its mean over the last n bars, this bar included; 1 where that mean is
    0.
    """
    return quotient(n * volume, sum_of_last(volume, n), 1.0)


def range_deviation(
    high: np.ndarray, low: np.ndarray, close: np.ndarray, n: int = 20
) -> np.ndarray:
    """Standard deviation (divisor n - 1) of the last n ATRs (S/14), in ticks."""
    return _of_ranges(
        true_range_sum(high, low, close), lambda ranges: sample_std(ranges, n) / TRUE_RANGES
    )


def range_rank(high: np.ndarray, low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Percent rank of the ATR among the last 252 * 390 ATRs of the window. NaN until there are 100
    ATRs.
    """
    return _of_ranges(
        true_range_sum(high, low, close), lambda ranges: percent_rank(ranges, RANK_BARS, RANK_LEAST)
    )


def efficiency(high: np.ndarray, low: np.ndarray, close: np.ndarray, n: int = 20) -> np.ndarray:
    """|close - close n bars ago| / (sum of the last n ATRs); 0 where nothing moved."""
    moved = np.full(len(close), np.nan)
    moved[n:] = np.abs(close[n:] - close[:-n])
    ranges = _of_ranges(true_range_sum(high, low, close), lambda x: sum_of_last(x, n) / TRUE_RANGES)
    return quotient(moved, ranges, 0.0)


def _of_ranges(total: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `figure` to the defined values of S. The first one is at the fifteenth bar; NaN before
    it.
    """
    known = total[TRUE_RANGES:]
    return np.concatenate([np.full(min(TRUE_RANGES, len(total)), np.nan), figure(known)])
