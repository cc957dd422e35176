"""The training state of a learner and its parts.

Everything that influences training from update to update is here.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import RunningStats, init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.acting import first_statistics
from jaxtrade.rl.advice import AdviceState
from jaxtrade.rl.context import Context
from jaxtrade.rl.optim import optimiser
from jaxtrade.rl.state import EpisodeTotals, PastPolicies, UnlockPlan, reset_all, strong_types
from jaxtrade.types import Array, PyTree

# Rewards divided by the running standard deviation of the discounted return.
#
# A learner's step sizes suit values of about 1. Rewards of markets are far from that: thousandths
# of a risk unit per bar on quiet real bars, returns of nearly a hundred on a synthetic market.
# Large values also swamp the policy in the common clipping of the gradient's norm. The return that
# is measured is the sum of past rewards of an episode, discounted to the present, as in
# `VecNormalize` of Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy
# Gradients"). Rewards are divided, not shifted: the sign of a reward keeps its meaning, and so does
# a reward of 0.

MIN_DEVIATION = 1e-8  # returns that never vary (no reward yet) are not scaled


class RewardScale(struct.PyTreeNode):
    """The scale of rewards.

    running: float32[N], discounted return of each environment's running episode.
    stats: moments of such returns over all steps so far, one slot.
    """

    running: Array
    stats: RunningStats


def init_scale(num_envs: int) -> RewardScale:
    """Return the scale before any reward."""
    return RewardScale(jnp.zeros(num_envs), init_stats(1))


def discount_rewards(
    running: Array, reward: Array, done: Array, gamma: Array | float
) -> tuple[Array, Array]:
    """Compute discounted sums of the rewards of each episode so far.

        R_t = gamma R_{t-1} + r_t, where R_{t-1} = 0 at the first step of an episode

    Args:
        running: float32[N], R before the first step.
        reward: float32[T, N].
        done: bool[T, N], the episode's last step.

    Returns:
        (after the last step float32[N], [T, N]).
    """

    def step(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, done_t = now
        total = gamma * total + reward_t
        return jnp.where(done_t, 0.0, total), total

    return jax.lax.scan(step, running, (reward, done))


def scale_rewards(
    scale: RewardScale, reward: Array, done: Array, gamma: Array | float, reduce: Reduce = LOCAL
) -> tuple[RewardScale, Array, Array]:
    """Add a rollout to the statistics, and divide its rewards.

    Arguments are those of `discount_rewards`. The divisor is 1 while all returns are equal.

    Returns:
        (scale, rewards float32[T, N], divisor float32[]).
    """
    running, returns = reduce.alone(discount_rewards)(scale.running, reward, done, gamma)
    stats = merge(scale.stats, returns.reshape(-1, 1), reduce=reduce)
    deviation = jnp.sqrt(stats.variance[0, 0])
    divisor = jnp.where(deviation > MIN_DEVIATION, deviation, 1.0)
    return RewardScale(running, stats), reward / divisor, divisor


class TrainState(struct.PyTreeNode):
    """The whole state of a run between two updates (a `LoopState`).

    ref: next reference of each environment.
    first: bool[N], True if `ref` starts an episode.
    carry: float32[N, H], memory of the policy before `ref`. It is not yet reset where `first`. None
        without a memory.
    key: typed key that only a rollback changes. Update `u` draws from `fold_in(key, u)`.
    update, total_updates: int32[]. Environment steps are `update * num_envs * num_steps`. The host
        counts them, because they would overflow int32.
    hparams: the tunable floats of the learner, each float32[].
    rollbacks: int32[], number of times that the run went back to a checkpoint.
    opening: schedule of actions that a transfer added, else None.
    advice: state of the advisor, shared by all agents of a population; None without an advisor.
    rewards: what rewards are divided by; None without `normalise_rewards`.
    errors: float32[M], mean size of the errors on each symbol (`rl.wrappers`); None unless the
        sampler reads weights.
    own: what only this learner keeps, such as a replay; None for none.
    actor: the older policies that act with a delay (`rl.state`); None without one.
    """

    params: PyTree
    opt_state: PyTree
    normaliser: RunningStats
    env_state: PyTree
    ref: PyTree
    first: Array
    carry: PyTree
    episodes: EpisodeTotals
    key: Array
    update: Array
    total_updates: Array
    hparams: Any
    rollbacks: Array
    opening: UnlockPlan | None = None
    advice: AdviceState | None = None
    rewards: RewardScale | None = None
    errors: Array | None = None
    own: Any = None
    actor: PastPolicies | None = None


def floats_of(kind: Any, config: Any) -> Any:
    """Return the tunable floats of a section.

    Each field of `kind`, a flax dataclass, is the key of that name as float32[].
    """
    return kind(**{name: jnp.float32(getattr(config, name)) for name in kind.__dataclass_fields__})


def first_state(
    ctx: Context, key: Array, params: PyTree, first_parameters: Any, hparams: Any
) -> TrainState:
    """Return the state before the first update (`Learner.init`).

    Args:
        first_parameters: key -> the initial parameters.
        hparams: the tunable floats. The section `ctx.config` has the key `normalise_rewards`.

    Raises:
        TypeError: the key is not a typed key.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(
            "init needs a typed key: jax.random.key(seed), not jax.random.PRNGKey(seed)"
        )
    env, num_envs = ctx.env, ctx.rollout.num_envs
    key_network, key_reset, key_run = jax.random.split(key, 3)
    env_state, ref = reset_all(env, key_reset, params, num_envs, ctx.first_env)
    parameters = first_parameters(key_network)
    stats = first_statistics(env, ctx.settings, ref, params, ctx.reduce)
    return strong_types(
        TrainState(
            params=parameters,
            opt_state=optimiser().init(parameters),
            normaliser=stats,
            env_state=env_state,
            ref=ref,
            first=jnp.ones(num_envs, bool),
            carry=jax.tree.map(
                lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), ctx.first_carry
            ),
            episodes=EpisodeTotals(jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)),
            key=key_run,
            update=jnp.int32(0),
            total_updates=jnp.int32(ctx.total_updates),
            hparams=hparams,
            rollbacks=jnp.int32(0),
            rewards=init_scale(num_envs) if ctx.config.normalise_rewards else None,
        )
    )


# How the arrays of a learner's state divide between devices, and the configuration of one part.
#
# The environments of an agent form groups (`rollout.num_shards`). A part holds whole groups, so no
# device needs rows of another one: minibatches and samples of a replay take an equal share of every
# group.


class Kind(enum.IntEnum):
    """How an array divides.

    WHOLE: every part has all of it. LANES: its first axis is environments, or groups of them. RING:
    its first axis is L rows of time with N environments each, [L N, ...].
    """

    WHOLE = 0
    LANES = 1
    RING = 2


def all_of(tree: PyTree, kind: Kind) -> PyTree:
    """Return `kind` for every array of a tree."""
    return jax.tree.map(lambda _: kind, tree)


def kinds_of(state: TrainState) -> TrainState:
    """Return the `Kind` of every array of a training state of one agent.

    `own` must have a method `kinds` if a part of it divides.

    Args:
        state: arrays, or their shapes.
    """
    lanes = ("env_state", "ref", "first", "carry", "episodes")
    found = all_of(state, Kind.WHOLE).replace(
        **{name: all_of(getattr(state, name), Kind.LANES) for name in lanes}
    )
    if state.rewards is not None:
        found = found.replace(rewards=found.rewards.replace(running=Kind.LANES))
    own = getattr(state.own, "kinds", None)
    return found if own is None else found.replace(own=own())


def part_of(config: RunConfig, parts: int) -> RunConfig:
    """Return the configuration of one of `parts` equal parts.

    It has its share of the environments, groups and samples.

    Raises ConfigError if the groups cannot be shared evenly.
    """
    if parts == 1:
        return config
    rollout, learner = config.rollout, config.learner
    if rollout.shards % parts:
        raise ConfigError(
            f"parallel.devices: {parts} devices share the environments of an agent, and they form {rollout.shards} "
            f"groups (rollout.num_shards, at most rollout.num_envs): use a number of devices that divides "
            f"{rollout.shards}, or set rollout.num_shards to a multiple of {parts} that divides rollout.num_envs "
            f"({rollout.num_envs})"
        )
    own = rollout.model_copy(
        update={"num_envs": rollout.num_envs // parts, "num_shards": rollout.shards // parts}
    )
    changes: dict[str, Any] = {}
    if hasattr(learner, "num_minibatches"):
        changes["num_minibatches"] = config.minibatches  # `auto` counts all environments
    for name in ("batch_size", "buffer_size"):
        if hasattr(learner, name):
            changes[name] = getattr(learner, name) // parts
    section = {} if learner is None else {config.algorithm: learner.model_copy(update=changes)}
    return config.model_copy(update={"rollout": own, **section})
