"""The parts of an `Algorithm` that are the same for every Q-learner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.rl.q import reports
from jaxtrade.rl.q.act import act
from jaxtrade.rl.q.context import Q, parameters_of
from jaxtrade.rl.q.state import QHParams, policy_of
from jaxtrade.rl.train_state import TrainState, first_state, floats_of, halved_rates
from jaxtrade.types import Algorithm, Array, PyTree


def init(ctx: Q, hparams: type[QHParams], key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. hparams: class of the learner's tunable floats. Raises TypeError as
    `first_state`.
    """
    return first_state(
        ctx, key, params, partial(parameters_of, ctx), floats_of(hparams, ctx.config)
    )


def q_algorithm(
    config: RunConfig, exact: Q, ctx: Q, init: Callable[..., Any], update: Callable[..., Any]
) -> Algorithm:
    """The `Algorithm` of a Q-learner. exact, ctx: contexts of acting and of training, from
    `q_contexts`.

    init, update: `Algorithm.init` and `Algorithm.update`.
    """
    section, rollout = config.algorithm, ctx.rollout
    return Algorithm(
        init=init,
        update=update,
        act=partial(act, exact),
        policy=policy_of,
        env=ctx.env,
        steps_per_update=rollout.num_envs * rollout.num_steps,
        carry=exact.first_carry,
        health=reports.health(config.compute.precision),
        warnings=reports.warnings(section),
        progress=reports.PROGRESS,
        remedies=reports.remedies(section),
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=("epsilon", "epsilon_end"),
        retry=halved_rates,
        retry_note="half the learning rate",
        together=ctx.form.agents,
    )
