"""Tables of observation windows: for each bar the window that ends before it, as one row.

On a TPU, a slice of a flat array at another place for each environment becomes a loop over the
environments. A look-up of whole rows does not. The table repeats each bar once for every place in
the window, so it takes far more memory.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, MarketView

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
    needed, free = table_bytes(view, window), _free_bytes(device or jax.local_devices()[0])
    if free is not None and needed > free:
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


def _free_bytes(device: Any) -> int | None:
    """None where the device does not say, as a CPU."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
