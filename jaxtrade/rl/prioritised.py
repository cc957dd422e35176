"""Prioritised replay (Schaul et al. 2016, proportional variant) over the starts of a `Ring`.

Every start i has p_i = (|TD error| + OFFSET)^alpha; other rows have 0 and are never drawn. A start
that was never drawn has the highest p so far. Each group of environments has a sum tree of its own,
over its lanes: leaf = row * lanes of the group + lane of the group.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.rl import sum_tree
from jaxtrade.rl.replay import Replay, Ring, ages, starts
from jaxtrade.rl.sum_tree import SumTree
from jaxtrade.types import Array

OFFSET = 1e-6  # keeps transitions without an error drawable, as in OpenAI Baselines


class Priorities(struct.PyTreeNode):
    """trees: a `SumTree` of each group, [G, ...]. highest: float32[], the highest p so far."""

    trees: SumTree
    highest: Array


class Drawn(NamedTuple):
    """Starts that were drawn, int32[B]: row, lane. leaf: int32[G, B / G]. probability: float32[B],
    of each start in one draw from its group, divided by the number of groups."""

    row: Array
    lane: Array
    leaf: Array
    probability: Array


def no_priorities(ring: Ring) -> Priorities:
    """Priorities of an empty replay."""
    leaves = jnp.zeros((ring.groups, ring.length * ring.group_envs))
    return Priorities(jax.vmap(sum_tree.tree_of)(leaves), jnp.float32(1.0))


def renewed(ring: Ring, priorities: Priorities, replay: Replay) -> Priorities:
    """The priorities after a rollout was added. replay: after `replay.add`.

    Rows that became starts get the highest priority. The newest n - 1 rows get 0, because their
    samples are not complete. All other rows keep theirs.
    """
    age = ages(ring, replay, jnp.arange(ring.length * ring.group_envs) // ring.group_envs)
    is_start = (age >= ring.n_steps) & (age <= replay.filled)
    is_new = age < ring.num_steps + ring.n_steps
    leaves = jnp.where(
        is_start, jnp.where(is_new, priorities.highest, priorities.trees.leaves), 0.0
    )
    return priorities.replace(trees=jax.vmap(sum_tree.tree_of)(leaves))


def chances(ring: Ring, key: Array, batch: int, first_group: int | Array = 0) -> Array:
    """float32[G, batch / G] in [0, 1): the random numbers of one `draw`. first_group: as of
    `replay.draw_uniform`.

    Raises AssertionError at trace time unless `batch` is a multiple of the groups.
    """
    chex.assert_is_divisible(batch, ring.groups)
    share = batch // ring.groups
    return jax.vmap(
        lambda group: jax.random.uniform(jax.random.fold_in(key, first_group + group), (share,))
    )(jnp.arange(ring.groups))


def draw(ring: Ring, priorities: Priorities, chance: Array) -> Drawn:
    """Starts drawn by `chances`, an equal share from each group. Without any start the result means
    nothing.
    """
    leaf = jax.vmap(sum_tree.draw_leaves)(priorities.trees, chance)
    value = jnp.take_along_axis(priorities.trees.leaves, leaf, axis=1)
    total = priorities.trees.total[:, None]
    probability = value / jnp.where(total > 0.0, total, 1.0) / ring.groups
    lane = jnp.arange(ring.groups)[:, None] * ring.group_envs + leaf % ring.group_envs
    return Drawn(
        (leaf // ring.group_envs).reshape(-1), lane.reshape(-1), leaf, probability.reshape(-1)
    )


def importance_weights(ring: Ring, replay: Replay, drawn: Drawn, beta: Array | float) -> Array:
    """float32[B]: (number of starts * probability)^-beta. The learner divides them by the largest
    of the batch.
    """
    count = starts(ring, replay).astype(jnp.float32) * ring.num_envs
    return jnp.maximum(count * drawn.probability, jnp.finfo(jnp.float32).tiny) ** -beta


def found_priorities(error: Array, alpha: Array | float) -> Array:
    """p float32[B] of starts with TD errors float32[B]."""
    chex.assert_rank(error, 1)
    return (jnp.abs(error) + OFFSET) ** alpha


def learned(
    priorities: Priorities, drawn: Drawn, found: Array, highest: Array, applied: Array
) -> Priorities:
    """The priorities after a gradient step. found: float32[B], of `found_priorities` for the drawn
    starts. highest: float32[], the largest of them on all devices. applied: bool[], False leaves
    all priorities as they are."""
    found = found.reshape(drawn.leaf.shape)
    value = jnp.where(
        applied, found, jnp.take_along_axis(priorities.trees.leaves, drawn.leaf, axis=1)
    )
    highest = jnp.where(applied, jnp.maximum(priorities.highest, highest), priorities.highest)
    return Priorities(jax.vmap(sum_tree.with_leaves)(priorities.trees, drawn.leaf, value), highest)
