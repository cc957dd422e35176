"""Schedules over the fraction of the run that is done, and the optimiser."""

from __future__ import annotations

import jax.numpy as jnp
import optax

from jaxtrade.types import Array


def progress(update: Array, total_updates: Array) -> Array:
    """Fraction of the run, float32[]: 0 in the first update (number 0), 1 in the last (number total_updates - 1).

    A run of a single update stays at 0.
    """
    last = jnp.maximum(total_updates - 1, 1).astype(jnp.float32)
    return jnp.clip(update.astype(jnp.float32) / last, 0.0, 1.0)


def linear(start: Array | float, end: Array | float, fraction: Array) -> Array:
    """Linear interpolation from `start` at fraction 0 to `end` at fraction 1. Both ends are exact in float32."""
    return start * (1.0 - fraction) + end * fraction


def optimiser(max_grad_norm: Array | float) -> optax.GradientTransformation:
    """Clip the gradient by its global norm, then scale it by Adam (Kingma and Ba 2015). The caller multiplies by the
    learning rate.

    `max_grad_norm` may be traced, because the optimiser's state does not depend on it. Adam's epsilon is 1e-5, the
    usual value for PPO (OpenAI Baselines, Stable-Baselines3).
    """
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=1e-5))  # pyright: ignore[reportArgumentType]
