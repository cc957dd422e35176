"""The training state of a learner. Everything that influences training from update to update is
here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.actor import Delayed, first_delayed
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening.fusion import AdviceState
from jaxtrade.rl.observing import first_statistics
from jaxtrade.rl.reward_scale import RewardScale, init_scale
from jaxtrade.rl.rollout import reset_all
from jaxtrade.rl.schedules import optimiser
from jaxtrade.rl.state import EpisodeTotals, OpeningPlan, strong_types
from jaxtrade.rl.symbols import first_errors, weighted
from jaxtrade.types import Array, PyTree

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
    errors: float32[M], mean size of the errors on each symbol (`rl.symbols`); None unless the
        sampler reads weights.
    own: what only this learner keeps, such as a replay; None for none.
    actor: the older policies that act with a delay (`rl.actor`); None without one.
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
    params = weighted(params, errors, ctx.sampler)
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
