"""Advantages, value targets and Q targets, and the terms of losses.

Time is the first axis; all arrays are [T, N] unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array

UNROLL = 16  # steps per round of the loop: they become one program of a device


def _check(rank: int, floats: Sequence[Array], bools: Sequence[Array] = ()) -> None:
    """Check that all arrays have this rank, one shape and their type.

    Raises AssertionError at trace time.
    """
    arrays = [*floats, *bools]
    chex.assert_rank(arrays, rank)
    chex.assert_equal_shape(arrays)
    chex.assert_type(arrays, [float] * len(floats) + [bool] * len(bools))


def _backwards(step: Callable[..., Any], *steps: Array) -> Any:
    """Scan `step` from the last step to the first, beginning with zeros."""
    return jax.lax.scan(
        step, jnp.zeros_like(steps[0][0]), steps, reverse=True, unroll=min(UNROLL, len(steps[0]))
    )[1]


def next_values(value: Array, last_value: Array, final_value: Array, truncated: Array) -> Array:
    """Return V(s_{t+1}) for each step (float32[T, N]).

    Inside an episode this is the value of the next observation. After a truncated step it is
    `final_value`, the value of the observation that the reset replaced (Pardo et al. 2018, "Time
    Limits in Reinforcement Learning"). After a terminated step the entry is arbitrary: `gae` does
    not read it.

    Args:
        value: float32[T, N], V of the observation at each step.
        last_value: float32[N], V of the observation after the last step.
        final_value: float32[T, N], V of the final observation of an episode; read only
            where `truncated`.
        truncated: bool[T, N].
    """
    chex.assert_rank([value, last_value, final_value, truncated], [2, 1, 2, 2])
    chex.assert_equal_shape([value, final_value, truncated])
    chex.assert_type([value, last_value, final_value, truncated], [float, float, float, bool])
    following = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(truncated, final_value, following)


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Array | float,
    gae_lambda: Array | float,
) -> Array:
    """Compute generalised advantage estimates (Schulman et al. 2016, equation 16; float32[T, N]).

        delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)
        A_t     = delta_t + gamma lambda (1 - terminated_t) (1 - truncated_t) A_{t+1}

    A termination zeroes the bootstrapped value. A truncation keeps it. Both stop the sum, because
    later deltas belong to another episode.

    Args:
        reward, value, next_value: float32[T, N]; `next_value` as from `next_values`.
        terminated, truncated: bool[T, N].
        gamma, gae_lambda: discount and lambda, scalars in [0, 1].
    """
    _check(2, [reward, value, next_value], [terminated, truncated])
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * gae_lambda * jnp.where(terminated | truncated, 0.0, 1.0)

    def step(advantage: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = now
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    return _backwards(step, delta, decay)


class VTrace(NamedTuple):
    """Results of `vtrace`, float32[T, N] each.

    They are the value targets v_t, and the advantages of the policy gradient.
    """

    target: Array
    advantage: Array


def vtrace(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    ratio: Array,
    gamma: Array | float,
    weight: Array | float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> VTrace:
    """Compute V-trace: value targets and advantages of one policy from the steps of an older one.

    Espeholt et al. 2018, "IMPALA", equation 1, with a lambda in c as in its remark 2:

        rho_t   = min(rho_clip, ratio_t)                    c_t = lambda min(c_clip, ratio_t)
        delta_t = rho_t [r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)]
        v_t     = V(s_t) + sum over k >= t of gamma^(k - t) c_t ... c_{k-1} delta_k
        u_t     = (1 - lambda) V(s_{t+1}) + lambda v_{t+1}
        A_t     = rho_t [r_t + gamma (1 - terminated_t) u_t - V(s_t)]

    The sum stops at an episode's end, and so does v_{t+1} in u_t: after a truncation it is V of the
    last observation of that episode, as in `gae`. The mixture u_t is that of rlax's
    `vtrace_td_error_and_advantage`. Where every ratio is 1 and no clip is below 1, A is the result
    of `gae` and v is A + V. With lambda = 1 both are IMPALA's.

    Args:
        reward, value, next_value, terminated, truncated: as of `gae`; the values are those of the
            policy that learns.
        ratio: float32[T, N], probability of each action by the policy that learns, over that by the
            one that acted.
        gamma, weight: discount and lambda, scalars in [0, 1].
        rho_clip, c_clip: above 0.
    """
    _check(2, [reward, value, next_value, ratio], [terminated, truncated])
    rho = jnp.minimum(ratio, rho_clip)
    delta = rho * (reward + gamma * jnp.where(terminated, 0.0, next_value) - value)
    passed = gamma * weight * jnp.where(terminated | truncated, 0.0, 1.0)

    def step(error: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        delta_t, decay_t = now
        return delta_t + decay_t * error, (delta_t + decay_t * error, error)

    decay = passed * jnp.minimum(ratio, c_clip)
    error, later = _backwards(step, delta, decay)  # v_t - V(s_t), and that of the next step
    return VTrace(value + error, delta + rho * passed * later)


def n_step(
    reward: Array, terminated: Array, truncated: Array, gamma: Array | float
) -> tuple[Array, Array, Array]:
    """Compute returns of n steps from rows of n steps (Sutton and Barto 2018, equation 7.1).

        m = steps to the first end of an episode, at most n
        R = sum over k < m of gamma^k r_k

    The steps of a row are consecutive. Both ends stop the sum. A sum that a termination stopped is
    not bootstrapped; any other is, by gamma^m times the value after step m.

    Args:
        reward: float32[B, n].
        terminated, truncated: bool[B, n].
        gamma: discount, a scalar in [0, 1].

    Returns:
        (R float32[B], gamma^m or 0 if terminated float32[B], m - 1 int32[B]: the last
        step of the sum).
    """
    _check(2, [reward], [terminated, truncated])
    total, discount, last = (
        reward[:, 0],
        jnp.full_like(reward[:, 0], gamma),
        jnp.zeros(len(reward), jnp.int32),
    )
    over, dead = terminated[:, 0] | truncated[:, 0], terminated[:, 0]
    for k in range(1, reward.shape[1]):
        total = jnp.where(over, total, total + discount * reward[:, k])
        discount = jnp.where(over, discount, discount * gamma)
        last = jnp.where(over, last, k)
        dead = jnp.where(over, dead, terminated[:, k])
        over |= terminated[:, k] | truncated[:, k]
    return total, jnp.where(dead, 0.0, discount), last


def q_lambda(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Array | float,
    weight: Array | float,
) -> Array:
    """Compute targets of Peng's Q(lambda) (Gallici et al. 2024, section 3.2; float32[T, N]).

        G_t = r_t + gamma (1 - terminated_t) [(1 - lambda) max Q(s_{t+1}, .) + lambda G_{t+1}]

    The lambda is 0 at an episode's end and at the last step of the rollout. There the target is one
    step and the value of the next reference: of the last reference of the episode (`final_ref`)
    after a truncation, 0 after a termination, and of the reference after the rollout at its last
    step. Exploring actions do not cut the sum.

    Args:
        reward: float32[T, N].
        next_value: float32[T, N] as from `next_values`: the largest Q of a legal action at
            the next reference.
        terminated, truncated: bool[T, N].
        gamma, weight: discount and lambda, scalars in [0, 1].
    """
    _check(2, [reward, next_value], [terminated, truncated])
    goes_on = ~(terminated | truncated)
    weights = jnp.where(goes_on.at[-1].set(False), weight, 0.0)
    one_step = reward + gamma * jnp.where(terminated, 0.0, (1.0 - weights) * next_value)

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        one_step_t, weight_t = now
        target = one_step_t + gamma * weight_t * later
        return target, target

    return _backwards(step, one_step, weights)


# Loss terms and diagnostics of PPO (Schulman et al. 2017).
#
# Arrays and results are float32[B], one number for each row, unless stated otherwise. The loss is
# the mean over rows. ratio = exp(log_prob - old_log_prob).


def clipped_surrogate(
    log_prob: Array, old_log_prob: Array, advantage: Array, clip_eps: Array | float
) -> Array:
    """Return -min(ratio A, clip(ratio, 1 - eps, 1 + eps) A), the negative of PPO's equation 7."""
    _check(1, [log_prob, old_log_prob, advantage])
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def squared_error(value: Array, old_value: Array, target: Array, clip_eps: Array | float) -> Array:
    """Compute the squared error of the value, optionally clipped as in OpenAI Baselines' PPO2.

        clipped = old_value + clip(value - old_value, -eps, eps)
        error   = max((value - target)^2, (clipped - target)^2)    if eps > 0
        error   = (value - target)^2                               otherwise

    `old_value` is the prediction that the rollout stored. There is no factor 1/2, so `vf_coef` has
    the same meaning as in Stable-Baselines3.
    """
    _check(1, [value, old_value, target])
    error = jnp.square(value - target)
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    larger = jnp.maximum(error, jnp.square(clipped - target))
    return jnp.where(clip_eps > 0.0, larger, error)


def approx_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Estimate KL(old || new) by ratio - 1 - log ratio. It is never negative; its mean is unbiased.

    This is the estimator k3 of Schulman 2020, "Approximating KL Divergence".
    """
    _check(1, [log_prob, old_log_prob])
    log_ratio = log_prob - old_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def is_clipped(log_prob: Array, old_log_prob: Array, clip_eps: Array | float) -> Array:
    """Return 1 where |ratio - 1| > clip_eps, else 0."""
    _check(1, [log_prob, old_log_prob])
    return (jnp.abs(jnp.expm1(log_prob - old_log_prob)) > clip_eps).astype(jnp.float32)


def explained_variance(value: Array, target: Array, reduce: Reduce = LOCAL) -> Array:
    """Return 1 - var(target - value) / var(target) over arrays of any one shape.

    It is NaN if the targets do not vary.
    """
    chex.assert_equal_shape([value, target])
    chex.assert_type([value, target], float)
    variance = reduce.variance(target)
    unexplained = reduce.variance(target - value)
    # The inner `where` keeps the division defined: `jnp.where` evaluates both branches.
    return jnp.where(
        variance > 0.0, 1.0 - unexplained / jnp.where(variance > 0.0, variance, 1.0), jnp.nan
    )
