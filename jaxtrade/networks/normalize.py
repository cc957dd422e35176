"""Running mean and variance of observations, one count per slot.

The leading axis of every field is the group (1 now, one per symbol later). A count per slot lets slots that are added
later start their own statistics. Merging follows Chan, Golub & LeVeque (1983), in the form of weights, which stays
accurate in float32 however many samples came before.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array

CLIP = 10.0
MIN_VARIANCE = 1e-12


class RunningStats(struct.PyTreeNode):
    """count, mean, variance: float32[1, D]. Variance is the population's (divided by the count).

    The count is a float because an int32 would overflow after 2^31 samples, minutes on a fast device; as a weight it
    may be rounded.
    """

    count: Array
    mean: Array
    variance: Array


def init_stats(size: int) -> RunningStats:
    """No samples yet: mean 0, variance 1, so `normalise` only clips."""
    return RunningStats(jnp.zeros((1, size)), jnp.zeros((1, size)), jnp.ones((1, size)))


def merge(stats: RunningStats, batch: Array, group: int = 0, reduce: Reduce = LOCAL) -> RunningStats:
    """The statistics with one batch float32[B, D] (B >= 1) added to `group`; with `reduce`, those of all parts."""
    # Around the first row, a slot that never varies keeps its mean to the bit, so its deviations stay exactly 0.
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


def normalise(stats: RunningStats, observation: Array, group: int = 0) -> Array:
    """(observation - mean) / standard deviation, clipped to +-10; float32[..., D].

    A slot that never varied carries no information and gives 0, also for values never seen.
    """
    variance = stats.variance[group]
    scale = jnp.where(variance > MIN_VARIANCE, 1.0 / jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE)), 0.0)
    return jnp.clip((observation - stats.mean[group]) * scale, -CLIP, CLIP)
