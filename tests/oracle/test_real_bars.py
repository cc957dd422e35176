"""Agreement on real bars, through the package's own functions: `load_market` and `make_params`
against the oracle.

Here the package reads the bundled files, finds sessions and computes features; the oracle finds and
computes them again from the bars, and takes contract and account figures from this file.
"""

import datetime as dt
import functools
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.device import host_view
from jaxtrade.data.market import load_market
from jaxtrade.data.sources import seconds_of
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from tests.oracle.agreement import Lane, both_scalings, compare, make_rollout, stack
from tests.oracle.events import HABITS
from tests.oracle.markets import env_params
from tests.oracle.model import Settings
from tests.oracle.real import oracle_bars
from tests.paths import Inside

pytestmark = pytest.mark.slow

DEFAULT = ("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr")
STEPS = 500
OTHERS = ("close", "vwap", "ema_9", "rsi_7", "atr_5", "sma_50", "volume", "momentum")
# $50,000 account: trailing drawdown 2,500 that stops rising at 500 (3,000 - 2,500), target 3,000,
# one day. ES: 12.50 a tick, 2.08 a side, 1 tick of slippage, stops of at least 8 ticks.
ES = Settings(floor_cap=500_000, min_days=1)
TIGHT = {
    "drawdown": 400_000,
    "target": 500_000,
    "daily_loss": 250_000,
    "risk_unit": 400_000.0,
    "episode_sessions": 2,
}


@dataclass(frozen=True)
class Case:
    """A market as the configuration names it, its figures, and its calendar's exceptions written
    down by hand.
    """

    data: dict[str, Any]
    settings: Settings
    sessions: int
    calendar: dict[str, Any] = field(default_factory=dict)

    @property
    def overnight(self):
        return bool(self.calendar.get("overnight"))


CASES = {
    "ES": Case({"market": "ES"}, ES, 5),
    "ES-overnight": Case({"market": "ES"}, ES, 5, {"overnight": True}),
    # December's contract until the 18th, March's from the 19th on (by volume); no bars on 5-17
    # December; the evening of the 4th and of the 19th end at 18:59, and of the 19th's 59 bars none
    # may be decided on.
    "ES-roll": Case(
        {"market": "ES", "roll": "volume", "start": "2013-12-02", "end": "2013-12-20"},
        ES,
        5,
        {"overnight": True, "restarts": (dt.date(2013, 12, 18), dt.date(2013, 12, 19))},
    ),
    # A tick of 0.00001 is one dollar a lot, 3.00 a side, bid and ask, stops of at least 5 pips. No
    # bars on 12-15 December 2016; Friday the 30th ended at 14:00.
    "EURUSD": Case(
        {"market": "EURUSD", "start": "2016-11-01", "end": "2017-01-31"},
        replace(ES, tick_size=0.00001, tick_mills=1_000, commission=3_000, slippage=0, min_stop=50),
        50,
        {
            "fx": True,
            "restarts": (dt.date(2016, 12, 16),),
            "flat_times": {dt.date(2016, 12, 30): (13, 59)},
        },
    ),
    # Thanksgiving ends at 13:00, the Friday after at 13:15.
    "NQ-synthetic": Case(
        {"market": "NQ", "source": "synthetic", "synthetic_sessions": 8},
        replace(ES, tick_mills=5_000, min_stop=20),
        8,
        {"flat_times": {dt.date(2023, 11, 23): (12, 59), dt.date(2023, 11, 24): (13, 14)}},
    ),
}


def config_of(name, features, window):
    case = CASES[name]
    return make_config(
        {
            "data": case.data,
            "session": {"overnight": case.overnight},
            "env": {"features": features, "window": window},
        }
    )


@functools.cache
def market_of(name, features, window):
    return load_market(config_of(name, features, window))


@functools.cache
def bars_of(name, features, window):
    warm_up = (
        window + (104 if "macd" in features else 50) - 1
    )  # macd asks for 4 * 26 bars, sma_50 for 50
    return oracle_bars(market_of(name, features, window), warm_up, **CASES[name].calendar)


def both(market, params):
    """`params` of this market in relative scaling, and with `env.scaling=seed`."""
    seed = host_view(
        market.table, market.data.view.features, "seed", float(market.contract.tick_size)
    )
    return both_scalings(params, jax.tree.map(jnp.asarray, seed))


@pytest.mark.parametrize("name", list(CASES))
def test_sessions_found_again(name):
    bars, table = bars_of(name, DEFAULT, 20), market_of(name, DEFAULT, 20).data.sessions
    assert len(bars.sessions) == CASES[name].sessions
    for name_of in ("start", "end", "first", "last", "complete"):
        found = getattr(table, name_of).tolist()
        assert found == [getattr(s, name_of) for s in bars.sessions], name_of


def agrees(market, bars, settings, params, seed):
    """A lane of each habit, all in one market -> the kinds of events that happened."""
    lanes = [Lane(bars, settings, habit) for habit in HABITS]
    rollout = make_rollout(settings, TradingEnv)
    comparison = compare(lanes, STEPS, seed, rollout, stack([both(market, params)] * len(lanes)))
    assert (comparison.fault, comparison.steps) == (None, STEPS * len(lanes))
    return comparison.kinds


def agrees_tightly(market, bars, settings, often):
    """Under limits within reach, with a short window; the kinds of events in `often` happened."""
    settings = replace(settings, **TIGHT, window=7)
    kinds = agrees(market, bars, settings, env_params(bars, settings, market.data), seed=2)
    assert min(kinds[kind] for kind in often) > 0, kinds


@pytest.mark.parametrize("name", ["ES", "ES-overnight", "EURUSD"])  # the next test has the others
def test_every_step_agrees_with_the_default_account(name):
    market, bars = market_of(name, DEFAULT, 20), bars_of(name, DEFAULT, 20)
    settings = CASES[name].settings
    sessions = env_params(bars, settings, market.data).sessions
    params = make_params(market, sessions, config_of(name, DEFAULT, 20))
    agrees(market, bars, settings, params, seed=1)


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("ES-roll", "extreme"),
        ("EURUSD", "close"),
        ("NQ-synthetic", "extreme"),
    ],
)
def test_every_step_agrees_with_tight_limits_and_other_features(name, mark):
    market, bars = market_of(name, OTHERS, 7), bars_of(name, OTHERS, 7)
    settings = replace(CASES[name].settings, features=OTHERS, mark=mark)
    agrees_tightly(market, bars, settings, ("liquidation", "stop", "flat", "breakeven"))


@pytest.mark.parametrize("intrabar", ["stop_first", "path"])
def test_every_step_agrees_on_two_sided_minutes(shared, intrabar):
    """Six days of EURUSD bid and ask minutes, with seconds of both sides where their order
    counts.
    """
    folder = shared / "data" / "lean_fx_oanda"
    files = {"file": str(folder / "eurusd_minute_bidask.csv.gz")}
    if intrabar == "path":
        files["seconds"] = str(folder / "eurusd_second_bidask.csv.gz")
    config = make_config(
        {
            "data": {
                "market": "EURUSD",
                "source": "file",
                "stamp": "open",
                "end": "2014-05-08",
                **files,
            },
            "env": {"features": DEFAULT, "window": 7, "intrabar": intrabar},
        }
    )
    market = load_market(config)
    ask = market.data.ask
    assert ask is not None
    bars = oracle_bars(market, 110, fx=True)
    seconds = seconds_of(config, market.bars)
    bid_inside, ask_inside = map(
        inside_of, market.bars.sides, seconds.sides if seconds else (None, None)
    )
    bars = replace(bars, paths=bid_inside, ask=replace(bars.ask, paths=ask_inside))
    settings = replace(CASES["EURUSD"].settings, intrabar=intrabar)
    agrees_tightly(market, bars, settings, ("stop", "breakeven", "order"))


def test_every_step_agrees_on_shares_with_seconds(shared):
    """Two days of SPY with hours before and after the regular ones, which only features see."""
    files = {
        kind: str(shared / f"data/lean_us_equity/spy_{name}_trade_x10000.csv.gz")
        for kind, name in (("file", "minute"), ("seconds", "second"))
    }
    config = make_config(
        {
            "data": {
                "contract": "SPY",
                "source": "file",
                "stamp": "open",
                "time_zone": "America/New_York",
                "price_scale": 0.0001,
                "columns": {"time": "ts_et"},
                "start": "2013-10-07",
                "end": "2013-10-08",
                **files,
            },
            "env": {"features": DEFAULT, "window": 7, "intrabar": "path"},
        }
    )
    market = load_market(config)
    bars = oracle_bars(market, 110, shares=True)
    assert [s.first for s in bars.sessions] == market.data.sessions.first.tolist()
    assert [s.last for s in bars.sessions] == market.data.sessions.last.tolist()
    bars = replace(bars, paths=inside_of(market.bars, seconds_of(config, market.bars)))
    # A tick of 0.0001 is one cent on 100 shares; 0.50 a side, slippage of half a cent, stops of at
    # least 10 cents.
    settings = replace(
        ES,
        tick_size=0.0001,
        tick_mills=10,
        commission=500,
        slippage=50,
        min_stop=1_000,
        intrabar="path",
    )
    agrees_tightly(market, bars, settings, ("stop", "breakeven", "order"))


def inside_of(bars, seconds):
    """The seconds of one side as the oracle holds them; a bar that has none, or that they do not
    rebuild, is untold.
    """
    if seconds is None:
        return ()
    begin, end = (
        np.searchsorted(seconds.time, bars.time + after) for after in (0, bars.bar_seconds)
    )
    out = []
    for row, (i, j) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        high, low = seconds.high[i:j].tolist(), seconds.low[i:j].tolist()
        reported = i < j and (
            int(seconds.open[i]),
            max(high),
            min(low),
            int(seconds.close[j - 1]),
        ) == tuple(int(getattr(bars, name)[row]) for name in ("open", "high", "low", "close"))
        out.append(Inside(tuple(zip(high, low, strict=True)), reported))
    return tuple(out)
