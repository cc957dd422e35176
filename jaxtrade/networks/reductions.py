"""Sums, means and moments over environments or rows, on one device or over several.

Every reduction over environments or rows in a learner goes through a `Reduce`; a loss may take the plain mean over its
own rows, if its gradient and its metrics then go through `mean_of_parts`. Without an axis, it is the plain
reduction of one device. If the environments are split over the devices of a mesh axis, the learner gets `Reduce(axis)`.
Each device then gets the figures over all devices. A part is the share of one device; all parts must have equal size.
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
    """axis: name of the mapped axis over which the environments are split; None if one device holds all of them."""

    axis: str | None = None

    # --- arrays that still have an axis of environments or rows ---

    def sum(self, x: Array, axes: Axes = None, dtype: Any = None) -> Array:
        """Sum over `axes` (default: all) and over the parts."""
        return self.sum_of_parts(x.sum(axis=axes, dtype=dtype))

    def mean(self, x: Array, axes: Axes = None) -> Array:
        """Mean over `axes` (default: all) and over the parts."""
        return self.mean_of_parts(x.mean(axis=axes))

    def variance(self, x: Array, axis: int | None = None) -> Array:
        """Population variance along `axis` (default: of all numbers): the mean squared difference from their mean."""
        if self.axis is None:
            return x.var(axis)
        mean = self.mean(x, axis)
        return self.mean(jnp.square(x - (mean if axis is None else jnp.expand_dims(mean, axis))), axis)

    def deviation(self, x: Array, axis: int | None = None) -> Array:
        """Population standard deviation along `axis` (default: of all numbers)."""
        return x.std(axis) if self.axis is None else jnp.sqrt(self.variance(x, axis))

    # --- arrays that each part has already reduced ---

    def sum_of_parts(self, tree: PyTree) -> PyTree:
        """Sum of each leaf over the parts."""
        return tree if self.axis is None else jax.lax.psum(tree, self.axis)

    def mean_of_parts(self, tree: PyTree) -> PyTree:
        """Mean of each leaf over the parts."""
        return tree if self.axis is None else jax.lax.pmean(tree, self.axis)

    def max_of_parts(self, tree: PyTree) -> PyTree:
        """Maximum of each leaf over the parts."""
        return tree if self.axis is None else jax.lax.pmax(tree, self.axis)

    # --- places and counts ---

    def first(self, x: Array) -> Array:
        """`x` of the first part, in every part and bit by bit."""
        if self.axis is None:
            return x
        return jax.lax.psum(jnp.where(jax.lax.axis_index(self.axis) == 0, x, jnp.zeros_like(x)), self.axis)

    def offset(self, count: int) -> int | Array:
        """Global number of this part's first environment (or group), if each part holds `count`."""
        return 0 if self.axis is None else jax.lax.axis_index(self.axis) * count

    def count(self, count: int) -> int:
        """Number in all parts together, if each part holds `count`."""
        return count if self.axis is None else count * jax.lax.axis_size(self.axis)


LOCAL = Reduce()
