"""Paths of marks: worked by hand, and the same ends as the environment's own accounts over sessions
in any order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.config.accounts import resolve_account
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import account_params
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.challenge_accounts import (
    Challenge,
    SessionPaths,
    ends_in_order,
    session_paths,
)
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.types import Quotes, TickValue
from tests.evaluation.permuted import environment_ends
from tests.evaluation.tiny import HAND_BARS, hand_market, setup, tiny_market, walk
from tests.paths import path_arrays, random_paths

KEY = jax.random.key(5)
LENGTHS = [60, 40, 60, 30, 60, 50, 60, 45]
MARKET = tiny_market(walk(LENGTHS, seed=3, scale=6.0), LENGTHS)
N = len(LENGTHS)
BASE = {"drawdown": 1000.0, "profit_target": 800.0}
LOCKED, FAILED = {"on_daily_loss": "lock_until_next_session"}, {"on_daily_loss": "fail"}
ACCOUNTS: dict[str, dict[str, Any]] = {
    "intraday": BASE | {"freeze": "never"},
    "frozen": BASE | {"freeze": "at_start_plus_100"},
    "min_days": BASE | {"freeze": "at_target", "min_days": 3},
    "end_of_day": {
        "drawdown": 600.0,
        "profit_target": 700.0,
        "trailing": "end_of_day",
        "freeze": "never",
    },
    "end_of_day_frozen": BASE | {"trailing": "end_of_day", "freeze": "at_start_plus_100"},
    "static": {
        "drawdown": 700.0,
        "profit_target": 800.0,
        "trailing": "static",
        "freeze": "never",
        "on_target": "continue",
    },
    "no_drawdown": {"drawdown": "off", "profit_target": 800.0},
    "locked": BASE | {"daily_loss": 300.0} | LOCKED,
    "locked_end_of_day": {
        "drawdown": 600.0,
        "profit_target": 800.0,
        "daily_loss": 450.0,
        "trailing": "end_of_day",
        "min_days": 2,
    }
    | LOCKED,
    "failed": BASE | {"daily_loss": 300.0} | FAILED,
    "failed_alone": {"drawdown": "off", "profit_target": "off", "daily_loss": 300.0} | FAILED,
}


def account(**keys):
    return account_params(resolve_account(make_config({"account": keys}).account), micro=False)


def orders_of(sessions, count, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(sessions) for _ in range(count)])


def both_ends(
    env,
    agent,
    params,
    sessions,
    rules,
    orders,
):
    """Ends by session of the simulated accounts, and of the environment's."""
    decisions, params = decision_bars(params.market, sessions), params.replace(account=rules)
    strategy = backtest(env, agent, params, decisions, "strategy", KEY)
    challenge = Challenge(session_paths(strategy, decisions, params, env.config), rules)
    return ends_in_order(challenge, orders), environment_ends(env, agent, params, orders, KEY)


def made(
    task="manage",
    intrabar="stop_first",
    two_sided=False,
    converted=False,
    quantity=1,
    **keys,
):
    """An environment over MARKET, whose bars may have an ask and a rate of their own."""
    env, params, _ = setup(
        MARKET, MARKET.sessions(*range(N)), env={"task": task, "quantity": quantity} | keys
    )
    bars = MARKET.bars
    data = params.market.replace(
        path=path_arrays(bars.open, random_paths(0, bars.open, bars.high, bars.low, bars.close))
    )
    if two_sided:
        spread = np.random.default_rng(1).integers(0, 3, len(bars.open))
        ask = [
            jnp.asarray(getattr(bars, name) + spread, jnp.int32)
            for name in ("open", "high", "low", "close")
        ]
        data = data.replace(ask=Quotes(*ask))
    if converted:
        times = np.random.default_rng(2).integers(10_000_000, 13_000_000, len(bars.open))
        data = data.replace(
            tick_value=TickValue(
                jnp.asarray(times, jnp.int32), jnp.full(len(times), 1000, jnp.int32)
            )
        )
        params = params.replace(contract=params.contract.replace(tick_mills=None))
    return TradingEnv(env.config.model_copy(update={"intrabar": intrabar})), params.replace(
        market=data
    )


def agent_of(name, env):
    return {
        "random": lambda: baselines.random_masked(env),
        "buy_hold": lambda: baselines.buy_and_hold(env),
        "sma_cross": lambda: baselines.sma_cross(env, MARKET.data, 3, 8),
    }[name]()


def check_ends(env, agent, params, names):
    """Compare both ends under each account -> the reasons that occurred."""
    reasons: set[int] = set()
    for name in names:
        found, real = both_ends(
            env,
            agent,
            params,
            MARKET.sessions(*range(N)),
            account(**ACCOUNTS[name]),
            orders_of(N, 1000),
        )
        assert np.array_equal(found, real), (
            f"{name}: {np.mean(np.any(found != real, axis=1)):.1%} of orders differ"
        )
        reasons |= set(np.unique(real).tolist())
    return reasons


@pytest.mark.slow
def test_buy_and_hold_by_hand():
    """In at 8002 (one tick of slippage), $12.50 a tick and $2.08 a side; out at the flat bar at
    8006.
    """
    market = hand_market(1)
    sessions = market.sessions(0)
    env, params, _ = setup(market, sessions)
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, baselines.buy_and_hold(env), params, decisions, "strategy", KEY)
    paths = session_paths(record, decisions, params, env.config)
    # Each bar: the favourable mark, then the adverse one less the exit's commission; then the bar's
    # end.
    assert paths.bar.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    high = [12_500 * ticks - 2_080 for ticks in (4, 8, 9, 3, 6)]
    low = [12_500 * ticks - 4_160 for ticks in (-3, 1, -1, -2, 2)]
    assert paths.high[::2].tolist() == high
    assert paths.low[::2].tolist() == low
    assert paths.low[1::2].tolist() == [22_920, 85_420, -2_080, 35_420, 45_840]
    assert (paths.flat_bar.tolist(), paths.balance.tolist(), paths.result.tolist()) == (
        [4],
        [45_840],
        [45_840],
    )
    assert paths.traded.tolist() == [True]
    assert paths.daily_bar.tolist() == [-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "bar", "result"),
    [
        # At 8000 equity less both commissions is -$29.16, at 7999 it is -$41.66: out one tick
        # lower, at 7998.
        (30.0, 0, -4 * 12_500 - 4_160),
        (45.0, -1, 45_840),
    ],
)
def test_a_daily_limit_closes_the_day(limit, bar, result):
    market = hand_market(1)
    sessions = market.sessions(0)
    env, params, _ = setup(market, sessions, account={"daily_loss": limit})
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, baselines.buy_and_hold(env), params, decisions, "strategy", KEY)
    paths = session_paths(record, decisions, params, env.config)
    assert paths.daily_bar.tolist() == [bar]
    assert paths.result.tolist() == [result]
    if bar == 0:
        assert (paths.bar.tolist(), paths.low.tolist(), paths.balance.tolist()) == (
            [0],
            [result],
            [result],
        )


def test_a_bar_that_opens_through_the_daily_limit_fills_at_its_open():
    """The third bar opens at 7990: out at 7989, 13 ticks below the entry; its high of 8011 never
    counted.
    """
    bars = HAND_BARS.copy()
    bars[3] = [7990, 8011, 7988, 8002]
    market = tiny_market(bars, [6])
    sessions = market.sessions(0)
    env, params, _ = setup(market, sessions, account={"daily_loss": 100.0})
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, baselines.buy_and_hold(env), params, decisions, "strategy", KEY)
    paths = session_paths(record, decisions, params, env.config)
    assert (paths.daily_bar.tolist(), paths.result.tolist()) == ([2], [-13 * 12_500 - 4_160])
    assert paths.high[-1] == -12 * 12_500 - 2_080


@pytest.mark.slow
def test_ends_are_those_of_the_environment_on_1000_orders_manage():
    env, params = made()
    assert check_ends(
        env, agent_of("sma_cross", env), params, ["intraday", "min_days", "end_of_day", "locked"]
    ) == {0, EndReason.BUST, EndReason.TARGET}


@pytest.mark.slow
def test_an_order_of_sessions_matters():
    """Else the comparison above would compare nothing."""
    env, params = made()
    found, _ = both_ends(
        env,
        agent_of("sma_cross", env),
        params,
        MARKET.sessions(*range(N)),
        account(**ACCOUNTS["intraday"]),
        orders_of(N, 50),
    )
    by_session = np.stack(
        [ends[np.argsort(order)] for ends, order in zip(found, orders_of(N, 50), strict=True)]
    )
    assert len(np.unique(by_session, axis=0)) > 5


@pytest.mark.slow
def test_every_account_ends_as_in_the_environment():
    env, params = made("manage")
    reasons = check_ends(env, agent_of("random", env), params, list(ACCOUNTS))
    assert {0, EndReason.BUST, EndReason.DAILY_LOSS} <= reasons


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "agent"),
    [
        ({"two_sided": True, "converted": True, "quantity": 2, "intrabar": "path"}, "sma_cross"),
    ],
)
def test_every_way_of_marking_ends_as_in_the_environment(keys, agent):
    env, params = made(**keys)
    check_ends(
        env, agent_of(agent, env), params, ["intraday", "frozen", "end_of_day", "locked", "failed"]
    )


@pytest.mark.slow
def test_no_trades_have_no_path():
    market = hand_market(2)
    sessions = market.sessions(0, 1)
    env, params, _ = setup(market, sessions)
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, baselines.flat(), params, decisions, "strategy", KEY)
    paths = session_paths(record, decisions, params, env.config)
    assert isinstance(paths, SessionPaths)
    assert (len(paths.low), paths.result.tolist(), paths.traded.tolist()) == (
        0,
        [0, 0],
        [False, False],
    )
    assert not ends_in_order(Challenge(paths, account(**BASE)), np.array([[0, 1]])).any()
