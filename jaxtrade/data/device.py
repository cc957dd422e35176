"""A market on the host, as a pytree with NumPy leaves, and on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import PRICES
from jaxtrade.types import (
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

    @property
    def path(self) -> IntrabarPath | None:
        """The order of prices inside each bar, with NumPy leaves; None without seconds."""
        found = self._part("path")
        return IntrabarPath(**found) if found else None  # type: ignore[arg-type]  # host leaves

    @property
    def tick_value(self) -> TickValue | None:
        """The value of a tick in each bar, with NumPy leaves; None if profits arise in dollars."""
        found = self._part("tick_value")
        return TickValue(**found) if found else None  # type: ignore[arg-type]  # host leaves

    def _part(self, prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(f"{prefix}."): array
            for name, array in self.arrays.items()
            if name.startswith(f"{prefix}.")
        }


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
    ask = {name: host.arrays[f"ask.{name}"] for name in PRICES if f"ask.{name}" in host.arrays}
    return MarketData(
        **arrays,  # type: ignore[arg-type]  # host leaves
        sessions=sessions,
        view=view,  # type: ignore[arg-type]
        fingerprint=words_of(host.fingerprint),  # type: ignore[arg-type]
        path=host.path,  # type: ignore[arg-type]
        ask=Quotes(**ask) if ask else None,  # type: ignore[arg-type]
        tick_value=host.tick_value,
    )


def words_of(digest: str) -> np.ndarray:
    """uint32[8]: a fingerprint in hex as the device holds it."""
    return np.frombuffer(bytes.fromhex(digest), ">u4").astype(np.uint32)


def to_device(data: MarketData) -> MarketData:
    """Copy a market with NumPy leaves to the device."""
    import jax

    # Nobody else holds the view's arrays, so JAX may use their memory as it is.
    view = jax.tree.map(jax.device_put, data.view)
    rest = jax.tree.map(
        lambda array: jax.device_put(array, may_alias=False), data.replace(view=None)
    )
    return rest.replace(view=view)
