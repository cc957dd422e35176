"""G13. The earlier project treated a step limit as a death. Here only a termination zeroes the
value that follows.
"""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason
from tests.env import worlds
from tests.oracle.portfolio import join
from tests.oracle.portfolio_worlds import (
    portfolio_env,
    portfolio_params,
    random_symbol,
    run,
)
from tests.oracle.test_portfolio import CASES


def single():
    """Ends by step limit, by bust and by the session."""
    env = TradingEnv(EnvConfig(task="entry", window=2))
    params = worlds.make_params(
        worlds.walk_market(1), account=worlds.rules(drawdown=400_000), max_steps=40
    )
    return worlds.run_random(env, params, 3, 8, 400).outcome


def joint():
    settings = replace(CASES["product"], max_steps=15, episode_sessions=2, drawdown=60_000)
    params = portfolio_params(join([random_symbol(1, 12), random_symbol(2, 12, 9_000)]), settings)
    return run(portfolio_env(settings, ("A", "B")), params, 5, 2_000).outcome


@pytest.mark.slow
@pytest.mark.parametrize("make", [single, joint])
def test_a_truncation_is_no_termination(make):
    outcome = make()
    end, terminated, truncated = (
        np.asarray(x) for x in (outcome.info.end, outcome.terminated, outcome.truncated)
    )
    limit, over = (
        end == EndReason.STEP_LIMIT,
        (end == EndReason.BUST) | (end == EndReason.SESSION_END),
    )
    assert limit.any()
    assert (end == EndReason.BUST).any()
    assert truncated[limit].all()
    assert not terminated[limit].any()
    assert terminated[over].all()
    assert not truncated[over].any()
