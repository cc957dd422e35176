"""A market as a pytree: with NumPy leaves, and on the device."""

from __future__ import annotations

import numpy as np

from jaxtrade.data.prepared import HostMarket
from jaxtrade.data.read.quotes import PRICES
from jaxtrade.types import MarketData, MarketView, Quotes, SessionTable


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
        **arrays,
        sessions=sessions,
        view=view,  # type: ignore[arg-type]
        fingerprint=words_of(host.fingerprint),
        path=host.path,  # type: ignore[arg-type]
        ask=Quotes(**ask) if ask else None,
        tick_value=host.tick_value,
    )  # type: ignore[arg-type]


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
