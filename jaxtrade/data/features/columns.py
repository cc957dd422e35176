"""Causal features of bars, computed on the host in float64.

Prices are integer ticks, so sums of prices are exact. Every value depends only on its own bar and
the bars before it: the columns of the first n bars are, byte for byte, the first n rows of the
columns. No value crosses the border of a feature window, and gaps are filled neither forward nor
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from jaxtrade.data.features.schema import (
    GROWTH_BARS,
    RANK_BARS,
    RANK_LEAST,
    RSI_BARS,
    SESSION_MINUTES,
    TRUE_RANGES,
    VOLUME_BARS,
    FeatureSpec,
    feature_spec,
    is_built_in,
)
from jaxtrade.errors import ConfigError
from jaxtrade.parts import FEATURES

# RL-Trainer's indicators over one feature window. Prices are in ticks.
#
# RL-Trainer is the earlier system whose observations the seed scaling reproduces. If its formula
# differs from the textbook, the formula is kept and its docstring or comment states the difference.
#
# Every function returns float64[n], unless its docstring says otherwise, with NaN until the
# look-back is full. A quotient 0/0 gets the neutral value that the docstring names; it is never
# filled from a neighbouring bar.


@dataclass(frozen=True)
class Window:
    """The n bars of one feature window; each array has shape [n], prices are in ticks.

    date: trade date in days.
    minute: minute of the exchange day of the open stamp.
    tick_size: points.
    """

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    date: np.ndarray
    minute: np.ndarray
    tick_size: float


def cumulative_sum(values: np.ndarray, n: int) -> np.ndarray:
    """Sum the last n values, in the dtype of `values`.

    The first n-1 sums have fewer terms; callers blank them. The sum is a difference of running
    totals, which is exact for integers. With floats a rounding residue may remain; use
    `sum_of_last` for those.
    """
    total = np.cumsum(values)
    out = total.copy()
    out[n:] -= total[:-n]
    return out


def sum_of_last(values: np.ndarray, n: int) -> np.ndarray:
    """Sum the last n values term by term (float64[T]).

    So n zeros sum to exactly 0, and a NaN has no effect once it leaves the last n values.
    """
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        count = len(values) - n + 1
        out[n - 1 :] = sum(np.asarray(values[k : k + count], np.float64) for k in range(n))
    return out


def shift(values: np.ndarray, n: int) -> np.ndarray:
    """Return the value n bars before each bar (float64[T])."""
    out = np.full(len(values), np.nan)
    out[n:] = values[:-n]
    return out


def highest(values: np.ndarray, n: int) -> np.ndarray:
    """Return the largest of the last n values (float64[T])."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        out[n - 1 :] = np.lib.stride_tricks.sliding_window_view(values, n).max(-1)
    return out


def lowest(values: np.ndarray, n: int) -> np.ndarray:
    """Return the smallest of the last n values (float64[T])."""
    return -highest(-np.asarray(values), n)


def sample_std(values: np.ndarray, n: int) -> np.ndarray:
    """Compute the standard deviation (divisor n - 1) of the last n integers (float64[T]).

    The sums are exact.
    """
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        x = np.asarray(values, np.int64) - values[0]
        total, squares = cumulative_sum(x, n), cumulative_sum(x * x, n)
        out[n - 1 :] = np.sqrt((n * squares - total * total)[n - 1 :] / (n * (n - 1)))
    return out


def percent_rank(values: np.ndarray, n: int, least: int) -> np.ndarray:
    """Rank each value among the last n, divided by their count: float64[T] in (0, 1].

    Ties share the mean rank. NaN while there are fewer than `least` values. From there the
    look-back grows to n.
    """
    import pandas as pd  # imported here because it is slow to load and only this feature needs it

    return pd.Series(values).rolling(n, min_periods=least).rank(pct=True).to_numpy(np.float64)


def rank_of_last(values: np.ndarray, least: int) -> float:
    """Rank the last of n values as `percent_rank` with a look-back of n does."""
    if len(values) < least:
        return np.nan
    less, equal = (int(found.sum()) for found in (values < values[-1], values == values[-1]))
    return (2 * less + equal + 1) / 2 / len(values)


def smooth(values: np.ndarray, alpha: float, seed: float) -> np.ndarray:
    """Smooth exponentially (float64[n]).

    y[i] = y[i-1] + alpha * (values[i] - y[i-1]), with y[-1] = seed. Every y is rounded as the
    formula says, bit for bit; filters of libraries round otherwise.
    """
    out, y = np.empty(len(values)), float(seed)
    for i, x in enumerate(np.asarray(values, np.float64).tolist()):
        y += alpha * (x - y)
        out[i] = y
    return out


def true_ranges(bars: Window) -> np.ndarray:
    """Compute the true range: max(high, previous close) - min(low, previous close).

    It is in ticks (int64[n]), and 0 at the first bar, which has no previous close.
    """
    high, low, close = (np.asarray(x, np.int64) for x in (bars.high, bars.low, bars.close))
    ranges = np.zeros(len(close), np.int64)
    ranges[1:] = np.maximum(high[1:], close[:-1]) - np.minimum(low[1:], close[:-1])
    return ranges


def true_range_sum(bars: Window) -> np.ndarray:
    """Compute S, the sum of the last 14 true ranges of one window in ticks (int64[n]).

    It is -1 until there are 14.
    """
    total = cumulative_sum(true_ranges(bars), TRUE_RANGES)
    total[:TRUE_RANGES] = -1
    return total


def quotient(over: np.ndarray, under: np.ndarray, neutral: float | np.ndarray) -> np.ndarray:
    """Compute over / under, or `neutral` where under is 0. NaN stays NaN."""
    empty = under == 0
    return np.where(empty, neutral, over / np.where(empty, 1.0, under))


def simple_rsi(bars: Window, n: int) -> np.ndarray:
    """Compute RSI = 100 - 100/(1 + G/(L + 1e-8)).

    G and L are the means of the last n rises and falls in points. Not the textbook's RSI, which
    uses Wilder's smoothing in place of simple means. Without any move the value is 0.
    """
    change = np.diff(bars.close)
    gain, loss = (cumulative_sum(np.maximum(side, 0), n) / n for side in (change, -change))
    epsilon = 1e-8 / bars.tick_size  # RL-Trainer's 1e-8 is in points, the close in ticks
    return np.concatenate([[np.nan], 100 - 100 / (1 + gain / (loss + epsilon))])


def slope(values: np.ndarray, n: int) -> np.ndarray:
    """Compute the change per bar over the last n bars, divided by the current value.

    It is 0 where the current value is 0.
    """
    return quotient(values - shift(values, n), n * values, 0.0)


def stochastic(bars: Window) -> np.ndarray:
    """Compute fast %K: 100 (close - lowest low) / (highest high - lowest low) over 14 bars.

    It is 50 where both are equal.
    """
    bottom = lowest(bars.low, 14)
    return quotient(100 * (bars.close - bottom), highest(bars.high, 14) - bottom, 50.0)


def commodity_channel(bars: Window, n: int = 20) -> np.ndarray:
    """Compute CCI: (P - SMA) / (0.015 mean |P - SMA|), where P = (high + low + close)/3.

    It is 0 where the mean deviation is 0. Not the textbook's CCI: each |P - SMA| in the mean uses
    the SMA of its own bar. The textbook uses the current SMA.
    """
    total = bars.high + bars.low + bars.close
    away = n * total - sum_of_last(total, n)  # 3n (P - SMA), a whole number
    return quotient(away, 0.015 * sum_of_last(np.abs(away), n) / n, 0.0)


def directional(bars: Window) -> tuple[np.ndarray, np.ndarray]:
    """Compute +DI and -DI: 100 sum(DM) / S over 14 bars; 0 where S is 0.

    DM is the rise of the high for +DI and the fall of the low for -DI, where that is positive. Not
    the textbook's indicator: a bar may count for both (the textbook takes the larger of the two),
    and the sums are simple, not Wilder's.
    """
    ranges = true_range_sum(bars)
    up, down = (
        np.concatenate([[0], np.maximum(x, 0)]) for x in (np.diff(bars.high), -np.diff(bars.low))
    )
    plus, minus = (
        np.where(ranges < 0, np.nan, quotient(100.0 * cumulative_sum(x, TRUE_RANGES), ranges, 0.0))
        for x in (up, down)
    )
    return plus, minus


def average_directional(bars: Window) -> np.ndarray:
    """Compute ADX: the mean of the last 14 values of DX = 100 |(+DI) - (-DI)| / ((+DI) + (-DI)).

    See `directional`. A DX of 0/0 is 0.
    """
    plus, minus = directional(bars)
    return (
        sum_of_last(quotient(100 * np.abs(plus - minus), plus + minus, 0.0), TRUE_RANGES)
        / TRUE_RANGES
    )


def trend_flag(bars: Window) -> np.ndarray:
    """Return +1 where ADX > 25, -1 where ADX < 20, else 0."""
    adx = average_directional(bars)
    return np.where(np.isnan(adx), np.nan, (adx > 25).astype(np.float64) - (adx < 20))


def money_flow(bars: Window, n: int = 14) -> np.ndarray:
    """Compute MFI: 100 P/(P + N).

    P sums typical price times volume over those of the last n bars in which the typical price
    rose, N over those in which it fell. MFI is 50 where both sums are 0 (no volume, or no change
    of price).
    """
    total = bars.high + bars.low + bars.close
    change, flow = np.diff(total), total[1:] * bars.volume[1:]
    positive, negative = (
        sum_of_last(np.where(side, flow, 0.0), n) for side in (change > 0, change < 0)
    )
    return np.concatenate([[np.nan], quotient(100 * positive, positive + negative, 50.0)])


def _of_ranges(bars: Window, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `figure` to the defined values of S.

    The first one is at the fifteenth bar; NaN before it.
    """
    total = true_range_sum(bars)
    known = total[TRUE_RANGES:]
    return np.concatenate([np.full(min(TRUE_RANGES, len(total)), np.nan), figure(known)])


SWING, LEVEL = 5, 20  # look-back in bars, for swings and for levels
SEEN = 0.7  # the value of RL-Trainer's double top and double bottom where they find one
QUIET = (
    0.02  # the market is quiet if the closes' standard deviation is below this share of their mean
)


def _beyond(value: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Compare the value with a level.

    The result is 1 where it is more than 0.1 % above, -1 where it is more than 0.1 % below, else 0.
    """
    return (1000 * value > 1001 * level).astype(np.float64) - (1000 * value < 999 * level)


def _swing(extreme: np.ndarray) -> np.ndarray:
    """Compare the highest high, or the lowest low, of the last 5 bars with that of the 5 before.

    See `_beyond`.
    """
    return _beyond(extreme, shift(extreme, SWING))


def _quiet(bars: Window) -> np.ndarray:
    """Return where the market is quiet (bool[n]).

    The standard deviation (divisor n - 1) of the last 20 closes is then below 2 % of their mean.
    """
    close = bars.close
    return sample_std(close, LEVEL) / (sum_of_last(close, LEVEL) / LEVEL) < QUIET


def double_top(bars: Window) -> np.ndarray:
    """Return 0.7 at a double top, else 0.

    There the highest high of 20 quiet bars is more than 1 % below that of the 20 bars before them.
    """
    top = highest(bars.high, LEVEL)
    return SEEN * ((100 * top < 99 * shift(top, LEVEL)) & _quiet(bars))


def double_bottom(bars: Window) -> np.ndarray:
    """Return 0.7 at a double bottom, else 0.

    There the lowest low of 20 quiet bars is more than 1 % above that of the 20 bars before them.
    """
    bottom = lowest(bars.low, LEVEL)
    return SEEN * ((100 * bottom > 101 * shift(bottom, LEVEL)) & _quiet(bars))


def volume_mean(volume: np.ndarray) -> np.ndarray:
    """Compute the mean volume of the last 20 bars of one window (float64[n]).

    At the start, it is the mean of the bars so far.
    """
    counts = np.minimum(np.arange(1, len(volume) + 1), VOLUME_BARS)
    return cumulative_sum(np.asarray(volume, np.float64), VOLUME_BARS) / counts


def smooth_from_mean(values: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """Smooth exponentially from the mean of the first n values. NaN before that."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        out[n - 1] = values[:n].sum() / n
        out[n:] = smooth(values[n:], alpha, out[n - 1])
    return out


class Recursion(NamedTuple):
    """A feature made of exponential means, each begun with the mean of its first n values.

    inputs(bars) -> what each mean smooths; all have one length, and end with the last bar.
    figure(means) -> the feature.
    """

    inputs: Callable[[Window], tuple[np.ndarray, ...]]
    n: int
    alphas: tuple[float, ...]
    figure: Callable[..., np.ndarray]

    def compute(self, bars: Window) -> np.ndarray:
        """Compute the feature over one window (float64[n])."""
        means = [
            smooth_from_mean(values, self.n, alpha)
            for values, alpha in zip(self.inputs(bars), self.alphas, strict=True)
        ]
        found = self.figure(*means)
        return np.concatenate([np.full(len(bars.close) - len(found), np.nan), found])


def _moves(bars: Window) -> tuple[np.ndarray, np.ndarray]:
    change = np.diff(bars.close)
    return np.maximum(change, 0), np.maximum(-change, 0)


# The features that remember all bars of their window; of a parametric one, by the head of its name.
_RECURSIVE: dict[str, Callable[[int], Recursion]] = {
    "macd": lambda n: Recursion(
        lambda bars: (bars.close, bars.close), 1, (2 / 13, 2 / 27), np.subtract
    ),
    "ema_": lambda n: Recursion(lambda bars: (bars.close,), n, (2 / (n + 1),), np.asarray),
    # No move at all: 0, as in TA-Lib.
    "rsi_": lambda n: Recursion(
        _moves, n, (1 / n, 1 / n), lambda gain, loss: quotient(100 * gain, gain + loss, 0.0)
    ),
    "atr_": lambda n: Recursion(lambda bars: (true_ranges(bars)[1:],), n, (1 / n,), np.asarray),
}


def recursion_of(name: str) -> Recursion | None:
    """Return the recursion of a feature, None if it has none (or is a user's own)."""
    spec = feature_spec(name)
    key = f"{name.partition('_')[0]}_" if spec.period else name
    return _RECURSIVE[key](spec.period) if key in _RECURSIVE and name not in FEATURES else None


def _vwap(bars: Window) -> np.ndarray:
    """Compute the volume-weighted average price of each trade date so far.

    While the date has no traded volume, it is the plain mean of its typical prices so far.
    """
    out = np.empty(len(bars.close))
    typical = (bars.high + bars.low + bars.close) / 3
    for rows in np.split(np.arange(len(out)), np.flatnonzero(np.diff(bars.date)) + 1):
        mean = np.cumsum(typical[rows]) / np.arange(1, len(rows) + 1)
        traded = np.cumsum(bars.volume[rows])
        money = np.cumsum(bars.close[rows] * bars.volume[rows])
        out[rows] = quotient(money, traded, mean)
    return out


def _session_flag(bars: Window, name: str) -> np.ndarray:
    inside = {
        name: (bars.minute >= a) & (bars.minute < b) for name, (a, b) in SESSION_MINUTES.items()
    }
    inside["closed"] = ~np.logical_or.reduce([*inside.values()])
    return inside[name]


# name -> values over one window. features.csv has the formula of each.
_COMPUTE: dict[str, Callable[[Window], np.ndarray]] = {
    **{name: attrgetter(name) for name in ("open", "high", "low", "close", "volume")},
    **{name: partial(simple_rsi, n=n) for name, n in RSI_BARS.items()},
    "momentum": lambda bars: bars.close / shift(bars.close, GROWTH_BARS),
    "atr": lambda bars: _of_ranges(bars, lambda x: x / TRUE_RANGES),
    "volatility": lambda bars: sample_std(bars.close, 20),
    # Four standard deviations of the last 20 closes, divided by their mean. The divisor is 19, as
    # in pandas.
    "bb_width": lambda bars: (
        4 * sample_std(bars.close, LEVEL) / (sum_of_last(bars.close, LEVEL) / LEVEL)
    ),
    "stoch_k": stochastic,
    "stoch_d": lambda bars: sum_of_last(stochastic(bars), 3) / 3,
    "williams_r": lambda bars: stochastic(bars) - 100,
    "cci": commodity_channel,
    "adx": average_directional,
    "mfi": money_flow,
    # Standard deviation (divisor n - 1) of the last 20 ATRs (S/14), in ticks.
    "vol_regime": lambda bars: _of_ranges(bars, lambda x: sample_std(x, 20) / TRUE_RANGES),
    # Percent rank of the ATR among the last 252 * 390 ATRs of the window. NaN until there are 100.
    "vol_percentile": lambda bars: _of_ranges(
        bars, lambda x: percent_rank(x, RANK_BARS, RANK_LEAST)
    ),
    "plus_di": lambda bars: directional(bars)[0],
    "minus_di": lambda bars: directional(bars)[1],
    "trend_strength": trend_flag,
    "vwap": _vwap,
    "price_to_vwap": lambda bars: bars.close / _vwap(bars) - 1,
    "spread": lambda bars: (bars.high - bars.low) / bars.close,
    # |close - close 20 bars ago| / (sum of the last 20 ATRs); 0 where nothing moved.
    "efficiency_ratio": lambda bars: quotient(
        np.abs(bars.close - shift(bars.close, 20)),
        _of_ranges(bars, lambda x: sum_of_last(x, 20) / TRUE_RANGES),
        0.0,
    ),
    **{
        f"session_{name}": partial(_session_flag, name=name)
        for name in (*SESSION_MINUTES, "closed")
    },
    # Volume divided by its mean over the last n bars, this bar included; 1 where that mean is 0.
    **{
        name: lambda bars, n=n: quotient(n * bars.volume, sum_of_last(bars.volume, n), 1.0)
        for name, n in (("volume_ratio_5min", 5), ("volume_ratio_20min", 20), ("volume_regime", 20))
    },
    # Return over n bars.
    **{
        name: lambda bars, n=n: bars.close / shift(bars.close, n) - 1
        for name, n in (
            ("roc", GROWTH_BARS),
            ("return_1", 1),
            ("return_5", 5),
            ("return_15", 15),
            ("price_change_60min", 60),
            ("price_momentum_20", 20),
            ("price_momentum_60", 60),
            ("session_trend", 30),
        )
    },
    # (close - mean) / (2 standard deviations) of the last 20 closes; 0 where they are equal. The
    # divisor is 19.
    "bollinger_position": lambda bars: quotient(
        bars.close - sum_of_last(bars.close, LEVEL) / LEVEL, 2 * sample_std(bars.close, LEVEL), 0.0
    ),
    "time_of_day": lambda bars: bars.minute / 1440.0,
    "support_20": lambda bars: lowest(bars.low, 20),
    "resistance_20": lambda bars: highest(bars.high, 20),
    # Of the mean of the closes: sum and mean give the same quotient, and the sum is a whole number.
    "sma_50_slope": lambda bars: slope(sum_of_last(bars.close, 50), 10),
    "sma_200_slope": lambda bars: slope(sum_of_last(bars.close, 200), 20),
    "adx_slope": lambda bars: slope(average_directional(bars), 5),
    "price_vs_support": lambda bars: bars.close / lowest(bars.low, 20) - 1,
    # 1, -1 or 0: the high, or the low, compared with the highest (lowest) of the 5 bars before. 1
    # means what the name says.
    "higher_high": lambda bars: _beyond(bars.high, shift(highest(bars.high, SWING), 1)),
    "lower_low": lambda bars: 0.0 - _beyond(bars.low, shift(lowest(bars.low, SWING), 1)),
    "higher_low": lambda bars: _swing(lowest(bars.low, SWING)),
    "lower_high": lambda bars: 0.0 - _swing(highest(bars.high, SWING)),
    "double_top": double_top,
    "double_bottom": double_bottom,
    # 1 where the close is more than 0.2 % above the highest high (below the lowest low) of the 20
    # bars before, else 0.
    "breakout_signal": lambda bars: (
        1000 * bars.close > 1002 * shift(highest(bars.high, LEVEL), 1)
    ).astype(np.float64),
    "breakdown_signal": lambda bars: (
        1000 * bars.close < 998 * shift(lowest(bars.low, LEVEL), 1)
    ).astype(np.float64),
}


class Feature(NamedTuple):
    """A user's own feature.

    compute(bars of one window, spec) -> [n] must be causal: row t may read rows 0..t only. Its
    values are in the unit that `spec.unit` names (`schema.UNITS`), prices in ticks. Values before
    the warm-up are replaced by NaN.
    """

    spec: FeatureSpec
    compute: Callable[[Window, FeatureSpec], np.ndarray]


def register_feature(
    spec: FeatureSpec, compute: Callable[[Window, FeatureSpec], np.ndarray]
) -> Feature:
    """Register a feature, so that `env.features` may name it, and return it.

    Raises ConfigError if the name is taken.
    """
    if spec.name not in FEATURES and is_built_in(spec.name):
        raise ConfigError(
            f"feature '{spec.name}' exists already; register yours under another name"
        )
    return FEATURES.register(spec.name, Feature(spec, compute))


def compute_feature(bars: Window, name: str) -> np.ndarray:
    """Compute one feature over one window, float64[n]; NaN before its warm-up.

    Levels, moves and ranges are in ticks (see `FeatureSpec.unit`); `momentum` is the ratio itself.
    Raises ConfigError for an unknown name.
    """
    spec = feature_spec(name)
    if name in FEATURES:
        found = FEATURES[name].compute(bars, spec)
    elif recursion := recursion_of(name):
        found = recursion.compute(bars)
    elif spec.period:
        found = cumulative_sum(bars.close, spec.period) / spec.period  # sma_N
    else:
        found = _COMPUTE[name](bars)
    values = np.array(found, np.float64)
    values[: spec.warm_up - 1] = np.nan
    return values


def encode_feature(values: np.ndarray, spec: FeatureSpec, close: np.ndarray) -> np.ndarray:
    """Encode feature values of one window in the form that the float32 table stores (float64[n]).

    See `FeatureSpec.unit`.
    """
    if spec.unit == "price":
        return values - close
    if spec.unit == "growth":
        return close - shift(close, GROWTH_BARS)
    return values


def compute_features(bars: Window, names: tuple[str, ...], window_id: np.ndarray) -> np.ndarray:
    """Compute features over several windows (float64[T, len(names)]).

    NaN before each window's warm-up.

    Args:
        bars: all T bars in time order.
        window_id: int[T], non-decreasing; a new value starts a new window.
    """
    out = np.empty((len(bars.close), len(names)))
    for rows in window_slices(window_id):
        part = take(bars, rows)
        for i, name in enumerate(names):
            out[rows, i] = compute_feature(part, name)
    return out


def window_slices(window_id: np.ndarray) -> list[slice]:
    """Return the row range of each window.

    window_id: int[T], non-decreasing.
    """
    edges = [0, *(np.flatnonzero(np.diff(window_id)) + 1).tolist(), len(window_id)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def take(bars: Window, rows: slice) -> Window:
    """Return the bars of a row range."""
    columns = {name: column[rows] for name, column in vars(bars).items() if name != "tick_size"}
    return replace(bars, **columns)
