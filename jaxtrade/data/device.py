"""A market on the host, as a pytree with NumPy leaves, and on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars
from jaxtrade.data.calendar.schedule import Schedule, local_seconds, spread
from jaxtrade.data.calendar.sessions import window_minutes, window_openings
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import (
    FIXED_COLUMNS,
    NOW,
    TIME_COLUMNS,
    TRUE_RANGES,
    Unit,
    context_column,
    context_features,
    feature_column,
    feature_spec,
    shape_of,
    table_columns,
)
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.types import (
    Array,
    MarketData,
    MarketView,
)

# The view: what observations read of a market. The host prepares it so that a slot costs one
# product and a few sums.
#
# A slot of bar b, seen at the close of bar t, is
#
#     ((level[b] - P close[t]) + value[b]) * (1 / ATR[t] where M, else 1) + L log(1 / ATR[t]) + V
#     log(1 / (volume + 1)),
#
# where `volume` is the mean volume at bar t, and P, M, L, V are constants in {0, 1} per column
# (`schema.shape_of`).
#
# A price is stored as two parts: `level`, its bar's close in whole ticks, and `value`, the
# difference from it. The float32 sum is then as exact as its parts. Whole ticks are exact in
# float32 below 2^24. In a market with higher prices, `level` and `close` are relative to a base
# (`price_base`). Only their differences are seen, so the base never shows.
#
# Every constant is 0 or 1, and no column has both M and one of L, V. A fused multiply-add therefore
# rounds like a product followed by a sum, so the bits are the same with and without batching.
#
# A task's context is read at the decision bar only. Its slots are computed here completely, by the
# same formula with b = t.

EXACT = 1 << 24  # float32 holds every whole number up to here
BLOCK = 1 << 14  # rows computed at once, so that temporary columns stay in the processor's cache
ALIGNMENT = 64


CENTRED: dict[str, tuple[float, float]] = {  # unit -> what is subtracted, and the divisor
    "index": (50.0, 50.0),
    "negative_index": (-50.0, 50.0),
    "score": (0.0, 100.0),
    "ratio": (1.0, 1.0),
}


def slot_value(
    unit: Unit, scaling: str, x: np.ndarray, close: np.ndarray, tick: float
) -> np.ndarray:
    """Compute the `value` part of one feature's slots (float64[T]).

    x: float64[T], the feature's column of the float table (`schema.UNITS`).
    close: ticks.
    tick: points.
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
        case "share":
            return x * close
    less, over = CENTRED.get(unit, (0.0, 1.0))
    return (x - less) / over


def price_base(lowest: int, highest: int, source: str) -> int:
    """Return what is subtracted from prices in ticks before they become float32.

    It is 0 if they are exact as they are.
    lowest, highest: of all prices of the market, ticks.
    Raises DataError if no base makes them exact.
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
    """Return the view of a float table, with NumPy leaves.

    table: float32[T, C] with the columns of `schema.table_columns(features, context)`.
    tick: points.
    base: ticks, what the table's close is relative to (`price_base`).
    """
    units: list[Unit] = [feature_spec(name).unit for name in features]
    clocks, width = TIME_COLUMNS[scaling], len(features) + len(TIME_COLUMNS[scaling])
    has_levels = any(shape_of(unit, scaling).level for unit in units)
    value, level, now, seen = (
        allocate_aligned(len(table), columns)
        for columns in (width, width if has_levels else 0, len(NOW), len(context))
    )
    for start in range(0, len(table), BLOCK):
        rows = slice(start, start + BLOCK)
        part = np.ascontiguousarray(table[rows].T, np.float64)
        columns = dict(zip(table_columns(features, context), part, strict=True))
        relative, per_atr = columns["close"], 1.0 / columns["atr"]
        close = relative + base
        for i, (name, unit) in enumerate(zip(features, units, strict=True)):
            value[rows, i] = slot_value(unit, scaling, columns[feature_column(name)], close, tick)
            if has_levels:
                level[rows, i] = shape_of(unit, scaling).level * relative
        for i, name in enumerate(clocks, len(features)):
            value[rows, i] = columns[name]
        level[rows, len(features) :] = 0
        log_per_atr, log_per_volume = np.log(per_atr), -np.log(columns["volume_mean"] + 1.0)
        now[rows] = np.stack([relative, per_atr, log_per_atr, log_per_volume], axis=1)
        for i, name in enumerate(context):
            # At the close of its own bar: a price's `level` is that close, both cancel.
            unit = feature_spec(name).unit
            shape, x = shape_of(unit, scaling), columns[context_column(name)]
            slot = slot_value(unit, scaling, x, close, tick) * (per_atr if shape.per_atr else 1.0)
            seen[rows, i] = (
                slot + shape.log_per_atr * log_per_atr + shape.log_per_volume * log_per_volume
            )
    return MarketView(
        value,  # type: ignore[arg-type]  # host leaves
        level if level.any() else None,  # type: ignore[arg-type]
        now,  # type: ignore[arg-type]
        scaling,
        features,
        context=seen if context else None,  # type: ignore[arg-type]
        base=np.int32(base) if base else None,  # type: ignore[arg-type]
    )


def allocate_aligned(rows: int, columns: int) -> np.ndarray:
    """Allocate an uninitialised float32[rows, columns] that begins at a multiple of 64 bytes.

    JAX uses such memory as it is on a CPU; any other array it copies.
    """
    size = rows * columns * np.dtype(np.float32).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size].view(np.float32).reshape(rows, columns)


# The clock of `env.scaling: seed`: 09:30 and 16:59 in minutes of the day, then the scales of hours
# and minutes.
SEED_OPEN, SEED_CLOSE, SEED_HOURS, SEED_MINUTES = 570, 1019, 7.48, 449


# Columns written into the table together: its rows are interleaved, and each pass over them reads
# all of its memory.
TOGETHER = 4
WRITTEN = 1 << 15  # rows written at once


def float_table(
    host: features.Window,
    bars: Bars,
    ids: np.ndarray,
    tr_sum: np.ndarray,
    schedule: Schedule,
    config: RunConfig,
    base: int = 0,
) -> np.ndarray:
    """Compute the float32 table [T, C] with the columns of `schema.table_columns`.

    The close is in ticks, relative to `base`. NaN before a warm-up becomes 0. No decision reads
    those values.
    """
    names = (*config.env.features, *context_features(config.env.task))
    windows = features.window_slices(ids)
    out = np.empty((len(bars), len(FIXED_COLUMNS) + len(names)), np.float32)

    def feature(name: str) -> np.ndarray:
        column = np.empty(len(host.close), np.float32)
        for rows in windows:
            part = features.take(host, rows)
            column[rows] = features.encode_feature(
                features.compute_feature(part, name), feature_spec(name), part.close
            )
        return column

    def volume_mean() -> np.ndarray:
        return np.concatenate([features.volume_mean(host.volume[rows]) for rows in windows])

    makers = [
        *fixed_columns(bars, host.close - base, tr_sum, volume_mean, schedule, config),
        *(partial(feature, name) for name in names),
    ]
    for first in range(0, len(makers), TOGETHER):
        columns = [to_float32(make()) for make in makers[first : first + TOGETHER]]
        for start in range(0, len(bars), WRITTEN):
            rows = slice(start, start + WRITTEN)
            for i, column in enumerate(columns):
                out[rows, first + i] = column[rows]
    return out


def to_float32(column: np.ndarray) -> np.ndarray:
    """Convert a column to the form of the table: float32, and 0 before a warm-up."""
    found = column.astype(np.float32)
    return np.nan_to_num(found, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)


def fixed_columns(
    bars: Bars,
    close: np.ndarray,
    tr_sum: np.ndarray,
    volume_mean: Callable[[], np.ndarray],
    schedule: Schedule,
    config: RunConfig,
) -> list[Callable[[], np.ndarray]]:
    """Return functions that compute `schema.FIXED_COLUMNS`, each [T].

    close: ticks of the mid, relative to the base.
    """
    return [
        lambda: close,
        lambda: np.where(tr_sum < 0, 1.0, np.maximum(tr_sum / TRUE_RANGES, 1.0)),
        volume_mean,
        *_clock_columns(bars, schedule, config),
    ]


def _clock_columns(
    bars: Bars, schedule: Schedule, config: RunConfig
) -> list[Callable[[], np.ndarray]]:
    """Return functions that compute the clock columns, each float64[T].

    They are hour, from_open_seed, to_close_seed, from_open, to_flat. In rows without a scheduled
    session, `to_flat` counts to an ordinary day's flat time (16:59 for futures).
    """
    contract, overnight = bars.contract, config.session.overnight
    second = (local_seconds(bars.time, contract.zone) % 86_400).astype(
        np.int32
    )  # of the exchange day
    days = bars.trade_dates[bars.date_starts]
    opening = window_openings(days, contract, overnight)
    length = window_minutes(contract, overnight)
    at = schedule.find(days)
    flat = np.where(at >= 0, schedule.flat[at], opening + 60 * length)

    def by_row(per_day: np.ndarray) -> np.ndarray:
        return spread(per_day, bars.date_starts, len(bars))

    return [
        lambda: (second / 60 / 60 - 9.5) / SEED_HOURS,
        lambda: (second / 60 - SEED_OPEN) / SEED_MINUTES,
        lambda: (SEED_CLOSE - second / 60) / SEED_MINUTES,
        lambda: (bars.time - by_row(opening)) / 60 / length,
        lambda: (by_row(flat) - bars.time - bars.bar_seconds) / 60 / length,
    ]


def words_of(digest: str) -> np.ndarray:
    """Convert a fingerprint in hex to the form on the device (uint32[8])."""
    return np.frombuffer(bytes.fromhex(digest), ">u4").astype(np.uint32)


def to_device(data: MarketData, config: RunConfig) -> MarketData:
    """Copy a market with NumPy leaves to the device.

    It gets tables if `data.windows` says so, where auto means on a TPU. Raises ConfigError
    as `with_tables`.
    """
    # Nobody else holds the view's arrays, so JAX may use their memory as it is.
    view = jax.tree.map(jax.device_put, data.view)
    rest = jax.tree.map(
        lambda array: jax.device_put(array, may_alias=False), data.replace(view=None)
    )
    asked = config.data.windows
    if asked == "table" or (asked == "auto" and jax.default_backend() == "tpu"):
        view = with_tables(view, config.env.window)
    return rest.replace(view=view)


LANES = 128  # a TPU pads the rows of an array to a multiple of this


def table_bytes(view: MarketView, window: int) -> int:
    """Count the bytes that the tables of a view take on a device, rows padded to `LANES` numbers."""
    bars, width = view.value.shape
    row = math.ceil(window * width / LANES) * LANES * 4
    return bars * row * (1 if view.level is None else 2)


def with_tables(view: MarketView, window: int, device: Any = None) -> MarketView:
    """Return the view with `windows` and `level_windows`.

    window: bars in a window, at most those of the market.
    Raises ConfigError if the tables do not fit into the memory that `device` (default: the first of
    this process) still has.
    """
    needed = table_bytes(view, window)
    stats = (device or jax.local_devices()[0]).memory_stats() or {}  # a CPU has none
    free = stats.get("bytes_limit", math.inf) - stats.get("bytes_in_use", 0)
    if needed > free:
        raise ConfigError(
            f"data.windows=table needs {needed / 1e9:.1f} GB for {view.value.shape[0]:,} bars, and the "
            f"device has {free / 1e9:.1f} GB left; use fewer bars (data.start, data.end), a shorter "
            "env.window, or data.windows=slices, which is slow on a TPU"
        )
    return view.replace(
        windows=_table(view.value, window),
        level_windows=None if view.level is None else _table(view.level, window),
    )


def _table(column: Array, window: int) -> Array:
    """Compute float32[T, window * C], whose row t holds rows t - window .. t - 1 of `column`.

    `column` is float32[T, C]. The first rows, which no observation reads, hold those of row
    `window`, as a slice that begins before the array does.
    """
    first = jnp.clip(jnp.arange(column.shape[0]) - window, 0, column.shape[0] - window)
    return jnp.concatenate([column[first + i] for i in range(window)], axis=1)
