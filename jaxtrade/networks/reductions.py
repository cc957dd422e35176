"""Sums, means and moments over environments or rows, on one device or over several.

Every reduction over environments or rows in a learner goes through a `Reduce`. Without an axis, it
is the plain reduction of one device. If the environments are split over the devices of a mesh axis,
the learner gets `Reduce(axis)`. Each device then gets the results over all devices. A part is the
share of one device; all parts must have equal size.

Strict sums are bit-identical on any number of devices. Then the parts are the groups of
environments, whose number does not depend on the devices: a device holds one or more of them along
a second axis, `inner`. What a part computes, it computes by a program of its own shapes (`alone`),
and the parts' results are added as a binary tree in the order of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.custom_batching import custom_vmap
from jax.flatten_util import ravel_pytree

from jaxtrade.types import Array, PyTree

Axes = int | Sequence[int] | None


@dataclass(frozen=True)
class Reduce:
    """Names of the mapped axes over which a reduction goes.

    axis: name of the mapped axis over which the environments are split; None if one device holds
        all of them.
    inner: name of the mapped axis of the parts on one device, for strict sums; None: a device holds
        one part.
    """

    axis: str | None = None
    inner: str | None = None

    @property
    def whole(self) -> bool:
        """Whether there is a single part."""
        return self.axis is None and self.inner is None

    @property
    def strict(self) -> bool:
        """Whether sums are the same for any number of devices."""
        return self.inner is not None

    @property
    def _axes(self) -> tuple[str, ...]:
        """The mapped axes, innermost first."""
        return tuple(name for name in (self.inner, self.axis) if name is not None)

    # --- arrays that still have an axis of environments or rows ---

    def alone(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `function` so that it reduces over no other part.

        With strict sums every part computes it by the same program: one after the other, not side
        by side, because a compiler adds up larger arrays in another order.
        """
        return _one_by_one(function) if self.strict else function

    def sum(self, x: Array, axes: Axes = None, dtype: Any = None) -> Array:
        """Sum over `axes` (default: all) and over the parts."""
        return self.sum_of_parts(self.alone(lambda x: x.sum(axis=axes, dtype=dtype))(x))

    def mean(self, x: Array, axes: Axes = None) -> Array:
        """Average over `axes` (default: all) and over the parts."""
        return self.mean_of_parts(self.alone(lambda x: x.mean(axis=axes))(x))

    def moments(self, x: Array, axis: int | None = None) -> tuple[Array, Array]:
        """Find mean and population variance along `axis` (default: all numbers) and over the parts.

        Of parts with means m_i and variances v_i: m = mean of m_i, v = mean of v_i + (m_i - m)^2.
        """
        mean, variance = self.alone(lambda x: jnp.stack([x.mean(axis), x.var(axis)]))(x)
        if self.whole:
            return mean, variance
        means, variances = jnp.moveaxis(self.gather(jnp.stack([mean, variance])), 1, 0)
        mean = _tree_sum(means) / len(means)
        return mean, _tree_sum(variances + jnp.square(means - mean)) / len(means)

    def variance(self, x: Array, axis: int | None = None) -> Array:
        """Compute the population variance along `axis` (default: of all numbers).

        It is the mean squared difference from their mean.
        """
        return x.var(axis) if self.whole else self.moments(x, axis)[1]

    def standardise(self, x: Array) -> Array:
        """Compute (x - mean) / (standard deviation + 1e-8).

        The moments are over the last axis and over the parts. The small number avoids a division by
        zero where all numbers are equal.
        """
        if self.whole:
            return (x - x.mean(-1)[..., None]) / (x.std(-1)[..., None] + 1e-8)
        mean, variance = (moment[..., None] for moment in self.moments(x, -1))
        return (x - mean) / (jnp.sqrt(variance) + 1e-8)

    # --- arrays that each part has already reduced ---

    def sum_of_parts(self, tree: PyTree) -> PyTree:
        """Sum each leaf over the parts."""
        if self.strict:
            return jax.tree.map(lambda x: _tree_sum(self.gather(x)), tree)
        return tree if self.axis is None else jax.lax.psum(tree, self.axis)

    def mean_of_parts(self, tree: PyTree) -> PyTree:
        """Average each leaf over the parts."""
        if self.strict:
            return jax.tree.map(lambda x: x / self.count(1), self.sum_of_parts(tree))
        return tree if self.axis is None else jax.lax.pmean(tree, self.axis)

    def max_of_parts(self, tree: PyTree) -> PyTree:
        """Find the maximum of each leaf over the parts."""
        for axis in self._axes:
            tree = jax.lax.pmax(tree, axis)
        return tree

    def reduce_mean_and_max(self, mean: PyTree, most: Any) -> tuple[PyTree, Any]:
        """Compute (`mean_of_parts(mean)`, `max_of_parts(most)`) by a single collective operation.

        All leaves are float32.

        The maximum goes into the same sum: each part adds its own number to a place of its own, and
        zeros elsewhere.
        """
        if self.whole:
            return mean, most
        flat, restored = ravel_pytree(mean)
        largest, restored_most = ravel_pytree(most)
        chex.assert_type([flat, largest], jnp.float32)
        if self.strict:
            every = self.gather(jnp.concatenate([flat, largest]))
            total, largest = _tree_sum(every[:, : flat.size]), every[:, flat.size :].max(axis=0)
        else:
            assert self.axis is not None
            parts = self.count(1)
            own = (jnp.arange(parts) == jax.lax.axis_index(self.axis))[:, None]
            places = jnp.where(own, largest, 0.0).reshape(-1)
            every = jax.lax.psum(jnp.concatenate([flat, places]), self.axis)
            total, largest = every[: flat.size], every[flat.size :].reshape(parts, -1).max(axis=0)
        return restored(jax.lax.optimization_barrier(total) / self.count(1)), restored_most(largest)

    def gather(self, x: Array) -> Array:
        """Gather `x` of every part, [parts, ...], in the order of the parts."""
        if self.whole:
            return x[None]
        for axis in self._axes:
            x = jax.lax.all_gather(x, axis)
        x = x.reshape(-1, *x.shape[len(self._axes) :])
        return _apart(x) if self.strict else x

    # --- places and counts ---

    def offset(self, count: int) -> int | Array:
        """Return the global number of this part's first environment (or group).

        Each part holds `count`.
        """
        if self.whole:
            return 0
        place, before = 0, 1
        for axis in self._axes:
            place += jax.lax.axis_index(axis) * before
            before *= jax.lax.axis_size(axis)
        return place * count

    def count(self, count: int) -> int:
        """Return the number in all parts together, if each part holds `count`."""
        for axis in self._axes:
            count *= jax.lax.axis_size(axis)
        return count


def _tree_sum(x: Array) -> Array:
    """Sum over the first axis as a binary tree, whatever program it is part of.

    Neighbours come first.
    """
    while len(x) > 1:
        odd = x[len(x) - len(x) % 2 :]
        pairs = x[: len(x) // 2 * 2]
        x = jnp.concatenate([pairs[0::2] + pairs[1::2], odd])
    return x[0]


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute `function` one after the other where it is mapped.

    It may close over mapped arrays.
    """

    def call(*args: Any) -> Any:
        closed, result = jax.make_jaxpr(function, return_shape=True)(*args)

        @custom_vmap
        def run(*arrays: Array) -> list[Array]:
            return eval_jaxpr(
                closed.jaxpr, arrays[: len(closed.consts)], *arrays[len(closed.consts) :]
            )

        run.def_vmap(partial(one_by_one, run))
        return jax.tree.unflatten(
            jax.tree.structure(result), run(*closed.consts, *jax.tree.leaves(args))
        )

    return call


def one_by_one(
    run: Callable[..., list[Array]], axis_size: int, is_mapped: Sequence[bool], *arrays: Array
) -> tuple[list[Array], list[bool]]:
    """Give the `custom_vmap` rule of a function that is computed in a loop over the mapped axis.

    Return its results, with that axis in front, and True for each.

    axis_size, is_mapped, arrays: as `custom_vmap` gives them.

    A compiler treats a loop by the number of its rounds: it dissolves a loop of one round, and
    joins its operations with those around it. One part on a device would then not be bit-identical
    to several. So the number is hidden from it, what a single round reads seems to depend on the
    round, and barriers keep reading and writing out of the function.
    """
    rounds = axis_size + _hidden_zero(arrays)

    def take(x: Array, i: Array) -> Array:
        if axis_size == 1:
            return jnp.where(i < rounds, x[0], jnp.zeros_like(x[0]))
        return jax.lax.dynamic_index_in_dim(x, i, keepdims=False)

    def at(i: Array) -> list[Array]:
        read = [take(x, i) if mapped else x for x, mapped in zip(arrays, is_mapped, strict=True)]
        return jax.lax.optimization_barrier(run(*jax.lax.optimization_barrier(read)))

    def step(i: Array, results: list[Array]) -> list[Array]:
        return [
            jax.lax.dynamic_update_index_in_dim(whole, x, i, 0)
            for whole, x in zip(results, at(i), strict=True)
        ]

    results = [
        jax.lax.full((axis_size, *like.shape), 0, like.dtype)
        for like in jax.eval_shape(at, jnp.int32(0))
    ]
    return jax.lax.fori_loop(0, rounds, step, results), [True] * len(results)


def _apart(x: Array) -> Array:
    """Return `x` as the result of a loop of one round.

    What reads it is not joined with what made it. On one device nothing else stands between the
    two, on several there is an operation of all devices.
    """
    return jax.lax.fori_loop(0, 1 + _hidden_zero([x]), lambda _, __: x, jnp.zeros_like(x))


def _hidden_zero(arrays: Sequence[Array]) -> Array:
    """Return 0 (int32[]) in a way that a compiler cannot infer, because a float may be NaN.

    Without any float there is nothing to hide: sums of whole numbers are exact.
    """
    floats = (x for x in arrays if jnp.issubdtype(x.dtype, jnp.floating) and x.size)
    number = next((x.reshape(-1)[0] for x in floats), jnp.float32(0))
    return ((number != number) & (number == number)).astype(jnp.int32)


LOCAL = Reduce()
