"""Running mean and variance of observations, with one count per slot.

The leading axis of every field is the group (1 today; meant for one per symbol). Slots that a transfer adds start with
a count of 0, so they get statistics of their own. Two sets of moments are merged as in Chan, Golub & LeVeque (1983),
the batch form of Welford (1962). With n old and m new samples, count c = n + m and d = mean_m - mean_n:

    mean = mean_n + d m / c        variance = variance_n n / c + variance_m m / c + d^2 (n / c) (m / c)

These weights n / c and m / c stay accurate in float32 for any number of samples; sums would not.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array

CLIP = 10.0
MIN_VARIANCE = 1e-12


class RunningStats(struct.PyTreeNode):
    """count, mean, variance: float32[1, D]. It is the population variance (divided by the count).

    The count is a float, because an int32 would overflow after 2^31 samples: minutes on a fast device. It only serves
    as a weight, so rounding does no harm.
    """

    count: Array
    mean: Array
    variance: Array


def init_stats(size: int) -> RunningStats:
    """Statistics without samples: mean 0 and variance 1, so `normalise` only clips. size: slots D."""
    return RunningStats(jnp.zeros((1, size)), jnp.zeros((1, size)), jnp.ones((1, size)))


def merge(stats: RunningStats, batch: Array, group: int = 0, reduce: Reduce = LOCAL) -> RunningStats:
    """Add a batch float32[B, D] (B >= 1) to the statistics of `group`. `reduce` adds the batches of all devices."""
    # Moments around the first row: a constant slot then keeps its mean bit by bit, and its variance is exactly 0.
    origin = reduce.first(batch[0])
    shifted = batch - origin
    offset = reduce.mean(shifted, 0)
    mean, variance = origin + offset, reduce.mean(jnp.square(shifted - offset), 0)
    rows = reduce.count(batch.shape[0])
    count = stats.count[group] + rows
    new = rows / count
    old = 1.0 - new
    delta = mean - stats.mean[group]
    return RunningStats(
        count=stats.count.at[group].set(count),
        mean=stats.mean.at[group].add(delta * new),
        variance=stats.variance.at[group].set(
            old * stats.variance[group] + new * variance + old * new * jnp.square(delta)
        ),
    )


class Scaler(struct.PyTreeNode):
    """What `normalise` needs of the statistics of one group: mean and scale, float32[D]."""

    mean: Array
    scale: Array


def scaler_of(stats: RunningStats, group: int = 0) -> Scaler:
    """Mean and 1 / standard deviation of each slot. A slot without variance carries no information: its scale is 0."""
    variance = stats.variance[group]
    scale = jnp.where(variance > MIN_VARIANCE, 1.0 / jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE)), 0.0)
    return Scaler(stats.mean[group], scale)


def normalise(stats: RunningStats | Scaler, observation: Array) -> Array:
    """(observation - mean) / standard deviation, clipped to +-10; float32[..., D].

    A slot without variance gives 0, also for values that it never had before.
    """
    scaler = scaler_of(stats) if isinstance(stats, RunningStats) else stats
    return jnp.clip((observation - scaler.mean) * scaler.scale, -CLIP, CLIP)
