"""Two-sided bars worked by hand, played by both engines: the stories of `test_golden` with a bid
and an ask.

The 39 bars before have bids of 1000/1004/996/1000 and asks two ticks higher: the mid moves as the
bid, S = 112, a stop 12 and a target 36 ticks from the open of the side that is traded. No slippage;
12,500 mills a tick, 2,080 a side.
"""

from dataclasses import replace

import pytest

from jaxtrade.env.state import EndReason, ExitReason
from tests.oracle.model import (
    BUY,
    ENABLE_TRAIL,
    HOLD,
    MOVE_STOP_TO_BREAKEVEN,
    SELL,
    Ask,
    Settings,
)
from tests.oracle.test_golden import QUIET, market

COSTS = Settings(slippage=0)


def up(bar, ticks=2):
    return (bar[0] + ticks, bar[1] + ticks, bar[2] + ticks, bar[3] + ticks)


def quoted(*story):
    """A session of (bid, ask) bars after the quiet ones."""
    bids = market([bid for bid, _ in story])
    asks = [up(row) for row in zip(bids.open, bids.high, bids.low, bids.close, strict=True)]
    first = bids.sessions[0].first
    asks[first : first + len(story)] = [ask for _, ask in story]
    return replace(bids, ask=Ask(*zip(*asks, strict=True)))


START = (QUIET, up(QUIET))
OPEN = ((1000, 1005, 995, 1002), (1002, 1008, 997, 1005))
# BUY: at the ask of 1002, stop 990, target 1038. Marks by the bid: best 1005, 3 * 12,500 - 2,080;
# close 1002: 0.
LONG = {
    "entry_price": 1002,
    "entry_quantity": 1,
    "stop": 990,
    "target": 1038,
    "balance": -2_080,
    "equity": -2_080,
    "high_water": 35_420,
    "favourable": 1005,
    "adverse": 995,
    "reward": -2_080 / 2_500_000,
}
# SELL: at the bid of 1000, stop 1012, target 964. Marks by the ask: best 997; close 1005: -5 *
# 12,500 - 2,080.
SHORT = {
    "entry_price": 1000,
    "entry_quantity": -1,
    "stop": 1012,
    "target": 964,
    "balance": -2_080,
    "equity": -64_580,
    "high_water": 35_420,
    "favourable": 997,
    "adverse": 1008,
    "reward": -64_580 / 2_500_000,
}


NOTHING = {"exit_quantity": 0}


@pytest.mark.parametrize(
    ("action", "bar", "wanted"),
    [
        # a long's stop of 990 is the bid's: no ask needs to come near
        (
            BUY,
            ((1000, 1003, 990, 1001), (1004, 1007, 995, 1005)),
            {"exit_price": 990, "exit_reason": ExitReason.STOP},
        ),
        (BUY, ((1000, 1003, 991, 1001), (1004, 1007, 991, 1005)), NOTHING),
        # a short's stop of 1012 is the ask's: the bid stays at 1006
        (
            SELL,
            ((1000, 1006, 996, 1001), (1004, 1012, 999, 1005)),
            {"exit_price": 1012, "exit_reason": ExitReason.STOP},
        ),
        (SELL, ((1000, 1011, 996, 1001), (1004, 1011, 999, 1005)), NOTHING),
        # a long's target of 1038 is sold at the bid: an ask of 1040 is none
        (BUY, ((1030, 1037, 1029, 1035), (1034, 1040, 1033, 1039)), NOTHING),
        (
            BUY,
            ((1030, 1038, 1029, 1035), (1034, 1040, 1033, 1039)),
            {"exit_price": 1038, "exit_reason": ExitReason.TARGET},
        ),
        # a short's target of 964 is bought at the ask: a bid of 960 is none
        (SELL, ((966, 970, 960, 963), (968, 972, 965, 967)), NOTHING),
        (
            SELL,
            ((966, 970, 960, 963), (968, 972, 964, 967)),
            {"exit_price": 964, "exit_reason": ExitReason.TARGET},
        ),
        # a long opens through its stop by the bid, a short by the ask
        (
            BUY,
            ((989, 995, 985, 990), (993, 999, 989, 994)),
            {"exit_price": 989, "exit_reason": ExitReason.STOP},
        ),
        (
            SELL,
            ((1010, 1012, 1005, 1008), (1014, 1016, 1009, 1012)),
            {"exit_price": 1014, "exit_reason": ExitReason.STOP},
        ),
    ],
)
def test_stop_and_target_are_those_of_the_side_that_leaves(check, action, bar, wanted):
    check(
        quoted(START, OPEN, bar), [action, HOLD], [LONG if action == BUY else SHORT, wanted], COSTS
    )


@pytest.mark.parametrize(("action", "entry", "out"), [(BUY, 1015, 1000), (SELL, 1000, 1015)])
def test_a_spread_wider_than_the_stop_stops_at_the_opening_print(check, action, entry, out):
    # 15 ticks of spread, a stop of 12: -15 * 12,500 - 4,160; nothing after the open counts
    check(
        quoted(START, ((1000, 1100, 900, 1000), (1015, 1115, 915, 1015))),
        [action],
        [
            {
                "entry_price": entry,
                "exit_price": out,
                "exit_reason": ExitReason.STOP,
                "balance": -191_660,
                "high_water": 0,
                "favourable": out,
                "adverse": out,
                "quantity": 0,
            }
        ],
        COSTS,
    )


@pytest.mark.parametrize(
    ("action", "still", "last", "level", "trailed"),
    [
        # a trail of one tick: from the bid's close of 1020, from the ask's close of 980
        (
            BUY,
            ((1010, 1012, 1008, 1010), (1012, 1014, 1010, 1012)),
            ((1018, 1022, 1016, 1020), (1021, 1025, 1019, 1024)),
            1003,
            1019,
        ),
        (
            SELL,
            ((988, 990, 986, 988), (990, 992, 988, 990)),
            ((977, 980, 974, 976), (980, 984, 978, 980)),
            999,
            981,
        ),
    ],
)
def test_the_trail_follows_the_close_of_the_side_that_leaves(
    check, action, still, last, level, trailed
):
    records = check(
        quoted(START, OPEN, still, still, last),
        [action, HOLD, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL],
        [{}, {}, {"stop": level}, {"stop": trailed}],
        replace(COSTS, trail_atr=1),
    )
    assert records[-1]["end"] == EndReason.NONE


@pytest.mark.parametrize(("action", "entry", "stop"), [(BUY, 1002, 990), (SELL, 1000, 1012)])
def test_fill_at_close_takes_the_close_of_the_side_traded(check, action, entry, stop):
    # START closes 1000 bid, 1002 ask
    check(
        quoted(START, ((1005, 1006, 1004, 1005), (1006, 1007, 1005, 1006))),
        [action],
        [{"entry_price": entry, "stop": stop}],
        replace(COSTS, fill="close", mark="close"),
    )


@pytest.mark.parametrize(
    ("action", "price", "balance"), [(BUY, 1003, 8_340), (SELL, 1006, -79_160)]
)
def test_the_flat_bar_leaves_on_the_other_side(check, action, price, balance):
    # the session's last bar closes 1003 bid, 1006 ask: +1 * 12,500 - 4,160, and -6 * 12,500 - 4,160
    bars = quoted(START, OPEN, ((1001, 1004, 1000, 1003), (1003, 1006, 1002, 1006)))
    session = replace(bars.sessions[0], last=bars.sessions[0].first + 1)
    bars = replace(
        bars, sessions=(session,), flat_time=[bars.stamps[session.last + 1] + 600] * len(bars.close)
    )
    check(
        bars,
        [action, HOLD],
        [
            {},
            {
                "exit_price": price,
                "exit_reason": ExitReason.FLAT,
                "balance": balance,
                "end": EndReason.SESSION_END,
            },
        ],
        replace(COSTS, target=None),
    )
