"""The callback transport: one host callback per update. The only module that knows where JAX keeps `io_callback`.

Measured rules that keep a callback from hanging or breaking a run: arguments and results of 64 KiB at most; NumPy alone
inside; no waiting; no exception ever leaves it; one callable for all traces; never under `vmap`, where it would be
called once per environment, and on one device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.table import COLUMNS, Delta
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array

MOST_BYTES = 64 * 1024  # from 100 KiB on, XLA copies an argument on the threads that wait in the callback


@dataclass(frozen=True)
class Answering:
    """What the program calls. Two of one bridge are equal, so that a new trace is no new program.

    bars: T of the table. rows: M. Both are kept here: the guard needs nothing that can fail.
    """

    bridge: Bridge
    bars: int
    rows: int

    def __call__(self, update: object, bars: object, weights: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hand the demand over and take what becomes visible; nothing does where anything fails."""
        try:
            self.bridge.wanted(bars, weights)
            delta = self.bridge.delta(int(np.array(update)))
            return np.asarray(delta.bars), np.asarray(delta.rows), np.asarray(delta.version)
        except BaseException as error:  # beyond here is compiled code
            self.bridge.contain("callback", error)
            return (np.full(self.rows, self.bars, np.int32), np.zeros((self.rows, len(COLUMNS)), np.float32),
                    np.array(0, np.int32))


def exchange(bridge: Bridge) -> Callable[[Array, Array, Array], Delta]:
    """A function for compiled programs: (update int32[], bars int32[K], weights float32[K]) -> the delta of `update`.

    Raises ConfigError, when traced, where that is more than 64 KiB or under `vmap`.
    """
    answering = Answering(bridge, bridge.bars, bridge.rows)
    shapes = (jax.ShapeDtypeStruct((bridge.rows,), jnp.int32),
              jax.ShapeDtypeStruct((bridge.rows, len(COLUMNS)), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))

    @jax.custom_batching.custom_vmap
    def ask(update: Array, bars: Array, weights: Array) -> Delta:
        size = sum(value.size * value.dtype.itemsize for value in (update, bars, weights, *shapes))
        if size > MOST_BYTES:
            raise ConfigError(f"advisor.rows = {bridge.rows} and advisor.demand = {bars.size}: {size:,} bytes in a "
                              f"callback, at most {MOST_BYTES:,}; lower them, or set advisor.transport: exchange")
        return Delta(*io_callback(answering, shapes, update, bars, weights, ordered=False))

    @ask.def_vmap
    def _(size: int, batched: object, *arguments: object) -> tuple[Delta, Delta]:
        raise ConfigError(f"advisor.transport: callback: {size} agents or environments at once would call it {size} "
                          "times; set advisor.transport: exchange")

    return ask


def settle(bridge: Bridge) -> None:
    """Wait, at the end of a run, for callbacks that are under way. Never raises: what it meets is counted and told."""
    try:
        jax.effects_barrier()
    except Exception as error:
        bridge.contain("effects_barrier", error)
