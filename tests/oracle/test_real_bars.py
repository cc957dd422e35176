"""Agreement on real bars, through the package's own door: `load_market` and `make_params` against the oracle.

Here the package reads the bundled files, finds sessions and computes features; the oracle finds and computes them
again from the bars, and takes contract and account figures from this file.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.market import Market, load_market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from tests.oracle.agreement import Lane, compare, habits_of, make_rollout, stack
from tests.oracle.markets import env_params, session_set
from tests.oracle.oracle import Bars, Settings
from tests.oracle.real import oracle_bars

DEFAULT = ("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr")
OTHERS = ("close", "vwap", "ema_9", "rsi_7", "atr_5", "sma_50", "volume", "momentum")
# $50,000 account: trailing drawdown 2,500 that stops rising at 500 (3,000 - 2,500), target 3,000, one day.
# ES: 12.50 a tick, 2.08 a side, 1 tick of slippage.
ES = Settings(floor_cap=500_000, min_days=1)
# EURUSD: a tick of 0.00001 is one dollar a lot, 3.00 a side, 0.6 pips of slippage, stops of at least 5 pips.
EURUSD = dataclasses.replace(ES, tick_size=0.00001, tick_mills=1_000, commission=3_000, slippage=6, min_stop=50)
TIGHT = {"drawdown": 400_000, "target": 500_000, "daily_loss": 250_000, "risk_unit": 400_000.0, "episode_sessions": 2}


@functools.cache
def market_of(symbol: str, features: tuple[str, ...], window: int) -> Market:
    data = {"market": symbol}
    if symbol == "EURUSD":
        data |= {"start": "2016-11-01", "end": "2017-01-31"}
    return load_market(make_config({"data": data, "env": {"features": features, "window": window}}))


@functools.cache
def bars_of(symbol: str, features: tuple[str, ...], window: int) -> Bars:
    warm_up = window + (104 if "macd" in features else 50) - 1  # macd asks for 4 * 26 bars, sma_50 for 50
    market = market_of(symbol, features, window)
    if symbol == "ES":
        return oracle_bars(market, warm_up, fx=False)
    # no bars on 12-15 December 2016, and Friday the 30th ended at 14:00
    return oracle_bars(market, warm_up, fx=True, restarts=(dt.date(2016, 12, 16),),
                       flat_times={dt.date(2016, 12, 30): (13, 59)})


@pytest.mark.parametrize(("symbol", "count"), [("ES", 5), ("EURUSD", 50)])
def test_sessions_found_again(symbol, count):
    bars, table = bars_of(symbol, DEFAULT, 20), market_of(symbol, DEFAULT, 20).data.sessions
    assert len(bars.sessions) == count
    for name in ("start", "end", "first", "last", "complete"):
        assert np.asarray(getattr(table, name)).tolist() == [getattr(s, name) for s in bars.sessions], name


@pytest.mark.parametrize("symbol", ["ES", "EURUSD"])
def test_every_step_agrees_with_the_default_account(symbol):
    config = make_config({"data": {"market": symbol}})
    market, bars = market_of(symbol, DEFAULT, 20), bars_of(symbol, DEFAULT, 20)
    settings = ES if symbol == "ES" else EURUSD
    lanes = [Lane(bars, settings, habit) for habit in habits_of(16)]
    params = stack([make_params(market, session_set(bars, settings), config)] * len(lanes))
    comparison = compare(lanes, 500, 1, make_rollout(settings, TradingEnv, optimise=False), params)
    assert (comparison.fault, comparison.steps) == (None, 8_000)


@pytest.mark.parametrize("symbol", ["ES", "EURUSD"])
@pytest.mark.parametrize("mark", ["extreme", "close"])
def test_every_step_agrees_with_tight_limits_and_other_features(symbol, mark):
    market, bars = market_of(symbol, OTHERS, 7), bars_of(symbol, OTHERS, 7)
    settings = dataclasses.replace(ES if symbol == "ES" else EURUSD, **TIGHT, features=OTHERS, window=7, mark=mark)
    lanes = [Lane(bars, settings, habit) for habit in habits_of(16)]
    params = stack([env_params(bars, settings, market.data)] * len(lanes))
    comparison = compare(lanes, 500, 2, make_rollout(settings, TradingEnv, optimise=False), params)
    assert (comparison.fault, comparison.steps) == (None, 8_000)
    assert {kind for kind in ("liquidation", "stop", "flat", "breakeven") if comparison.kinds[kind] == 0} == set()
