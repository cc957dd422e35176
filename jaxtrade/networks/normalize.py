"""Running mean and variance of observations, with one count per group and slot.

The leading axis of every field is the group: one for each symbol of a set, else a single one. Slots
that a transfer adds start with a count of 0, so they get statistics of their own. Two sets of
moments are merged as in Chan, Golub & LeVeque (1983), the batch form of Welford (1962). With n old
and m new samples, count c = n + m and d = mean_m - mean_n:

    mean = mean_n + d m / c        variance = variance_n n / c + variance_m m / c + d^2 (n / c) (m / c)

These weights n / c and m / c stay accurate in float32 for any number of samples; sums would not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array, PyTree

CLIP = 10.0
MIN_VARIANCE = 1e-12


class RunningStats(struct.PyTreeNode):
    """Running statistics of M groups: count, mean, variance, float32[M, D].

    It is the population variance (divided by the count).

    The count is a float, because an int32 would overflow after 2^31 samples: minutes on a fast
    device. It only serves as a weight, so rounding does no harm.
    """

    count: Array
    mean: Array
    variance: Array


def init_stats(size: int, groups: int = 1) -> RunningStats:
    """Make statistics without samples: mean 0 and variance 1, so `normalise` only clips.

    size: slots D.
    groups: M.
    """
    shape = (groups, size)
    return RunningStats(jnp.zeros(shape), jnp.zeros(shape), jnp.ones(shape))


def merge(
    stats: RunningStats, batch: Array, groups: Array | None = None, reduce: Reduce = LOCAL
) -> RunningStats:
    """Add a batch float32[B, D] (B >= 1) to the statistics. `reduce` adds the batches of all parts.

    groups: int[B], the group of each row. None if there is a single group.
    """
    return over_parts(lambda stats, batch: _merge(stats, batch, groups), stats, batch, reduce)


def over_parts(
    add: Callable[[RunningStats, PyTree], RunningStats],
    stats: RunningStats,
    data: PyTree,
    reduce: Reduce,
) -> RunningStats:
    """Compute `add(stats, data)` with the data of all parts.

    Each part adds its own to empty statistics, and those are added to `stats`.
    """
    if reduce.whole:
        return add(stats, data)
    none = jax.tree.map(jnp.zeros_like, stats)
    return merge_parts(stats, reduce.alone(functools.partial(add, none))(data), reduce)


def merge_parts(stats: RunningStats, own: RunningStats, reduce: Reduce) -> RunningStats:
    """Add the statistics `own` of each part to `stats`, by a single collective operation.

    Of parts with counts c_i, means m_i and variances v_i, with w_i = c_i / sum of c:

        mean = sum of w_i m_i        variance = sum of w_i (v_i + (m_i - mean)^2)
    """
    every = reduce.gather(jnp.stack([own.count, own.mean, own.variance]))
    count, mean, variance = jnp.moveaxis(every, 1, 0)  # float32[parts, M, D] each
    total = _sum_in_order(count)
    weight = count * (1.0 / jnp.maximum(total, 1.0))
    # Differences from a part that has samples: a constant slot then keeps its mean bit by bit, and
    # has no variance.
    origin = jnp.take_along_axis(mean, jnp.argmax(count > 0.0, axis=0)[None], axis=0)[0]
    joint = origin + _sum_in_order(weight * (mean - origin))
    joint_variance = _sum_in_order(weight * (variance + jnp.square(mean - joint)))
    new = _merge_moments(stats, jnp.maximum(total, 1.0), joint, joint_variance)
    return jax.tree.map(lambda new, old: jnp.where(total > 0.0, new, old), new, stats)


def _sum_in_order(x: Array) -> Array:
    """Sum over the first axis, in its order."""
    return functools.reduce(jnp.add, list(x))


def _merge(stats: RunningStats, batch: Array, groups: Array | None) -> RunningStats:
    """Compute `merge` of a single part."""
    if groups is None:
        chex.assert_axis_dimension(stats.mean, 0, 1)
        return _merge_moments(stats, *_moments(batch), group=0)
    chex.assert_rank([batch, groups], [2, 1])
    rows, mean, variance = _moments_by_group(batch, groups, stats.mean.shape[0])
    joined = _merge_moments(stats, jnp.maximum(rows, 1.0), mean, variance)
    return jax.tree.map(lambda new, old: jnp.where(rows > 0, new, old), joined, stats)


def _moments(batch: Array) -> tuple[int, Array, Array]:
    """Compute the number of rows, mean and variance float32[D] of a batch."""
    # Moments around the first row: a constant slot then keeps its mean bit by bit, and its variance
    # is exactly 0.
    origin = batch[0]
    shifted = batch - origin
    offset = shifted.mean(0)
    return batch.shape[0], origin + offset, jnp.square(shifted - offset).mean(0)


def _moments_by_group(batch: Array, groups: Array, count: int) -> tuple[Array, Array, Array]:
    """Compute the number of rows float32[M, 1], mean and variance float32[M, D] of each group.

    A group without rows has zeros.
    """
    own = groups[:, None] == jnp.arange(count)  # bool[B, M]
    weights = own.astype(jnp.float32)
    rows = weights.sum(0)[:, None]

    def mean_of(values: Array) -> Array:
        # Products instead of masked sums: one pass over the batch for all groups.
        sums = jnp.matmul(weights.T, values, precision=jax.lax.Precision.HIGHEST)
        return sums * (
            1.0 / jnp.maximum(rows, 1.0)
        )  # compilers differ in when they make a division one of these

    origin = jnp.where(
        own.any(0)[:, None], batch[jnp.argmax(own, axis=0)], 0.0
    )  # a row of each group
    shifted = batch - origin[groups]
    offset = mean_of(shifted)
    return rows, origin + offset, mean_of(jnp.square(shifted - offset[groups]))


def _merge_moments(
    stats: RunningStats, rows: int | Array, mean: Array, variance: Array, group: int | None = None
) -> RunningStats:
    """Add the moments of `rows` >= 1 more rows to one group of the statistics, or to all.

    All groups are written without `at[:]`: its empty indices become an empty input of a program for
    several devices, at which the compiler of JAX 0.11 crashes.
    """
    own = stats if group is None else jax.tree.map(lambda x: x[group], stats)
    count = own.count + rows
    new = rows / count
    old = 1.0 - new
    delta = mean - own.mean
    joint_variance = old * own.variance + new * variance + old * new * jnp.square(delta)
    if group is None:
        return RunningStats(count, own.mean + delta * new, joint_variance)
    return RunningStats(
        count=stats.count.at[group].set(count),
        mean=stats.mean.at[group].add(delta * new),
        variance=stats.variance.at[group].set(joint_variance),
    )


class Scaler(struct.PyTreeNode):
    """What `normalise` needs of the statistics: mean and scale.

    They are float32[D], or float32[M, D] for M > 1 groups.
    """

    mean: Array
    scale: Array


def scaler_of(stats: RunningStats) -> Scaler:
    """Compute the mean and 1 / standard deviation of each slot.

    A slot without variance carries no information: its scale is 0.
    """
    single = stats.mean.shape[0] == 1
    variance = stats.variance[0] if single else stats.variance
    scale = jnp.where(
        variance > MIN_VARIANCE, 1.0 / jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE)), 0.0
    )
    return Scaler(stats.mean[0] if single else stats.mean, scale)


def normalise(
    stats: RunningStats | Scaler, observation: Array, group: Array | None = None
) -> Array:
    """Compute (observation - mean) / standard deviation, clipped to +-10 (float32[..., D]).

    A slot without variance gives 0, also for values that it never had before.

    group: int[...], the group of each observation; None with a single group.
    """
    scaler = scaler_of(stats) if isinstance(stats, RunningStats) else stats
    chex.assert_rank([scaler.mean, scaler.scale], 1 if group is None else 2)
    if group is not None:
        scaler = jax.tree.map(lambda x: x[group], scaler)
    return jnp.clip((observation - scaler.mean) * scaler.scale, -CLIP, CLIP)
