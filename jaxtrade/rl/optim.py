"""Schedules over a run, and the gradient step of every learner."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrade.types import Array, PyTree

DECAYS = (0.9, 0.999)  # b1 and b2 of Adam
EPSILON = 1e-5  # the usual value for PPO (OpenAI Baselines, Stable-Baselines3)


def progress(update: Array, total_updates: Array) -> Array:
    """Return the fraction of the run (float32[]).

    It is 0 in the first update (number 0) and 1 in the last (number total_updates - 1). A run of a
    single update stays at 0.
    """
    last = jnp.maximum(total_updates - 1, 1).astype(jnp.float32)
    return jnp.clip(update.astype(jnp.float32) / last, 0.0, 1.0)


def linear(start: Array | float, end: Array | float, fraction: Array) -> Array:
    """Interpolate linearly from `start` at fraction 0 to `end` at fraction 1.

    Both ends are exact in float32.
    """
    return start * (1.0 - fraction) + end * fraction


def optimiser() -> optax.GradientTransformation:
    """Build the optimiser whose state a run keeps.

    It is clipping by the global norm, then Adam (Kingma and Ba 2015). Training computes its step
    by `clipped_adam`.
    """
    return optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(*DECAYS, eps=EPSILON))


def clipped_adam(
    grads: PyTree, norm: Array, state: Any, max_grad_norm: Array | float
) -> tuple[PyTree, Any]:
    """Compute one step of `optimiser` and return (direction, new state).

    The caller multiplies the direction by -learning rate.

        g = grads min(1, max_grad_norm / norm)
        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
        direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    It equals optax's step up to rounding. optax computes each power in a program of its own, here
    they are one.

    Args:
        grads: a tree, or all of them as a vector float32[P].
        norm: float32[], their norm.
        state: that of `optimiser`, with moments like `grads`.
        max_grad_norm: may be traced.
    """
    clip, adam = state
    b1, b2 = DECAYS
    count = optax.safe_increment(adam.count)
    first, second = 1.0 - jnp.array(DECAYS, jnp.float32) ** count
    grads = jax.tree.map(
        lambda g: jnp.where(norm < max_grad_norm, g, g / norm * max_grad_norm), grads
    )
    mu = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, adam.mu, grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1.0 - b2) * jnp.square(g), adam.nu, grads)
    direction = jax.tree.map(lambda m, v: m / first / (jnp.sqrt(v / second) + EPSILON), mu, nu)
    return direction, (clip, adam._replace(count=count, mu=mu, nu=nu))


def step(
    parameters: PyTree,
    opt_state: Any,
    grads: PyTree,
    norm: Array,
    rate: PyTree,
    max_grad_norm: Array,
    applied: Array,
) -> tuple[PyTree, Any]:
    """Take one gradient step and return (parameters, state of the optimiser).

    Both stay as they were unless `applied` bool[].

    Args:
        parameters, grads: as `clipped_adam` takes them.
        norm: float32[], of the gradient.
        rate: learning rate, float32[], or one for each number of the parameters.
    """
    direction, new_opt_state = clipped_adam(grads, norm, opt_state, max_grad_norm)
    moved = optax.tree.sub(
        parameters, optax.tree.mul(jax.tree.broadcast(rate, direction), direction)
    )
    return jax.tree.map(
        lambda new, old: jnp.where(applied, new, old),
        (moved, new_opt_state),
        (parameters, opt_state),
    )
