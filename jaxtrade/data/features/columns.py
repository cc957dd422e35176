"""Causal features of bars, computed on the host in float64.

Prices are integer ticks, so sums of prices are exact. Every value depends only on its own bar and
the bars before it: the columns of the first n bars are, byte for byte, the first n rows of the
columns. No value crosses the border of a feature window, and gaps are filled neither forward nor
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from jaxtrade.data.features import indicators
from jaxtrade.data.features.indicators import (
    Window,
    cumulative_sum,
    highest,
    lowest,
    sample_std,
    shifted,
    smooth,
    sum_of_last,
    true_range_sum,
    true_ranges,
)
from jaxtrade.data.features.schema import (
    GROWTH_BARS,
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


def volume_mean(volume: np.ndarray) -> np.ndarray:
    """Mean volume of the last 20 bars of one window, float64[n]. At the start, the mean of the bars
    so far.
    """
    counts = np.minimum(np.arange(1, len(volume) + 1), VOLUME_BARS)
    return cumulative_sum(np.asarray(volume, np.float64), VOLUME_BARS) / counts


def _seeded(values: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """Exponential smoothing that starts with the mean of the first n values. NaN before that."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        out[n - 1] = values[:n].sum() / n
        out[n:] = smooth(values[n:], alpha, out[n - 1])
    return out


def _seed_ema(close: np.ndarray, span: int) -> np.ndarray:
    return np.concatenate([close[:1], smooth(close[1:], 2 / (span + 1), close[0])]).astype(
        np.float64
    )


def _rsi(bars: Window, n: int) -> np.ndarray:
    change = np.diff(bars.close)
    gain, loss = (_seeded(np.maximum(side, 0), n, 1 / n) for side in (change, -change))
    total = gain + loss
    flat = total == 0  # no move at all: 0, as in TA-Lib
    return np.concatenate([[np.nan], np.where(flat, 0.0, 100 * gain / np.where(flat, 1.0, total))])


def _atr(bars: Window, n: int) -> np.ndarray:
    ranges = true_ranges(bars.high, bars.low, bars.close)[1:]
    return np.concatenate([[np.nan], _seeded(ranges, n, 1 / n)])


def _seed_atr(bars: Window) -> np.ndarray:
    total = true_range_sum(bars.high, bars.low, bars.close)
    return np.where(total < 0, np.nan, total / TRUE_RANGES)


def _vwap(bars: Window) -> np.ndarray:
    """Volume-weighted average price of each trade date so far.

    While the date has no traded volume, the plain mean of its typical prices so far.
    """
    out = np.empty(len(bars.close))
    typical = (bars.high + bars.low + bars.close) / 3
    for rows in np.split(np.arange(len(out)), np.flatnonzero(np.diff(bars.date)) + 1):
        mean = np.cumsum(typical[rows]) / np.arange(1, len(rows) + 1)
        traded = np.cumsum(bars.volume[rows])
        money = np.cumsum(bars.close[rows] * bars.volume[rows])
        out[rows] = np.where(traded > 0, money / np.where(traded > 0, traded, 1.0), mean)
    return out


def _session_flag(bars: Window, name: str) -> np.ndarray:
    inside = {
        name: (bars.minute >= a) & (bars.minute < b) for name, (a, b) in SESSION_MINUTES.items()
    }
    inside["closed"] = ~np.logical_or.reduce([*inside.values()])
    return inside[name]


_COMPUTE: dict[str, Callable[[Window], np.ndarray]] = {
    **{name: attrgetter(name) for name in ("open", "high", "low", "close", "volume")},
    **{name: partial(indicators.simple_rsi, n=n) for name, n in RSI_BARS.items()},
    "macd": lambda bars: _seed_ema(bars.close, 12) - _seed_ema(bars.close, 26),
    "momentum": lambda bars: bars.close / shifted(bars.close, GROWTH_BARS),
    "atr": _seed_atr,
    "volatility": lambda bars: sample_std(bars.close, 20),
    "bb_width": indicators.bollinger_width,
    "stoch_k": indicators.stochastic,
    "stoch_d": lambda bars: sum_of_last(indicators.stochastic(bars), 3) / 3,
    "williams_r": lambda bars: indicators.stochastic(bars) - 100,
    "cci": indicators.commodity_channel,
    "adx": indicators.average_directional,
    "mfi": indicators.money_flow,
    "vol_regime": indicators.range_deviation,
    "vol_percentile": indicators.range_rank,
    "plus_di": lambda bars: indicators.directional(bars)[0],
    "minus_di": lambda bars: indicators.directional(bars)[1],
    "trend_strength": indicators.trend_flag,
    "vwap": _vwap,
    "price_to_vwap": lambda bars: bars.close / _vwap(bars) - 1,
    "spread": lambda bars: (bars.high - bars.low) / bars.close,
    "efficiency_ratio": indicators.efficiency,
    **{
        f"session_{name}": partial(_session_flag, name=name)
        for name in (*SESSION_MINUTES, "closed")
    },
    **{
        name: partial(indicators.volume_ratio, n=n)
        for name, n in (("volume_ratio_5min", 5), ("volume_ratio_20min", 20), ("volume_regime", 20))
    },
    **{
        name: lambda bars, n=n: indicators.returns(bars.close, n)
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
    "bollinger_position": indicators.bollinger_position,
    "time_of_day": lambda bars: bars.minute / 1440.0,
    "support_20": lambda bars: lowest(bars.low, 20),
    "resistance_20": lambda bars: highest(bars.high, 20),
    "sma_50_slope": lambda bars: indicators.mean_slope(bars.close, 50, 10),
    "sma_200_slope": lambda bars: indicators.mean_slope(bars.close, 200, 20),
    "adx_slope": lambda bars: indicators.slope(indicators.average_directional(bars), 5),
    "price_vs_support": lambda bars: bars.close / lowest(bars.low, 20) - 1,
    "higher_high": indicators.higher_high,
    "lower_low": indicators.lower_low,
    "higher_low": indicators.higher_low,
    "lower_high": indicators.lower_high,
    "double_top": indicators.double_top,
    "double_bottom": indicators.double_bottom,
    "breakout_signal": indicators.breakout,
    "breakdown_signal": indicators.breakdown,
}
_OF_PERIOD: dict[str, Callable[[Window, int], np.ndarray]] = {
    "sma": lambda bars, n: cumulative_sum(bars.close, n) / n,
    "ema": lambda bars, n: _seeded(bars.close, n, 2 / (n + 1)),
    "rsi": _rsi,
    "atr": _atr,
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
    """Register a feature, so that `env.features` may name it, and return it. Raises ConfigError if
    the name is taken."""
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
    elif spec.period:
        found = _OF_PERIOD[name.partition("_")[0]](bars, spec.period)
    else:
        found = _COMPUTE[name](bars)
    values = np.array(found, np.float64)
    values[: spec.warm_up - 1] = np.nan
    return values


def stored(values: np.ndarray, spec: FeatureSpec, close: np.ndarray) -> np.ndarray:
    """Feature values of one window in the form that the float32 table stores (see
    `FeatureSpec.unit`), float64[n].
    """
    if spec.unit == "price":
        return values - close
    if spec.unit == "growth":
        return close - shifted(close, GROWTH_BARS)
    return values


def compute_features(bars: Window, names: tuple[str, ...], window_id: np.ndarray) -> np.ndarray:
    """Compute features over several windows, float64[T, len(names)]; NaN before each window's
    warm-up.

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
    """The row range of each window. window_id: int[T], non-decreasing."""
    edges = [0, *(np.flatnonzero(np.diff(window_id)) + 1).tolist(), len(window_id)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def take(bars: Window, rows: slice) -> Window:
    """The bars of a row range."""
    columns = {name: column[rows] for name, column in vars(bars).items() if name != "tick_size"}
    return replace(bars, **columns)
