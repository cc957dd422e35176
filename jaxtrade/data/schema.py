"""What a feature is: name, unit, warm-up, formula; and the columns of the market's float table.

This module imports neither JAX nor pandas, so that the environment can address columns by name.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from jaxtrade.errors import ConfigError

Unit = Literal["price", "move", "growth", "range", "volume", "index"]
TRUE_RANGES = 14  # true ranges in the bracket's sum S
VOLUME_BARS = 20  # bars of the mean volume
NO_VOLUME = "no volume: volume slots are constant"  # what runs and reports say of bars that have none
GROWTH_BARS = 10  # look-back of `momentum`

# Columns every market has, in front of the requested features:
#   close           ticks
#   atr             max(S/14, 1 tick) in ticks; 1 where S is not yet defined
#   volume_mean     mean volume of the last 20 bars of the feature window, this one included (fewer at its start)
#   hour            (exchange decimal hour of the open stamp - 9.5) / 7.48
#   from_open_seed  minutes from 09:30 on the exchange clock to the open stamp / 449
#   to_close_seed   minutes from the open stamp to 16:59 on the exchange clock / 449
#   from_open       minutes from the session's window opening to the open stamp / window length
#   to_flat         minutes from the bar's scheduled close to the session's flat time / window length
FIXED_COLUMNS: tuple[str, ...] = (
    "close", "atr", "volume_mean", "hour", "from_open_seed", "to_close_seed", "from_open", "to_flat",
)


@dataclass(frozen=True)
class FeatureSpec:
    """A causal feature of one bar and the bars before it.

    unit says how the float32 table stores it, exactly or nearly so:
        price   a level; stored as (x - close) in ticks
        move    a difference of levels; ticks
        growth  a ratio close / close[-n]; stored as close - close[-n] in ticks
        range   a size of moves; ticks
        volume  as it is
        index   a bounded figure (RSI: 0..100); as it is
    warm_up: bars of the feature window, this one included, before the value may be decided on.
    period: the look-back N of a parametric feature, else 0.
    """

    name: str
    unit: Unit
    warm_up: int
    formula: str
    period: int = 0


_SEED = {
    spec.name: spec
    for spec in (
        FeatureSpec("close", "price", 1, "close"),
        FeatureSpec("volume", "volume", 1, "volume"),
        FeatureSpec("rsi", "index", TRUE_RANGES + 1,
                    "100 - 100/(1 + G/(L + 1e-8)), G and L simple means of the last 14 rises and falls in points"),
        FeatureSpec("macd", "move", 4 * 26, "EMA12 - EMA26 of close, both started at the window's first close"),
        FeatureSpec("momentum", "growth", GROWTH_BARS + 1, "close / close 10 bars ago"),
        FeatureSpec("atr", "range", TRUE_RANGES + 1, "S/14, the simple mean of the last 14 true ranges"),
        FeatureSpec("vwap", "price", 1, "sum(close*volume)/sum(volume) since the trade date's first bar; without any "
                    "volume the mean of (high+low+close)/3"),
    )
}
_PARAMETRIC = re.compile(r"(sma|ema|rsi|atr)_([1-9][0-9]{0,3})")


def feature_spec(name: str) -> FeatureSpec:
    """The declaration of a feature, parametric ones (`sma_N, ema_N, rsi_N, atr_N`) included.

    Raises ConfigError listing what exists. Formulas of the parametric ones are the textbook's, as TA-Lib has them:
    EMA seeded with the SMA of its first N closes, RSI and ATR with Wilder's smoothing.
    """
    if name in _SEED:
        return _SEED[name]
    match = _PARAMETRIC.fullmatch(name)
    if match is None:
        near = difflib.get_close_matches(name, [*_SEED, "sma_20", "ema_20", "rsi_14", "atr_14"], n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"env.features: unknown feature '{name}' (known: {', '.join(_SEED)}, sma_N, ema_N, rsi_N, "
                          f"atr_N with N a number){hint}")
    kind, period = match[1], int(match[2])
    if kind == "rsi" and period < 2:
        raise ConfigError(f"env.features: '{name}': RSI needs a period of at least 2")
    if kind == "sma":
        return FeatureSpec(name, "price", period, f"mean of the last {period} closes", period)
    if kind == "ema":
        return FeatureSpec(name, "price", 4 * period, f"EMA with alpha 2/{period + 1}, seeded with the SMA", period)
    if kind == "rsi":
        return FeatureSpec(name, "index", 4 * period + 1, f"Wilder's RSI over {period} bars", period)
    return FeatureSpec(name, "range", 4 * period + 1, f"Wilder's ATR over {period} bars", period)


def feature_unit(name: str) -> Unit:
    """Unit of a feature (see FeatureSpec)."""
    return feature_spec(name).unit


def feature_column(name: str) -> str:
    """Name of a requested feature's column in the float table (`feature.close` beside the fixed `close`)."""
    return f"feature.{name}"


def table_columns(features: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the float table's columns: the fixed ones, then one per requested feature in order.

    Raises ConfigError for an unknown or repeated feature.
    """
    for i, name in enumerate(features):
        feature_spec(name)
        if name in features[:i]:
            raise ConfigError(f"env.features: '{name}' appears twice; keep one")
    return FIXED_COLUMNS + tuple(feature_column(name) for name in features)


def longest_warm_up(features: tuple[str, ...]) -> int:
    """Bars that the slowest of the features needs before its value may be decided on."""
    return max((feature_spec(name).warm_up for name in features), default=1)
