"""One number for a policy while it trains: the reward that it earns on validation sessions, by the one evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.agents import greedy
from jaxtrade.evaluation.backtest import backtest, decision_bars
from jaxtrade.types import Algorithm, PyTree, SessionSet


def mean_reward(
    env: TradingEnv, params: EnvParams, sessions: SessionSet, algorithm: Algorithm, policies: Sequence[PyTree]
) -> float:
    """Mean reward per session of greedy policies on `sessions`, over all of them.

    The account pass of `backtest` alone: the account's rules are on and an account lives on from session to session,
    so that terms which pay a level (not a change) see more than in training. After an account's end the rest of its
    session earns nothing. Compiled once for one algorithm and one number of bars: new weights do not compile again.
    Raises DataError, ConfigError as `backtest`.
    """
    decisions = decision_bars(params.market, sessions)
    params = params.replace(sessions=sessions)
    key = jax.random.key(0)  # a greedy policy reads none
    records = [backtest(env, greedy(algorithm, policy, env), params, decisions, "account", key, rewarded=True)
               for policy in policies]
    return float(np.mean([record.reward.sum(dtype=np.float64) for record in records])) / len(decisions.ids)
