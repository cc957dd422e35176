"""A score for a policy during training: its reward on validation sessions, by the same evaluator as
all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.backtest import Lane, begin_account, run_account
from jaxtrade.evaluation.baselines import forget_episode, greedy
from jaxtrade.evaluation.joint import JointAgent, PolicyAct, backtest
from jaxtrade.evaluation.record import Record, Steps, decision_bars
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Learner, PyTree, SessionSet


def mean_reward(
    env: TradingEnv,
    params: EnvParams,
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
) -> float:
    """Mean reward per session of greedy policies on `sessions`, averaged over the policies. As
    `total_rewards`.
    """
    totals = total_rewards(env, params, sessions, algorithm, policies)
    return float(np.mean(totals)) / int(sessions.count)


def total_rewards(
    env: TradingEnv,
    params: EnvParams | Sequence[EnvParams],
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    programs: Programs | None = None,
    steps: Steps | None = None,
    seen: Callable[[Record, Lane], None] | None = None,
) -> np.ndarray:
    """Total reward of each greedy policy on `sessions`, float64[policies].

    The rewards are those of the account pass (`backtest.run_account`), of all policies side by side.
    An account lives on from session to session, so reward terms that pay for a level (not for a
    change) can be larger than in training. After the end of an account, the rest of its session
    earns 0. The program is compiled once per algorithm, number of policies and number of bars; new
    weights do not compile again. `programs` may hold it already (`begin_total_rewards`).

    params: of all policies, or of each. steps: as in `DecisionBars`. seen: receives the record of
        the first policy, for
    a page that shows it; not of a portfolio. Raises DataError and ConfigError as `run_lanes`.
    """
    if isinstance(env, PortfolioEnv):
        given: Any = params
        decisions, own = decision_bars(given.market, sessions), given.replace(sessions=sessions)
        act, key = PolicyAct(env, algorithm.act, False), jax.random.key(0)  # it never draws
        agents = [
            JointAgent("greedy", act, (policy, algorithm.carry), "", forget_episode)
            for policy in policies
        ]
        records = [backtest(env, agent, own, decisions, True, key) for agent in agents]
    else:
        lanes = _lanes(env, params, sessions, algorithm, policies, steps)
        records = run_account(env, lanes, True, programs)
        if seen:
            seen(records[0], lanes[0])
    return np.array([record.reward.sum(dtype=np.float64) for record in records])


def begin_total_rewards(
    programs: Programs,
    env: TradingEnv,
    params: EnvParams | Sequence[EnvParams],
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    steps: Steps | None = None,
) -> None:
    """Begin to compile the program of `total_rewards`. policies: may be abstract
    (`jax.ShapeDtypeStruct`).
    """
    begin_account(programs, env, _lanes(env, params, sessions, algorithm, policies, steps), True)


def _lanes(
    env: TradingEnv,
    params: EnvParams | Sequence[EnvParams],
    sessions: SessionSet,
    algorithm: Learner,
    policies: Sequence[PyTree],
    steps: Steps | None,
) -> list[Lane]:
    each = params if isinstance(params, Sequence) else [params] * len(policies)
    decisions, key = (
        decision_bars(each[0].market, sessions, steps),
        jax.random.key(0),
    )  # a greedy policy never draws
    return [
        Lane(greedy(algorithm, policy, env), own.replace(sessions=sessions), decisions, key)
        for policy, own in zip(policies, each, strict=True)
    ]
