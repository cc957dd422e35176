"""Means, sums and moments over environments or rows, whether one device holds them all or several share them.

Everything in a learner that adds up over environments or rows goes through a `Reduce`. Today it is the identity around
NumPy's reductions. A learner whose environments are split over the devices of a mesh axis gets `Reduce(axis)`, and each
device then sees the figures of all of them. The parts must be of equal size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.types import Array, PyTree

Axes = int | Sequence[int] | None


@dataclass(frozen=True)
class Reduce:
    """axis: name of the mapped axis that the environments are split over; None where they are all here."""

    axis: str | None = None

    # --- of arrays that still have their environments or rows ---

    def sum(self, x: Array, axes: Axes = None, dtype: Any = None) -> Array:
        """Sum over `axes` (all of them by default) and over the parts."""
        return self.sum_of_parts(x.sum(axis=axes, dtype=dtype))

    def mean(self, x: Array, axes: Axes = None) -> Array:
        """Mean over `axes` (all of them by default) and over the parts."""
        return self.mean_of_parts(x.mean(axis=axes))

    def variance(self, x: Array) -> Array:
        """Population variance of all numbers: the mean squared distance from their mean."""
        if self.axis is None:
            return x.var()
        return self.mean(jnp.square(x - self.mean(x)))

    def deviation(self, x: Array) -> Array:
        """Population standard deviation of all numbers."""
        return x.std() if self.axis is None else jnp.sqrt(self.variance(x))

    # --- of what each part has reduced already ---

    def sum_of_parts(self, tree: PyTree) -> PyTree:
        return tree if self.axis is None else jax.lax.psum(tree, self.axis)

    def mean_of_parts(self, tree: PyTree) -> PyTree:
        return tree if self.axis is None else jax.lax.pmean(tree, self.axis)

    def max_of_parts(self, tree: PyTree) -> PyTree:
        return tree if self.axis is None else jax.lax.pmax(tree, self.axis)

    # --- places and counts ---

    def first(self, x: Array) -> Array:
        """The first part's `x`, to the bit, in every part."""
        if self.axis is None:
            return x
        return jax.lax.psum(jnp.where(jax.lax.axis_index(self.axis) == 0, x, jnp.zeros_like(x)), self.axis)

    def offset(self, count: int) -> int | Array:
        """Global number of the first of the `count` environments (or groups of them) that this part holds."""
        return 0 if self.axis is None else jax.lax.axis_index(self.axis) * count

    def count(self, count: int) -> int:
        """How many there are in all parts, where each holds `count`."""
        return count if self.axis is None else count * jax.lax.axis_size(self.axis)


LOCAL = Reduce()
