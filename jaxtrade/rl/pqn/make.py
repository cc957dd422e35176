"""PQN as an `Algorithm`."""

from __future__ import annotations

from functools import partial

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.pqn.update import HParams, update
from jaxtrade.rl.q.context import q_contexts
from jaxtrade.rl.q.make import init, q_algorithm
from jaxtrade.types import Algorithm, Env, Stage, Summary


def make_pqn(
    config: RunConfig,
    env: Env,
    total_updates: int,
    *,
    summarise: Summary | None = None,
    stage: Stage | None = None,
    fusion: Fusion | None = None,
    reduce: Reduce = LOCAL,
    platform: str | None = None,
) -> Algorithm:
    """Build PQN on `env` for a run of `total_updates` updates. Arguments and result as of
    `rl.ppo.make.make_ppo`, with the section `pqn` (`config.algorithm` is `pqn`).

    Raises ConfigError: a fusion that needs a distribution, or a network with a memory whose
    minibatches cannot hold whole rollouts of some environments.
    """
    exact, ctx = q_contexts(
        config,
        env,
        total_updates,
        summarise=summarise,
        stage=stage,
        fusion=fusion,
        reduce=reduce,
        platform=platform,
    )
    rollout, count = ctx.rollout, ctx.num_minibatches
    if ctx.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(
            f"network.kind={config.network.kind} has a memory: rollout.num_envs/rollout.num_shards "
            f"({rollout.num_envs // rollout.shards}) must be a multiple of pqn.num_minibatches ({count})"
        )
    return q_algorithm(config, exact, ctx, partial(init, ctx, HParams), partial(update, ctx))
