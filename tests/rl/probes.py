"""Tiny environments in pure JAX, each with an answer worked out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.types import Array, Outcome


class ProbeRef(struct.PyTreeNode):
    """cue: float32[], a random number in {-1, 1} drawn at each reset; time: int32[]."""

    cue: Array
    time: Array


@dataclasses.dataclass(frozen=True)
class Probe:
    """Episodes of `length` steps, then terminated or truncated; the reward is `reward(ref, action)`.

    The observation is (cue, time / length). With `masked`, action 0 is illegal while cue > 0, and the last action is
    always illegal.
    """

    reward_fn: Callable[[ProbeRef, Array], Array]
    length: int = 1
    truncates: bool = False
    masked: bool = False
    num_actions: int = 2
    observation_size: int = 2

    def reset(self, key: Array, params: Any) -> tuple[ProbeRef, ProbeRef]:
        del params
        ref = ProbeRef(jnp.where(jax.random.bernoulli(key), 1.0, -1.0), jnp.int32(0))
        return ref, ref

    def step(self, key: Array, state: ProbeRef, action: Array, params: Any) -> tuple[ProbeRef, ProbeRef, Outcome]:
        following = state.replace(time=state.time + 1)
        done = following.time >= self.length
        no = jnp.bool_(False)
        fresh, _ = self.reset(key, params)
        state_next = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, following)
        outcome = Outcome(
            final_ref=following, reward=jnp.float32(self.reward_fn(state, action)),
            terminated=no if self.truncates else done, truncated=done if self.truncates else no, info=())
        return state_next, state_next, outcome

    def observe(self, ref: ProbeRef, params: Any) -> Array:
        del params
        return jnp.stack([ref.cue, ref.time / self.length]).astype(jnp.float32)

    def action_mask(self, ref: ProbeRef) -> Array:
        legal = jnp.ones(self.num_actions, bool)
        if self.masked:
            legal = legal.at[0].set(ref.cue <= 0).at[-1].set(False)
        return legal
