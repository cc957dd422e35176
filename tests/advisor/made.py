"""A small made market whose figures can be worked out by hand."""

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.advisor.questions import make_book
from jaxtrade.data.contracts import CONTRACTS
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import Bars
from tests.advisor.markets import config as base

DAYS, MINUTES = ("2013-10-07", "2013-10-08", "2013-10-09"), 120
_ZONE = ZoneInfo("America/New_York")


def made_config(*overrides):
    """The quickstart's configuration with short windows and one test session."""
    return base("env.window=4", "split.test_sessions=1", "advisor.horizon=5", *overrides)


@cache
def made_bars():
    """Three mornings of ES, 09:30 to 11:30, one bar a minute.

    Bar i of a day opens at 6400 + 4 * day + (i % 7) ticks (0.25 points), closes one tick higher,
    reaches two ticks above its open and one below, and trades 100 + i contracts.
    """
    time, opens, volume = [], [], []
    for number, day in enumerate(DAYS):
        begin = int(datetime.fromisoformat(f"{day}T09:30").replace(tzinfo=_ZONE).timestamp())
        for minute in range(MINUTES):
            time.append(begin + 60 * minute)
            opens.append(6400 + 4 * number + minute % 7)
            volume.append(100 + minute)
    open_ = np.array(opens, np.int32)
    return Bars(
        np.array(time, np.int64),
        open_,
        open_ + 2,
        open_ - 1,
        open_ + 1,
        np.array(volume, np.float64),
        60,
        CONTRACTS["ES"],
        "made",
    )


def made_book(*overrides, bars=None):
    """The questions about the made market, or about other bars."""
    chosen = made_config(*overrides)
    return make_book(build_market(made_bars() if bars is None else bars, chosen), chosen)
