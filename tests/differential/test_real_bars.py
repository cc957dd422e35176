"""Against backtesting.py on real bars, built by the data layer: the bundled ones."""

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
from tests.differential.passes import HEADLINE, SLIPPED, TIGHT, WIDE, Setting, run_passes

LEVEL_REASONS = ("ORDER", "STOP", "BREAKEVEN", "TRAIL", "TARGET", "FLAT")


@dataclass(frozen=True)
class Case:
    """Bars of one market; of two-sided ones the bid. data: keys of the configuration. trades: at
    least so many in all passes."""

    market: str
    trades: int
    data: dict[str, Any] = field(default_factory=dict)
    contracts: int = 1
    overnight: bool = False
    settings: tuple[Setting, ...] = (TIGHT, SLIPPED)


CASES = {
    # Overnight windows, halts, thin bars; every kind of brackets
    "ES 201312 overnight": Case(
        "ES",
        9_000,
        {"expiry": "201312", "start": "2013-10-01", "end": "2013-12-31"},
        overnight=True,
        settings=(HEADLINE, TIGHT, SLIPPED, WIDE),
    ),
    "ES week": Case("ES", 1_000, contracts=2),
    "ES with a roll": Case(
        "ES", 100, {"roll": "volume", "start": "2013-12-16", "end": "2013-12-20"}, contracts=2
    ),
    "EURUSD bid": Case("EURUSD", 2_000, {"start": "2012-01-01", "end": "2012-05-31"}),
}


def real(case):
    """Every session of a case, account rules off, commission in whole cents, no slippage; and the
    rows at which another contract begins."""
    data = {"market": case.market, **case.data}
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
    market = build_market(bars.sides[0], config)
    splices = np.searchsorted(trade_dates(bars.time, bars.contract), splice_dates(bars.legs))
    splices = splices[(splices > 0) & (splices < len(bars))]
    return config, make_params(market, split_sessions(market, config.split)["all"], config), splices


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_trades_and_equity_are_identical(name):
    """As configured, then under each setting. No round turn crosses a splice, and there are some on
    either side.
    """
    case = CASES[name]
    config, params, splices = real(case)
    assert len(splices) == ("roll" in case.data)
    total = compare_random(config.env, params, 10)
    total.add(run_passes(config.env, params, case.settings, first_seed=11))
    for row in splices:
        sides = {(turn.entry_row >= row, turn.exit_row >= row) for turn in total.turns}
        assert sides == {(False, False), (True, True)}, f"a trade across row {row}"
    assert all(total.reasons[reason] for reason in LEVEL_REASONS), total
    assert total.trades >= case.trades
