"""The parameters of a network and their moments as vectors, while gradient steps change them.

One step of an optimiser on a tree runs a program of a device for each array of the tree, and for
each of its moments. On vectors it runs one. The public state stays a tree: the vectors live inside
one update. On a CPU the tree is faster: there the copies into vectors and out of them cost more
than the programs that they save.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array, PyTree

SMALL = 4096  # numbers in an array that a consumer reads in place


class Layout(NamedTuple):
    """Where the arrays of a tree lie in a vector. All arrays are float32.

    shapes: in the order of `jax.tree.leaves`. order: numbers of the arrays as they follow in the
        vector, small ones
    first.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    def flat(self, tree: PyTree) -> Array:
        """float32[P]: the numbers of a tree of this layout."""
        leaves = self.treedef.flatten_up_to(tree)
        return jnp.concatenate([leaves[i].reshape(-1) for i in self.order])

    def tree(self, vector: Array) -> PyTree:
        """The tree of a vector float32[P]."""
        sizes = [math.prod(self.shapes[i]) for i in self.order]
        count = sum(size for size in sizes if size <= SMALL)
        # XLA copies each small array that it takes from a long vector. From a short one its
        # consumers read in place.
        parts = [jax.lax.optimization_barrier(vector[:count]), vector[count:]]
        leaves: list[Any] = [None] * len(self.order)
        start = 0
        for i, size in zip(self.order, sizes, strict=True):
            part, first = (parts[0], start) if size <= SMALL else (parts[1], start - count)
            leaves[i] = jax.lax.slice_in_dim(part, first, first + size).reshape(self.shapes[i])
            start += size
        return jax.tree.unflatten(self.treedef, leaves)


class Unchanged(NamedTuple):
    """Stands for a `Layout` where the steps work on the tree itself."""

    def flat(self, tree: PyTree) -> PyTree:
        return tree

    def tree(self, vector: PyTree) -> PyTree:
        return vector


def layout_of(parameters: PyTree) -> Layout:
    """The layout of a tree of float32 arrays, at least one of them."""
    leaves, treedef = jax.tree.flatten(parameters)
    chex.assert_type(leaves, jnp.float32)
    order = sorted(range(len(leaves)), key=lambda i: leaves[i].size > SMALL)
    return Layout(treedef, tuple(leaf.shape for leaf in leaves), tuple(order))


def map_parts(
    function: Callable[..., PyTree], tree: PyTree, parameters: PyTree, *others: PyTree
) -> PyTree:
    """`tree` with `function` applied to each part that has the structure of `parameters`, such as
    the moments in the state of an optimiser. `others` are trees like `tree`, in which anything may
    stand for such a part; the function gets their parts too."""
    structure = jax.tree.structure(parameters)

    def fits(part: PyTree) -> bool:
        return jax.tree.structure(part) == structure

    parts, treedef = jax.tree.flatten(tree, is_leaf=fits)
    rest = [treedef.flatten_up_to(other) for other in others]
    return jax.tree.unflatten(
        treedef,
        [
            function(part, *more) if fits(part) else (more[0] if more else part)
            for part, *more in zip(parts, *rest, strict=True)
        ],
    )
