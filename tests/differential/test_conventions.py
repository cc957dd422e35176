"""Hand-worked bars, one convention each: what we book, what backtesting.py books, and where they
may differ.

Fifteen quiet bars (true range 4, so S = 56 and the stop is ceil(1.5 * 4) = 6 ticks, the target 18)
lead to a BUY at the close of row 15. It fills at 40,000, the open of row 16: stop 39,994, target
40,018. Prices below are offsets from 40,000, (open, high, low, close) from row 16 on. Shorts are
the mirror image.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action
from jaxtrade.env.state import ExitReason
from tests.differential import generated, ours, reference
from tests.differential.compare import compare
from tests.differential.reference import Fill, true_ranges
from tests.env import worlds

CONFIG = EnvConfig(task="manage", actions="full", quantity=2, random_start=False)
BASE, ROWS, FIRST = 40_000, 24, 15
QUIET = (0, 2, -2, 0)
HOLD, BREAKEVEN, TRAIL, CLOSE = (
    int(a) for a in (Action.HOLD, Action.MOVE_STOP_TO_BREAKEVEN, Action.ENABLE_TRAIL, Action.CLOSE)
)

# name: (bars from row 16 on, actions from row 16 on, (exit row, exit price offset, reason))
CASES: dict[str, tuple[list[tuple[int, int, int, int]], list[int], tuple[int, int, ExitReason]]] = {
    "gap below the stop, then the target": (
        [QUIET, (-10, 20, -12, 19)],
        [],
        (17, -10, ExitReason.STOP),
    ),
    "gap above the target": ([QUIET, (21, 22, 19, 20)], [], (17, 21, ExitReason.TARGET)),
    "both in the entry bar: the stop": ([(0, 25, -25, 9)], [], (16, -6, ExitReason.STOP)),
    "close at a gap through the stop": (
        [QUIET, (-12, 30, -30, 0)],
        [CLOSE],
        (17, -12, ExitReason.ORDER),
    ),
    "break-even opened through": (
        [(0, 6, -1, 5), (-3, 6, -4, 3)],
        [BREAKEVEN],
        (17, -3, ExitReason.BREAKEVEN),
    ),
    # S at row 18 is 11 * 4 + (7, 4, 9) = 60, so the trail is ceil(60 / 14) = 5 ticks below its
    # close of 14
    "trail, live one bar later": (
        [(0, 6, -1, 5), (5, 7, 3, 6), (7, 15, 6, 14), (14, 16, 8, 15)],
        [BREAKEVEN, TRAIL],
        (19, 9, ExitReason.TRAIL),
    ),
    "flat bar": ([], [], (23, 0, ExitReason.FLAT)),
    "stop in the flat bar": ([QUIET] * 7 + [(0, 2, -9, -8)], [], (23, -6, ExitReason.STOP)),
}


def market(offsets, side):
    """24 bars, decisions at rows 15..22, flat bar 23; the mirror image for side -1."""
    bars = np.array([QUIET] * (FIRST + 1) + offsets + [QUIET] * (ROWS - FIRST - 1 - len(offsets)))
    if side < 0:
        bars = -bars[:, [0, 2, 1, 3]]
    bars = bars + BASE
    tr_sum = np.convolve(true_ranges(bars), np.ones(14, np.int64))[:ROWS]

    session = worlds.Session(0, ROWS, FIRST, ROWS - 2)
    return generated.rules_off(worlds.make_market(worlds.Bars(*bars.T), [session], tr_sum))


def logits(side, actions):
    entry = int(Action.BUY if side > 0 else Action.SELL)
    plan = [entry, *actions] + [HOLD] * (ROWS - 2 - FIRST - len(actions))
    return ours.chosen_logits(plan, ours.choices_of(CONFIG))


def turn(side, exit_row, offset, reason):
    """The round turn of a case: two contracts, $2.04 a side each."""
    return Fill(side, 2, 16, BASE, exit_row, BASE + side * offset, int(reason), 2 * 2 * 204)


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, -1], ids=["long", "short"])
@pytest.mark.parametrize("name", CASES)
def test_convention(name, side):
    offsets, actions, (exit_row, offset, reason) = CASES[name]
    params = market(offsets, side)
    _, turns, equity = ours.play(CONFIG, params, logits(side, actions))
    assert turns == [turn(side, exit_row, offset, reason)]
    assert equity[-1] == 2 * offset * 5_000 - 4 * 2_040
    assert compare(CONFIG, params, logits(side, actions)).allowed == 0


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, -1], ids=["long", "short"])
@pytest.mark.parametrize("opens", [18, 20], ids=["on the target", "beyond it"])
def test_the_one_allowed_difference(opens, side):
    """An open at or beyond the target, the stop touched later in that bar: the target at the open
    here, because the open is the bar's first trade; backtesting.py looks at stop orders first and
    books the stop."""
    params = market([QUIET, (opens, 25, -10, 0)], side)
    log, turns, equity = ours.play(CONFIG, params, logits(side, []))
    assert turns == [turn(side, 17, opens, ExitReason.TARGET)]
    assert equity[-1] == 2 * opens * 5_000 - 4 * 2_040
    theirs, cents, out_of_step = reference.run(log, ours.reference_terms(params, CONFIG.quantity))
    assert theirs == [replace(turn(side, 17, -6, ExitReason.STOP), open_beyond_target=True)]
    assert cents[-1] == 2 * -6 * 500 - 4 * 204
    assert not out_of_step
    assert compare(CONFIG, params, logits(side, [])).allowed == 1
