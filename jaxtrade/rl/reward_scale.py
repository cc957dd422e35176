"""Rewards divided by the running standard deviation of the discounted return.

A learner's step sizes suit values of about 1. Rewards of markets are far from that: thousandths of
a risk unit per bar on quiet real bars, returns of nearly a hundred on a synthetic market. Large
values also swamp the policy in the common clipping of the gradient's norm. The return that is
measured is the sum of past rewards of an episode, discounted to the present, as in `VecNormalize`
of Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy Gradients").
Rewards are divided, not shifted: the sign of a reward keeps its meaning, and so does a reward of 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.normalize import RunningStats, init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array

MIN_DEVIATION = 1e-8  # returns that never vary (no reward yet) are not scaled


class RewardScale(struct.PyTreeNode):
    """running: float32[N], discounted return of each environment's running episode. stats: moments
    of such returns over all steps so far, one slot."""

    running: Array
    stats: RunningStats


def init_scale(num_envs: int) -> RewardScale:
    """The scale before any reward."""
    return RewardScale(jnp.zeros(num_envs), init_stats(1))


def discounted(
    running: Array, reward: Array, done: Array, gamma: Array | float
) -> tuple[Array, Array]:
    """Discounted sums of the rewards of each episode so far -> (after the last step float32[N], [T,
    N]).

        R_t = gamma R_{t-1} + r_t, where R_{t-1} = 0 at the first step of an episode

    Args:
        running: float32[N], R before the first step. reward: float32[T, N]. done: bool[T, N], the
            episode's last step.
    """

    def step(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, done_t = now
        total = gamma * total + reward_t
        return jnp.where(done_t, 0.0, total), total

    return jax.lax.scan(step, running, (reward, done))


def scaled(
    scale: RewardScale, reward: Array, done: Array, gamma: Array | float, reduce: Reduce = LOCAL
) -> tuple[RewardScale, Array, Array]:
    """Add a rollout to the statistics, and divide its rewards -> (scale, rewards float32[T, N],
    divisor float32[]).

    Arguments as of `discounted`. The divisor is 1 while all returns are equal.
    """
    running, returns = reduce.alone(discounted)(scale.running, reward, done, gamma)
    stats = merge(scale.stats, returns.reshape(-1, 1), reduce=reduce)
    deviation = jnp.sqrt(stats.variance[0, 0])
    divisor = jnp.where(deviation > MIN_DEVIATION, deviation, 1.0)
    return RewardScale(running, stats), reward / divisor, divisor
