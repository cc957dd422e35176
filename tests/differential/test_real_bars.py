"""Against backtesting.py on real bars, built by the data layer: the bundled ones, and where shared
data are at hand two-sided minutes and a pair whose profits are converted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.market import build_market
from jaxtrade.data.read.roll import splice_dates
from jaxtrade.data.sources import bars_of
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import make_params
from tests.differential.compare import compare_random
from tests.differential.passes import HEADLINE, SLIPPED, TIGHT, WIDE, drawn, run_passes

LEVEL_REASONS = ("ORDER", "STOP", "BREAKEVEN", "TRAIL", "TARGET", "FLAT")
MINUTES, YEN = "lean_fx_oanda/eurusd_minute_bidask.csv.gz", "ejtrader_fx_h1/USDJPY_h1.csv.gz"
YEN_KEYS = {
    "file": YEN,
    "time_zone": "America/New_York+7h",
    "price_scale": 0.001,
    "columns": {"volume": "tick_volume"},
}
AUTUMN = {"start": "2013-10-01", "end": "2013-12-31"}


@dataclass(frozen=True)
class Case:
    """Bars of one market. data: keys of the configuration, `file` below the shared data. trades: at
    least so many in all passes. bid_only: as if the bid were the only side."""

    market: str
    trades: int
    data: dict[str, Any] = field(default_factory=dict)
    contracts: int = 1
    overnight: bool = False
    bid_only: bool = False


QUICK = {
    "ES week": Case("ES", 1_000, contracts=2),
    "ES with a roll": Case(
        "ES", 100, {"roll": "volume", "start": "2013-12-16", "end": "2013-12-20"}, contracts=2
    ),
    "EURUSD bid": Case(
        "EURUSD", 2_000, {"start": "2012-01-01", "end": "2012-05-31"}, bid_only=True
    ),
    "EURUSD two-sided": Case("EURUSD", 1_500, {"start": "2012-01-01", "end": "2012-04-30"}),
    "USDJPY": Case("USDJPY", 1_500, {**YEN_KEYS, "start": "2015-01-02", "end": "2015-04-30"}),
}
# Overnight windows, halts, thin bars; years of hours
SLOW = {
    "ES 201312 overnight": Case("ES", 12_000, {"expiry": "201312", **AUTUMN}, overnight=True),
    "EURUSD two-sided minutes": Case("EURUSD", 13_000, {"file": MINUTES, "end": "2014-05-08"}),
    "USDJPY": Case("USDJPY", 18_000, {**YEN_KEYS, "start": "2014-01-01", "end": "2016-06-30"}),
}


def real(case, shared):
    """Every session of a case, account rules off, commission in whole cents, no slippage; and the
    rows at which another contract begins."""
    data = {"market": case.market, **case.data}
    if "file" in data:
        assert shared is not None
        data |= {"source": "file", "stamp": "open", "file": str(shared / "data" / data["file"])}
    config = make_config(
        {
            "data": data,
            "session": {"overnight": case.overnight},
            "account": {"preset": "rules_off_50k"},
            "env": {"quantity": case.contracts, "random_start": False},
            "costs": {"commission": 2.08, "slippage": 0},
        }
    )
    bars = bars_of(config)
    market = build_market(bars.sides[0] if case.bid_only else bars, config)
    splices = np.searchsorted(trade_dates(bars.time, bars.contract), splice_dates(bars.legs))
    splices = splices[(splices > 0) & (splices < len(bars))]
    return config, make_params(market, split_sessions(market, config.split)["all"], config), splices


def played(case, settings, seed, request):
    """As configured, then under each setting. No round turn crosses a splice, and there are some on
    either side.
    """
    shared = request.getfixturevalue("shared") if "file" in case.data else None
    config, params, splices = real(case, shared)
    assert (params.market.ask is None) == (case.bid_only or case.market != "EURUSD")
    assert (params.market.tick_value is None) == (case.market != "USDJPY")
    assert len(splices) == ("roll" in case.data)
    total = compare_random(config.env, params, seed)
    total.add(run_passes(config.env, params, settings, first_seed=seed + 1))
    print(f"{request.node.name}: {total}")
    for row in splices:
        sides = {(turn.entry_row >= row, turn.exit_row >= row) for turn in total.turns}
        assert sides == {(False, False), (True, True)}, f"a trade across row {row}"
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUICK))
def test_trades_and_equity_are_identical(name, request):
    """As configured, other brackets, and slippage."""
    total = played(QUICK[name], (TIGHT, SLIPPED), 10, request)
    assert total.trades >= QUICK[name].trades


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SLOW))
def test_many_settings_are_identical(name, request):
    """Headline, tight, slipped and wide brackets, and random ones."""
    settings = (HEADLINE, TIGHT, SLIPPED, WIDE, drawn(0), drawn(1))
    total = played(SLOW[name], settings, 50, request)
    assert total.trades >= SLOW[name].trades
