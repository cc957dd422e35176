"""Hand-worked episodes of the account's rules: floors, daily loss, target, sessions."""

from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.events import WARM_UP
from tests.oracle.model import (
    BUY,
    CLOSE,
    HOLD,
    SELL,
    Settings,
)
from tests.oracle.test_golden import (
    LONG_BAR,
    NEAR,
    OPENED,
    QUIET,
    SHORT_BAR,
    SHORTED,
    market,
)


def test_the_stop_wins_where_it_is_nearer_and_may_still_breach(check):
    # drawdown 160,000: floor 10,420 - 160,000 = -149,580, k = floor(-145,420/12,500) = -12, level 989 > 988, so 989
    # -> drawdown 180,000: floor -169,580, k = floor(-165,420/12,500) = -14, level 987 < 988: the stop at 988 is hit
    # first, 987: -14 * 12,500 - 4,160 = -179,160 <= -169,580: the slippage makes it a bust all the same.
    check(
        market([QUIET, NEAR, (1000, 1001, 980, 985)]),
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
        Settings(drawdown=180_000, risk_unit=180_000.0, target=None),
    )


def test_forced_flat_and_the_last_decisions(check):
    # flat bar b3: out at its close less slippage, 1004 - 1 = 1003: 2 * 12,500 - 4,160 = 20,840
    bars = market([QUIET, LONG_BAR, QUIET, (1003, 1006, 1001, 1004)], tail=0)
    check(
        bars,
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
    idle = check(bars, [HOLD] * 3, [{"equity": 0, "end": 0}] * 2 + [{"end": EndReason.SESSION_END}])
    # entries at b0 (three bars to flat) and b1 (two), not at b2 (one)
    assert [record["mask"][1] for record in idle] == [True, True, False]


def test_the_stop_of_the_flat_bar_comes_before_its_close(check):
    check(
        market([QUIET, LONG_BAR, QUIET, (1003, 1006, 980, 1004)], tail=0),
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


def test_end_of_data_truncates_at_the_last_close(check):
    # the same fills as a flat bar, another reason, and not a termination; entry stays legal by the
    # calendar
    records = check(
        market([QUIET, LONG_BAR, (1003, 1006, 1001, 1004)], tail=0, complete=False),
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


def test_close_fills_at_the_next_open(check):
    # 1003 - 1 = 1002: 12,500 - 4,160 = 8,340; the open is marked first: 2 * 12,500 - 2,080 = 22,920
    # < 47,920
    check(
        market([QUIET, LONG_BAR, (1003, 1100, 900, 1000)]),
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


def test_a_frozen_floor_is_a_stop_in_profit(check):
    # best price 964: high water 435,420, floor 100,000, k = floor((100,000 + 4,160)/12,500) = 8:
    # level 991, already behind the open of 998: max(998, 991) + 1 = 999 = entry: -4,160 <= 100,000:
    # bust (high, then low, by convention)
    check(
        market([QUIET, SHORT_BAR, (998, 999, 960, 970)]),
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
        Settings(drawdown=200_000, floor_cap=100_000, target=None, risk_unit=200_000.0),
    )
