"""Paths of marks: worked by hand, and the same ends as the environment's own accounts over sessions
in any order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.config.accounts import resolve_account
from jaxtrade.data.read.validate import PRICES
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.rules import account_params
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.challenge_accounts import (
    Challenge,
    ends_in_order,
    session_paths,
)
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.types import Quotes, TickValue
from tests.evaluation.permuted import environment_ends
from tests.evaluation.tiny import HAND_BARS, backtested, hand_market, setup, tiny_market, walk
from tests.paths import path_arrays, random_paths

pytestmark = pytest.mark.slow

KEY = jax.random.key(5)
LENGTHS = [60, 40, 60, 30, 60, 50, 60, 45]
MARKET = tiny_market(walk(LENGTHS, seed=3, scale=6.0), LENGTHS)
N = len(LENGTHS)
BASE = {"drawdown": 1000.0, "profit_target": 800.0}
LOCKED, FAILED = {"on_daily_loss": "lock_until_next_session"}, {"on_daily_loss": "fail"}
ACCOUNTS = {
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


def made(rich=False):
    """An environment over MARKET. rich: by paths inside bars, with an ask and a rate of each bar."""
    env, params, _ = setup(MARKET, MARKET.every, env={"task": "manage", "quantity": 1 + rich})
    if not rich:
        return env, params
    bars, rng = MARKET.bars, np.random.default_rng(1)
    spread = rng.integers(0, 3, len(bars.open))
    ask = [jnp.asarray(getattr(bars, name) + spread, jnp.int32) for name in PRICES]
    times = jnp.asarray(rng.integers(10_000_000, 13_000_000, len(bars.open)), jnp.int32)
    data = params.market.replace(
        path=path_arrays(bars.open, random_paths(0, *(getattr(bars, name) for name in PRICES))),
        ask=Quotes(*ask),
        tick_value=TickValue(times, jnp.full(len(times), 1000, jnp.int32)),
    )
    contract = params.contract.replace(tick_mills=None)
    env = TradingEnv(env.config.model_copy(update={"intrabar": "path"}))
    return env, params.replace(market=data, contract=contract)


def check_ends(env, agent, params, names):
    """Compare ends by session of simulated accounts and of the environment's, in each of 300
    orders and under each account -> the reasons that occurred, and how many different ends the
    orders have under the last account."""
    rng, reasons = np.random.default_rng(0), set()
    orders = np.stack([rng.permutation(N) for _ in range(300)])
    decisions = decision_bars(params.market, MARKET.every)
    for name in names:
        rules = account(**ACCOUNTS[name])
        own = params.replace(account=rules)
        strategy = backtest(env, agent, own, decisions, "strategy", KEY)
        challenge = Challenge(session_paths(strategy, decisions, own, env.config), rules)
        found = ends_in_order(challenge, orders)
        np.testing.assert_array_equal(
            found, environment_ends(env, agent, own, orders, KEY), err_msg=name
        )
        reasons |= set(np.unique(found).tolist())
    by_session = [ends[np.argsort(order)] for ends, order in zip(found, orders, strict=True)]
    return reasons, len(np.unique(by_session, axis=0))


def paths_of(market, agent=baselines.buy_and_hold, **sections):
    """The paths of an agent's sessions."""
    record, decisions, params = backtested(market, "strategy", agent, **sections)
    return session_paths(record, decisions, params, make_config(sections).env)


def test_buy_and_hold_by_hand():
    """In at 8002 (one tick of slippage), $12.50 a tick and $2.08 a side; out at the flat bar at
    8006.
    """
    paths = paths_of(hand_market(1))
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
    paths = paths_of(hand_market(1), account={"daily_loss": limit})
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
    paths = paths_of(tiny_market(bars, [6]), account={"daily_loss": 100.0})
    assert (paths.daily_bar.tolist(), paths.result.tolist()) == ([2], [-13 * 12_500 - 4_160])
    assert paths.high[-1] == -12 * 12_500 - 2_080


def test_every_account_ends_as_in_the_environment():
    env, params = made()
    agent = baselines.sma_cross(env, MARKET.data, 3, 8)
    reasons, different = check_ends(env, agent, params, [*reversed(ACCOUNTS)])
    assert different > 5, "the order of the sessions matters"
    assert reasons == {0, EndReason.BUST, EndReason.TARGET, EndReason.DAILY_LOSS}


def test_every_way_of_marking_ends_as_in_the_environment():
    env, params = made(rich=True)
    agent = baselines.random_masked(env)
    check_ends(env, agent, params, ["frozen", "end_of_day", "locked", "failed", "intraday"])


def test_no_trades_have_no_path():
    paths = paths_of(hand_market(2), lambda env: baselines.flat())
    assert (len(paths.low), paths.result.tolist()) == (0, [0, 0])
    assert paths.traded.tolist() == [False, False]
    assert not ends_in_order(Challenge(paths, account(**BASE)), np.array([[0, 1]])).any()
