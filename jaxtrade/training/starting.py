"""How a run starts: its first state, and its chunk that is compiled meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxtrade.config import TrainConfig
from jaxtrade.storage.compiling import Programs
from jaxtrade.training import chunk as chunks
from jaxtrade.training.chunk import Chunk
from jaxtrade.training.hooks import Exchange, Hparams, set_hparams
from jaxtrade.training.placing import Place
from jaxtrade.training.population import Stack
from jaxtrade.types import Algorithm, Array, LoopState, PyTree


class First(NamedTuple):
    """How a run starts: its state, and its chunk if that is being compiled already."""

    state: LoopState
    chunk: Chunk | None


def begun(
    programs: Programs,
    algorithm: Algorithm,
    params: PyTree,
    key: Array | None,
    state: LoopState | None,
    stack: Stack,
    config: TrainConfig,
    exchange: Exchange | None,
    hparams: Hparams,
    place: Place,
) -> First:
    """The first state. A new one is drawn from `key`, while the chunk is compiled for its shapes.
    The tunable floats are set afterwards, so that other values are no other program."""
    if state is not None:
        return First(place.put(state), None)
    assert key is not None
    keys = stack.split_key(key)
    # With an exchange the first answers are constants of `init`, and the chunk's inputs are not
    # known yet.
    init = programs.begin("init", jax.jit(algorithm.init), (keys, params))
    chunk = None
    if exchange is None:
        chunk = chunks.compile_chunk(
            programs, algorithm, config.chunk_updates, init.result_like, params, place=place
        )
    return First(place.settled(set_hparams(init.wait()(keys, params), hparams)), chunk)
