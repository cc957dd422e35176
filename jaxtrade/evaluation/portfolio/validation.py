"""The score of policies of `allocate` during training: their total reward on the validation
sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.evaluation.agents import forget_episode
from jaxtrade.evaluation.backtest import decision_bars
from jaxtrade.evaluation.portfolio.agents import JointAgent, PolicyAct
from jaxtrade.evaluation.portfolio.backtest import backtest
from jaxtrade.types import Algorithm, PyTree, SessionSet


def total_rewards(
    env: PortfolioEnv,
    params: Any,
    sessions: SessionSet,
    algorithm: Algorithm,
    policies: Sequence[PyTree],
) -> np.ndarray:
    """As `evaluation.validation.total_rewards`. Raises DataError if the set is empty."""
    decisions, params = decision_bars(params.market, sessions), params.replace(sessions=sessions)
    key = jax.random.key(0)  # never used: a greedy policy draws no random numbers
    scores = []
    for policy in policies:
        act = PolicyAct(env, algorithm.act, False)
        agent = JointAgent("greedy", act, (policy, algorithm.carry), "", forget_episode)
        scores.append(
            backtest(env, agent, params, decisions, True, key).reward.sum(dtype=np.float64)
        )
    return np.array(scores)
