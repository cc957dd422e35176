"""Actions that a transferred policy has not learned yet: closed, then opened by a schedule.

A policy widened by new actions must at first act as its source did, and must then meet the new
actions often enough to learn them. With z the log-sum-exp of the legal old logits, each new action's logit l becomes

    l + log eps,    log eps = (1 - fraction) (log probability + z),    fraction in [0, 1],

so that at fraction 0, where the new columns of the head are zero, n legal new actions have probability
`probability / (1 + n probability)` each, whatever the old logits are; at fraction 1 eps is 1 and the logits are the
head's own. eps = 0 (`probability` 0) masks them. The offset is part of the policy: sampling, log-probabilities and
gradients all see it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.types import Array


class Opening(struct.PyTreeNode):
    """new: bool[A] actions that the source did not have. probability: float32[], what each begins with; 0: closed.
    fraction: float32[] in [0, 1], how far they are opened."""

    new: Array
    probability: Array
    fraction: Array


class OpeningPlan(struct.PyTreeNode):
    """The schedule of an opening. new: bool[A]; probability: float32[]; until: float32[], the fraction of the run at
    which the new actions are open."""

    new: Array
    probability: Array
    until: Array


def opening_at(plan: OpeningPlan | None, progress: Array) -> Opening | None:
    """The opening at a fraction of the run (float32[] in [0, 1]); None without a plan."""
    if plan is None:
        return None
    return Opening(plan.new, plan.probability, jnp.clip(progress / plan.until, 0.0, 1.0))


def closed(opening: Opening | None) -> Opening | None:
    """The same with eps = 0."""
    if opening is None:
        return None
    return opening.replace(probability=jnp.zeros_like(opening.probability), fraction=jnp.zeros_like(opening.fraction))


def settled(opening: Opening | None) -> Opening | None:
    """None once every new action is open: a policy like any other. Reads the values, so it takes no traced ones."""
    return None if opening is not None and bool((opening.fraction >= 1.0).all()) else opening


def opened(opening: Opening | None, logits: Array, mask: Array) -> tuple[Array, Array]:
    """Logits float32[..., A] and mask bool[..., A] of the opened policy; HOLD, legal everywhere, is never new."""
    if opening is None:
        return logits, mask
    old = mask & ~opening.new
    mass = jax.nn.logsumexp(logits, axis=-1, keepdims=True, where=old)
    # eps = 0 is the mask's business: a logit of -inf would make a gradient of 0 * inf.
    start = jnp.log(jnp.where(opening.probability > 0.0, opening.probability, 1.0))
    offset = (1.0 - opening.fraction) * (start + mass)
    shut = opening.new & (opening.probability <= 0.0)
    return jnp.where(opening.new, logits + offset, logits), mask & ~shut
