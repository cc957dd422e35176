"""Schedules, counted in updates as fractions of the run, and the optimiser they steer."""

from __future__ import annotations

import jax.numpy as jnp
import optax

from jaxtrade.types import Array


def progress(update: Array, total_updates: Array) -> Array:
    """Fraction of the run, float32[]: 0 in the first update (0), 1 in the last (total_updates - 1).

    A run of one update stays at 0.
    """
    last = jnp.maximum(total_updates - 1, 1).astype(jnp.float32)
    return jnp.clip(update.astype(jnp.float32) / last, 0.0, 1.0)


def linear(start: Array | float, end: Array | float, fraction: Array) -> Array:
    """From `start` at fraction 0 to exactly `end` at fraction 1."""
    return start * (1.0 - fraction) + end * fraction


def optimiser(max_grad_norm: Array | float) -> optax.GradientTransformation:
    """Gradient clipping by global norm, then Adam's direction; the caller applies the learning rate.

    `max_grad_norm` may be traced: the optimiser's state does not depend on it. Adam's epsilon 1e-5 is PPO's custom.
    """
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=1e-5))  # pyright: ignore[reportArgumentType]
