"""DQN as an `Algorithm`."""

from __future__ import annotations

from functools import partial

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.dqn.state import HParams, first_own
from jaxtrade.rl.dqn.update import update
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.q import make
from jaxtrade.rl.q.context import Q, q_contexts
from jaxtrade.rl.state import strong_types
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary


def init(ctx: Q, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`: also an empty replay and the target network. Raises TypeError as
    `first_state`.
    """
    state = make.init(ctx, HParams, key, params)
    return state.replace(own=strong_types(first_own(ctx, state.params, state.ref)))


def make_dqn(
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
    """Build DQN on `env` for a run of `total_updates` updates. Arguments and result as of
    `rl.ppo.make.make_ppo`, with the section `dqn` (`config.algorithm` is `dqn`).

    Raises ConfigError: counts that do not fit each other (`DQNConfig.check`), a network with a
    memory, or a fusion that needs a distribution.
    """
    try:
        config.dqn.check(config.rollout)
    except ValueError as error:
        raise ConfigError(str(error)) from None
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
    if ctx.first_carry is not None:
        raise ConfigError(
            f"network.kind={config.network.kind} has a memory, and a sample of DQN's replay is too short "
            "to rebuild it: set algorithm=pqn, which learns from whole rollouts, or network.kind=mlp"
        )
    return make.q_algorithm(config, exact, ctx, partial(init, ctx), partial(update, ctx))
