"""What a learner carries from update to update: if it is not here, it does not influence training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.opening import opening_at, settled
from jaxtrade.rl.schedules import progress
from jaxtrade.types import Array, PyTree


class Policy(struct.PyTreeNode):
    """What is evaluated and exported: network parameters, observation statistics, state of an advice fusion, and the
    `Opening` of actions that a transfer added (() once they are open, and where none were)."""

    parameters: PyTree
    normaliser: RunningStats
    fusion: Any = ()
    opening: Any = ()


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]: leaves, so that a sweep is one vmap. Meanings as in `PPOConfig`."""

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    gae_lambda: Array
    clip_eps: Array
    vf_clip_eps: Array
    ent_coef: Array
    ent_coef_end: Array
    vf_coef: Array
    max_grad_norm: Array
    target_kl: Array
    adapter_freeze: Array


class EpisodeTotals(struct.PyTreeNode):
    """Of the episode each environment is in: reward float32[N] (undiscounted), length int32[N] (steps)."""

    reward: Array
    length: Array


class TrainState(struct.PyTreeNode):
    """A whole PPO run between two updates.

    ref, first: what each environment shows next and whether that starts an episode (bool[N]). carry: the policy's
    memory in each before `ref`, float32[N, H], not yet forgotten where `first`; () without one. key: typed, changed by
    a rollback alone; update `u` draws from `fold_in(key, u)`. update, total_updates: int32[]; environment steps are
    `update * num_envs * num_steps`, counted on the host because they overflow int32. rollbacks: int32[], how often the
    run went back to a checkpoint. opening: `OpeningPlan` of a run that began with new actions, else (). advice: the
    `AdviceState` of a run with an advisor, which all agents of a population share, else ().
    """

    params: PyTree
    opt_state: PyTree
    normaliser: RunningStats
    env_state: PyTree
    ref: PyTree
    first: Array
    carry: PyTree
    episodes: EpisodeTotals
    key: Array
    update: Array
    total_updates: Array
    hparams: HParams
    rollbacks: Array
    opening: Any = ()
    advice: Any = ()


def policy_of(state: TrainState) -> Policy:
    """The policy that this state acts with."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)


def finished(policy: Policy) -> Policy:
    """The policy as it is exported: without the opening of actions that are open. Reads values."""
    return policy.replace(opening=settled(policy.opening))


def strong_types(tree: PyTree) -> PyTree:
    """The same arrays without weak types, which would make the second call of a jitted function trace again."""

    def strengthen(leaf: Array) -> Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(strengthen, tree)
