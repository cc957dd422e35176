"""What every learner's policy does at a reference.

It reads it, normalised by the statistics of its group, combines it with advice, and reports what it
decided.

All functions of a policy but `prepare_policy` take one that `prepare_policy` has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.heads import Module
from jaxtrade.networks.normalize import (
    RunningStats,
    init_stats,
    merge,
    normalise,
    over_parts,
    scaler_of,
)
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.advice import AdviceTerms, Fusion
from jaxtrade.rl.context import Context
from jaxtrade.rl.state import Policy, unlock_actions
from jaxtrade.types import Array, Env, PyTree

# What the network of any learner reads: the observation of a reference, normalised by the
# statistics of its group.
#
# In training on several symbols, an environment tells the group of a reference (`Grouped`), and the
# statistics have one group for each symbol. All functions are pure, and `params` is traced.


@runtime_checkable
class Grouped(Protocol):
    """An environment whose references belong to groups (symbols).

    Each group has observation statistics of its own.

    An environment without these methods has a single group.
    """

    def groups(self, params: PyTree) -> int:
        """Return the number M of groups, a static number."""
        ...

    def group(self, ref: PyTree, params: PyTree) -> Array:
        """Return the group of a reference (int32[], 0..M - 1)."""
        ...


def group_count(env: Env, settings: NetworkConfig, params: PyTree) -> int:
    """Return the number of groups that the statistics of a learner on `env` have."""
    return env.groups(params) if settings.normalise_per_symbol and isinstance(env, Grouped) else 1


def group_of(env: Env, groups: int, ref: PyTree, params: PyTree) -> Array | None:
    """Return the group of `ref` in statistics of `groups` groups (int32[]; None for one group).

    Raises ValueError if the environment has another number of groups.
    """
    if groups == 1:
        return None
    found = env.groups(params) if isinstance(env, Grouped) else 1
    if found != groups or not isinstance(env, Grouped):
        raise ValueError(
            f"the observation statistics have {groups} groups (symbols), the environment {found}; on a "
            "market of one symbol, use the statistics of that symbol (`select_group`)"
        )
    return env.group(ref, params)


def select_group(normaliser: Any, group: int | Array) -> Any:
    """Select the statistics of one group, for acting on a market of its symbol.

    None stays None. The statistics of a single group are returned as they are. Raises IndexError
    for a group that they do not have.

    Args:
        normaliser: RunningStats with fields float32[..., M, D] (agents may lead), or None.
    """
    if normaliser is None or normaliser.mean.shape[-2] == 1:
        return normaliser
    if isinstance(group, int) and not 0 <= group < normaliser.mean.shape[-2]:
        raise IndexError(f"group {group} of statistics with {normaliser.mean.shape[-2]} groups")
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, group, 1, axis=-2), normaliser)


def prepare_statistics(settings: NetworkConfig, normaliser: Any) -> Any:
    """Convert the statistics to the form that acting needs (`Scaler`), once and not in every step.

    Other statistics are returned unchanged.
    """
    wanted = settings.normalise_observations and isinstance(normaliser, RunningStats)
    return scaler_of(normaliser) if wanted else normaliser


def add_observations(env: Env, stats: RunningStats, refs: PyTree, params: PyTree) -> RunningStats:
    """Add the observations of references [B, ...] to the statistics of their groups."""
    count = stats.mean.shape[0]
    groups = None if count == 1 else jax.vmap(lambda ref: group_of(env, count, ref, params))(refs)
    return merge(stats, jax.vmap(env.observe, (0, None))(refs, params), groups)


def first_statistics(
    env: Env, settings: NetworkConfig, refs: PyTree, params: PyTree, reduce: Reduce = LOCAL
) -> RunningStats:
    """Compute the statistics of a learner's first state.

    Args:
        refs: [N, ...], the first reference of each environment.
    """
    stats = init_stats(env.observation_size, group_count(env, settings, params))
    if not settings.normalise_observations:
        return stats
    # Without these first statistics the first rollout would normalise by mean 0 and variance 1.
    # Prices would then all be clipped to the same number.
    return over_parts(
        lambda stats, refs: add_observations(env, stats, refs, params), stats, refs, reduce
    )


def update_statistics(
    env: Env,
    stats: RunningStats,
    refs: PyTree,
    params: PyTree,
    reduce: Reduce = LOCAL,
    rows: int = 512,
) -> RunningStats:
    """Add the observations of a rollout to the statistics.

    The scan rebuilds the observations of a few time steps at a time, about `rows` of them. All of
    them at once would take far more memory. If there are several parts, each adds up its own
    rollout first.

    Args:
        refs: [T, N, ...].
    """
    steps, envs = jax.tree.leaves(refs)[0].shape[:2]
    together = next(n for n in range(max(rows // envs, 1), 0, -1) if steps % n == 0)
    blocks = jax.tree.map(
        lambda x: x.reshape(steps // together, together * envs, *x.shape[2:]), refs
    )

    def add(stats: RunningStats, block: PyTree) -> tuple[RunningStats, None]:
        return add_observations(env, stats, block, params), None

    return over_parts(
        lambda stats, blocks: jax.lax.scan(add, stats, blocks)[0], stats, blocks, reduce
    )


def first_parameters(
    network: Module, size: int, key: Array, fusion: Fusion | None = None
) -> dict[str, PyTree]:
    """Initialise the parameters of the network, and those that a fusion adds.

    Args:
        size: length of an observation.
    """
    variables = network.init(key, network.first_carry(), jnp.zeros(size))
    parameters = dict(variables.get("params", {}))  # a network of one's own may have none
    return parameters | ({} if fusion is None else fusion.init(jax.random.fold_in(key, 1), size))


class ActExtras(NamedTuple):
    """Further results of `Learner.act`.

    log_prob: float32[], of the action.
    value: float32[].
    logits: float32[A]; of a Q-learner its Q values.
    mask: bool[A].
    overridden: bool[], True if the same random number would have drawn another action without
        advice; None without a fusion or without exploration.
    probs: float32[A], the distribution that exploration draws from; None if it is the softmax of
        `logits` over `mask`.
    """

    log_prob: Array
    value: Array
    logits: Array
    mask: Array
    overridden: Array | None = None
    probs: Array | None = None


def prepare_policy(ctx: Context, policy: Policy) -> Policy:
    """Convert the policy to the form that acting uses, once and not in every step.

    It has packed parameters, and a `Scaler` instead of the statistics.
    """
    return policy.replace(
        parameters=ctx.pack(policy.parameters),
        normaliser=prepare_statistics(ctx.settings, policy.normaliser),
    )


def network_input(ctx: Context, policy: Policy, ref: PyTree, params: PyTree) -> Array:
    """Return the observation (float32[D]), normalised by the group of `ref` if so configured."""
    observation, normaliser = ctx.env.observe(ref, params), policy.normaliser
    if not ctx.settings.normalise_observations:
        return observation
    assert normaliser is not None
    groups = normaliser.mean.shape[0] if normaliser.mean.ndim == 2 else 1
    return normalise(normaliser, observation, group_of(ctx.env, groups, ref, params))


def advice_terms(ctx: Context, policy: Policy, ref: PyTree) -> AdviceTerms | None:
    """Compute the advice terms of `ref`, which `apply_unlock_and_advice` needs; None without a fusion."""
    return None if ctx.fusion is None else ctx.fusion.terms(policy.fusion, ref)


class Distribution(NamedTuple):
    """Logits float32[A] and mask bool[A] as they act.

    cost: float32[], extra loss of a fusion; None without one.
    unadvised: (logits, mask) without advice.
    """

    logits: Array
    mask: Array
    cost: Array | None
    unadvised: tuple[Array, Array]


def apply_unlock_and_advice(
    ctx: Context,
    policy: Policy,
    observation: Array,
    ref: PyTree,
    terms: AdviceTerms | None,
    logits: Array,
    mask: Array,
) -> Distribution:
    """Apply action unlocks and advice to the network's output.

    First come the actions of a transfer that are not fully open (`rl.state`), then
    advice (`rl.advice`).

    Args:
        observation: float32[D] as from `network_input`.
        terms: from `advice_terms`.
        logits: float32[A], or Q values.
        mask: bool[A], of the environment.
    """
    logits, mask = unadvised = unlock_actions(policy.opening, logits, mask)
    if ctx.fusion is None or terms is None:
        return Distribution(logits, mask, None, unadvised)
    found = ctx.fusion.fuse(terms, policy.parameters, observation, ref, logits, mask)
    return Distribution(*found, unadvised)


def act(
    by_chance: Callable[..., tuple[PyTree, Array, ActExtras]],
    ctx: Context,
    policy: Policy,
    carry: PyTree,
    ref: PyTree,
    params: PyTree,
    key: Array | None,
    explore: bool,
) -> tuple[PyTree, Array, ActExtras]:
    """Implement `Learner.act`. Raises ValueError if `explore` is True and `key` is None.

    Args:
        by_chance: acts by a random number float32[...] in [0, 1), or by None if it
            does not explore.
    """
    policy, chance = prepare_policy(ctx, policy), None
    if explore:
        if key is None:
            raise ValueError(
                "act explores by a key, and none is given; give one, or set explore to False"
            )
        chance = jax.random.uniform(key, ctx.env.action_mask(ref).shape[:-1])
    return by_chance(ctx, policy, carry, ref, params, chance)
