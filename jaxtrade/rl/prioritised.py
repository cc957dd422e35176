"""Prioritised replay (Schaul et al. 2016, proportional variant) over the starts of a `Ring`.

Every start i has p_i = (|TD error| + OFFSET)^alpha; other rows have 0 and are never drawn. A start
that was never drawn has the highest p so far. Each group of environments has a sum tree of its own,
over its lanes: leaf = row * lanes of the group + lane of the group.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.rl.replay import Replay, Ring, ages, starts
from jaxtrade.types import Array

# A binary sum tree in which a leaf is drawn with a probability proportional to its value.
#
# Level 0 holds the leaves. Level k + 1 has m = ceil(n / 2) nodes over the n of level k, and node
# i is
# the sum of nodes i and i + m below it (of node i alone, if there is no node i + m). The halves
# lie
# side by side in memory, so a whole level is computed by one vector addition. All levels follow
# each
# other in one array, about 8 n bytes for n leaves.
#
# A parent is always recomputed from its two children. Trees that add the difference of a leaf to
# all
# nodes above it drift by rounding, until they draw leaves of value 0
# (https://github.com/instadeepai/flashbax/issues/52).


class SumTree(struct.PyTreeNode):
    """nodes: float32[..., M], the levels one after the other; the values are not negative. count:
    n, leaves (static).
    """

    nodes: Array
    count: int = struct.field(pytree_node=False)

    @property
    def leaves(self) -> Array:
        """float32[..., n]."""
        return self.nodes[..., : self.count]

    @property
    def total(self) -> Array:
        """float32[...]: the sum of all leaves, in the order of the tree."""
        return self.nodes[..., -1]

    @property
    def levels(self) -> list[Array]:
        """float32[..., n], float32[..., ceil(n / 2)], ..., float32[..., 1]."""
        sizes = _sizes(self.count)
        ends = list(itertools.accumulate(sizes))
        return [self.nodes[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


class _Level(NamedTuple):
    """Places of a level above the leaves, int32 each: of its first node, of the first node below
    it, and how many nodes both levels have."""

    start: Array
    below: Array
    half: Array
    size: Array


def _sizes(count: int) -> list[int]:
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    return sizes


def _levels(count: int) -> _Level:
    """The levels above the leaves, from the bottom, int32[levels] each."""
    sizes = _sizes(count)
    starts = [0, *itertools.accumulate(sizes)][:-1]
    return _Level(
        *(jnp.array(x, jnp.int32) for x in (starts[1:], starts[:-1], sizes[1:], sizes[:-1]))
    )


def tree_of(leaves: Array) -> SumTree:
    """The tree over leaves float32[n], n at least 1. It reads each leaf once, which is less work
    than `with_leaves` where many leaves change."""
    chex.assert_rank(leaves, 1)
    chex.assert_type(leaves, jnp.float32)
    levels = [leaves]
    while len(below := levels[-1]) > 1:
        half = (len(below) + 1) // 2
        right = (
            below[half:] if len(below) % 2 == 0 else jnp.concatenate([below[half:], jnp.zeros(1)])
        )
        levels.append(below[:half] + right)
    return SumTree(jnp.concatenate(levels), len(leaves))


def with_leaves(tree: SumTree, index: Array, value: Array) -> SumTree:
    """The tree after leaves `index` int32[B] were set to `value` float32[B]. Of several values for
    one leaf it keeps the largest, so that the result does not depend on the order in which a device
    writes."""
    chex.assert_rank([index, value], 1)
    chex.assert_equal_shape([index, value])

    # A loop over the levels, not one operation after the other: it compiles once, whatever the
    # number of levels.
    def up(now: tuple[Array, Array], level: _Level) -> tuple[tuple[Array, Array], None]:
        nodes, index = now
        index = jnp.where(index < level.half, index, index - level.half)
        total = nodes[level.below + index] + _right(nodes, index, level)
        return (nodes.at[level.start + index].set(total), index), None

    nodes = tree.nodes.at[index].set(0.0).at[index].max(value)
    (nodes, _), _ = jax.lax.scan(up, (nodes, index), _levels(tree.count))
    return tree.replace(nodes=nodes)


def draw_leaves(tree: SumTree, chance: Array) -> Array:
    """int32[B]: leaves by stratified sampling (Schaul et al. 2016, appendix B.2.1). Entry j is
    drawn from the j-th of B equal ranges of the total. A leaf of value 0 is never drawn, unless all
    are 0: then every entry is 0.

    Args:
        chance: float32[B] in [0, 1), where in its range each entry is drawn.
    """
    chex.assert_rank(chance, 1)
    count = chance.shape[0]

    def down(now: tuple[Array, Array], level: _Level) -> tuple[tuple[Array, Array], None]:
        index, left_over = now
        left, right = tree.nodes[level.below + index], _right(tree.nodes, index, level)
        # Rounding can leave more than the left sum where nothing is on the right: then stay on the
        # left.
        goes_right = (left_over >= left) & (right > 0.0)
        return (
            jnp.where(goes_right, index + level.half, index),
            jnp.where(goes_right, left_over - left, left_over),
        ), None

    start = (jnp.arange(count, dtype=jnp.float32) + chance) / count * tree.total
    (index, _), _ = jax.lax.scan(
        down, (jnp.zeros(count, jnp.int32), start), _levels(tree.count), reverse=True
    )
    return index


def _right(nodes: Array, index: Array, level: _Level) -> Array:
    """float32[B]: the right children of nodes `index` of a level, 0 where there is none."""
    other = index + level.half
    return jnp.where(
        other < level.size, nodes[level.below + jnp.minimum(other, level.size - 1)], 0.0
    )


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
    return Priorities(jax.vmap(tree_of)(leaves), jnp.float32(1.0))


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
    return priorities.replace(trees=jax.vmap(tree_of)(leaves))


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
    leaf = jax.vmap(draw_leaves)(priorities.trees, chance)
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
    return Priorities(jax.vmap(with_leaves)(priorities.trees, drawn.leaf, value), highest)
