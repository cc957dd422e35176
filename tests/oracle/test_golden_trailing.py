"""Hand-worked episodes of trailing floors, rewards, and fills and marks at the close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jaxtrade.env.reward_presets import REWARDS, of_one_symbol
from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.events import WARM_UP
from tests.oracle.model import (
    BUY,
    ENABLE_TRAIL,
    HOLD,
    MOVE_STOP_TO_BREAKEVEN,
    SELL,
    Settings,
)
from tests.oracle.test_golden import (
    LONG_BAR,
    QUIET,
    RISING_BAR,
    SHORT_BAR,
    Bar,
    both_engines,
    check,
    market,
)


def trailing(how, **changes):
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
