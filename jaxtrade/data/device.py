"""A market on the host, as a pytree with NumPy leaves, and on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import ConfigError
from jaxtrade.types import (
    Array,
    IntrabarPath,
    MarketData,
    MarketView,
    Quotes,
    SessionTable,
    TickValue,
)


@dataclass(frozen=True)
class HostMarket:
    """A market before it goes to the device. T bars, N sessions.

    bars: the bars. arrays: the arrays of the fingerprint by name, in its order: columns of T bars
        and of N sessions,
    `table`, and those of a second side (`ask.*`), of seconds (`path.*`) and of a currency (`tick_value.*`).
    fingerprint, notes, has_volume: as in `market.Market`.
    """

    bars: Bars
    arrays: dict[str, np.ndarray]
    fingerprint: str
    notes: tuple[str, ...]
    has_volume: bool


def _part(host: HostMarket, prefix: str, kind: Callable[..., Any]) -> Any:
    """The arrays of a prefix with NumPy leaves, as a `kind`; None where the market has none."""
    found = {
        name.removeprefix(prefix): array
        for name, array in host.arrays.items()
        if name.startswith(prefix)
    }
    return kind(**found) if found else None


def host_data(host: HostMarket, view: MarketView) -> MarketData:
    """The market as a pytree with NumPy leaves."""
    arrays = {
        name: value
        for name, value in host.arrays.items()
        if "." not in name and name not in ("table", "symbol")
    }
    sessions = SessionTable(
        **{
            name: arrays.pop(name)  # type: ignore[arg-type]  # host leaves
            for name in ("start", "end", "first", "last", "date", "complete")
        }
    )
    return MarketData(
        **arrays,  # type: ignore[arg-type]  # host leaves
        sessions=sessions,
        view=view,  # type: ignore[arg-type]
        fingerprint=words_of(host.fingerprint),  # type: ignore[arg-type]
        path=_part(host, "path.", IntrabarPath),
        ask=_part(host, "ask.", Quotes),
        tick_value=_part(host, "tick_value.", TickValue),
    )


def words_of(digest: str) -> np.ndarray:
    """uint32[8]: a fingerprint in hex as the device holds it."""
    return np.frombuffer(bytes.fromhex(digest), ">u4").astype(np.uint32)


def to_device(data: MarketData) -> MarketData:
    """Copy a market with NumPy leaves to the device."""
    # Nobody else holds the view's arrays, so JAX may use their memory as it is.
    view = jax.tree.map(jax.device_put, data.view)
    rest = jax.tree.map(
        lambda array: jax.device_put(array, may_alias=False), data.replace(view=None)
    )
    return rest.replace(view=view)


LANES = 128  # a TPU pads the rows of an array to a multiple of this


def wants_tables(config: RunConfig) -> bool:
    """Whether the market of this configuration gets tables: `data.windows`, where auto means on a
    TPU.
    """
    return config.data.windows == "table" or (
        config.data.windows == "auto" and jax.default_backend() == "tpu"
    )


def table_bytes(view: MarketView, window: int) -> int:
    """Bytes that the tables of a view take on a device, rows padded to `LANES` numbers."""
    bars, width = view.value.shape
    row = math.ceil(window * width / LANES) * LANES * 4
    return bars * row * (1 if view.level is None else 2)


def with_tables(view: MarketView, window: int, device: Any = None) -> MarketView:
    """The view with `windows` and `level_windows`. window: bars in a window, at most those of the
    market.

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
    """float32[T, window * C]: row t holds rows t - window .. t - 1 of `column` float32[T, C]. The
    first rows, which no observation reads, hold those of row `window`, as a slice that begins
    before the array does."""
    first = jnp.clip(jnp.arange(column.shape[0]) - window, 0, column.shape[0] - window)
    return jnp.concatenate([column[first + i] for i in range(window)], axis=1)
