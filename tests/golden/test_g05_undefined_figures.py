"""G5. The earlier project printed a Sharpe ratio of -2.4e15. Here a figure that is not defined is
None, never a number.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.figures import account_outcome
from jaxtrade.evaluation.joint_backtest import JointRecord, strategy_figures
from jaxtrade.evaluation.record import DecisionBars
from tests.oracle.portfolio import join
from tests.oracle.portfolio_worlds import portfolio_env, portfolio_params, random_symbol
from tests.oracle.test_portfolio import CASES


def test_without_variance_or_trades_nothing_is_divided():
    """The functions of both engines' reports."""
    nothing, same = np.zeros(30, np.int64), np.full(30, 5_000)
    none = np.zeros(0, np.int64)
    assert metrics.daily_sharpe(nothing) is None
    assert metrics.daily_sharpe(same) is None
    assert metrics.daily_sharpe(np.arange(5)) is None  # too few sessions
    assert (metrics.win_rate(none), metrics.profit_factor(none), metrics.average(none)) == (
        None,
        None,
        None,
    )
    assert metrics.profit_factor(np.array([5, 7])) is None  # no loss
    assert metrics.best_session_share(nothing) is None
    assert metrics.max_drawdown(nothing) == 0


def test_an_agent_that_never_trades_has_a_whole_report():
    settings = CASES["product"]
    env, shared = (
        portfolio_env(settings, ("A", "B")),
        join([random_symbol(1, 2), random_symbol(2, 2)]),
    )
    params = portfolio_params(shared, settings)
    _, event = jax.eval_shape(
        env.transition, env.reset_at(params, 0, 0), jnp.zeros(2, jnp.int32), params
    )
    bars = 20
    event = jax.tree.map(lambda x: np.zeros((bars, *x.shape), x.dtype), event)
    zeros = np.zeros(bars, np.int32)
    record = JointRecord(
        event,
        zeros,
        np.zeros((bars, 2), np.int32),
        zeros,
        zeros == 0,
        zeros,
        zeros,
        zeros != 0,
        zeros,
        zeros,
        zeros,
    )
    decisions = DecisionBars(
        np.arange(bars),
        np.repeat([0, 1], 10),
        np.arange(2),
        np.array(["2020-01-02", "2020-01-03"], "datetime64[D]"),
    )
    found = strategy_figures(record, decisions, ("A", "B"), 50_000.0)
    assert (found["sharpe_daily"], found["win_rate"], found["net_profit"], found["trades"]) == (
        None,
        None,
        0.0,
        0,
    )
    assert account_outcome(record, decisions)["best_session_share"] is None
    json.dumps(found, allow_nan=False)
