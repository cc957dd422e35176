"""Samplers: in which session an episode of training starts, and so on which symbol of a set.

A sampler is a pure function (weights, seed, episode, sessions) -> slot:

    weights: float32[M], the share of each symbol that the learner wants (`rl.wrappers`). None
        without such shares.
    seed: uint32[] of the environment. episode: int32[], the number of its episode, from 0.
    sessions: the split. Slots offsets[m]..offsets[m + 1] - 1 are of symbol m; one symbol has no
        `offsets`.
    slot: int32[] in [0, sessions.count).

Random words come from `episode.draw(seed, episode, stream)`, without a key. Streams 1 (session) and
5 (symbol) belong to samplers. With one symbol, all samplers of this module draw as `uniform` does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxtrade.env.episode import below, draw, mix
from jaxtrade.parts import SAMPLERS
from jaxtrade.types import Array, SessionSet

Sampler = Callable[[Array | None, Array, Array, SessionSet], Array]
SESSION, SYMBOL = 1, 5  # streams of random words


def register_sampler(sampler: Sampler) -> Sampler:
    """Register your own sampler under the name of its function, for `sampler.kind`.

    A decorator that returns it.

    Raises ConfigError if another sampler has this name.
    """
    return SAMPLERS.register(sampler.__name__, sampler)


def uniform(weights: Array | None, seed: Array, episode: Array, sessions: SessionSet) -> Array:
    """Draw every session of the split equally often: a symbol with more history is traded more."""
    return below(draw(seed, episode, SESSION), sessions.count)


def _of_several(sampler: Sampler) -> Sampler:
    """Use the sampler where there are several symbols, and `uniform` where there is one."""

    @functools.wraps(sampler)
    def draw_flat(
        weights: Array | None, seed: Array, episode: Array, sessions: SessionSet
    ) -> Array:
        chosen = uniform if sessions.offsets is None else sampler
        return chosen(weights, seed, episode, sessions)

    return draw_flat


@_of_several
def balanced(weights: Array | None, seed: Array, episode: Array, sessions: SessionSet) -> Array:
    """Draw every symbol equally often, and every session of a symbol equally often."""
    return _session_of(
        below(draw(seed, episode, SYMBOL), _symbols(sessions)), seed, episode, sessions
    )


@_of_several
def round_robin(weights: Array | None, seed: Array, episode: Array, sessions: SessionSet) -> Array:
    """Take the symbols in turn by the number of the episode.

    Each environment begins at a symbol that its seed gives.
    """
    turn = mix(seed) % _symbols(sessions).astype(jnp.uint32) + episode.astype(jnp.uint32)
    return _session_of(below(turn, _symbols(sessions)), seed, episode, sessions)


@_of_several
def prioritised(weights: Array | None, seed: Array, episode: Array, sessions: SessionSet) -> Array:
    """Draw each symbol as often as its weight says.

    Without weights, as before the first update, this is `balanced`.
    """
    if weights is None:
        return balanced(weights, seed, episode, sessions)
    upto = jnp.cumsum(weights)
    # At most 1 - 2^-24, so the product is below the sum of all weights: a symbol of weight 0 is
    # never drawn.
    chance = (draw(seed, episode, SYMBOL) >> 8).astype(jnp.float32) * 2.0**-24
    symbol = jnp.sum(upto <= chance * upto[-1], dtype=jnp.int32)
    return _session_of(jnp.minimum(symbol, weights.shape[0] - 1), seed, episode, sessions)


def _symbols(sessions: SessionSet) -> Array:
    """Return M, the number of symbols (int32[])."""
    offsets: Any = sessions.offsets
    return jnp.int32(offsets.shape[0] - 1)


def _session_of(symbol: Array, seed: Array, episode: Array, sessions: SessionSet) -> Array:
    """Draw a random slot of a symbol."""
    offsets: Any = sessions.offsets
    begin, end = offsets[symbol], offsets[symbol + 1]
    return begin + below(draw(seed, episode, SESSION), end - begin)
