"""DQN's targets and its loss. B samples, A actions."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import optax

from jaxtrade.networks import distributions
from jaxtrade.rl.q.act import of_action
from jaxtrade.types import Array


def bootstrapped(reward: Array, discount: Array, value: Array) -> Array:
    """float32[B]: reward + discount * value. Where the discount is 0, the value is not read: a
    network may return anything for a reference that no agent acts on."""
    chex.assert_equal_shape([reward, discount, value])
    return reward + jnp.where(discount > 0.0, discount * value, 0.0)


def final_value(target: Array, online: Array | None, mask: Array) -> Array:
    """float32[B]: the value of a reference by the target network, over its legal actions.

        max over legal a of Q_target(s, a)                          (Mnih et al. 2015)
        Q_target(s, argmax over legal a of Q_online(s, a))          (van Hasselt et al. 2016) if `online` is given

    Args:
        target, online: float32[B, A]. mask: bool[B, A], legal actions.
    """
    chosen = distributions.mode(target if online is None else online, mask)
    return jax.lax.stop_gradient(of_action(target, chosen))


def weighted_huber(error: Array, weight: Array | None) -> Array:
    """float32[]: mean of weight * Huber's loss with delta 1: error^2 / 2 up to 1, |error| - 1/2
    beyond. `weight`: None for ones."""
    loss = optax.losses.huber_loss(error)
    return (loss if weight is None else weight * loss).mean()
