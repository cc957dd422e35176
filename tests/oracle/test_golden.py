"""One hand-worked episode per kind of event, played by both engines.

Every market opens with 39 bars of 1000/1004/996/1000 ticks, so each true range is 8, S = 14 * 8 =
112, the stop distance ceil(1.5 * 112/14) = 12 ticks and the target distance 36. A tick of one
contract is worth 12,500 mills, a side costs 2,080 mills, slippage is one tick. Bars are (open,
high, low, close); `b0` is the first decision bar, and the action at its close lives from `b1`. The
expected numbers were worked out by hand, as the comments show.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from jaxtrade.env.reward_presets import REWARDS, of_one_symbol
from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.engines import ENGINES, Record
from tests.oracle.events import WARM_UP, eastern
from tests.oracle.model import (
    BUY,
    CLOSE,
    DISABLE_TRAIL,
    ENABLE_TRAIL,
    HOLD,
    MOVE_STOP_TO_BREAKEVEN,
    SELL,
    Bars,
    Session,
    Settings,
)

Bar = tuple[int, int, int, int]
QUIET: Bar = (1000, 1004, 996, 1000)
DAY = dt.date(2013, 10, 7)


def market(
    *sessions: Sequence[Bar], tail: int = 4, complete: bool = True, quiet: Bar = QUIET
) -> Bars:
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
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        [100] * len(rows),
        stamps,
        600,
        opens,
        flats,
        449,
        dates,
        tuple(table),
    )


def check(
    engine: str,
    bars: Bars,
    settings: Settings,
    actions: Sequence[int],
    expected: Sequence[dict[str, Any]],
) -> list[Record]:
    records = ENGINES[engine](bars, settings, actions)
    for step, (record, wanted) in enumerate(zip(records, expected, strict=True)):
        found = {key: record[key] for key in wanted}
        assert found == {
            key: (pytest.approx(value, rel=1e-6) if key == "reward" else value)
            for key, value in wanted.items()
        }, f"step {step}"
    return records


both_engines = pytest.mark.parametrize("engine", list(ENGINES))
LONG_BAR: Bar = (1000, 1005, 995, 1002)
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
SHORT_BAR: Bar = (1000, 1004, 996, 999)
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


@both_engines
def test_stop(engine):
    # low 987 <= stop 988: min(1000, 988) - 1 = 987; (987 - 1001) * 12,500 = -175,000, two sides
    # 4,160
    bars = market([QUIET, LONG_BAR, (1000, 1003, 987, 990)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD],
        [
            OPENED,
            {
                "exit_price": 987,
                "exit_quantity": 1,
                "exit_reason": ExitReason.STOP,
                "balance": -179_160,
                "equity": -179_160,
                "high_water": 47_920,
                "reward": (-179_160 - 10_420) / 2_500_000,
                "quantity": 0,
                "favourable": 1003,
                "adverse": 988,
                "breach": False,
                "end": EndReason.NONE,
            },
        ],
    )


@both_engines
def test_stop_in_the_entry_bar(engine):
    # 1001 -> 987 in the bar of the entry; high water at 1003: -2,080 + 2 * 12,500 = 22,920
    bars = market([QUIET, (1000, 1003, 985, 990)])
    check(
        engine,
        bars,
        Settings(),
        [BUY],
        [
            {
                "entry_price": 1001,
                "exit_price": 987,
                "exit_reason": ExitReason.STOP,
                "commission": 4_160,
                "balance": -175_000 - 4_160,
                "high_water": 22_920,
                "quantity": 0,
                "days": 1,
            }
        ],
    )


@both_engines
def test_target(engine):
    # open mark (999 - 998) * 12,500 - 2,080; best price capped at the target 964: 35 * 12,500 -
    # 2,080 = 435,420; exit at 964 without slippage: 437,500 - 4,160 = 433,340
    bars = market([QUIET, SHORT_BAR, (998, 999, 960, 970)])
    check(
        engine,
        bars,
        Settings(),
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


@both_engines
def test_stop_and_target_in_one_bar_books_the_stop(engine):
    # the favourable extreme, capped at the target, still raises the high water: -2,080 + 35 *
    # 12,500
    bars = market([QUIET, LONG_BAR, (1000, 1040, 980, 1010)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD],
        [
            OPENED,
            {
                "exit_price": 987,
                "exit_reason": ExitReason.STOP,
                "balance": -179_160,
                "high_water": 435_420,
                "floor": -2_064_580,
                "favourable": 1036,
                "adverse": 988,
            },
        ],
    )


@both_engines
def test_gap_through_the_stop(engine):
    # opens at 980, below 988: 980 - 1 = 979; -22 * 12,500 - 4,160; no later price of the bar counts
    bars = market([QUIET, LONG_BAR, (980, 1030, 975, 990)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD],
        [
            OPENED,
            {
                "exit_price": 979,
                "exit_reason": ExitReason.STOP,
                "balance": -279_160,
                "high_water": 47_920,
                "favourable": 980,
                "adverse": 980,
            },
        ],
    )


@both_engines
def test_gap_beyond_the_target(engine):
    # opens at 1040 >= 1036: filled there as a target, no slippage: 39 * 12,500 - 4,160 = 483,340.
    # The open was marked (485,420), and the low of 985 below the stop comes too late.
    bars = market([QUIET, LONG_BAR, (1040, 1045, 985, 1000)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD],
        [
            OPENED,
            {
                "exit_price": 1040,
                "exit_reason": ExitReason.TARGET,
                "balance": 483_340,
                "high_water": 485_420,
            },
        ],
    )


RISING_BAR: Bar = (1000, 1010, 995, 1008)


@both_engines
def test_breakeven(engine):
    # break-even level 1001 + 1 = 1002, legal as 1008 is beyond it; b2 stays above; b3 touches: 1002
    # - 1 = 1001 = entry
    bars = market([QUIET, RISING_BAR, (1006, 1007, 1003, 1005), (1004, 1006, 1001, 1003)])
    records = check(
        engine,
        bars,
        Settings(),
        [BUY, MOVE_STOP_TO_BREAKEVEN, HOLD],
        [
            {"entry_price": 1001, "high_water": -2_080 + 9 * 12_500, "stop": 988},
            {"stop": 1002, "quantity": 1, "equity": -2_080 + 4 * 12_500, "balance": -2_080},
            {
                "exit_price": 1001,
                "exit_reason": ExitReason.BREAKEVEN,
                "balance": -4_160,
                "high_water": 110_420,
            },
        ],
    )
    assert records[1]["mask"] == [True, False, False, True, False, False, True]
    assert records[2]["mask"] == [
        True,
        False,
        False,
        False,
        True,
        False,
        True,
    ]  # now the trail may be switched on


@both_engines
def test_breakeven_stop_gapped_through_at_once(engine):
    # the moved stop is live at the next open: 999 is through 1002, so 999 - 1 = 998: -3 * 12,500 -
    # 4,160
    bars = market([QUIET, RISING_BAR, (999, 1007, 990, 1005)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, MOVE_STOP_TO_BREAKEVEN],
        [
            {"entry_price": 1001},
            {"exit_price": 998, "exit_reason": ExitReason.BREAKEVEN, "balance": -41_660},
        ],
    )


@both_engines
def test_trail(engine):
    # True ranges: b1 15, b2 8, b3 max(1020, 1012) - min(1008, 1012) = 12; S at b3 = 11 * 8 + 35 =
    # 123, distance ceil(123/14) = 9, stop 1018 - 9 = 1009. The low of b3 (1008) came before the
    # ratchet. In b4 1009 is touched: 1008; 7 * 12,500 - 4,160 = 83,340. High water in b3: 19 *
    # 12,500 - 2,080 = 235,420.
    bars = market(
        [
            QUIET,
            RISING_BAR,
            (1008, 1014, 1006, 1012),
            (1012, 1020, 1008, 1018),
            (1015, 1016, 1009, 1012),
        ]
    )
    records = check(
        engine,
        bars,
        Settings(),
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


@both_engines
def test_trail_never_loosens_and_can_be_switched_off(engine):
    # b4 closes at 1012: 1012 - 9 = 1003 would loosen, so 1009 stays; switched off, b5's close of
    # 1030 moves nothing
    bars = market(
        [
            QUIET,
            RISING_BAR,
            (1008, 1014, 1006, 1012),
            (1012, 1020, 1008, 1018),
            (1015, 1016, 1010, 1012),
            (1012, 1031, 1011, 1030),
        ]
    )
    check(
        engine,
        bars,
        Settings(),
        [BUY, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, HOLD, DISABLE_TRAIL],
        [{}, {"stop": 1002}, {"stop": 1009}, {"stop": 1009}, {"stop": 1009, "quantity": 1}],
    )


TIGHT = Settings(drawdown=100_000, risk_unit=100_000.0, target=None)
NEAR: Bar = (1000, 1002, 999, 1001)


@both_engines
def test_liquidation_at_the_drawdown_floor(engine):
    # high water 1002: 12,500 - 2,080 = 10,420, floor -89,580. Net of the exit side equity meets it
    # at k = floor((-89,580 + 2,080 + 2,080) / 12,500) = floor(-6.83) = -7: level 994, above the
    # stop at 988. b2 trades at 990: 994 - 1 = 993; -8 * 12,500 - 4,160 = -104,160 <= floor: bust.
    bars = market([QUIET, NEAR, (1000, 1001, 990, 995)])
    check(
        engine,
        bars,
        TIGHT,
        [BUY, HOLD],
        [
            {"high_water": 10_420, "floor": -89_580, "end": EndReason.NONE, "equity": -2_080},
            {
                "exit_price": 993,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -104_160,
                "floor": -89_580,
                "breach": True,
                "end": EndReason.BUST,
                "terminated": True,
                "truncated": False,
                "adverse": 994,
                "reward": (-104_160 + 2_080) / 100_000,
            },
        ],
    )


@both_engines
def test_the_favourable_extreme_raises_the_floor_before_the_adverse_one_is_tested(engine):
    # b2 high 1010: 9 * 12,500 - 2,080 = 110,420, floor 10,420; k = floor((10,420 + 4,160)/12,500) =
    # 1, level 1002. It lies above the open of 1000: min(1000, 1002) - 1 = 999: -2 * 12,500 - 4,160
    # = -29,160 <= 10,420: bust.
    bars = market([QUIET, NEAR, (1000, 1010, 999, 1008)])
    check(
        engine,
        bars,
        TIGHT,
        [BUY, HOLD],
        [
            {},
            {
                "exit_price": 999,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -29_160,
                "high_water": 110_420,
                "floor": 10_420,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_the_stop_wins_where_it_is_nearer_and_may_still_breach(engine):
    # drawdown 160,000: floor 10,420 - 160,000 = -149,580, k = floor(-145,420/12,500) = -12, level 989 > 988, so 989
    # -> drawdown 180,000: floor -169,580, k = floor(-165,420/12,500) = -14, level 987 < 988: the stop at 988 is hit
    # first, 987: -14 * 12,500 - 4,160 = -179,160 <= -169,580: the slippage makes it a bust all the same.
    bars = market([QUIET, NEAR, (1000, 1001, 980, 985)])
    settings = Settings(drawdown=180_000, risk_unit=180_000.0, target=None)
    check(
        engine,
        bars,
        settings,
        [BUY, HOLD],
        [
            {"floor": -169_580},
            {
                "exit_price": 987,
                "exit_reason": ExitReason.STOP,
                "balance": -179_160,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_a_level_at_the_stop_is_a_liquidation(engine):
    # drawdown 170,000: floor -159,580; k = floor(-155,420/12,500) = -13, level 988 = stop
    bars = market([QUIET, NEAR, (1000, 1001, 980, 985)])
    settings = Settings(drawdown=170_000, risk_unit=170_000.0, target=None)
    check(
        engine,
        bars,
        settings,
        [BUY, HOLD],
        [
            {"floor": -159_580},
            {
                "exit_price": 987,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -179_160,
                "end": EndReason.BUST,
            },
        ],
    )


DAILY = Settings(
    drawdown=None, target=None, daily_loss=100_000, risk_unit=100_000.0, episode_sessions=2
)


@both_engines
def test_daily_loss_locks_until_the_next_session(engine):
    # floor -100,000: k = floor((-100,000 + 4,160)/12,500) = floor(-7.67) = -8, level 993; b2: 992,
    # -9 * 12,500 - 4,160. Locked: no entries in the rest of session 1 (flat bar b4), open again at
    # the first bar of session 2.
    bars = market(
        [QUIET, NEAR, (1000, 1001, 990, 995), QUIET, QUIET, QUIET, QUIET], [QUIET] * 5, tail=0
    )
    records = check(
        engine,
        bars,
        DAILY,
        [BUY, HOLD, HOLD, HOLD, HOLD, HOLD, BUY],
        [
            {"locked": False},
            {
                "exit_price": 992,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -116_660,
                "breach": True,
                "locked": True,
                "end": EndReason.NONE,
                "days": 1,
            },
            {"locked": True, "end": EndReason.NONE},
            {"locked": True},
            {"locked": True},
            # the flat bar: the episode goes on at b0 of session 2, with the money of session 1
            {
                "locked": False,
                "balance": -116_660,
                "equity": -116_660,
                "end": EndReason.NONE,
                "row": WARM_UP + 7,
            },
            # session 2: the daily floor starts from -116,660, so an entry at 1001 is no breach
            {
                "entry_price": 1001,
                "balance": -118_740,
                "days": 2,
                "end": EndReason.NONE,
                "breach": False,
            },
        ],
    )
    assert records[2]["mask"] == records[3]["mask"] == [True] + [False] * 6
    assert records[6]["mask"][:3] == [True, True, True]


@both_engines
def test_daily_loss_that_fails_the_account(engine):
    bars = market([QUIET, NEAR, (1000, 1001, 990, 995), QUIET])
    settings = Settings(
        drawdown=None, target=None, daily_loss=100_000, risk_unit=100_000.0, fail_on_daily_loss=True
    )
    check(
        engine,
        bars,
        settings,
        [BUY, HOLD],
        [
            {"end": EndReason.NONE},
            {
                "balance": -116_660,
                "end": EndReason.DAILY_LOSS,
                "terminated": True,
                "truncated": False,
            },
        ],
    )


@both_engines
@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, EndReason.TARGET),
        ({"stop_at_target": False}, EndReason.NONE),
        ({"min_days": 2}, EndReason.NONE),
        ({"target": 433_341}, EndReason.NONE),
        ({"target": 433_340}, EndReason.TARGET),
    ],
)
def test_profit_target(engine, changes, end):
    # as in test_target the short earns 433,340. At the close of b1 nothing is realised; equity does
    # not count.
    settings = Settings(**{"target": 400_000, **changes})
    bars = market([QUIET, SHORT_BAR, (998, 999, 960, 970), QUIET])
    check(
        engine,
        bars,
        settings,
        [SELL, HOLD],
        [
            SHORTED,
            {
                "balance": 433_340,
                "end": end,
                "terminated": end == EndReason.TARGET,
                "truncated": False,
            },
        ],
    )


@both_engines
def test_open_profit_is_no_target(engine):
    # at the close of b2 equity is -2,080 + 33 * 12,500 = 410,420 > 400,000, but the position is
    # open
    bars = market([QUIET, LONG_BAR, (1010, 1035, 1009, 1034), QUIET])
    check(
        engine,
        bars,
        Settings(target=400_000),
        [BUY, HOLD],
        [OPENED, {"equity": 410_420, "balance": -2_080, "end": EndReason.NONE, "quantity": 1}],
    )


@both_engines
def test_forced_flat_and_the_last_decisions(engine):
    # flat bar b3: out at its close less slippage, 1004 - 1 = 1003: 2 * 12,500 - 4,160 = 20,840
    bars = market([QUIET, LONG_BAR, QUIET, (1003, 1006, 1001, 1004)], tail=0)
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD, HOLD],
        [
            OPENED,
            {"quantity": 1},
            {
                "exit_price": 1003,
                "exit_reason": ExitReason.FLAT,
                "balance": 20_840,
                "equity": 20_840,
                "end": EndReason.SESSION_END,
                "terminated": True,
                "truncated": False,
                "row": WARM_UP + 3,
            },
        ],
    )
    idle = check(
        engine,
        bars,
        Settings(),
        [HOLD] * 3,
        [{"equity": 0, "end": 0}] * 2 + [{"end": EndReason.SESSION_END}],
    )
    # entries at b0 (three bars to flat) and b1 (two), not at b2 (one)
    assert [record["mask"][1] for record in idle] == [True, True, False]


@both_engines
def test_the_stop_of_the_flat_bar_comes_before_its_close(engine):
    bars = market([QUIET, LONG_BAR, QUIET, (1003, 1006, 980, 1004)], tail=0)
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD, HOLD],
        [
            OPENED,
            {},
            {
                "exit_price": 987,
                "exit_reason": ExitReason.STOP,
                "balance": -179_160,
                "end": EndReason.SESSION_END,
            },
        ],
    )


@both_engines
def test_half_day(engine):
    # 2013-11-29, trading ends 13:15: flat time 13:14, the flat bar closes 13:10, two more bars
    # exist behind it. First decision at the close of the 12:30 bar (12:40): floor(34 min / 10) = 3
    # bars; then 2, 1, 0.
    day = dt.date(2013, 11, 29)
    rows = [QUIET] * (WARM_UP + 1) + [LONG_BAR, QUIET, (1003, 1006, 1001, 1004), QUIET, QUIET]
    opening = eastern(day, 12, 30)
    stamps = [opening + 600 * (i - WARM_UP) for i in range(len(rows))]
    columns = list(zip(*rows, strict=True))
    bars = Bars(
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        [100] * len(rows),
        stamps,
        600,
        [eastern(day, 9, 30)] * len(rows),
        [eastern(day, 13, 14)] * len(rows),
        449,
        [16038] * len(rows),
        (Session(0, len(rows), WARM_UP, WARM_UP + 2),),
    )
    check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD, HOLD],
        [
            OPENED,
            {"quantity": 1},
            {
                "exit_price": 1003,
                "exit_reason": ExitReason.FLAT,
                "end": EndReason.SESSION_END,
                "terminated": True,
            },
        ],
    )
    idle = ENGINES[engine](bars, Settings(), [HOLD] * 3)
    assert [record["mask"][1] for record in idle] == [True, True, False]


@both_engines
def test_step_limit_truncates_and_leaves_the_position_open(engine):
    # b2 closes at 1000: equity -2,080 - 12,500
    bars = market([QUIET, LONG_BAR, QUIET, QUIET])
    check(
        engine,
        bars,
        Settings(max_steps=2),
        [BUY, HOLD],
        [
            OPENED,
            {
                "end": EndReason.STEP_LIMIT,
                "truncated": True,
                "terminated": False,
                "quantity": 1,
                "exit_reason": 0,
                "equity": -14_580,
                "balance": -2_080,
            },
        ],
    )


@both_engines
def test_end_of_data_truncates_at_the_last_close(engine):
    # the same fills as a flat bar, another reason, and not a termination; entry stays legal by the
    # calendar
    bars = market([QUIET, LONG_BAR, (1003, 1006, 1001, 1004)], tail=0, complete=False)
    records = check(
        engine,
        bars,
        Settings(),
        [BUY, HOLD],
        [
            OPENED,
            {
                "exit_price": 1003,
                "exit_reason": ExitReason.END_OF_DATA,
                "balance": 20_840,
                "end": EndReason.END_OF_DATA,
                "terminated": False,
                "truncated": True,
            },
        ],
    )
    assert records[1]["mask"][CLOSE]


@both_engines
def test_close_fills_at_the_next_open(engine):
    # 1003 - 1 = 1002: 12,500 - 4,160 = 8,340; the open is marked first: 2 * 12,500 - 2,080 = 22,920
    # < 47,920
    bars = market([QUIET, LONG_BAR, (1003, 1100, 900, 1000)])
    check(
        engine,
        bars,
        Settings(),
        [BUY, CLOSE],
        [
            OPENED,
            {
                "order_exit_price": 1002,
                "order_exit_quantity": 1,
                "exit_reason": 0,
                "balance": 8_340,
                "high_water": 47_920,
                "quantity": 0,
                "end": EndReason.NONE,
            },
        ],
    )


@both_engines
def test_the_floor_freezes_at_its_cap(engine):
    # opens at 960, beyond the target 964: 39 * 12,500 - 4,160 = 483,340; the open was marked:
    # 485,420. 485,420 less 200,000 would be 285,420; the cap holds the floor at 100,000
    bars = market([QUIET, SHORT_BAR, (960, 999, 960, 970)])
    settings = Settings(drawdown=200_000, floor_cap=100_000, target=None, risk_unit=200_000.0)
    check(
        engine,
        bars,
        settings,
        [SELL, HOLD],
        [
            {**SHORTED, "floor": -164_580},
            {
                "exit_price": 960,
                "exit_reason": ExitReason.TARGET,
                "balance": 483_340,
                "high_water": 485_420,
                "floor": 100_000,
                "end": EndReason.NONE,
            },
        ],
    )


@both_engines
def test_a_frozen_floor_is_a_stop_in_profit(engine):
    # best price 964: high water 435,420, floor 100,000, k = floor((100,000 + 4,160)/12,500) = 8:
    # level 991, already behind the open of 998: max(998, 991) + 1 = 999 = entry: -4,160 <= 100,000:
    # bust (high, then low, by convention)
    bars = market([QUIET, SHORT_BAR, (998, 999, 960, 970)])
    settings = Settings(drawdown=200_000, floor_cap=100_000, target=None, risk_unit=200_000.0)
    check(
        engine,
        bars,
        settings,
        [SELL, HOLD],
        [
            SHORTED,
            {
                "exit_price": 999,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -4_160,
                "high_water": 435_420,
                "floor": 100_000,
                "end": EndReason.BUST,
            },
        ],
    )


def trailing(how: str, **changes: Any) -> Settings:
    values = {
        "drawdown": 200_000,
        "target": None,
        "risk_unit": 200_000.0,
        "episode_sessions": 3,
    } | changes
    return Settings(trailing=how, **values)


# Session 1: short at 999 from b1, out at the target 964 in b2: 35 * 12,500 - 4,160 = 433,340; b3 is
# the flat bar.
WINNING = [QUIET, SHORT_BAR, (998, 999, 960, 970), QUIET]
# Session 2: long from its second bar at 1001, balance 433,340 - 2,080 = 431,260. Its range sum
# holds 39 (b2 after a close of 999) and 34 (b3 after 970) among twelve of 8: 169, stop ceil(1.5 *
# 169 / 14) = 19 below 1000: 981.
LOSING = [QUIET, LONG_BAR, (1000, 1001, 984, 990), QUIET]
SHORT_THEN_LONG = [SELL, HOLD, HOLD, BUY, HOLD]


@both_engines
def test_an_end_of_day_floor_rises_between_sessions_and_is_tested_inside_them(engine):
    # In b2 open profit of 437,500 raises nothing: the floor stays at -200,000 through the flat bar.
    # Then it is 233,340; open profit of session 2 does not raise it. k = floor((233,340 + 2,080 -
    # 431,260) / 12,500) = -16: level 985, traded through at 984: 985 - 1 = 984: 431,260 - 17 *
    # 12,500 - 2,080 = 216,680 <= 233,340: bust.
    check(
        engine,
        market(WINNING, LOSING, tail=0),
        trailing("end_of_day"),
        SHORT_THEN_LONG,
        [
            {"entry_price": 999, "high_water": 0, "floor": -200_000},
            {
                "exit_price": 964,
                "balance": 433_340,
                "high_water": 0,
                "floor": -200_000,
                "end": EndReason.NONE,
            },
            {"floor": -200_000, "high_water": 433_340, "row": WARM_UP + 4, "end": EndReason.NONE},
            {
                "entry_price": 1001,
                "stop": 981,
                "balance": 431_260,
                "equity": 443_760,
                "floor": 233_340,
                "high_water": 433_340,
            },
            {
                "exit_price": 984,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": 216_680,
                "floor": 233_340,
                "breach": True,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_an_intraday_floor_ends_the_same_trade_at_once(engine):
    # b2's low of 960 is capped at the target: high water -2,080 + 437,500, floor 235,420. The level
    # of the short is 999 - floor((235,420 + 4,160) / 12,500) = 980, behind the open of 998: out at
    # 998 + 1 = 999.
    check(
        engine,
        market(WINNING, LOSING, tail=0),
        trailing("intraday"),
        SHORT_THEN_LONG[:2],
        [
            {"high_water": 35_420, "floor": -164_580},
            {
                "exit_price": 999,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -4_160,
                "high_water": 435_420,
                "floor": 235_420,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_a_static_floor_never_moves(engine):
    # session 2: k = floor((-200,000 + 2,080 - 431,260) / 12,500) = -51: the stop at 981 is nearer,
    # and 984 not there. Out at the flat bar: 1000 - 1 = 999: 431,260 - 2 * 12,500 - 2,080 = 404,180
    check(
        engine,
        market(WINNING, LOSING, [QUIET] * 3, tail=0),
        trailing("static"),
        [*SHORT_THEN_LONG, HOLD, HOLD],
        [
            {"floor": -200_000},
            {"balance": 433_340, "floor": -200_000},
            {"high_water": 0, "row": WARM_UP + 4},
            {"floor": -200_000},
            {"quantity": 1, "floor": -200_000},
            {
                "exit_reason": ExitReason.FLAT,
                "balance": 404_180,
                "high_water": 0,
                "row": WARM_UP + 8,
            },
            {"floor": -200_000, "high_water": 0},
        ],
    )


@both_engines
def test_an_end_of_day_floor_never_falls_and_stops_at_its_cap(engine):
    # session 2 loses: 1000 - 1 = 999 at its flat bar (b2 now keeps above 985), 404,180 < 433,340:
    # the mark stays. Its floor would be 233,340; the cap of 220,000 holds it in sessions 2 and 3.
    quieter = [QUIET, LONG_BAR, (1000, 1001, 990, 995), QUIET]
    check(
        engine,
        market(WINNING, quieter, [QUIET] * 3, tail=0),
        trailing("end_of_day", floor_cap=220_000),
        [*SHORT_THEN_LONG, HOLD, HOLD],
        [
            {"floor": -200_000},
            {"floor": -200_000},
            {"floor": -200_000, "high_water": 433_340},
            {"floor": 220_000},
            {"floor": 220_000, "quantity": 1},
            {"floor": 220_000, "balance": 404_180, "high_water": 433_340, "row": WARM_UP + 8},
            {"floor": 220_000, "high_water": 433_340, "equity": 404_180},
        ],
    )


@both_engines
def test_end_of_day_with_marks_at_the_close(engine):
    # Session 1: long at 1001; the close of 1015 (172,920) raises nothing; out at the flat bar: 1010
    # - 1 = 1009: 100,000 - 4,160 = 95,840, so floor -4,160. Session 2: long at 1001, balance
    # 93,760. Close 994: net of the exit side 93,760 - 87,500 - 2,080 = 4,180: held, though the low
    # of 990 was below. Close 993: -8,320: out at 992: 93,760 - 112,500 - 2,080 = -20,820.
    first = [QUIET, (1000, 1002, 999, 1001), (1001, 1016, 1000, 1015), (1015, 1016, 1009, 1010)]
    second = [QUIET, (1000, 1002, 999, 1001), (1000, 1001, 990, 994), (994, 995, 989, 993), QUIET]
    check(
        engine,
        market(first, second, tail=0),
        trailing("end_of_day", mark="close", drawdown=100_000),
        [BUY, HOLD, HOLD, BUY, HOLD, HOLD],
        [
            {"floor": -100_000, "high_water": 0},
            {"floor": -100_000, "high_water": 0, "equity": 172_920},
            {
                "exit_reason": ExitReason.FLAT,
                "balance": 95_840,
                "floor": -100_000,
                "high_water": 95_840,
            },
            {"balance": 93_760, "floor": -4_160},
            {"quantity": 1, "floor": -4_160, "end": EndReason.NONE},
            {
                "exit_price": 992,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -20_820,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_a_daily_loss_beside_an_end_of_day_floor(engine):
    # Session 2 opens at 433,340: daily floor 333,340 above the drawdown floor of 233,340. k =
    # floor((333,340 + 2,080 - 431,260) / 12,500) = -8: level 993, out at 992 in b2: locked, not
    # bust.
    settings = trailing("end_of_day", daily_loss=100_000)
    records = check(
        engine,
        market(WINNING, LOSING, tail=0),
        settings,
        [*SHORT_THEN_LONG, HOLD],
        [
            {},
            {"balance": 433_340},
            {"locked": False},
            {"floor": 233_340, "quantity": 1},
            {
                "exit_price": 992,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": 316_680,
                "breach": True,
                "locked": True,
                "end": EndReason.NONE,
                "floor": 233_340,
            },
            {"end": EndReason.SESSION_END},
        ],
    )
    assert records[5]["mask"] == [True] + [False] * 6


# ---- reward presets, by hand

TRAILED = [
    QUIET,
    RISING_BAR,
    (1008, 1014, 1006, 1012),
    (1012, 1020, 1008, 1018),
    (1015, 1016, 1009, 1012),
]
TRAIL_ACTIONS = [
    BUY,
    MOVE_STOP_TO_BREAKEVEN,
    ENABLE_TRAIL,
    HOLD,
]  # test_trail: equity 85.42, 135.42, 210.42, 83.34
REWARDED: dict[str, tuple[list[Bar], Sequence[int], dict[str, Any], list[float]]] = {
    # in position; closed with 433.34 net; flat
    "seed_phase1_fork": ([*WINNING, QUIET], [SELL, HOLD, HOLD], {}, [-0.01, 4.3334, 0.001]),
    # a forced flat costs 10 although 20.84 was earned
    "seed_phase1": (
        [QUIET, LONG_BAR, QUIET, (1003, 1006, 1001, 1004)],
        [BUY, HOLD, HOLD],
        {},
        [-0.01, -0.01, 0.2084 - 10],
    ),
    # bought, break-even paid 0.1, trail paid 0.05, the win 1; the level of profit is paid in every
    # bar
    "seed_phase2": (
        TRAILED,
        TRAIL_ACTIONS,
        {},
        [0.008542, 0.1 + 0.013542, 0.05 + 0.021042, 1 + 0.008334],
    ),
    # open profit of 137.50 is not 1 % of 50,000: -0.1; the win 2, by a trail 0.5; 20 / 50,000 for a
    # dollar of level
    "seed_phase2_fork": (
        TRAILED,
        TRAIL_ACTIONS,
        {},
        [0.034168, 0.054168, -0.1 + 0.084168, 2.5 + 0.033336],
    ),
    "seed_phase3": (
        TRAILED,
        [BUY, BUY, HOLD, HOLD],
        {},
        [0.008542, -1 + 0.013542, 0.021042, 0.013542],
    ),
    "jules_net": ([QUIET, LONG_BAR, QUIET], [BUY, HOLD], {}, [10.42 / 50_000, -25 / 50_000]),
}


@both_engines
@pytest.mark.parametrize("preset", list(REWARDED))
def test_reward_presets_by_hand(engine, preset):
    story, actions, changes, rewards = REWARDED[preset]
    flat_at_end = preset == "seed_phase1"
    every = dict.fromkeys(of_one_symbol(), 0.0)  # one program for all
    settings = Settings(reward=every | REWARDS[preset], **changes)
    check(
        engine,
        market(story, tail=0 if flat_at_end else 4),
        settings,
        actions,
        [{"reward": reward} for reward in rewards],
    )


@both_engines
def test_the_old_systems_breach_costs_ten_and_the_loss(engine):
    # as in test_liquidation_at_the_drawdown_floor: -104.16 net
    settings = dataclasses.replace(
        TIGHT, reward=dict.fromkeys(of_one_symbol(), 0.0) | REWARDS["seed_phase1"]
    )
    check(
        engine,
        market([QUIET, NEAR, (1000, 1001, 990, 995)]),
        settings,
        [BUY, HOLD],
        [{"reward": -0.01}, {"reward": -1.0416 - 10, "end": EndReason.BUST}],
    )


@both_engines
def test_marks_at_the_close_only(engine):
    # b2: low 990, close 994: net equity -2,080 - 87,500 - 2,080 = -91,660 > -100,000: still held,
    # high water 0. b3: close 993: -2,080 - 100,000 - 2,080 <= -100,000: out at 993 - 1 = 992:
    # -112,500 - 4,160 = -116,660.
    bars = market([QUIET, (1000, 1002, 999, 1001), (1000, 1001, 990, 994), (994, 995, 989, 993)])
    settings = Settings(mark="close", drawdown=100_000, target=None, risk_unit=100_000.0)
    check(
        engine,
        bars,
        settings,
        [BUY, HOLD, HOLD],
        [
            {"high_water": 0, "equity": -2_080},
            {"equity": -89_580, "quantity": 1, "end": EndReason.NONE},
            {
                "exit_price": 992,
                "exit_reason": ExitReason.LIQUIDATION,
                "balance": -116_660,
                "equity": -116_660,
                "end": EndReason.BUST,
            },
        ],
    )


@both_engines
def test_fill_at_the_decision_close(engine):
    # bought at the close of b0 (1000 + 1), bracket around 1000; b1 opens at 985, through 988: 984
    # in the entry bar
    bars = market([QUIET, (985, 990, 980, 989)])
    settings = Settings(fill="close", mark="close")
    check(
        engine,
        bars,
        settings,
        [BUY],
        [
            {
                "entry_price": 1001,
                "exit_price": 984,
                "exit_reason": ExitReason.STOP,
                "balance": -17 * 12_500 - 4_160,
            }
        ],
    )


@both_engines
def test_stop_distance_is_rounded_up_and_has_a_minimum(engine):
    # quiet bars of range 7: S = 98, 1.5 * 7 = 10.5 -> 11, target 33; of range 4: 6 -> the minimum
    # of 8, target 24
    for bar, stop, target in (((1000, 1003, 996, 1000), 11, 33), ((1000, 1002, 998, 1000), 8, 24)):
        bars = market([bar, (1000, 1001, 999, 1000)], quiet=bar)
        check(engine, bars, Settings(), [BUY], [{"stop": 1000 - stop, "target": 1000 + target}])
