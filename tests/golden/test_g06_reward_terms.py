"""G6. The earlier project mixed dollars, squares and logarithms, and had a penalty with the wrong
sign.

Here the terms of a reward sum to it, bit for bit, and a term named after a cost or a risk is never
negative.
"""

import functools
import operator

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.portfolio.params import SHARED
from jaxtrade.env.reward_presets import OF_SEVERAL
from tests.env import worlds
from tests.oracle.portfolio import join
from tests.oracle.portfolio_worlds import (
    portfolio_env,
    portfolio_params,
    random_symbol,
    run,
)
from tests.oracle.test_portfolio import CASES

NEVER_NEGATIVE = """
cost_share turnover turnover_squared return_squared loss_squared drawdown drawdown_squared
trades_ordered position_changed win loss in_position flat floor_reached profit_level illegal
"""


def total(terms):
    return functools.reduce(operator.add, (np.asarray(terms[name]) for name in sorted(terms)))


@pytest.mark.slow
def test_the_terms_of_several_symbols_sum_to_the_reward_and_costs_are_positive():
    settings = CASES["product"]
    params = portfolio_params(join([random_symbol(1, 12), random_symbol(2, 12, 9_000)]), settings)
    weights = {name: jnp.float32(1) for name in (*SHARED, *OF_SEVERAL)}
    env = portfolio_env(settings, ("A", "B"))
    outcome = run(env, params.replace(reward_weights=weights), 5, 2_000).outcome
    terms = {name: np.asarray(values) for name, values in outcome.info.terms.items()}
    np.testing.assert_array_equal(np.asarray(outcome.reward), total(terms))
    for name, values in terms.items():
        assert np.any(values != 0), f"{name} is always 0: the test shows nothing"
        assert np.isfinite(values).all()
    for name in NEVER_NEGATIVE.split():
        assert terms[name].min() >= 0, name
    np.testing.assert_array_equal(terms["loss_squared"] > 0, terms["net_return"] < 0)
    assert (terms["turnover"][terms["position_changed"] > 0] > 0).all()


@pytest.mark.slow
def test_the_terms_of_one_symbol_sum_to_the_reward():
    env = TradingEnv(EnvConfig(task="manage", window=2))
    params = worlds.make_params(worlds.walk_market(1), account=worlds.rules(drawdown=900_000))
    names = "equity_change net_return win loss in_position flat floor_reached closed_profit"
    weights = {name: jnp.float32(i) for i, name in enumerate(names.split(), 1)}
    params = params.replace(reward_weights=weights)
    trace = worlds.run_random(env, params, 3, 8, 300)
    np.testing.assert_array_equal(np.asarray(trace.outcome.reward), total(trace.outcome.info.terms))
    assert all(np.any(np.asarray(v) != 0) for v in trace.outcome.info.terms.values())
