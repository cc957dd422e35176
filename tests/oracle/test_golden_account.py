"""Hand-worked episodes of the account's rules: floors, daily loss, target, sessions."""

from __future__ import annotations

import datetime as dt

import pytest

from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.engines import ENGINES
from tests.oracle.events import WARM_UP, eastern
from tests.oracle.model import (
    BUY,
    CLOSE,
    HOLD,
    SELL,
    Bars,
    Session,
    Settings,
)
from tests.oracle.test_golden import (
    LONG_BAR,
    NEAR,
    OPENED,
    QUIET,
    SHORT_BAR,
    SHORTED,
    TIGHT,
    both_engines,
    check,
    market,
)


@pytest.mark.slow
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


DAILY = Settings(
    drawdown=None, target=None, daily_loss=100_000, risk_unit=100_000.0, episode_sessions=2
)


@pytest.mark.slow
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
                "days": 1,  # of the two fills
                "balance": 8_340,
                "high_water": 47_920,
                "quantity": 0,
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
