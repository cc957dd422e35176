"""Hand-worked episodes of trailing floors, rewards, and fills and marks at the close."""

import pytest

from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.events import WARM_UP
from tests.oracle.model import (
    BUY,
    HOLD,
    SELL,
    Settings,
)
from tests.oracle.test_golden import (
    LONG_BAR,
    QUIET,
    SHORT_BAR,
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
def test_an_end_of_day_floor_rises_between_sessions_and_is_tested_inside_them(check):
    # In b2 open profit of 437,500 raises nothing: the floor stays at -200,000 through the flat bar.
    # Then it is 233,340; open profit of session 2 does not raise it. k = floor((233,340 + 2,080 -
    # 431,260) / 12,500) = -16: level 985, traded through at 984: 985 - 1 = 984: 431,260 - 17 *
    # 12,500 - 2,080 = 216,680 <= 233,340: bust.
    check(
        market(WINNING, LOSING, tail=0),
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
        trailing("end_of_day"),
    )


def test_a_daily_loss_beside_an_end_of_day_floor(check):
    # Session 2 opens at 433,340: daily floor 333,340 above the drawdown floor of 233,340. k =
    # floor((333,340 + 2,080 - 431,260) / 12,500) = -8: level 993, out at 992 in b2: locked, not
    # bust.
    records = check(
        market(WINNING, LOSING, tail=0),
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
        trailing("end_of_day", daily_loss=100_000),
    )
    assert records[5]["mask"] == [True] + [False] * 6
