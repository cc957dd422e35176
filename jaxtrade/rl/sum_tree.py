"""A binary sum tree in which a leaf is drawn with a probability proportional to its value.

Level 0 holds the leaves. Level k + 1 has m = ceil(n / 2) nodes over the n of level k, and node i is the sum of nodes i
and i + m below it (of node i alone, if there is no node i + m). The halves lie side by side in memory, so a whole level
is computed by one vector addition. A tree over n leaves takes about 8 n bytes.

A parent is always recomputed from its two children. Trees that add the difference of a leaf to all nodes above it drift
by rounding, until they draw leaves of value 0 (https://github.com/instadeepai/flashbax/issues/52).
"""

from __future__ import annotations

import chex
import jax.numpy as jnp
from flax import struct

from jaxtrade.types import Array


class SumTree(struct.PyTreeNode):
    """levels: float32[n], float32[ceil(n / 2)], ..., float32[1]. The values are not negative."""

    levels: tuple[Array, ...]

    @property
    def leaves(self) -> Array:
        """float32[n]."""
        return self.levels[0]

    @property
    def total(self) -> Array:
        """float32[]: the sum of all leaves, in the order of the tree."""
        return self.levels[-1][0]


def tree_of(leaves: Array) -> SumTree:
    """The tree over leaves float32[n], n at least 1. It reads each leaf once, which is less work than `with_leaves`
    where many leaves change."""
    chex.assert_rank(leaves, 1)
    chex.assert_type(leaves, jnp.float32)
    levels = [leaves]
    while len(below := levels[-1]) > 1:
        half = (len(below) + 1) // 2
        right = below[half:] if len(below) % 2 == 0 else jnp.concatenate([below[half:], jnp.zeros(1)])
        levels.append(below[:half] + right)
    return SumTree(tuple(levels))


def with_leaves(tree: SumTree, index: Array, value: Array) -> SumTree:
    """The tree after leaves `index` int32[B] were set to `value` float32[B]. Of several values for one leaf it keeps
    the largest, so that the result does not depend on the order in which a device writes."""
    chex.assert_rank([index, value], 1)
    chex.assert_equal_shape([index, value])
    level = tree.leaves.at[index].set(0.0).at[index].max(value)
    levels = [level]
    for above in tree.levels[1:]:
        half = len(above)
        index = jnp.where(index < half, index, index - half)
        level = above.at[index].set(level[index] + _right(level, index, half))
        levels.append(level)
    return SumTree(tuple(levels))


def draw(tree: SumTree, chance: Array) -> Array:
    """int32[B]: leaves by stratified sampling (Schaul et al. 2016, appendix B.2.1). Entry j is drawn from the j-th of B
    equal ranges of the total. A leaf of value 0 is never drawn, unless all are 0: then every entry is 0.

    Args:
        chance: float32[B] in [0, 1), where in its range each entry is drawn.
    """
    chex.assert_rank(chance, 1)
    count = chance.shape[0]
    left_over = (jnp.arange(count, dtype=jnp.float32) + chance) / count * tree.total
    index = jnp.zeros(count, jnp.int32)
    for below, level in reversed(list(zip(tree.levels[:-1], tree.levels[1:], strict=True))):
        left, right = below[index], _right(below, index, len(level))
        # Rounding can leave more than the left sum where nothing is on the right: then stay on the left.
        goes_right = (left_over >= left) & (right > 0.0)
        left_over = jnp.where(goes_right, left_over - left, left_over)
        index = jnp.where(goes_right, index + len(level), index)
    return index


def _right(level: Array, index: Array, half: int) -> Array:
    """float32[B]: the right children of nodes `index`, 0 where there is none."""
    if len(level) == 2 * half:
        return level[index + half]
    return jnp.where(index + half < len(level), level[jnp.minimum(index + half, len(level) - 1)], 0.0)
