"""A chunk: a fixed number of updates as one compiled program. The host acts only at chunk
borders.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import numpy as np

from jaxtrade.storage.compiling import Pending, Programs
from jaxtrade.storage.hosted import hosted
from jaxtrade.storage.sizes import program_bytes
from jaxtrade.training.hooks import Exchange
from jaxtrade.training.placing import ONE_DEVICE, Place
from jaxtrade.types import Algorithm, Array, PyTree


class _Compilations(threading.local):
    """Counts the programs that XLA compiles, by thread: others are compiled beside a run, and do
    not delay it.
    """

    count = 0


_COMPILATIONS = _Compilations()


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    """JAX calls this in the thread that has compiled a program, or read it from JAX's cache."""
    del duration_secs, kwargs
    _COMPILATIONS.count += event == "/jax/core/compile/backend_compile_duration"


@functools.cache  # one listener per process
def _count_compilations() -> _Compilations:
    jax.monitoring.register_event_duration_secs_listener(_listen)
    return _COMPILATIONS


def chunk_program(
    algorithm: Algorithm,
    updates: int,
    exchange: Exchange | None = None,
    place: Place = ONE_DEVICE,
    state: PyTree = None,
    params: PyTree = None,
) -> Any:
    """The jitted function (state, params, inputs) -> (state, metrics [updates, ...], news) of
    `updates` updates.

    The function donates the state: its arrays are invalid after the call. inputs: [updates, ...],
    or None if the algorithm takes no inputs. news: result of `exchange.close_chunk`, or None.

    place: the devices; with several, `algorithm` is from its `wrap`, and `state` and `params` are
        given, or shapes of
    them.
    """

    def run(
        state: PyTree, params: PyTree, inputs: PyTree = None
    ) -> tuple[PyTree, dict[str, Array], PyTree]:
        state, metrics = jax.lax.scan(
            lambda state, now: algorithm.update(state, params, now), state, inputs, length=updates
        )
        state, news = exchange.close_chunk(state) if exchange else (state, None)
        return state, metrics, news

    return place.program(run, state, params)


class Chunk:
    """A chunk that is being compiled. recompiles: programs that were compiled because chunks
    ran.
    """

    def __init__(self, pending: Pending) -> None:
        """pending: the program, from `chunk_program`."""
        self.recompiles = 0
        self._pending = pending

    @property
    def compile_seconds(self) -> float:
        """Time spent on the program: traced, lowered and compiled, or read from JAX's cache."""
        return self._pending.seconds

    @property
    def eager(self) -> bool:
        """Whether the chunk is not compiled."""
        return self._pending.eager

    @property
    def bytes(self) -> int | None:
        """Bytes that the program works on: arguments, results and temporaries. None if XLA does not
        tell.
        """
        return program_bytes(self._pending.wait())

    def wait(self) -> None:
        """Wait until the program is ready. Raises what its compilation raised."""
        self._pending.wait()

    def __call__(
        self, state: PyTree, params: PyTree, inputs: PyTree = None
    ) -> tuple[PyTree, dict[str, np.ndarray], PyTree]:
        """Run the chunk and wait for the device. Metrics and news are NumPy arrays.

        Programs that this thread compiles meanwhile count as recompiles.
        """
        program, counted = self._pending.wait(), _count_compilations()
        before = counted.count
        state, metrics, news = program(state, params, inputs)
        state, (measured, news) = jax.block_until_ready(state), hosted((metrics, news))
        self.recompiles += (
            0 if self.eager else counted.count - before
        )  # without jit, each operation is compiled
        return state, measured, news


def compile_chunk(
    programs: Programs,
    algorithm: Algorithm,
    updates: int,
    state: PyTree,
    params: PyTree,
    inputs: PyTree = None,
    exchange: Exchange | None = None,
    place: Place = ONE_DEVICE,
) -> Chunk:
    """Begin to compile the program that `training.loop.train` runs, for arguments with these shapes
    and dtypes.
    """
    name = f"train chunk of {updates} updates" + ("" if exchange is None else " with advice")
    program = chunk_program(algorithm, updates, exchange, place, state, params)
    return Chunk(programs.begin(name, program, (state, params, inputs)))
