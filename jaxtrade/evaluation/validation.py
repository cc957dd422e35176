"""A score for a policy during training: its reward on validation sessions, by the same evaluator as all others."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.agents import greedy
from jaxtrade.evaluation.backtest import backtest, begin_backtest, decision_bars
from jaxtrade.evaluation.portfolio import validation as joint
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Algorithm, PyTree, SessionSet


def mean_reward(
    env: TradingEnv, params: EnvParams, sessions: SessionSet, algorithm: Algorithm, policies: Sequence[PyTree],
    programs: Programs | None = None, steps: int | None = None
) -> float:
    """Mean reward per session of greedy policies on `sessions`, averaged over the policies. As `total_rewards`."""
    totals = total_rewards(env, params, sessions, algorithm, policies, programs, steps)
    return float(np.mean(totals)) / int(sessions.count)


def total_rewards(
    env: TradingEnv, params: EnvParams, sessions: SessionSet, algorithm: Algorithm, policies: Sequence[PyTree],
    programs: Programs | None = None, steps: int | None = None
) -> np.ndarray:
    """Total reward of each greedy policy on `sessions`, float64[policies].

    Only the account pass of `backtest` runs. An account lives on from session to session, so reward terms that pay for
    a level (not for a change) can be larger than in training. After the end of an account, the rest of its session
    earns 0. The program is compiled once per algorithm and number of bars; new weights do not compile again.
    `programs` may hold it already (`begin_mean_reward`). steps: as in `DecisionBars`. Raises DataError and ConfigError
    as `backtest`.
    """
    if isinstance(env, PortfolioEnv):
        return joint.total_rewards(env, params, sessions, algorithm, policies)
    decisions = decision_bars(params.market, sessions, steps)
    params = params.replace(sessions=sessions)
    key = jax.random.key(0)  # never used: a greedy policy draws no random numbers
    records = [backtest(env, greedy(algorithm, policy, env), params, decisions, "account", key, True, programs)
               for policy in policies]
    return np.array([record.reward.sum(dtype=np.float64) for record in records])


def begin_mean_reward(
    programs: Programs, env: TradingEnv, params: EnvParams, sessions: SessionSet, algorithm: Algorithm, policy: PyTree,
    steps: int | None = None
) -> None:
    """Begin to compile the program of `mean_reward`. policy: may be abstract (`jax.ShapeDtypeStruct`)."""
    decisions = decision_bars(params.market, sessions, steps)
    begin_backtest(programs, env, greedy(algorithm, policy, env), params.replace(sessions=sessions), decisions, True)
