"""Packs the small arrays of a tree into one array of 32-bit words and back, and changes no bit.

A loop on a device copies, stores and loads each of its arrays by a program of its own. An
environment's state has about forty arrays of one number per environment: packed they are one array.
Numbers of fewer bits share words.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.types import Array, PyTree

_WORDS = (np.uint8, np.uint16, np.uint32, np.int32, np.float32)
_BITS = {np.dtype(bool): 1} | {np.dtype(kind): 8 * np.dtype(kind).itemsize for kind in _WORDS}
WIDEST = 64  # numbers per row: a wider array is better left as it is, because packing would copy it


class Packed(NamedTuple):
    """A packed tree.

    words: uint32, all packed numbers along one axis.
    rest: the arrays that are not packed.
    """

    words: Array
    rest: tuple[Array, ...]


class Packing(NamedTuple):
    """How a tree is packed.

    shapes: of each leaf beyond the leading axes.
    bits: of each number of a leaf; None where the leaf is not packed.
    places: (word, first bit) of each packed number, in the order of the leaves.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    bits: tuple[int | None, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """C, the number of words."""
        return 1 + max((word for word, _ in self.places), default=-1)

    def split(self, tree: PyTree) -> tuple[list[Array], tuple[Array, ...]]:
        """Split into (words uint32[...] one by one, the arrays that are not packed).

        The tree has the structure, trailing shapes and dtypes of `packing_of`, and
        any leading axes.
        """
        numbers, rest = [], []
        for leaf, shape, bits in zip(
            self.treedef.flatten_up_to(tree), self.shapes, self.bits, strict=True
        ):
            if bits is None:
                rest.append(leaf)
                continue
            flat = _raw(leaf).reshape(*leaf.shape[: leaf.ndim - len(shape)], math.prod(shape))
            numbers += [flat[..., i] for i in range(math.prod(shape))]
        parts: list[list[Array]] = [[] for _ in range(self.count)]
        for number, (word, shift) in zip(numbers, self.places, strict=True):
            parts[word].append(number << shift if shift else number)
        return [functools.reduce(jnp.bitwise_or, word) for word in parts], tuple(rest)

    def pack(self, tree: PyTree, axis: int = 0) -> Packed:
        """Pack the tree's numbers into words uint32[C, ...], with C along `axis` of the result."""
        words, rest = self.split(tree)
        return Packed(jnp.stack(words, axis), rest)

    def unpack(self, packed: Packed, axis: int = 0) -> PyTree:
        """Restore the tree of `pack`, bit by bit.

        Args:
            axis: that of C in `packed.words`.
        """
        words = [
            jax.lax.index_in_dim(packed.words, i, axis, keepdims=False) for i in range(self.count)
        ]
        places, rest = iter(self.places), iter(packed.rest)
        leaves = []
        for shape, dtype, bits in zip(self.shapes, self.dtypes, self.bits, strict=True):
            if bits is None:
                leaves.append(next(rest))
                continue
            numbers = [
                words[word] if bits == 32 else (words[word] >> shift) & ((1 << bits) - 1)
                for word, shift in itertools.islice(places, math.prod(shape))
            ]
            leaf = (
                numbers[0]
                if not shape
                else jnp.stack(numbers, axis=-1).reshape(*numbers[0].shape, *shape)
            )
            leaves.append(
                jax.lax.bitcast_convert_type(leaf, dtype) if bits == 32 else leaf.astype(dtype)
            )
        return jax.tree.unflatten(self.treedef, leaves)


def packing_of(tree: PyTree, lead: int = 1) -> Packing:
    """Plan how to pack `tree`, given its arrays (or their shapes) with `lead` leading axes.

    Packed are bool, uint8, uint16, uint32, int32 and float32. Arrays of other types and wide ones
    (`WIDEST`) stay as they are.
    """
    leaves, treedef = jax.tree.flatten(tree)
    shapes = tuple(leaf.shape[lead:] for leaf in leaves)
    bits = tuple(
        _BITS.get(leaf.dtype) if 0 < math.prod(shape) <= WIDEST else None
        for leaf, shape in zip(leaves, shapes, strict=True)
    )
    return Packing(
        treedef, shapes, tuple(leaf.dtype for leaf in leaves), bits, _places(shapes, bits)
    )


def _places(
    shapes: tuple[tuple[int, ...], ...], bits: tuple[int | None, ...]
) -> tuple[tuple[int, int], ...]:
    """Assign each number its place in the words.

    Small numbers fill the newest shared word one after the other; a number of 32 bits has its own.
    """
    places, words, shared, used = [], 0, -1, 32
    for shape, size in zip(shapes, bits, strict=True):
        for _ in range(math.prod(shape) if size else 0):
            assert size is not None
            if size == 32 or used + size > 32:
                place, words = (words, 0), words + 1
                shared, used = (shared, used) if size == 32 else (place[0], size)
            else:
                place, used = (shared, used), used + size
            places.append(place)
    return tuple(places)


def _raw(leaf: Array) -> Array:
    return (
        jax.lax.bitcast_convert_type(leaf, jnp.uint32)
        if _BITS[leaf.dtype] == 32
        else leaf.astype(jnp.uint32)
    )
