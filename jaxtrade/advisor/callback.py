"""The callback transport: one host callback per update. The only module that imports `io_callback`.

These rules, found by measurement, keep a callback from hanging or breaking a run:
- arguments and results take at most 64 KiB together;
- the callback uses NumPy only, never waits and never raises;
- all traces share one callable;
- it runs on one device and never under `vmap`, which would call it once per environment.
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

MOST_BYTES = (
    64 * 1024
)  # from 100 KiB on, XLA copies arguments on the same threads that wait in the callback


@dataclass(frozen=True)
class Answering:
    """The host function that the compiled program calls.

    Two instances of one bridge are equal, so a new trace does not compile a new program. bars: T of
    the table. rows: M, the most rows of a delta. Both are stored here so that the exception handler
    depends on nothing that can fail.
    """

    bridge: Bridge
    bars: int
    rows: int

    def __call__(
        self, update: object, bars: object, weights: object
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pass on the demand and return the rows that become visible. On any failure return an
        empty delta.
        """
        try:
            self.bridge.wanted(bars, weights)
            delta = self.bridge.delta(int(np.array(update)))
            return np.asarray(delta.bars), np.asarray(delta.rows), np.asarray(delta.version)
        except (
            BaseException
        ) as error:  # the caller is compiled code, which cannot handle an exception
            self.bridge.contain("callback", error)
            return (
                np.full(self.rows, self.bars, np.int32),
                np.zeros((self.rows, len(COLUMNS)), np.float32),
                np.array(0, np.int32),
            )


def exchange(bridge: Bridge) -> Callable[[Array, Array, Array], Delta]:
    """A function for compiled programs: (update int32[], bars int32[K], weights float32[K]) -> the
    delta of `update`.

    Raises ConfigError at trace time where arguments and results exceed 64 KiB, or under `vmap`.
    """
    answering = Answering(bridge, bridge.bars, bridge.rows)
    shapes = (
        jax.ShapeDtypeStruct((bridge.rows,), jnp.int32),
        jax.ShapeDtypeStruct((bridge.rows, len(COLUMNS)), jnp.float32),
        jax.ShapeDtypeStruct((), jnp.int32),
    )

    @jax.custom_batching.custom_vmap
    def ask(update: Array, bars: Array, weights: Array) -> Delta:
        size = sum(value.size * value.dtype.itemsize for value in (update, bars, weights, *shapes))
        if size > MOST_BYTES:
            raise ConfigError(
                f"advisor.rows = {bridge.rows} and advisor.demand = {bars.size}: {size:,} bytes in a "
                f"callback, at most {MOST_BYTES:,}; lower them, or set advisor.transport: exchange"
            )
        return Delta(*io_callback(answering, shapes, update, bars, weights, ordered=False))

    @ask.def_vmap
    def _(size: int, batched: object, *arguments: object) -> tuple[Delta, Delta]:
        raise ConfigError(
            f"advisor.transport: callback: {size} agents or environments at once would call it {size} "
            "times; set advisor.transport: exchange"
        )

    return ask


def settle(bridge: Bridge) -> None:
    """Wait at the end of a run for callbacks in progress. Never raises: exceptions are counted and
    reported.
    """
    try:
        jax.effects_barrier()
    except Exception as error:
        bridge.contain("effects_barrier", error)
