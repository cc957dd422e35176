"""The training state of a learner and its parts. Everything that influences training from update to
update is here.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.config import ActorConfig, RunConfig, SamplerConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import RunningStats, init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.acting import first_statistics
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening import AdviceState
from jaxtrade.rl.state import EpisodeTotals, OpeningPlan, Policy, reset_all, strong_types
from jaxtrade.types import Array, PyTree, Transition

# Schedules over the fraction of the run that is done, and the optimiser.

DECAYS = (0.9, 0.999)  # b1 and b2 of Adam
EPSILON = 1e-5  # the usual value for PPO (OpenAI Baselines, Stable-Baselines3)


def progress(update: Array, total_updates: Array) -> Array:
    """Fraction of the run, float32[]: 0 in the first update (number 0), 1 in the last (number
    total_updates - 1).

    A run of a single update stays at 0.
    """
    last = jnp.maximum(total_updates - 1, 1).astype(jnp.float32)
    return jnp.clip(update.astype(jnp.float32) / last, 0.0, 1.0)


def linear(start: Array | float, end: Array | float, fraction: Array) -> Array:
    """Linear interpolation from `start` at fraction 0 to `end` at fraction 1. Both ends are exact
    in float32.
    """
    return start * (1.0 - fraction) + end * fraction


def optimiser() -> optax.GradientTransformation:
    """The optimiser whose state a run keeps: clipping by the global norm, then Adam (Kingma and Ba
    2015). Training computes its step by `clipped_adam`."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(*DECAYS, eps=EPSILON))


def clipped_adam(
    grads: PyTree, norm: Array, state: Any, max_grad_norm: Array | float
) -> tuple[PyTree, Any]:
    """One step of `optimiser` -> (direction, new state). The caller multiplies the direction by
    -learning rate.

        g = grads min(1, max_grad_norm / norm)        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
        direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    It equals optax's step up to rounding. optax computes each power in a program of its own, here
    they are one.

    Args:
        grads: a tree, or all of them as a vector float32[P]. norm: float32[], their norm.
        state: that of `optimiser`, with moments like `grads`.
        max_grad_norm: may be traced.
    """
    clip, adam = state
    b1, b2 = DECAYS
    count = optax.safe_increment(adam.count)
    first, second = 1.0 - jnp.array(DECAYS, jnp.float32) ** count
    grads = jax.tree.map(
        lambda g: jnp.where(norm < max_grad_norm, g, g / norm * max_grad_norm), grads
    )
    mu = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, adam.mu, grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1.0 - b2) * jnp.square(g), adam.nu, grads)
    direction = jax.tree.map(lambda m, v: m / first / (jnp.sqrt(v / second) + EPSILON), mu, nu)
    return direction, (clip, adam._replace(count=count, mu=mu, nu=nu))


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


# Which policy acts: the one that learns, or one that is `actor.delay` updates older.
#
# Every policy has a version, the number of updates that made it. Update u learns from the policy of
# version u. Without a delay that policy acts too, and the lag, u minus the version that acted, is
# 0. With a delay of d updates, the policy of version max(u - d, 0) acts: its parameters and its
# observation statistics. Schedules (epsilon, opened actions, trust in advice) are those of update u
# for both.


class Delayed(struct.PyTreeNode):
    """The policies of the last d updates, oldest first (`TrainState.actor`). The newest is in the
    state itself, so a run holds d + 1.

    parameters, normaliser: as of `Policy`, [d, ...]. version: int32[d], that of each policy; at
        first all are 0.
    """

    parameters: PyTree
    normaliser: PyTree
    version: Array


class Acting(NamedTuple):
    """Who acts in an update. policy: the policy. version: int32[], its version. kept: the older
    policies after it.
    """

    policy: Policy
    version: Array
    kept: Delayed | None


def first_delayed(config: ActorConfig, parameters: PyTree, normaliser: PyTree) -> Delayed | None:
    """The older policies before the first update, or None without a delay."""
    if not config.delay:
        return None
    d = config.delay
    parameters, normaliser = jax.tree.map(
        lambda x: jnp.repeat(x[None], d, axis=0), (parameters, normaliser)
    )
    return Delayed(parameters, normaliser, jnp.zeros(d, jnp.int32))


def acting(delayed: Delayed | None, policy: Policy, update: Array) -> Acting:
    """Who acts in update `update` int32[]. policy: the policy that learns, not packed
    (`rl.acting.ready`).

    The oldest policy acts and leaves, and the one that learns joins. They move up by one place,
    which costs a copy of d policies in each update: a ring with a moving place would look up and
    write by index, which XLA compiles badly for several agents (on a CPU it aborts).
    """
    if delayed is None:
        return Acting(policy, update, None)
    newest = Delayed(policy.parameters, policy.normaliser, update)
    # A run that begins from another run's policy changes the parameters of its first state alone.
    older = jax.tree.map(lambda kept, new: jnp.where(update == 0, new, kept), delayed, newest)
    oldest: Any = jax.tree.map(lambda x: x[0], older)
    kept = jax.tree.map(lambda x, new: jnp.concatenate([x[1:], new[None]]), older, newest)
    return Acting(
        policy.replace(parameters=oldest.parameters, normaliser=oldest.normaliser),
        oldest.version,
        kept,
    )


def lag_metrics(update: Array, version: Array) -> dict[str, Array]:
    """`lag_min` and `lag_max`, int32[]: by how many updates the policies that acted are older than
    the one that learns.

    update: int32[], the version that learns. version: int32[...], the versions that acted.
    """
    chex.assert_type([update, version], int)
    lag = update - version
    return {"lag_min": lag.min(), "lag_max": lag.max()}


# How much a learner errs on each symbol of a set, and the share of episodes that each symbol gets
# for it.
#
# Only for samplers that read weights (`sampler.kind: prioritised`, or one of your own). A learner
# holds `first_errors` in its state. Each update sets `params.symbol_weights` to `shares` of them
# before the rollout, and calls `follow` after it.

UNWEIGHTED = ("uniform", "balanced", "round_robin")  # samplers that read no weights


def first_errors(config: SamplerConfig, params: PyTree) -> Array | None:
    """float32[M] zeros (no error is known yet), or None with one symbol or a sampler that reads no
    weights.
    """
    if config.kind in UNWEIGHTED or params.sessions.offsets is None:
        return None
    return jnp.zeros(params.sessions.offsets.shape[0] - 1)


def follow(
    errors: Array, sizes: Array, symbols: Array, rate: float, reduce: Reduce = LOCAL
) -> Array:
    """The errors after an update: an exponential moving average of the mean size of a learner's
    errors, by symbol.

    Args:
        errors: float32[M], before the update; 0 for a symbol that was never seen.
        sizes: float32 >= 0, of any shape: |advantage| or |TD error| of each step.
        symbols: int8, same shape: the symbol of each step, `market.symbol[ref.row[..., 0]]`.
        rate: weight of this update. The first mean of a symbol is taken as it is.
    Returns:
        float32[M]. A symbol without a step in this update keeps its error. An error that is not
        finite changes nothing.
    """
    own = symbols.reshape(-1, 1) == jnp.arange(errors.shape[0], dtype=symbols.dtype)
    count = reduce.sum(own, 0, jnp.float32)
    mean = reduce.sum(jnp.where(own, sizes.reshape(-1, 1), 0.0), 0) / jnp.maximum(count, 1.0)
    moved = jnp.where(errors == 0.0, mean, errors + rate * (mean - errors))
    return jnp.where((count > 0) & jnp.isfinite(moved), moved, errors)


def shares(errors: Array, even_share: float) -> Array:
    """float32[M], sum 1: the share of episodes of each symbol, in proportion to its error.

    `even_share` of the episodes is spread evenly. A symbol without a known error counts as the mean of the others.
    """
    known = errors > 0.0
    mean = errors.sum() / jnp.maximum(known.sum(), 1)
    filled = jnp.where(known, errors, jnp.where(mean > 0.0, mean, 1.0))
    return even_share / errors.shape[0] + (1.0 - even_share) * filled / filled.sum()


def followed(
    ctx: Context, errors: Array | None, sizes: Array, seen: Transition, params: PyTree
) -> Array | None:
    """`follow` for the steps of a rollout; None where `errors` is None. sizes: float32[T, N]."""
    if errors is None:
        return None
    return follow(
        errors, sizes, params.market.symbol[seen.ref.row[..., 0]], ctx.sampler.rate, ctx.reduce
    )


HParamsT = TypeVar("HParamsT")


class TrainState(struct.PyTreeNode):
    """The whole state of a run between two updates (a `LoopState`).

    ref: next reference of each environment. first: bool[N], True if `ref` starts an episode.
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
    errors: float32[M], mean size of the errors on each symbol (`rl.train_state`); None unless the
        sampler reads weights.
    own: what only this learner keeps, such as a replay; None for none.
    actor: the older policies that act with a delay (`rl.train_state`); None without one.
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
    opening: OpeningPlan | None = None
    advice: AdviceState | None = None
    rewards: RewardScale | None = None
    errors: Array | None = None
    own: Any = None
    actor: Delayed | None = None


def floats_of(kind: type[HParamsT], config: Any) -> HParamsT:
    """The tunable floats of a section: each field of `kind`, a flax dataclass, is the key of that
    name as float32[].
    """
    fields: Any = kind
    return kind(
        **{name: jnp.float32(getattr(config, name)) for name in fields.__dataclass_fields__}
    )


def halved_rates(hparams: Any, times: int) -> Any:
    """`Algorithm.retry`: each of the `times` rollbacks halves the start and the end of the learning
    rate.
    """
    return hparams.replace(
        learning_rate=hparams.learning_rate * 0.5**times,
        learning_rate_end=hparams.learning_rate_end * 0.5**times,
    )


def staged(
    ctx: Context, params: PyTree, fraction: Array, errors: Array | None = None
) -> tuple[PyTree, dict[str, Array]]:
    """The environment's parameters at a fraction of the run, and metrics about them.

    errors: as in `TrainState`. They decide the share of episodes that each symbol gets.
    """
    figures: dict[str, Array] = {}
    if ctx.stage is not None:
        params, figures = ctx.stage(params, fraction)
    if errors is None:
        return params, figures
    params = params.replace(symbol_weights=shares(errors, ctx.sampler.even_share))
    return params, figures | {"symbol_share": params.symbol_weights}


def first_state(
    ctx: Context, key: Array, params: PyTree, first_parameters: Any, hparams: Any
) -> TrainState:
    """The state before the first update (`Algorithm.init`).

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
    params, _ = staged(ctx, params, jnp.float32(0))
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
            errors=first_errors(ctx.sampler, params),
            actor=first_delayed(ctx.actor, parameters, stats),
        )
    )


# How the arrays of a learner's state divide between devices, and the configuration of one part.
#
# The environments of an agent form groups (`rollout.num_shards`). A part holds whole groups, so no
# device needs rows of another one: minibatches and samples of a replay take an equal share of every
# group.


class Kind(enum.IntEnum):
    """How an array divides. WHOLE: every part has all of it. LANES: its first axis is environments,
    or groups of them.
    RING: its first axis is L rows of time with N environments each, [L N, ...]."""

    WHOLE = 0
    LANES = 1
    RING = 2


def all_of(tree: PyTree, kind: Kind) -> PyTree:
    """`kind` for every array of a tree."""
    return jax.tree.map(lambda _: kind, tree)


def kinds_of(state: TrainState) -> TrainState:
    """The `Kind` of every array of a training state of one agent. state: arrays, or their shapes.

    `own` must have a method `kinds` if a part of it divides.
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
    """The configuration of one of `parts` equal parts: its share of the environments, groups and
    samples.

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
