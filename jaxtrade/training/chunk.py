"""A chunk: a fixed number of updates as one compiled program. The host acts only at chunk borders."""

from __future__ import annotations

import functools
import time
from typing import Any, Self

import jax
import numpy as np

from jaxtrade.training.hooks import Exchange
from jaxtrade.types import Algorithm, Array, PyTree


class _Compilations:
    """Counts the programs that XLA compiles in this process, by JAX's monitoring events."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        self.count += event == "/jax/core/compile/backend_compile_duration"


@functools.cache  # one listener per process
def _compilations() -> _Compilations:
    return _Compilations()


def chunk_program(algorithm: Algorithm, updates: int, exchange: Exchange | None = None) -> Any:
    """The jitted function (state, params, inputs) -> (state, metrics [updates, ...], news) of `updates` updates.

    The function donates the state: its arrays are invalid after the call. inputs: [updates, ...], or None if the
    algorithm takes no inputs. news: result of `exchange.close_chunk`, or None.
    """

    def run(state: PyTree, params: PyTree, inputs: PyTree = None) -> tuple[PyTree, dict[str, Array], PyTree]:
        state, metrics = jax.lax.scan(lambda state, now: algorithm.update(state, params, now), state, inputs,
                                      length=updates)
        state, news = exchange.close_chunk(state) if exchange else (state, None)
        return state, metrics, news

    return jax.jit(run, donate_argnums=0)


class Chunk:
    """A compiled chunk. compile_seconds: time of the compilation. recompiles: programs compiled while chunks ran."""

    def __init__(self, program: Any) -> None:
        """program: from `chunk_program`."""
        self.recompiles = 0
        self.compile_seconds = 0.0
        self._program = program

    def compile(self, state: PyTree, params: PyTree, inputs: PyTree = None) -> Self:
        """Compile ahead of time for arguments with these shapes and dtypes. Returns the chunk itself."""
        start = time.perf_counter()
        self._program = self._program.lower(state, params, inputs).compile()
        self.compile_seconds = time.perf_counter() - start
        return self

    def __call__(self, state: PyTree, params: PyTree,
                 inputs: PyTree = None) -> tuple[PyTree, dict[str, np.ndarray], PyTree]:
        """Run the chunk and wait for the device. Metrics and news are NumPy arrays.

        Programs that are compiled meanwhile count as recompiles.
        """
        before = _compilations().count
        state, metrics, news = self._program(state, params, inputs)
        state, (measured, news) = jax.block_until_ready(state), jax.device_get((metrics, news))
        self.recompiles += _compilations().count - before
        return state, measured, news


def compile_chunk(algorithm: Algorithm, updates: int, state: PyTree, params: PyTree, inputs: PyTree = None,
                  exchange: Exchange | None = None) -> Chunk:
    """The program that `training.loop.train` runs, compiled for arguments with these shapes and dtypes."""
    return Chunk(chunk_program(algorithm, updates, exchange)).compile(state, params, inputs)
