"""Causal features of bars, computed on the host in float64.

Prices are integer ticks, so sums of prices are exact. Every value depends only on its own bar and
the bars before it: the columns of the first n bars are, byte for byte, the first n rows of the
columns. No value crosses the border of a feature window, and gaps are filled neither forward nor
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxtrade.data.features import indicators
from jaxtrade.data.features.indicators import (
    cumulative_sum,
    highest,
    lowest,
    sample_std,
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


@dataclass(frozen=True)
class Window:
    """The n bars of one feature window; each array has shape [n], prices are in ticks.

    date: trade date in days. minute: minute of the exchange day of the open stamp. tick_size:
        points.
    """

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    date: np.ndarray
    minute: np.ndarray
    tick_size: float


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


def _gains_losses(close: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    change = np.diff(close)
    return np.maximum(change, 0), np.maximum(-change, 0)


def _rsi(bars: Window, spec: FeatureSpec) -> np.ndarray:
    gain, loss = (_seeded(x, spec.period, 1 / spec.period) for x in _gains_losses(bars.close))
    total = gain + loss
    flat = total == 0  # no move at all: 0, as in TA-Lib
    return np.concatenate([[np.nan], np.where(flat, 0.0, 100 * gain / np.where(flat, 1.0, total))])


def _atr(bars: Window, spec: FeatureSpec) -> np.ndarray:
    ranges = true_ranges(bars.high, bars.low, bars.close)[1:]
    return np.concatenate([[np.nan], _seeded(ranges, spec.period, 1 / spec.period)])


def _seed_atr(bars: Window, _: FeatureSpec) -> np.ndarray:
    total = true_range_sum(bars.high, bars.low, bars.close)
    return np.where(total < 0, np.nan, total / TRUE_RANGES)


def _momentum(bars: Window, _: FeatureSpec) -> np.ndarray:
    out = np.full(len(bars.close), np.nan)
    out[GROWTH_BARS:] = bars.close[GROWTH_BARS:] / bars.close[:-GROWTH_BARS]
    return out


def _vwap(bars: Window, _: FeatureSpec) -> np.ndarray:
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


def _session_flag(bars: Window, spec: FeatureSpec) -> np.ndarray:
    inside = {
        name: (bars.minute >= a) & (bars.minute < b) for name, (a, b) in SESSION_MINUTES.items()
    }
    inside["closed"] = ~np.logical_or.reduce([*inside.values()])
    return inside[spec.name.removeprefix("session_")]


def _simple_rsi(bars: Window, spec: FeatureSpec) -> np.ndarray:
    return indicators.simple_rsi(bars.close, RSI_BARS[spec.name], bars.tick_size)


def _hlc(figure: Callable[..., np.ndarray]) -> Callable[[Window, FeatureSpec], np.ndarray]:
    """Make a feature of an indicator that takes (high, low, close)."""
    return lambda bars, _: figure(bars.high, bars.low, bars.close)


_COMPUTE: dict[str, Callable[[Window, FeatureSpec], np.ndarray]] = {
    "open": lambda bars, _: bars.open,
    "high": lambda bars, _: bars.high,
    "low": lambda bars, _: bars.low,
    "close": lambda bars, _: bars.close.astype(np.float64),
    "volume": lambda bars, _: bars.volume,
    **dict.fromkeys(RSI_BARS, _simple_rsi),
    "macd": lambda bars, _: _seed_ema(bars.close, 12) - _seed_ema(bars.close, 26),
    "momentum": _momentum,
    "atr": _seed_atr,
    "volatility": lambda bars, _: sample_std(bars.close, 20),
    "bb_width": lambda bars, _: indicators.bollinger_width(bars.close),
    "stoch_k": _hlc(indicators.stochastic),
    "stoch_d": _hlc(lambda *hlc: sum_of_last(indicators.stochastic(*hlc), 3) / 3),
    "williams_r": _hlc(lambda *hlc: indicators.stochastic(*hlc) - 100),
    "cci": _hlc(indicators.commodity_channel),
    "adx": _hlc(indicators.average_directional),
    "roc": lambda bars, _: indicators.returns(bars.close, GROWTH_BARS),
    "mfi": lambda bars, _: indicators.money_flow(bars.high, bars.low, bars.close, bars.volume),
    "vol_regime": _hlc(indicators.range_deviation),
    "vol_percentile": _hlc(indicators.range_rank),
    "plus_di": _hlc(lambda *hlc: indicators.directional(*hlc)[0]),
    "minus_di": _hlc(lambda *hlc: indicators.directional(*hlc)[1]),
    "trend_strength": _hlc(
        lambda *hlc: indicators.trend_flag(indicators.average_directional(*hlc))
    ),
    "vwap": _vwap,
    "price_to_vwap": lambda bars, spec: bars.close / _vwap(bars, spec) - 1,
    "spread": lambda bars, _: (bars.high - bars.low) / bars.close,
    "efficiency_ratio": _hlc(indicators.efficiency),
    **{f"session_{name}": _session_flag for name in (*SESSION_MINUTES, "closed")},
    "volume_ratio_5min": lambda bars, _: indicators.volume_ratio(bars.volume, 5),
    "volume_ratio_20min": lambda bars, _: indicators.volume_ratio(bars.volume, 20),
    **{f"return_{n}": lambda bars, _, n=n: indicators.returns(bars.close, n) for n in (1, 5, 15)},
    "bollinger_position": lambda bars, _: indicators.bollinger_position(bars.close),
    "time_of_day": lambda bars, _: bars.minute / 1440.0,
    "support_20": lambda bars, _: lowest(bars.low, 20),
    "resistance_20": lambda bars, _: highest(bars.high, 20),
    "price_change_60min": lambda bars, _: indicators.returns(bars.close, 60),
    "sma_50_slope": lambda bars, _: indicators.mean_slope(bars.close, 50, 10),
    "sma_200_slope": lambda bars, _: indicators.mean_slope(bars.close, 200, 20),
    "adx_slope": _hlc(lambda *hlc: indicators.slope(indicators.average_directional(*hlc), 5)),
    "volume_regime": lambda bars, _: indicators.volume_ratio(bars.volume, 20),
    "price_vs_support": lambda bars, _: bars.close / lowest(bars.low, 20) - 1,
    "price_momentum_20": lambda bars, _: indicators.returns(bars.close, 20),
    "price_momentum_60": lambda bars, _: indicators.returns(bars.close, 60),
    "session_trend": lambda bars, _: indicators.returns(bars.close, 30),
    "higher_high": lambda bars, _: indicators.higher_high(bars.high),
    "lower_low": lambda bars, _: indicators.lower_low(bars.low),
    "higher_low": lambda bars, _: indicators.higher_low(bars.low),
    "lower_high": lambda bars, _: indicators.lower_high(bars.high),
    "double_top": lambda bars, _: indicators.double_top(bars.high, bars.close),
    "double_bottom": lambda bars, _: indicators.double_bottom(bars.low, bars.close),
    "breakout_signal": lambda bars, _: indicators.breakout(bars.high, bars.close),
    "breakdown_signal": lambda bars, _: indicators.breakdown(bars.low, bars.close),
    "sma_N": lambda bars, spec: cumulative_sum(bars.close, spec.period) / spec.period,
    "ema_N": lambda bars, spec: _seeded(bars.close, spec.period, 2 / (spec.period + 1)),
    "rsi_N": _rsi,
    "atr_N": _atr,
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
        values = np.array(FEATURES[name].compute(bars, spec), np.float64)
    else:
        key = f"{name.partition('_')[0]}_N" if spec.period else name
        values = np.array(_COMPUTE[key](bars, spec), np.float64)
    values[: spec.warm_up - 1] = np.nan
    return values


def stored(values: np.ndarray, spec: FeatureSpec, close: np.ndarray) -> np.ndarray:
    """Feature values of one window in the form that the float32 table stores (see
    `FeatureSpec.unit`), float64[n].
    """
    if spec.unit == "price":
        return values - close
    if spec.unit == "growth":
        out = np.full(len(close), np.nan)
        out[GROWTH_BARS:] = close[GROWTH_BARS:] - close[:-GROWTH_BARS]
        return out
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
    return Window(
        bars.open[rows],
        bars.high[rows],
        bars.low[rows],
        bars.close[rows],
        bars.volume[rows],
        bars.date[rows],
        bars.minute[rows],
        bars.tick_size,
    )
