"""One hand-worked episode per kind of event, played by both engines.

Every market opens with 39 bars of 1000/1004/996/1000 ticks, so each true range is 8, S = 14 * 8 =
112, the stop distance ceil(1.5 * 112/14) = 12 ticks and the target distance 36. A tick of one
contract is worth 12,500 mills, a side costs 2,080 mills, slippage is one tick. Bars are (open,
high, low, close); `b0` is the first decision bar, and the action at its close lives from `b1`. The
expected numbers were worked out by hand, as the comments show.
"""

import datetime as dt

from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.events import WARM_UP, eastern
from tests.oracle.model import (
    BUY,
    ENABLE_TRAIL,
    HOLD,
    MOVE_STOP_TO_BREAKEVEN,
    SELL,
    Bars,
    Session,
    Settings,
)

QUIET = (1000, 1004, 996, 1000)
DAY = dt.date(2013, 10, 7)


def market(*sessions, tail=4, complete=True, quiet=QUIET):
    """Ten-minute bars from 09:30, one list of bars a session; the last bar of each list is the flat
    bar.

    `tail` quiet bars are added to each session, so that nothing but the test's own actions ends a short story.
    """
    rows, stamps, opens, flats, dates, table = [], [], [], [], [], []
    for index, bars in enumerate(sessions):
        day = DAY + dt.timedelta(days=index)
        opening, before = eastern(day, 9, 30), WARM_UP if index == 0 else 0
        story = [quiet] * before + list(bars) + [QUIET] * tail
        start = len(rows)
        rows += story
        stamps += [opening + 600 * (i - before) for i in range(len(story))]
        opens += [opening] * len(story)
        flats += [stamps[-1] + 600 + (0 if complete else 6000)] * len(story)
        dates += [(day - dt.date(1970, 1, 1)).days] * len(story)
        table.append(Session(start, len(rows), start + before, len(rows) - 2, complete))
    columns = list(zip(*rows, strict=True))
    return Bars(
        *columns,
        [100] * len(rows),
        stamps,
        600,
        opens,
        flats,
        449,
        dates,
        tuple(table),
    )


LONG_BAR = (1000, 1005, 995, 1002)
# BUY at b0, filled in LONG_BAR: entry 1000 + 1 = 1001, stop 1000 - 12 = 988, target 1000 + 36 =
# 1036. balance -2,080; equity -2,080 + (1002 - 1001) * 12,500 = 10,420; high water at 1005: -2,080
# + 4 * 12,500 = 47,920.
OPENED = {
    "entry_price": 1001,
    "entry_quantity": 1,
    "stop": 988,
    "target": 1036,
    "balance": -2_080,
    "equity": 10_420,
    "high_water": 47_920,
    "floor": 47_920 - 2_500_000,
    "end": EndReason.NONE,
    "exit_reason": 0,
    "reward": 10_420 / 2_500_000,
    "days": 1,
    "commission": 2_080,
}
SHORT_BAR = (1000, 1004, 996, 999)
# SELL at b0, filled in SHORT_BAR: entry 999, stop 1012, target 964; equity -2,080 + 0; high water at 996:
# -2,080 + 3 * 12,500 = 35,420.
SHORTED = {
    "entry_price": 999,
    "entry_quantity": -1,
    "stop": 1012,
    "target": 964,
    "balance": -2_080,
    "equity": -2_080,
    "high_water": 35_420,
    "end": EndReason.NONE,
}


def test_target(check):
    # open mark (999 - 998) * 12,500 - 2,080; best price capped at the target 964: 35 * 12,500 -
    # 2,080 = 435,420; exit at 964 without slippage: 437,500 - 4,160 = 433,340
    check(
        market([QUIET, SHORT_BAR, (998, 999, 960, 970)]),
        [SELL, HOLD],
        [
            SHORTED,
            {
                "exit_price": 964,
                "exit_quantity": -1,
                "exit_reason": ExitReason.TARGET,
                "balance": 433_340,
                "equity": 433_340,
                "high_water": 435_420,
                "floor": 435_420 - 2_500_000,
                "favourable": 964,
            },
        ],
    )


RISING_BAR = (1000, 1010, 995, 1008)


def test_trail(check):
    # True ranges: b1 15, b2 8, b3 max(1020, 1012) - min(1008, 1012) = 12; S at b3 = 11 * 8 + 35 =
    # 123, distance ceil(123/14) = 9, stop 1018 - 9 = 1009. The low of b3 (1008) came before the
    # ratchet. In b4 1009 is touched: 1008; 7 * 12,500 - 4,160 = 83,340. High water in b3: 19 *
    # 12,500 - 2,080 = 235,420.
    records = check(
        market(
            [
                QUIET,
                RISING_BAR,
                (1008, 1014, 1006, 1012),
                (1012, 1020, 1008, 1018),
                (1015, 1016, 1009, 1012),
            ]
        ),
        [BUY, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, HOLD],
        [
            {"entry_price": 1001},
            {"stop": 1002},
            {"stop": 1009, "quantity": 1, "high_water": 235_420},
            {
                "exit_price": 1008,
                "exit_reason": ExitReason.TRAIL,
                "balance": 83_340,
                "high_water": 235_420,
            },
        ],
    )
    assert records[3]["mask"] == [True, False, False, False, False, True, True]


TIGHT = Settings(drawdown=100_000, risk_unit=100_000.0, target=None)
NEAR = (1000, 1002, 999, 1001)
