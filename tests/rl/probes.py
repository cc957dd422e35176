"""Tiny environments in pure JAX, each with an answer worked out by hand."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.types import Array, Outcome


class ProbeRef(struct.PyTreeNode):
    """cue: float32[], -1 or 1, drawn at each reset; time: int32[] steps into the episode; shown:
    float32[], 1 or 0.
    """

    cue: Array
    time: Array
    shown: Array


class ProbeParams(struct.PyTreeNode):
    """Traced half of a probe. kind: which reward; length: steps of an episode; truncates: how it
    ends;
    shows_time: is the time in the observation; scale: float32[] factor of the reward."""

    kind: Array
    length: Array
    truncates: Array
    shows_time: Array
    scale: Array


def probe_params(
    kind=0,
    length=1,
    truncates=False,
    shows_time=True,
    scale=1.0,
):
    return ProbeParams(
        jnp.int32(kind),
        jnp.int32(length),
        jnp.bool_(truncates),
        jnp.bool_(shows_time),
        jnp.float32(scale),
    )


@dataclasses.dataclass(frozen=True)
class Probe:
    """The observation is (cue, time / 10, or 0 where time is not shown).

    rewards: functions of (ref, action), selected by `params.kind`. With `masked`, action 0 is
        illegal while cue > 0,
    and the last action is always illegal.
    """

    rewards: tuple[Callable[[ProbeRef, Array], Any], ...]
    masked: bool = True
    num_actions: int = 4
    observation_size: int = 2

    def reset(self, key, params):
        ref = ProbeRef(
            jnp.where(jax.random.bernoulli(key), 1.0, -1.0),
            jnp.int32(0),
            jnp.float32(params.shows_time),
        )
        return ref, ref

    def step(self, key, state, action, params):
        following = state.replace(time=state.time + 1)
        done = following.time >= params.length
        fresh, _ = self.reset(key, params)
        state_next = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, following)
        branches = [lambda s, a, f=f: jnp.float32(f(s, a)) for f in self.rewards]
        reward = params.scale * jax.lax.switch(params.kind, branches, state, action)
        outcome = Outcome(
            final_ref=following,
            reward=reward,
            terminated=done & ~params.truncates,
            truncated=done & params.truncates,
            info=(),
        )
        return state_next, state_next, outcome

    def observe(self, ref, params):
        del params
        return jnp.stack([ref.cue, ref.shown * ref.time / 10])

    def action_mask(self, ref):
        legal = jnp.ones(self.num_actions, bool)
        if self.masked:
            legal = legal.at[0].set(ref.cue <= 0).at[-1].set(False)
        return legal


class Recall(Probe):
    """The cue is seen at the first step alone. Masks change from step to step and tell nothing of
    it.
    """

    def observe(self, ref, params):
        del params
        return jnp.stack([jnp.where(ref.time == 0, ref.cue, 0.0), ref.shown * ref.time / 10])

    def action_mask(self, ref):
        """Action 0 is illegal at even times, action 3 always."""
        return jnp.ones(self.num_actions, bool).at[0].set(ref.time % 2 == 1).at[-1].set(False)
