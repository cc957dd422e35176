"""From a market, a split and a configuration to traced parameters; limits that int32 mills set."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import build_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.env.params import make_params
from jaxtrade.env.rules import contract_params
from jaxtrade.env.state import OFF
from jaxtrade.errors import ConfigError
from tests.env.worlds import ints


@functools.cache
def market_of(symbol, lift=0):
    """Four synthetic sessions, the later two `lift` ticks higher."""
    bars = synthetic_bars(get_contract(symbol), 4, seed=1)
    days = np.diff(bars.time, prepend=bars.time[0]) > 1_800  # the daily break
    later = np.cumsum(days) >= 2
    bars = replace(
        bars,
        **{
            name: (getattr(bars, name) + lift * later).astype(np.int32)
            for name in ("open", "high", "low", "close")
        },
    )
    return build_market(bars, RunConfig())


def params_of(symbol="ES", lift=0, **values):
    config = make_config(values)
    market = market_of(symbol, lift)
    return make_params(market, split_sessions(market, config.split)["all"], config)


def test_defaults_of_es():
    params = params_of()
    contract = params.contract
    assert ints(contract, "tick_mills", "commission", "slippage", "min_stop", "be_ticks") == [
        12_500,
        2_080,
        1,
        8,
        1,
    ]
    assert float(contract.tick_size) == 0.25
    brackets = params.brackets
    assert ints(brackets, "stop_atr", "target_multiple", "trail_atr") == [
        1_500,
        3,
        1_000,
    ]
    assert ints(params.account, "drawdown", "max_contracts") == [2_500_000, 10]
    assert ints(params, "episode_sessions", "max_steps") == [1, 0]
    assert {name: float(weight) for name, weight in params.reward_weights.items()} == {
        "equity_change": 1.0
    }


def test_what_a_user_sets_wins():
    params = params_of(
        costs={"commission": 1.5, "slippage": 0},
        reward={"weights": {"equity_change": 0.5, "win": 2}},
        brackets={"stop_atr": 2, "min_stop_ticks": 4, "be_ticks": 2},
        account={"drawdown": 1_000.0},
        episode={"sessions": 2, "max_steps": 50},
    )
    contract = params.contract
    assert ints(contract, "commission", "slippage", "min_stop", "be_ticks") == [1_500, 0, 4, 2]
    assert (int(params.brackets.stop_atr), int(params.account.drawdown)) == (2_000, 1_000_000)
    assert float(params.account.risk_unit) == 1_000_000
    assert ints(params, "episode_sessions", "max_steps") == [2, 50]
    assert {name: float(weight) for name, weight in params.reward_weights.items()} == {
        "equity_change": 0.5,
        "win": 2.0,
    }


@pytest.mark.parametrize(
    ("symbol", "ticks"), [("ES", 1), ("NQ", 1), ("YM", 1), ("RTY", 3), ("EURUSD", 1)]
)
def test_seed_scaling_breakeven_is_a_quarter_point_and_its_least_stop_one_tick(symbol, ticks):
    contract = contract_params(get_contract(symbol), make_config({"env": {"scaling": "seed"}}))
    assert ints(contract, "be_ticks", "min_stop") == [ticks, 1]


def test_micros_count_a_tenth():
    assert int(params_of("MES").account.max_contracts) == 100
    with pytest.raises(ConfigError, match=r"env\.quantity = 11: .*10 ES"):
        params_of(env={"quantity": 11})
    params_of("MES", env={"quantity": 11})


def test_a_position_must_fit_int32_within_a_session():
    with pytest.raises(ConfigError, match=r"env.quantity = 100000.*int32 mills"):
        params_of(env={"quantity": 100_000}, account={"max_contracts": 100_000})


def test_prices_far_apart_in_different_sessions_are_fine():
    """Positions do not survive a session, so years of data may span more than one position
    could.
    """
    lift = OFF // 12_500  # this many ticks of one contract are more than int32 mills allow
    params = params_of(lift=lift)
    assert int(params.market.high.max() - params.market.low.min()) * 12_500 >= OFF


@pytest.mark.parametrize("dollars", [2.0801, 1e-4])
def test_a_commission_is_whole_mills(dollars):
    with pytest.raises(ConfigError, match=r"costs\.commission = .*mills"):
        params_of(costs={"commission": dollars})


def test_costs_must_fit_int32_too():
    with pytest.raises(ConfigError, match=r"env.quantity = 4.*costs included"):
        params_of(
            costs={"commission": 600_000.0},
            env={"quantity": 4},
            account={"preset": "rules_off_50k"},
        )


def test_an_account_without_ends_is_bounded_by_its_sessions():
    ten = {"env": {"quantity": 10}, "account": {"preset": "rules_off_50k"}}
    params_of(**ten, episode={"sessions": 1})
    with pytest.raises(ConfigError, match=r"episode.sessions = 4: .*int32 mills"):
        params_of(**ten, episode={"sessions": 4})
    params_of(env={"quantity": 10}, episode={"sessions": 4})  # drawdown and target end it first


def test_an_account_with_minimum_days_may_pass_its_target_before_them():
    """So its target is no bound of its money."""
    ten = {"env": {"quantity": 10}, "episode": {"sessions": 4}}
    params_of(**ten, account={"min_days": 1})
    with pytest.raises(ConfigError, match=r"episode.sessions = 4: .*int32 mills"):
        params_of(**ten, account={"min_days": 2})


def test_orders_are_cut_to_what_int32_holds():
    params = params_of(account={"preset": "rules_off_50k"})
    span = max(
        int(params.market.high[a:b].max() - params.market.low[a:b].min())
        for a, b in zip(params.market.sessions.first, params.market.sessions.last + 2, strict=True)
    )
    assert int(params.account.max_contracts) * span * 12_500 < OFF


def test_a_market_without_its_conversion_is_refused():
    market = replace(market_of("ES"), contract=replace(get_contract("ES"), currency="CHF"))
    with pytest.raises(ConfigError, match="CHF"):
        make_params(market, split_sessions(market, make_config({}).split)["all"], make_config({}))
