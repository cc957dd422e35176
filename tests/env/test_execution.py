"""Fills inside one bar, worked by hand. One ES contract: $12.50 a tick, $2.08 a side, one tick of
slippage.

A long at 101 (open 100 plus a tick), stop 90, target 130; a short at 99, stop 110, target 70.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env import execution
from jaxtrade.env.dynamics import transition
from jaxtrade.env.episode import start
from jaxtrade.env.leg import Bar, LegBar, LegInBar, Quote, empty_event
from jaxtrade.env.settle import StopLevel, settle
from jaxtrade.env.state import (
    KEEP_STOP,
    NO_LEVEL,
    Account,
    EnvParams,
    EnvState,
    Event,
    ExitReason,
    Marks,
    Order,
    Position,
)
from jaxtrade.env.state import StopKind as Kind
from jaxtrade.types import IntrabarPath, Quotes
from tests.env import worlds
from tests.env.worlds import COMMISSION, TICK_MILLS, bars_of, i32, make_market, make_params, rules
from tests.paths import Inside, mirrored, path_arrays

C, V = COMMISSION, TICK_MILLS
COSTS = worlds.contract()
LIMITS = {"drawdown": 100_000}  # eight ticks: see the liquidation tests below
QUIET = (100, 100, 100, 100)


def params_for(rows: list[tuple[int, int, int, int]] | None = None, **kwargs: Any) -> EnvParams:
    """Bars in one session; S = 112 everywhere: 8 ticks of ATR, a stop of 12 and a trail of 8
    ticks.
    """
    bars = bars_of(rows or [QUIET] * 4)
    count = len(bars.close)
    table = np.zeros((count, 16), np.float32)
    sessions = [worlds.Session(0, count, 0, count - 2)]
    return make_params(make_market(bars, sessions, tr_sum=112, table=table), **kwargs)


def long_at(
    entry: int = 101, stop: int = 90, target: int = 130, quantity: int = 1, kind: int = 0
) -> Position:
    return Position(*map(i32, (quantity, entry, stop, target, kind, 0, 0)))


def short_at(entry: int = 99, stop: int = 110, target: int = 70, quantity: int = 1) -> Position:
    return Position(*map(i32, (-quantity, entry, stop, target, 0, 0, 0)))


def bar(open_: int, high: int, low: int, close: int) -> Bar:
    return Bar(*map(i32, (open_, high, low, close)))


def leg_of(position: Position) -> LegInBar:
    """The leg as a bar begins that opens at 100."""
    return LegInBar(position, i32(0), i32(0), empty_event(i32(100)))


def bar_of(
    prices: tuple[int, int, int, int] = QUIET,
    row: int = 7,
    may_open: bool = True,
    largest: int = 1_000,
    forced: int = 0,
    trail: int = 8,
) -> LegBar:
    return LegBar(
        i32(row),
        Quote(bar(*prices), None),
        None,
        jnp.bool_(may_open),
        i32(largest),
        i32(forced),
        i32(trail),
        None,
    )


class Played(NamedTuple):
    """exited: (quantity, price, reason, balance). high_water: the account's mark after the bar,
    mills.
    """

    exited: tuple[int, int, int, int]
    high_water: int
    position: Position
    event: Event


def played(
    function: Callable[..., LegInBar],
    position: Position,
    *prices: Any,
    limits: dict[str, int] | None = None,
    high_water: int = 0,
    marked_inside: bool = True,
) -> Played:
    """What one function of `execution` makes of a position, held by an account that has paid its
    entry.

    limits: keywords of `worlds.rules`, none for an account without floors. marked_inside: False as
        under `mark=close`.
    """
    account = Account.new().replace(balance=i32(-C), high_water=i32(high_water))
    leg, stop_level = leg_of(position), StopLevel(account, rules(**(limits or {})))
    if not marked_inside:
        leg, stop_level = leg._replace(high=None), None
    leg = function(leg, *prices, COSTS, stop_level)
    marks = Marks(i32(0) if leg.high is None else leg.high, i32(0))
    after, _ = settle(account, leg.cash, marks, jnp.bool_(False), rules(**(limits or {})))
    event = leg.event
    exited = (
        int(event.exit_quantity),
        int(event.exit_price),
        int(event.exit_reason),
        int(after.balance),
    )
    return Played(exited, int(after.high_water), leg.position, event)


KEEP = Order(*map(i32, (1, 0, 0, KEEP_STOP, -1)))


# ---- the opening print


@pytest.mark.parametrize(
    ("position", "price", "wanted"),
    [
        (long_at(), 91, None),
        (
            long_at(),
            90,
            (1, 89, ExitReason.STOP, -C - 12 * V - C),
        ),  # touch: at the open, one tick worse
        (
            long_at(),
            80,
            (1, 79, ExitReason.STOP, -C - 22 * V - C),
        ),  # gap: at the open, not at the stop
        (long_at(), 129, None),
        (long_at(), 130, (1, 130, ExitReason.TARGET, -C + 29 * V - C)),  # no slippage at a target
        (long_at(), 140, (1, 140, ExitReason.TARGET, -C + 39 * V - C)),  # the gap is ours
        (short_at(), 109, None),
        (short_at(), 110, (-1, 111, ExitReason.STOP, -C - 12 * V - C)),
        (short_at(), 120, (-1, 121, ExitReason.STOP, -C - 22 * V - C)),
        (short_at(), 70, (-1, 70, ExitReason.TARGET, -C + 29 * V - C)),
        (short_at(), 60, (-1, 60, ExitReason.TARGET, -C + 39 * V - C)),
        (long_at(kind=Kind.BREAKEVEN), 90, (1, 89, ExitReason.BREAKEVEN, -C - 12 * V - C)),
        (long_at(kind=Kind.TRAIL), 90, (1, 89, ExitReason.TRAIL, -C - 12 * V - C)),
        (Position.flat(), 0, None),
    ],
)
def test_opening_print(position: Position, price: int, wanted: tuple | None) -> None:
    result = played(execution.opening_print, position, i32(price))
    assert result.exited == (wanted or (0, 0, 0, -C))
    assert int(result.position.quantity) == (0 if wanted else int(position.quantity))


# ---- stop first, then target


@pytest.mark.parametrize(
    ("position", "prices", "wanted"),
    [
        (long_at(), (100, 129, 91, 100), None),
        (
            long_at(),
            (100, 129, 90, 100),
            (1, 89, ExitReason.STOP, -C - 12 * V - C),
        ),  # touch fills at the stop, slipped
        (
            long_at(),
            (100, 130, 91, 100),
            (1, 130, ExitReason.TARGET, -C + 29 * V - C),
        ),  # touch fills at the target
        (long_at(), (100, 150, 91, 140), (1, 130, ExitReason.TARGET, -C + 29 * V - C)),
        (
            long_at(),
            (100, 130, 90, 125),
            (1, 89, ExitReason.STOP, -C - 12 * V - C),
        ),  # both in one bar: the stop
        (short_at(), (100, 109, 71, 100), None),
        (short_at(), (100, 110, 71, 100), (-1, 111, ExitReason.STOP, -C - 12 * V - C)),
        (short_at(), (100, 109, 70, 100), (-1, 70, ExitReason.TARGET, -C + 29 * V - C)),
        (short_at(), (100, 110, 70, 80), (-1, 111, ExitReason.STOP, -C - 12 * V - C)),
        (long_at(quantity=3), (100, 101, 85, 100), (3, 89, ExitReason.STOP, -C - 36 * V - 3 * C)),
        (Position.flat(), (100, 200, 1, 100), None),
    ],
)
def test_stop_first(
    position: Position, prices: tuple[int, int, int, int], wanted: tuple | None
) -> None:
    result = played(execution.stop_first, position, bar(*prices))
    assert result.exited == (wanted or (0, 0, 0, -C))


def test_marks_of_a_bar_are_capped_at_the_exit() -> None:
    """Favourable: the high, at most the target. Adverse: the stop that was hit, else the low; flat:
    the open.
    """
    held = played(execution.stop_first, long_at(), bar(100, 120, 95, 100)).event
    stopped = played(execution.stop_first, long_at(), bar(100, 150, 80, 100)).event
    target = played(execution.stop_first, short_at(), bar(100, 105, 60, 65)).event
    flat = played(execution.stop_first, Position.flat(), bar(100, 150, 80, 100)).event
    marks = [(int(e.favourable), int(e.adverse)) for e in (held, stopped, target, flat)]
    assert marks == [(120, 95), (130, 90), (70, 105), (100, 100)]


# ---- the liquidation level is a second stop


def test_liquidation_level_above_the_stop_takes_the_position() -> None:
    """Drawdown $100 = 8 ticks. Long at 101, balance -2.08: equity net of exit costs is at the floor
    at floor((-100 + 2.08 + 2.08) / 12.50) = -8 ticks: 93, nearer than the stop at 90.
    """
    still = played(execution.stop_first, long_at(), bar(100, 101, 94, 100), limits=LIMITS)
    assert still.exited == (0, 0, 0, -C)
    gone = played(execution.stop_first, long_at(), bar(100, 101, 93, 100), limits=LIMITS)
    assert gone.exited == (1, 92, ExitReason.LIQUIDATION, -C - 9 * V - C)
    opened = played(execution.opening_print, long_at(), i32(88), limits=LIMITS)
    assert opened.exited == (1, 87, ExitReason.LIQUIDATION, -C - 14 * V - C)


def test_short_liquidation_mirrors_the_long_one() -> None:
    assert played(
        execution.stop_first, short_at(), bar(100, 106, 99, 100), limits=LIMITS
    ).exited == (0, 0, 0, -C)
    gone = played(execution.stop_first, short_at(), bar(100, 107, 99, 100), limits=LIMITS)
    assert gone.exited == (-1, 108, ExitReason.LIQUIDATION, -C - 9 * V - C)


def test_a_tie_of_stop_and_liquidation_liquidates() -> None:
    gone = played(execution.stop_first, long_at(stop=93), bar(100, 101, 93, 100), limits=LIMITS)
    assert gone.exited[2] == ExitReason.LIQUIDATION
    nearer = played(execution.stop_first, long_at(stop=94), bar(100, 101, 93, 100), limits=LIMITS)
    assert nearer.exited[1:3] == (93, ExitReason.STOP)


def test_the_favourable_extreme_raises_the_floor_before_the_adverse_one_is_tested() -> None:
    """High 121: mark -2.08 + 20 ticks = 247.92; floor 147.92; level 101 + floor((147.92 + 4.16) /
    12.5) = 113.
    """
    gone = played(execution.stop_first, long_at(), bar(114, 121, 113, 118), limits=LIMITS)
    assert gone.high_water == 20 * V - C
    assert gone.exited[1:3] == (112, ExitReason.LIQUIDATION)
    held = played(execution.stop_first, long_at(), bar(114, 121, 114, 118), limits=LIMITS)
    assert held.exited[2] == ExitReason.NONE


def test_a_target_and_a_breach_in_one_bar_is_a_breach() -> None:
    gone = played(execution.stop_first, long_at(), bar(115, 130, 113, 130), limits=LIMITS)
    assert gone.exited[2] == ExitReason.LIQUIDATION
    # the favourable mark is capped at the target: 29 ticks
    assert gone.high_water == 29 * V - C


def test_close_marks_do_not_liquidate_inside_a_bar() -> None:
    held = played(
        execution.stop_first, long_at(), bar(100, 121, 91, 100), limits=LIMITS, marked_inside=False
    )
    assert held.exited == (0, 0, 0, -C)
    assert held.high_water == 0


# ---- the nearer extreme first


@pytest.mark.parametrize(
    ("position", "prices", "wanted"),
    [
        (long_at(), (100, 129, 91, 100), None),
        (
            long_at(),
            (100, 130, 90, 125),
            (1, 89, ExitReason.STOP, -C - 12 * V - C),
        ),  # the low is nearer
        (
            long_at(),
            (100, 130, 65, 70),
            (1, 130, ExitReason.TARGET, -C + 29 * V - C),
        ),  # the high is nearer
        (
            long_at(),
            (100, 130, 70, 100),
            (1, 89, ExitReason.STOP, -C - 12 * V - C),
        ),  # as near: the adverse one
        (short_at(), (100, 110, 70, 80), (-1, 111, ExitReason.STOP, -C - 12 * V - C)),
        (short_at(), (100, 135, 70, 130), (-1, 70, ExitReason.TARGET, -C + 29 * V - C)),
        (short_at(), (100, 130, 70, 100), (-1, 111, ExitReason.STOP, -C - 12 * V - C)),
        (Position.flat(), (100, 500, 1, 100), None),
    ],
)
def test_nearer_extreme(
    position: Position, prices: tuple[int, int, int, int], wanted: tuple | None
) -> None:
    result = played(execution.nearer_extreme, position, bar(*prices))
    assert result.exited == (wanted or (0, 0, 0, -C))


@pytest.mark.parametrize(
    ("prices", "wanted", "mark"),
    [
        # low 113 before high 121: the floor then comes from the open, 13 ticks up, and its level is
        # 106
        ((114, 121, 113, 118), (0, 0, 0, -C), 20),
        # ... but the close comes after the high, whose level is 113
        ((114, 121, 113, 113), (1, 112, ExitReason.LIQUIDATION, -C + 11 * V - C), 20),
        # high first: its level 113 meets the low
        ((119, 121, 113, 118), (1, 112, ExitReason.LIQUIDATION, -C + 11 * V - C), 20),
        # the target, then a fall of 17 ticks: out before it, no breach; the mark is capped at the
        # target
        ((128, 131, 113, 115), (1, 130, ExitReason.TARGET, -C + 29 * V - C), 29),
    ],
)
def test_nearer_extreme_raises_the_floor_in_its_order(
    prices: tuple, wanted: tuple, mark: int
) -> None:
    result = played(execution.nearer_extreme, long_at(), bar(*prices), limits=LIMITS)
    assert result.exited == wanted
    assert result.high_water == mark * V - C
    mirrored = tuple(200 - prices[i] for i in (0, 2, 1, 3))
    result = played(execution.nearer_extreme, short_at(), bar(*mirrored), limits=LIMITS)
    assert result.exited == (-wanted[0], 200 - wanted[1] if wanted[0] else 0, *wanted[2:])
    assert result.high_water == mark * V - C


@pytest.mark.parametrize("order", [execution.stop_first, execution.nearer_extreme])
@pytest.mark.parametrize(
    ("drawdown", "wanted"),
    [
        (6 * V + 2 * C, (1, 94, ExitReason.LIQUIDATION, -C - 7 * V - C)),
        (6 * V + 2 * C + 1, (0, 0, 0, -C)),
    ],
)
def test_a_low_exactly_at_the_floor_leaves_one_mill_above_it_stays(
    drawdown: int, wanted: tuple, order: Any
) -> None:
    """At 95 equity net of both commissions is -(6 x 12.50 + 2 x 2.08)."""
    assert (
        played(order, long_at(), bar(100, 100, 95, 98), limits={"drawdown": drawdown}).exited
        == wanted
    )


# ---- the path of second bars


def path_of(inside: Inside, open_: int = 100) -> IntrabarPath:
    """The path of a market of one bar."""
    made = path_arrays([open_], [inside])
    assert made is not None
    return made


def prices_of(*prices: int, known: bool = True) -> Inside:
    """Seconds of one price each."""
    return Inside(tuple((p, p) for p in prices), known)


STOPPED = (1, 89, ExitReason.STOP, -C - 12 * V - C)
WON = (1, 130, ExitReason.TARGET, -C + 29 * V - C)
LIQUIDATED = (1, 112, ExitReason.LIQUIDATION, -C + 11 * V - C)
HELD = (0, 0, 0, -C)


@pytest.mark.parametrize(
    ("inside", "limits", "wanted", "mark"),
    [
        (prices_of(100, 90, 130, 125), {}, STOPPED, -1),
        (prices_of(100, 130, 90, 125), {}, WON, 29),
        (
            prices_of(100, 130, 90, 125, known=False),
            {},
            STOPPED,
            29,
        ),  # stop_first: the mark counts too
        (
            prices_of(100, 105, 91, 129, 90, 130),
            {},
            STOPPED,
            28,
        ),  # only the 129 was before the stop
        (prices_of(100, 105, 91, 130, 125), {}, WON, 29),
        (prices_of(100, 129, 91, 100), {}, HELD, 28),
        # one second holds stop and target: the stop; the mark is capped at the target
        (Inside(((100, 100), (135, 90), (125, 125))), {}, STOPPED, 29),
        (Inside(((100, 100), (135, 91), (90, 90))), {}, WON, 29),
        # up to 121, whose level is 113; back to 113 or 114, which is no new low
        (prices_of(114, 110, 121, 113, 118), LIMITS, LIQUIDATED, 20),
        (prices_of(114, 110, 121, 114, 118), LIMITS, HELD, 20),
        (prices_of(114, 121, 113, 118), LIMITS, LIQUIDATED, 20),  # the same fall as a new low
        (
            prices_of(114, 113, 121, 118),
            LIMITS,
            HELD,
            20,
        ),  # low before high; stop_first would find a breach
        (
            prices_of(114, 130, 110, 112),
            LIMITS,
            WON,
            29,
        ),  # the target, then a fall through every floor
        (
            prices_of(114, 121, 114, 130, 100),
            LIMITS,
            WON,
            29,
        ),  # 7 ticks, the target, then a deeper fall
        (
            prices_of(114, 121, 113, 130, 100),
            LIMITS,
            LIQUIDATED,
            20,
        ),  # 8 ticks, the target, then a deeper fall
        (
            prices_of(114, 121, 113, 129, 100),
            LIMITS,
            LIQUIDATED,
            20,
        ),  # of two falls deep enough the first
        (
            prices_of(114, 118, 111, 121, 114, 121, 113, 118),
            LIMITS,
            LIQUIDATED,
            20,
        ),  # the same high twice
        # inside one second the high counts first, and the level fills at itself
        (Inside(((114, 114), (121, 113), (118, 118))), LIMITS, LIQUIDATED, 20),
        (Inside(((114, 114), (121, 114), (118, 118))), LIMITS, HELD, 20),
        (
            Inside(((114, 114), (140, 114), (118, 118))),
            LIMITS,
            (1, 121, ExitReason.LIQUIDATION, -C + 20 * V - C),
            29,
        ),
        # ... but where seconds are not known a level that the high raised above the open fills at
        # the open
        (
            Inside(((114, 114), (140, 114), (118, 118)), known=False),
            LIMITS,
            (1, 113, ExitReason.LIQUIDATION, -C + 12 * V - C),
            29,
        ),
    ],
)
def test_path(inside: Inside, limits: dict, wanted: tuple, mark: int) -> None:
    """Marks in ticks above the entry at 101; the same upside down for a short at 99."""
    opened = inside.seconds[0][0]
    prices = (
        opened,
        max(s[0] for s in inside.seconds),
        min(s[1] for s in inside.seconds),
        inside.seconds[-1][0],
    )
    result = played(
        execution.traded_path, long_at(), bar(*prices), path_of(inside, opened), 0, limits=limits
    )
    assert result.exited == wanted
    assert result.high_water == max(0, mark * V - C)
    upside_down = bar(*(200 - prices[i] for i in (0, 2, 1, 3)))
    path = path_of(mirrored([inside], 100)[0], 200 - opened)
    short = played(execution.traded_path, short_at(), upside_down, path, 0, limits=limits)
    assert short.exited == (-wanted[0], 200 - wanted[1] if wanted[0] else 0, *wanted[2:])
    assert short.high_water == max(0, mark * V - C)
    for name in ("favourable", "adverse"):
        assert int(getattr(result.event, name)) == 200 - int(getattr(short.event, name))


def test_a_fall_that_raised_no_mark_meets_the_old_level() -> None:
    """The mark stood at 15 ticks (level 108); 115 is 14 ticks up. A fall of 7 from there ends at
    the level.
    """
    mark = 15 * V - C  # level 101 + 7 = 108
    for low, wanted in ((109, HELD), (108, (1, 107, ExitReason.LIQUIDATION, -C + 6 * V - C))):
        path = path_of(prices_of(114, 115, low, 115), 114)
        result = played(
            execution.traded_path,
            long_at(target=NO_LEVEL),
            bar(114, 115, low, 115),
            path,
            0,
            limits=LIMITS,
            high_water=mark,
        )
        assert result.exited == wanted


def test_a_cap_on_the_floor_holds_its_level() -> None:
    """A floor that stops rising at the start balance: 114 to 140 and back to 102 is a fall, and no
    breach.
    """
    limits = LIMITS | {"floor_cap": 0}  # level 101: a tick pays for two sides
    for low, wanted in ((102, HELD), (101, (1, 100, ExitReason.LIQUIDATION, -C - V - C))):
        path = path_of(prices_of(114, 140, low, 115), 114)
        result = played(
            execution.traded_path,
            long_at(target=NO_LEVEL),
            bar(114, 140, low, 115),
            path,
            0,
            limits=limits,
        )
        assert result.exited == wanted


def test_close_marks_walk_without_floors() -> None:
    path = path_of(prices_of(114, 110, 121, 113, 118), 114)
    held = played(
        execution.traded_path,
        long_at(),
        bar(114, 121, 110, 118),
        path,
        0,
        limits=LIMITS,
        marked_inside=False,
    )
    assert held.exited == HELD
    assert held.high_water == 0


def test_the_transition_reads_the_path_of_the_bar_it_plays() -> None:
    """Two bars with the same prices, paths of either order: the bar after the decision decides."""
    whole = (100, 140, 80, 100)
    params = params_for([QUIET, whole, whole, QUIET, QUIET])
    inside = [
        prices_of(*p) for p in ((100,), (100, 140, 80, 100), (100, 80, 140, 100), (100,), (100,))
    ]
    params = params.replace(market=params.market.replace(path=path_arrays([100] * 5, inside)))
    for row, reason in ((0, ExitReason.TARGET), (1, ExitReason.STOP)):
        state = start(params, i32(0), i32(row), jnp.uint32(0), i32(0))
        _, event = transition(EnvConfig(intrabar="path"), state, BUY, params)
        assert int(event.exit_reason) == reason
        _, event = transition(EnvConfig(), state, BUY, params)
        assert int(event.exit_reason) == ExitReason.STOP


# ---- orders at the open


def test_entry_fills_slipped_with_the_bracket_around_the_unslipped_open() -> None:
    order = Order(*map(i32, (1, 12, 36, KEEP_STOP, -1)))
    result = execution.enter(leg_of(Position.flat()), order, bar_of(row=7), i32(100), COSTS)
    position = {name: int(value) for name, value in vars(result.position).items()}
    assert position == {
        "quantity": 1,
        "entry": 101,
        "stop": 88,
        "target": 136,
        "stop_kind": 0,
        "trailing": 0,
        "opened": 7,
    }
    assert int(result.cash) == -C
    short = execution.enter(
        leg_of(Position.flat()), order.replace(quantity=i32(-1)), bar_of(), i32(100), COSTS
    )
    assert [int(getattr(short.position, k)) for k in ("quantity", "entry", "stop", "target")] == [
        -1,
        99,
        112,
        64,
    ]


def test_entry_without_a_bracket_has_no_levels_and_trail_may_start_on() -> None:
    order = Order(*map(i32, (-2, 0, 0, KEEP_STOP, 1)))
    result = execution.enter(leg_of(Position.flat()), order, bar_of(), i32(100), COSTS)
    assert int(result.position.stop) == NO_LEVEL
    assert int(result.position.target) == -NO_LEVEL
    assert int(result.position.trailing) == 1
    assert int(result.cash) == -2 * C


def test_entry_is_capped_refused_and_never_added_to() -> None:
    order = Order(*map(i32, (5, 12, 36, KEEP_STOP, -1)))
    capped = execution.enter(leg_of(Position.flat()), order, bar_of(largest=2), i32(100), COSTS)
    assert int(capped.position.quantity) == int(capped.event.entry_quantity) == 2
    refused = execution.enter(
        leg_of(Position.flat()), order, bar_of(may_open=False), i32(100), COSTS
    )
    assert int(refused.position.quantity) == int(refused.cash) == 0
    kept = execution.enter(leg_of(long_at()), order, bar_of(), i32(100), COSTS)
    assert int(kept.position.quantity) == 1
    assert int(kept.event.entry_quantity) == 0


def test_order_exit_pays_slippage_and_commission() -> None:
    for wanted in (0, -1):
        order = KEEP.replace(quantity=i32(wanted))
        result = execution.exit_by_order(leg_of(long_at()), order, i32(105), COSTS)
        event = result.event
        assert (int(event.order_exit_quantity), int(event.order_exit_price)) == (1, 104)
        assert int(result.cash) == 3 * V - C
        assert int(event.commission) == C
    kept = execution.exit_by_order(
        leg_of(long_at()), KEEP.replace(quantity=i32(4)), i32(105), COSTS
    )
    assert int(kept.position.quantity) == 1


def test_amend_moves_the_stop_and_switches_the_trail() -> None:
    moved = execution.amend(long_at(), KEEP.replace(move_stop=i32(102), trail=i32(1)))
    assert [int(moved.stop), int(moved.stop_kind), int(moved.trailing)] == [102, Kind.BREAKEVEN, 1]
    off = execution.amend(moved, KEEP.replace(trail=i32(0)))
    assert [int(off.stop), int(off.stop_kind), int(off.trailing)] == [102, Kind.BREAKEVEN, 0]
    assert worlds.leaves_differ(execution.amend(long_at(), KEEP), long_at()) == []
    flat = execution.amend(Position.flat(), KEEP.replace(move_stop=i32(102), trail=i32(1)))
    assert worlds.leaves_differ(flat, Position.flat()) == []


# ---- distances and the ratchet


@pytest.mark.parametrize(
    ("tr_sum", "stop", "trail"),
    [
        (0, 8, 1),
        (74, 8, 6),
        (75, 9, 6),
        (112, 12, 8),
        (113, 13, 9),
        (1_000, 108, 72),
    ],
)
def test_stop_and_trail_distances(tr_sum: int, stop: int, trail: int) -> None:
    """max(8, ceil(3 S / 28)) and max(1, ceil(S / 14)) ticks."""
    assert int(execution.stop_distance(i32(tr_sum), params_for())) == stop
    assert int(execution.trail_distance(i32(tr_sum), params_for())) == trail


@pytest.mark.parametrize(
    ("position", "close", "stop", "kind"),
    [
        (long_at(), 110, 102, Kind.TRAIL),
        (long_at(), 98, 90, Kind.INITIAL),
        (long_at(), 97, 90, Kind.INITIAL),
        (short_at(), 90, 98, Kind.TRAIL),
        (short_at(), 102, 110, Kind.INITIAL),
    ],
)
def test_ratchet_tightens_only(position: Position, close: int, stop: int, kind: int) -> None:
    on = position.replace(trailing=i32(1))
    result = execution.ratchet(on, i32(close), i32(8))
    assert (int(result.stop), int(result.stop_kind)) == (stop, kind)
    off = execution.ratchet(position, i32(close), i32(8))
    assert worlds.leaves_differ(off, position) == []


def test_force_exit_pays_slippage_and_only_where_asked() -> None:
    flat, end = i32(ExitReason.FLAT), i32(ExitReason.END_OF_DATA)
    left = execution.force_exit(leg_of(short_at()), jnp.bool_(True), i32(95), flat, COSTS)
    event = left.event
    assert [int(x) for x in (event.exit_quantity, event.exit_price, event.exit_reason)] == [
        -1,
        96,
        ExitReason.FLAT,
    ]
    assert int(left.cash) == 3 * V - C
    kept = execution.force_exit(leg_of(short_at()), jnp.bool_(False), i32(95), end, COSTS)
    assert worlds.leaves_differ(kept, leg_of(short_at())) == []


# ---- one bar through the public transition


def run(
    rows: list[tuple[int, int, int, int]],
    orders: list[Order],
    config: EnvConfig | None = None,
    **kwargs: Any,
) -> list[tuple[EnvState, Event]]:
    """States and events after each order, from flat at the close of row 0."""
    params = params_for([QUIET, *rows, QUIET, QUIET], **kwargs)
    state = start(params, i32(0), i32(0), jnp.uint32(0), i32(0))
    step = jax.jit(lambda state, order: transition(config or EnvConfig(), state, order, params))
    out = []
    for order in orders:
        state, event = step(state, order)
        out.append((state, event))
    return out


BUY = Order(*map(i32, (1, 12, 36, KEEP_STOP, -1)))
SELL = BUY.replace(quantity=i32(-1))
CLOSE = BUY.replace(quantity=i32(0))


def test_a_stop_in_the_entry_bar() -> None:
    """Buy at 101; the same bar falls to 88 = 100 - 12: out at 87. Two sides: 14 ticks and 4.16
    lost.
    """
    ((state, event),) = run([(100, 102, 88, 95)], [BUY])
    assert (int(event.entry_price), int(event.exit_price), int(event.exit_reason)) == (
        101,
        87,
        ExitReason.STOP,
    )
    assert int(state.account.equity) == int(state.account.balance) == -14 * V - 2 * C
    assert int(event.commission) == 2 * C


def test_a_moved_stop_is_tested_at_the_next_open() -> None:
    """Bar 2 opens through the stop moved at its eve: the fill is the open, not the stop."""
    moved = BUY.replace(move_stop=i32(103))
    (_, _), (state, event) = run([(100, 110, 99, 108), (101, 101, 101, 101)], [BUY, moved])
    assert (int(event.exit_price), int(event.exit_reason)) == (100, ExitReason.BREAKEVEN)
    assert int(state.account.balance) == -V - 2 * C


def test_the_trail_is_live_from_the_bar_after_the_ratchet() -> None:
    """Close 120 ratchets the stop to 112 after bar 1. Bar 1 itself traded at 99, bar 2 opens at 115
    and touches 112.
    """
    on = BUY.replace(trail=i32(1))
    rows = [(100, 110, 99, 108), (108, 121, 99, 120), (115, 116, 112, 113)]
    (_, _), (second, event), (_, last) = run(rows, [BUY, on, BUY])
    assert int(event.exit_reason) == ExitReason.NONE
    assert (int(second.position.stop), int(second.position.stop_kind)) == (112, Kind.TRAIL)
    assert (int(last.exit_price), int(last.exit_reason)) == (111, ExitReason.TRAIL)


def test_a_flip_closes_and_opens_in_one_bar() -> None:
    (_, _), (state, event) = run([(100, 102, 98, 100), (105, 106, 104, 105)], [BUY, SELL])
    assert [int(x) for x in (event.order_exit_quantity, event.order_exit_price)] == [1, 104]
    assert [int(x) for x in (event.entry_quantity, event.entry_price)] == [-1, 104]
    assert int(event.commission) == 2 * C
    assert int(state.account.balance) == 3 * V - 3 * C
    assert int(state.account.equity) == 3 * V - 3 * C - V  # marked at 105
    assert [int(state.position.stop), int(state.position.target)] == [117, 69]


def test_order_exit_precedes_a_gap_through_the_stop() -> None:
    (_, _), (_, event) = run([(100, 102, 98, 100), (80, 81, 79, 80)], [BUY, CLOSE])
    assert (int(event.order_exit_price), int(event.exit_reason)) == (79, ExitReason.NONE)


def test_the_open_is_marked_before_the_order_exit() -> None:
    """High-water mark: the open of the exit bar counts, its later high does not."""
    (_, _), (state, _) = run([(100, 102, 98, 100), (111, 140, 110, 120)], [BUY, CLOSE])
    assert int(state.account.high_water) == 10 * V - C


def test_fill_at_the_close_brackets_around_it_and_still_meets_the_open() -> None:
    """Optimistic preset: entry at close[t] = 100, slipped to 101; the next open at 87 is through
    the stop at 88.
    """
    config = EnvConfig(fill="close", mark="close")
    ((state, event),) = run([(87, 90, 86, 89)], [BUY], config)
    assert (int(event.entry_price), int(event.exit_price), int(event.exit_reason)) == (
        101,
        86,
        ExitReason.STOP,
    )
    assert int(state.account.high_water) == 0


def test_a_close_mark_below_the_floor_leaves_at_the_close() -> None:
    """mark=close, drawdown $100: close 93 leaves -2.08 - 8 x 12.50 - 2.08 <= -100: out at 92 by
    liquidation.
    """
    config = EnvConfig(mark="close")
    ((state, event),) = run([(100, 102, 93, 93)], [BUY], config, account=rules(drawdown=100_000))
    assert (int(event.exit_price), int(event.exit_reason)) == (92, ExitReason.LIQUIDATION)
    assert bool(event.breach)
    assert int(state.account.equity) == -9 * V - 2 * C
    ((kept, _),) = run([(100, 102, 93, 94)], [BUY], config, account=rules(drawdown=100_000))
    assert int(kept.position.quantity) == 1


@pytest.mark.parametrize(("drawdown", "held"), [(7 * V + 2 * C, 0), (7 * V + 2 * C + 1, 1)])
def test_a_close_mark_exactly_at_the_floor_leaves_one_mill_above_it_stays(
    drawdown: int, held: int
) -> None:
    """Bought at 101: at a close of 94 equity net of both commissions is -(7 x 12.50 + 2 x 2.08)."""
    ((state, event),) = run(
        [(100, 102, 93, 94)], [BUY], EnvConfig(mark="close"), account=rules(drawdown=drawdown)
    )
    assert int(state.position.quantity) == held
    assert int(event.exit_reason) == (ExitReason.NONE if held else ExitReason.LIQUIDATION)


def test_the_flat_bar_leaves_at_its_close_after_its_stop() -> None:
    rows = [(100, 102, 98, 100), (100, 101, 99, 100)]
    results = run(rows, [BUY, BUY, BUY, BUY])
    assert int(results[-1][0].row) == 4
    event = results[-1][1]
    assert (int(event.exit_price), int(event.exit_reason)) == (99, ExitReason.FLAT)
    assert int(results[-1][0].position.quantity) == 0


# ---- two sides


@pytest.mark.parametrize(("held", "wanted", "price"), [(long_at(), -2, 98), (short_at(), 2, 104)])
@pytest.mark.parametrize(("fill", "mark"), [("next_open", "extreme"), ("close", "close")])
def test_a_flip_sells_twice_at_the_bid_or_buys_twice_at_the_ask(
    held: Position, wanted: int, price: int, fill: Any, mark: Any
) -> None:
    """Bid 99, ask 103, a tick of slippage: leaving and entering are the same side of the market."""
    params = params_for([(99, 99, 99, 99)] * 4)
    ask = jnp.full(4, 103, jnp.int32)
    params = params.replace(market=params.market.replace(ask=Quotes(ask, ask, ask, ask)))
    account = Account.new().replace(balance=i32(-C))
    state = start(params, i32(0), i32(0), jnp.uint32(0), i32(0)).replace(
        position=held, account=account
    )
    order = Order(*map(i32, (wanted, 0, 0, KEEP_STOP, -1)))
    moved, event = transition(EnvConfig(fill=fill, mark=mark), state, order, params)
    assert [int(x) for x in (event.order_exit_price, event.entry_price)] == [price, price]
    assert int(event.entry_quantity) == wanted
    # the new position is marked on the side it would leave at: four ticks of spread and one of
    # slippage, twice
    assert int(moved.account.equity - moved.account.balance) == -2 * 5 * V


# ---- several legs


BARS = [(100, 112, 88, 105), (100, 131, 95, 130), (100, 101, 99, 100)]
HELD_LEGS = [long_at(), short_at(quantity=2), Position.flat()]
ORDERS = [
    KEEP,
    KEEP.replace(quantity=i32(1), stop_ticks=i32(12), target_ticks=i32(30)),
    KEEP.replace(quantity=i32(-3), stop_ticks=i32(5), trail=i32(1)),
]
CONTRACTS = [
    worlds.contract(),
    worlds.contract(commission=500, slippage=2, tick_mills=5_000),
    worlds.contract(commission=1_000, slippage=0, tick_mills=1_250),
]


def stacked(trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize(
    "config",
    [
        EnvConfig(),
        EnvConfig(intrabar="nearer_extreme"),
        EnvConfig(mark="close"),
        EnvConfig(intrabar="path"),
    ],
    ids=lambda config: f"{config.intrabar}-{config.mark}",
)
def test_three_legs_are_one_leg_three_times(config: EnvConfig) -> None:
    """Without a stop level a leg needs no account: legs of three contracts side by side do what
    each does alone.
    """
    inside = [
        prices_of(100, 112, 88, 105),
        prices_of(100, 95, 131, 130),
        prices_of(100, 101, 99, 100),
    ]
    path = path_arrays([100] * 3, inside)
    bars = [
        bar_of(prices, row=i, forced=ExitReason.FLAT if i == 2 else 0)._replace(path=path)
        for i, prices in enumerate(BARS)
    ]
    alone = [
        execution.fill_leg(config, *each)
        for each in zip(HELD_LEGS, ORDERS, bars, CONTRACTS, strict=True)
    ]

    axes = LegBar(*[0] * 7, path=None)  # the path is one for all rows
    batched = jax.vmap(partial(execution.fill_leg, config), in_axes=(0, 0, axes, 0))
    legs = stacked([bar._replace(path=None) for bar in bars])._replace(path=path)
    together = batched(stacked(HELD_LEGS), stacked(ORDERS), legs, stacked(CONTRACTS))

    assert worlds.leaves_differ(together, stacked(alone)) == []
    exits = [int(leg.event.exit_reason) for leg in alone]
    assert exits == [ExitReason.STOP, ExitReason.TARGET, ExitReason.FLAT], (
        "the legs differ, and none does nothing"
    )
    # what the account is paid is what the fills say: profit of each round turn less commission of
    # each side
    profits = [
        (89 - 101) * 12_500,
        2 * (99 - 102) * 5_000 + (130 - 102) * 5_000,
        (100 - 100) * 3 * 1_250,
    ]
    commissions = [2_080, (2 + 1 + 1) * 500, 6 * 1_000]
    assert [int(leg.event.commission) for leg in alone] == commissions
    assert [int(leg.cash) for leg in alone] == [
        p - c for p, c in zip(profits, commissions, strict=True)
    ]

    before = Account.new().replace(balance=i32(7_000))
    marks = jax.tree.map(jnp.sum, together.marks)
    after, breach = settle(
        before, together.cash.sum(), marks, jnp.bool_(True), rules(drawdown=100_000)
    )
    assert int(after.balance) == int(after.equity) == 7_000 + sum(profits) - sum(commissions)
    assert int(after.days) == 1
    assert bool(breach) is (int(after.equity) <= int(after.high_water) - 100_000)
