"""The view: what observations read of a market. The host prepares it so that a slot costs one product and a few sums.

A slot of bar b, seen at the close of bar t, is

    ((level[b] - P close[t]) + value[b]) * (1 / ATR[t] where M, else 1) + L log(1 / ATR[t]) + V log(1 / (volume + 1)),

where `volume` is the mean volume at bar t, and P, M, L, V are constants in {0, 1} per column (`schema.shape_of`).

A price is stored as two parts: `level`, its bar's close in whole ticks, and `value`, the difference from it. The
float32 sum is then as exact as its parts.

Every constant is 0 or 1, and no column has both M and one of L, V. A fused multiply-add therefore rounds like a product
followed by a sum, so the bits are the same with and without batching.

A task's context is read at the decision bar only. Its slots are computed here completely, by the same formula with
b = t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxtrade.data.features.schema import (
    TIME_COLUMNS,
    Unit,
    context_column,
    feature_column,
    feature_spec,
    shape_of,
    table_columns,
)
from jaxtrade.types import MarketView


def slot_value(unit: Unit, scaling: str, x: np.ndarray, close: np.ndarray, tick: float) -> np.ndarray:
    """The `value` part of one feature's slots, float64[T].

    x: float64[T], the feature's column of the float table (`schema.UNITS`). close: ticks. tick: points.
    """
    if scaling == "seed":
        match unit:
            case "price":
                return (x + close) * tick
            case "move" | "range":
                return x * tick
            case "growth":
                return close / (close - x)
            case _:
                return x
    match unit:
        case "range":
            return np.log(np.maximum(x, 1.0))
        case "volume":
            return np.log(x + 1.0)
        case "index":
            return (x - 50.0) / 50.0
        case "negative_index":
            return (x + 50.0) / 50.0
        case "score":
            return x / 100.0
        case "ratio":
            return x - 1.0
        case "share":
            return x * close
        case _:
            return x


def host_view(table: np.ndarray, features: tuple[str, ...], scaling: str, tick: float,
              context: tuple[str, ...] = ()) -> MarketView:
    """The view of a float table, with NumPy leaves.

    table: float32[T, C] with the columns of `schema.table_columns(features, context)`. tick: points.
    """
    names = table_columns(features, context)
    columns = dict(zip(names, table.astype(np.float64).T, strict=True))
    close, per_atr = columns["close"], 1.0 / columns["atr"]
    values, levels = [], []
    for name in features:
        unit = feature_spec(name).unit
        values.append(slot_value(unit, scaling, columns[feature_column(name)], close, tick))
        levels.append(shape_of(unit, scaling).level * close)
    values += [columns[name] for name in TIME_COLUMNS[scaling]]
    levels += [np.zeros_like(close)] * len(TIME_COLUMNS[scaling])
    now = [close, per_atr, np.log(per_atr), -np.log(columns["volume_mean"] + 1.0)]
    value, level, own = (np.stack(part, axis=1).astype(np.float32) for part in (values, levels, now))
    leaves: dict[str, Any] = {"value": value, "level": level if level.any() else None, "now": own}
    if context:
        seen = [_at_own_bar(feature_spec(name).unit, scaling, columns[context_column(name)], now, tick)
                for name in context]
        leaves["context"] = np.stack(seen, axis=1).astype(np.float32)
    return MarketView(**leaves, scaling=scaling, features=features)


def _at_own_bar(unit: Unit, scaling: str, x: np.ndarray, now: list[np.ndarray], tick: float) -> np.ndarray:
    """The slot of a feature, seen at the close of its own bar, float64[T].

    For a price, `level` is that same close, so the two cancel.
    """
    close, per_atr, log_per_atr, log_per_volume = now
    shape = shape_of(unit, scaling)
    value = slot_value(unit, scaling, x, close, tick) * (per_atr if shape.per_atr else 1.0)
    return value + shape.log_per_atr * log_per_atr + shape.log_per_volume * log_per_volume
