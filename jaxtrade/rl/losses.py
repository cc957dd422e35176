"""Loss terms and diagnostics of PPO (Schulman et al. 2017).

Arrays and results are float32[B], one number for each row, unless stated otherwise. The loss is the
mean over rows. ratio = exp(log_prob - old_log_prob).
"""

from __future__ import annotations

import chex
import jax.numpy as jnp

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array


def _check_rows(*arrays: Array) -> None:
    """Raises AssertionError at trace time unless all arrays are float[B] with the same B."""
    chex.assert_rank(arrays, 1)
    chex.assert_equal_shape(arrays)
    chex.assert_type(arrays, float)


def standardised(advantage: Array, reduce: Reduce = LOCAL) -> Array:
    """(advantage - mean) / (standard deviation + 1e-8), float32[..., B]. The moments are over the
    last axis.
    """
    chex.assert_type(advantage, float)
    return reduce.standardised(
        advantage, 1e-8
    )  # which avoids a division by zero where all advantages are equal


def clipped_surrogate(
    log_prob: Array, old_log_prob: Array, advantage: Array, clip_eps: Array | float
) -> Array:
    """-min(ratio A, clip(ratio, 1 - eps, 1 + eps) A): the negative of PPO's equation 7."""
    _check_rows(log_prob, old_log_prob, advantage)
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def squared_error(value: Array, old_value: Array, target: Array, clip_eps: Array | float) -> Array:
    """Squared error of the value prediction, optionally clipped as in OpenAI Baselines' PPO2.

        clipped = old_value + clip(value - old_value, -eps, eps)
        error   = max((value - target)^2, (clipped - target)^2)    if eps > 0
        error   = (value - target)^2                               otherwise

    `old_value` is the prediction that the rollout stored. There is no factor 1/2, so `vf_coef` has the same meaning as
    in Stable-Baselines3.
    """
    _check_rows(value, old_value, target)
    error = jnp.square(value - target)
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    larger = jnp.maximum(error, jnp.square(clipped - target))
    return jnp.where(clip_eps > 0.0, larger, error)


def approx_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Estimate of KL(old || new): ratio - 1 - log ratio, never negative; its mean is unbiased.

    This is the estimator k3 of Schulman 2020, "Approximating KL Divergence".
    """
    _check_rows(log_prob, old_log_prob)
    log_ratio = log_prob - old_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def clipped(log_prob: Array, old_log_prob: Array, clip_eps: Array | float) -> Array:
    """1 where |ratio - 1| > clip_eps, else 0."""
    _check_rows(log_prob, old_log_prob)
    return (jnp.abs(jnp.expm1(log_prob - old_log_prob)) > clip_eps).astype(jnp.float32)


def explained_variance(value: Array, target: Array, reduce: Reduce = LOCAL) -> Array:
    """1 - var(target - value) / var(target) over arrays of any one shape; NaN if the targets do not
    vary.
    """
    chex.assert_equal_shape([value, target])
    chex.assert_type([value, target], float)
    variance = reduce.variance(target)
    unexplained = reduce.variance(target - value)
    # The inner `where` keeps the division defined: `jnp.where` evaluates both branches.
    return jnp.where(
        variance > 0.0, 1.0 - unexplained / jnp.where(variance > 0.0, variance, 1.0), jnp.nan
    )
