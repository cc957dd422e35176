"""The view: what observations read of a market. The host prepares it so that a slot costs one
product and a few sums.

A slot of bar b, seen at the close of bar t, is

    ((level[b] - P close[t]) + value[b]) * (1 / ATR[t] where M, else 1) + L log(1 / ATR[t]) + V
    log(1 / (volume + 1)),

where `volume` is the mean volume at bar t, and P, M, L, V are constants in {0, 1} per column
(`schema.shape_of`).

A price is stored as two parts: `level`, its bar's close in whole ticks, and `value`, the difference
from it. The float32 sum is then as exact as its parts. Whole ticks are exact in float32 below 2^24.
In a market with higher prices,
`level` and `close` are relative to a base (`price_base`). Only their differences are seen, so the base never shows.

Every constant is 0 or 1, and no column has both M and one of L, V. A fused multiply-add therefore
rounds like a product followed by a sum, so the bits are the same with and without batching.

A task's context is read at the decision bar only. Its slots are computed here completely, by the
same formula with b = t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxtrade.data.features.schema import (
    NOW,
    TIME_COLUMNS,
    Unit,
    context_column,
    feature_column,
    feature_spec,
    shape_of,
    table_columns,
)
from jaxtrade.errors import DataError
from jaxtrade.types import MarketView

EXACT = 1 << 24  # float32 holds every whole number up to here
BLOCK = 1 << 14  # rows computed at once, so that temporary columns stay in the processor's cache
ALIGNMENT = 64


def slot_value(
    unit: Unit, scaling: str, x: np.ndarray, close: np.ndarray, tick: float
) -> np.ndarray:
    """The `value` part of one feature's slots, float64[T].

    x: float64[T], the feature's column of the float table (`schema.UNITS`). close: ticks. tick:
        points.
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


def price_base(lowest: int, highest: int, source: str) -> int:
    """What is subtracted from prices in ticks before they become float32: 0 if they are exact as
    they are.

    lowest, highest: of all prices of the market, ticks. Raises DataError if no base makes them
        exact.
    """
    if highest < EXACT:
        return 0
    base = (lowest + highest) // 2
    if highest - base >= EXACT:
        raise DataError(
            f"{source}: prices of {lowest} to {highest} ticks span {highest - lowest} ticks, more than "
            f"{2 * EXACT}: float32 cannot hold them exactly. Fix: use a coarser tick_size in the contract "
            "file (one decimal less is a tenth of the ticks; the prices must lie on it), or fewer years "
            "(data.start, data.end)"
        )
    return base


def host_view(
    table: np.ndarray,
    features: tuple[str, ...],
    scaling: str,
    tick: float,
    context: tuple[str, ...] = (),
    base: int = 0,
) -> MarketView:
    """The view of a float table, with NumPy leaves.

    table: float32[T, C] with the columns of `schema.table_columns(features, context)`. tick:
        points. base: ticks, what
    the table's close is relative to (`price_base`).
    """
    width = len(features) + len(TIME_COLUMNS[scaling])
    has_levels = any(shape_of(feature_spec(name).unit, scaling).level for name in features)
    leaves: dict[str, Any] = {
        "value": aligned(len(table), width),
        "now": aligned(len(table), len(NOW)),
        "level": aligned(len(table), width) if has_levels else None,
    }
    if context:
        leaves["context"] = aligned(len(table), len(context))
    for start in range(0, len(table), BLOCK):
        rows = slice(start, start + BLOCK)
        part = _block(table[rows], features, scaling, tick, context, base)
        for name, columns in part.items():
            if leaves[name] is not None:
                for i, column in enumerate(columns):
                    leaves[name][rows, i] = column
    if has_levels and not leaves["level"].any():
        leaves["level"] = None
    return MarketView(
        **leaves,
        scaling=scaling,
        features=features,
        base=np.int32(base) if base else None,  # type: ignore[arg-type]  # a host leaf
    )


def aligned(rows: int, columns: int) -> np.ndarray:
    """An uninitialised float32[rows, columns] that begins at a multiple of 64 bytes. JAX uses such
    memory as it is on a CPU; any other array it copies."""
    size = rows * columns * np.dtype(np.float32).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size].view(np.float32).reshape(rows, columns)


def _block(
    table: np.ndarray,
    features: tuple[str, ...],
    scaling: str,
    tick: float,
    context: tuple[str, ...],
    base: int,
) -> dict[str, list[np.ndarray]]:
    """The columns of each leaf for some rows of the table, float64[n] each."""
    names = table_columns(features, context)
    columns = dict(zip(names, np.ascontiguousarray(table.T, np.float64), strict=True))
    relative, per_atr = columns["close"], 1.0 / columns["atr"]
    close = relative + base
    values, levels = [], []
    for name in features:
        unit = feature_spec(name).unit
        values.append(slot_value(unit, scaling, columns[feature_column(name)], close, tick))
        levels.append(shape_of(unit, scaling).level * relative)
    values += [columns[name] for name in TIME_COLUMNS[scaling]]
    levels += [np.zeros_like(close)] * len(TIME_COLUMNS[scaling])
    now = [relative, per_atr, np.log(per_atr), -np.log(columns["volume_mean"] + 1.0)]
    seen = [
        _at_own_bar(
            feature_spec(name).unit, scaling, columns[context_column(name)], [close, *now[1:]], tick
        )
        for name in context
    ]
    return {"value": values, "level": levels, "now": now, **({"context": seen} if context else {})}


def _at_own_bar(
    unit: Unit, scaling: str, x: np.ndarray, now: list[np.ndarray], tick: float
) -> np.ndarray:
    """The slot of a feature, seen at the close of its own bar, float64[T].

    For a price, `level` is that same close, so the two cancel.
    """
    close, per_atr, log_per_atr, log_per_volume = now
    shape = shape_of(unit, scaling)
    value = slot_value(unit, scaling, x, close, tick) * (per_atr if shape.per_atr else 1.0)
    return value + shape.log_per_atr * log_per_atr + shape.log_per_volume * log_per_volume
