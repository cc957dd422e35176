"""Advantages, value targets and Q targets. Time is the first axis; all arrays are [T, N] unless said otherwise."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array

UNROLL = 16  # steps per round of the loop: they become one program of a device

def next_values(value: Array, last_value: Array, final_value: Array, truncated: Array) -> Array:
    """V(s_{t+1}) for each step, float32[T, N].

    Inside an episode this is the value of the next observation. After a truncated step it is `final_value`, the value
    of the observation that the reset replaced (Pardo et al. 2018, "Time Limits in Reinforcement Learning"). After a
    terminated step the entry is arbitrary: `gae` does not read it.

    Args:
        value: float32[T, N], V of the observation at each step.
        last_value: float32[N], V of the observation after the last step.
        final_value: float32[T, N], V of the final observation of an episode; read only where `truncated`.
        truncated: bool[T, N].
    """
    chex.assert_rank([value, last_value, final_value, truncated], [2, 1, 2, 2])
    chex.assert_equal_shape([value, final_value, truncated])
    chex.assert_type([value, last_value, final_value, truncated], [float, float, float, bool])
    following = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(truncated, final_value, following)


def gae(reward: Array, value: Array, next_value: Array, terminated: Array, truncated: Array, gamma: Array | float,
        gae_lambda: Array | float) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16), float32[T, N].

        delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)
        A_t     = delta_t + gamma lambda (1 - terminated_t) (1 - truncated_t) A_{t+1}

    A termination zeroes the bootstrapped value. A truncation keeps it. Both stop the sum, because later deltas belong
    to another episode.

    Args:
        reward, value, next_value: float32[T, N]; `next_value` as from `next_values`.
        terminated, truncated: bool[T, N].
        gamma, gae_lambda: discount and lambda, scalars in [0, 1].
    """
    chex.assert_rank([reward, value, next_value, terminated, truncated], 2)
    chex.assert_equal_shape([reward, value, next_value, terminated, truncated])
    chex.assert_type([reward, value, next_value, terminated, truncated], [float, float, float, bool, bool])
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * gae_lambda * jnp.where(terminated | truncated, 0.0, 1.0)

    def step(advantage: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = now
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    _, advantage = jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, decay), reverse=True,
                                unroll=min(UNROLL, len(delta)))
    return advantage


def q_lambda(reward: Array, next_value: Array, terminated: Array, truncated: Array, gamma: Array | float,
             weight: Array | float) -> Array:
    """Targets of Q(lambda) in Peng's form (Gallici et al. 2024, section 3.2), float32[T, N].

        G_t = r_t + gamma (1 - terminated_t) [(1 - lambda) max Q(s_{t+1}, .) + lambda G_{t+1}]

    The lambda is 0 at an episode's end and at the last step of the rollout. There the target is one step and the value
    of the next reference: of the last reference of the episode (`final_ref`) after a truncation, 0 after a
    termination, and of the reference after the rollout at its last step. Exploring actions do not cut the sum.

    Args:
        reward: float32[T, N].
        next_value: float32[T, N] as from `next_values`: the largest Q of a legal action at the next reference.
        terminated, truncated: bool[T, N].
        gamma, weight: discount and lambda, scalars in [0, 1].
    """
    chex.assert_rank([reward, next_value, terminated, truncated], 2)
    chex.assert_equal_shape([reward, next_value, terminated, truncated])
    chex.assert_type([reward, next_value, terminated, truncated], [float, float, bool, bool])
    goes_on = ~(terminated | truncated)
    weights = jnp.where(goes_on.at[-1].set(False), weight, 0.0)
    one_step = reward + gamma * jnp.where(terminated, 0.0, (1.0 - weights) * next_value)

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        one_step_t, weight_t = now
        target = one_step_t + gamma * weight_t * later
        return target, target

    _, targets = jax.lax.scan(step, jnp.zeros_like(reward[0]), (one_step, weights), reverse=True,
                              unroll=min(UNROLL, len(reward)))
    return targets
