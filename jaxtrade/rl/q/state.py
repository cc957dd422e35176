"""The tunable floats of a Q-learner, its exploration, and the policy of its state."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.rl.schedules import linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array


class QHParams(struct.PyTreeNode):
    """The tunable floats of every Q-learner, each float32[]; meanings as in `QLearningConfig`. A
    learner adds its own.
    """

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    max_grad_norm: Array
    epsilon: Array
    epsilon_end: Array
    epsilon_until: Array


def epsilon_at(hparams: QHParams, fraction: Array) -> Array:
    """float32[]: probability of a random action at a fraction of the run. It changes linearly up to
    `epsilon_until`.
    """
    return linear(
        hparams.epsilon, hparams.epsilon_end, jnp.clip(fraction / hparams.epsilon_until, 0.0, 1.0)
    )


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    epsilon = epsilon_at(state.hparams, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, epsilon=epsilon)
