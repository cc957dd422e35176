"""PPO's loss terms and their diagnostics (Schulman et al. 2017). Arrays are float32[B]; results are scalars."""

from __future__ import annotations

import chex
import jax.numpy as jnp

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array


def _check_rows(*arrays: Array) -> None:
    """Raises AssertionError, when traced, where they are not float[B] of one length."""
    chex.assert_rank(arrays, 1)
    chex.assert_equal_shape(arrays)
    chex.assert_type(arrays, float)


def standardised(advantage: Array, reduce: Reduce = LOCAL) -> Array:
    """Advantages float32[B] less their mean, over their standard deviation."""
    _check_rows(advantage)
    return (advantage - reduce.mean(advantage)) / (reduce.deviation(advantage) + 1e-8)


def clipped_surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, clip_eps: Array | float) -> Array:
    """-mean min(ratio A, clip(ratio, 1 - eps, 1 + eps) A), with ratio = exp(log_prob - old_log_prob)."""
    _check_rows(log_prob, old_log_prob, advantage)
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage).mean()


def value_loss(value: Array, old_value: Array, target: Array, clip_eps: Array | float) -> Array:
    """Mean squared error; with `clip_eps` > 0 the larger of it and the error of the clipped prediction.

    The clipped prediction stays within `clip_eps` of `old_value`, the value that the rollout stored. No factor 1/2, as
    in Stable-Baselines3, so that `vf_coef` means the same.
    """
    _check_rows(value, old_value, target)
    error = jnp.square(value - target)
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    larger = jnp.maximum(error, jnp.square(clipped - target))
    return jnp.where(clip_eps > 0.0, larger, error).mean()


def approx_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Unbiased, never negative estimate of KL(old || new): mean(ratio - 1 - log ratio), Schulman's k3."""
    _check_rows(log_prob, old_log_prob)
    log_ratio = log_prob - old_log_prob
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def clip_fraction(log_prob: Array, old_log_prob: Array, clip_eps: Array | float) -> Array:
    """Share of rows whose ratio is further than `clip_eps` from 1."""
    _check_rows(log_prob, old_log_prob)
    return jnp.mean((jnp.abs(jnp.expm1(log_prob - old_log_prob)) > clip_eps).astype(jnp.float32))


def explained_variance(value: Array, target: Array, reduce: Reduce = LOCAL) -> Array:
    """1 - var(target - value) / var(target); NaN (undefined) where the targets do not vary."""
    chex.assert_equal_shape([value, target])
    chex.assert_type([value, target], float)
    variance = reduce.variance(target)
    unexplained = reduce.variance(target - value)
    return jnp.where(variance > 0.0, 1.0 - unexplained / jnp.where(variance > 0.0, variance, 1.0), jnp.nan)
