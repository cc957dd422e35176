"""Fills inside one bar, worked by hand. One ES contract: $12.50 a tick, $2.08 a side, one tick of
slippage.

A long at 101 (open 100 plus a tick), stop 90, target 130; a short at 99, stop 110, target 70.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import transition
from jaxtrade.env.episode import start
from jaxtrade.env.execution import (
    Bar,
    LegBar,
    LegInBar,
    Quote,
    StopLevel,
    empty_event,
    nearer_extreme,
    opening_print,
    settle,
    stop_first,
    traded_path,
)
from jaxtrade.env.state import (
    KEEP_STOP,
    NO_LEVEL,
    Account,
    Event,
    ExitReason,
    Marks,
    Order,
    Position,
)
from jaxtrade.env.state import StopKind as Kind
from tests.env import worlds
from tests.env.worlds import COMMISSION, TICK_MILLS, bars_of, i32, make_market, make_params, rules
from tests.paths import Inside, mirrored, path_arrays

C, V = COMMISSION, TICK_MILLS
COSTS = worlds.contract()
LIMITS = {"drawdown": 100_000}  # eight ticks: see the liquidation tests below
QUIET = (100, 100, 100, 100)


def params_for(rows=None, **kwargs):
    """Bars in one session; S = 112 everywhere: 8 ticks of ATR, a stop of 12 and a trail of 8
    ticks.
    """
    bars = bars_of(rows or [QUIET] * 4)
    count = len(bars.close)
    table = np.zeros((count, 16), np.float32)
    sessions = [worlds.Session(0, count, 0, count - 2)]
    return make_params(make_market(bars, sessions, tr_sum=112, table=table), **kwargs)


def long_at(entry=101, stop=90, target=130, quantity=1, kind=0):
    return Position(*map(i32, (quantity, entry, stop, target, kind, 0, 0)))


def short_at(entry=99, stop=110, target=70, quantity=1):
    return Position(*map(i32, (-quantity, entry, stop, target, 0, 0, 0)))


def bar(open_, high, low, close):
    return Bar(*map(i32, (open_, high, low, close)))


def leg_of(position):
    """The leg as a bar begins that opens at 100."""
    return LegInBar(position, i32(0), i32(0), empty_event(i32(100)), COSTS)


def bar_of(
    prices=QUIET,
    row=7,
    may_open=True,
    largest=1_000,
    forced=0,
    trail=8,
):
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
    function,
    position,
    *prices,
    limits=None,
    high_water=0,
    marked_inside=True,
):
    """What one function of `execution` makes of a position, held by an account that has paid its
    entry.

    limits: keywords of `worlds.rules`, none for an account without floors. marked_inside: False as
        under `mark=close`.
    """
    account = Account.new().replace(balance=i32(-C), high_water=i32(high_water))
    leg = leg_of(position)._replace(stop_level=StopLevel(account, rules(**(limits or {}))))
    if not marked_inside:
        leg = leg._replace(high=None, stop_level=None)
    leg = function(leg, *prices)
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


def upside_down(value):
    """A price, a bar or a position, mirrored at 100 ticks: longs become shorts."""
    if isinstance(value, Bar):
        return Bar(*(200 - getattr(value, name) for name in ("open", "low", "high", "close")))
    if not isinstance(value, Position):
        return 200 - value
    levels = {name: 200 - getattr(value, name) for name in ("entry", "stop", "target")}
    return value.replace(quantity=-value.quantity, **levels)


def both_sides(function, *values, **more):
    """`played` of a long. The short upside down has the same exit, money and mark."""
    found = played(function, *values, **more)
    short = played(function, *map(upside_down, values), **more)
    quantity, price, reason, balance = found.exited
    assert short.exited == (-quantity, 200 - price if quantity else 0, reason, balance)
    assert short.high_water == found.high_water
    return found


BUY = Order(*map(i32, (1, 12, 36, KEEP_STOP, -1)))


# ---- the opening print


STOPPED = (1, 89, ExitReason.STOP, -C - 12 * V - C)
WON = (1, 130, ExitReason.TARGET, -C + 29 * V - C)
LIQUIDATED = (1, 112, ExitReason.LIQUIDATION, -C + 11 * V - C)
HELD = (0, 0, 0, -C)


@pytest.mark.parametrize(
    ("position", "price", "wanted"),
    [
        (long_at(), 91, HELD),
        (long_at(), 90, STOPPED),  # touch: at the open, one tick worse
        # gap: at the open, not at the stop
        (long_at(), 80, (1, 79, ExitReason.STOP, -C - 22 * V - C)),
        (long_at(), 129, HELD),
        (long_at(), 130, WON),  # no slippage at a target
        (long_at(), 140, (1, 140, ExitReason.TARGET, -C + 39 * V - C)),  # the gap is ours
        (long_at(kind=Kind.BREAKEVEN), 90, (1, 89, ExitReason.BREAKEVEN, -C - 12 * V - C)),
        (long_at(kind=Kind.TRAIL), 90, (1, 89, ExitReason.TRAIL, -C - 12 * V - C)),
        (Position.flat(), 0, HELD),
    ],
)
def test_opening_print(position, price, wanted):
    result = both_sides(opening_print, position, i32(price))
    assert result.exited == wanted
    assert int(result.position.quantity) == (0 if wanted[0] else int(position.quantity))


# ---- stop first, then target


@pytest.mark.parametrize(
    ("position", "prices", "wanted"),
    [
        (long_at(), (100, 129, 91, 100), HELD),
        (long_at(), (100, 129, 90, 100), STOPPED),  # touch fills at the stop, slipped
        (long_at(), (100, 130, 91, 100), WON),  # touch fills at the target
        (long_at(), (100, 150, 91, 140), WON),
        (long_at(), (100, 130, 90, 125), STOPPED),  # both in one bar: the stop
        (long_at(quantity=3), (100, 101, 85, 100), (3, 89, ExitReason.STOP, -C - 36 * V - 3 * C)),
        (Position.flat(), (100, 200, 1, 100), HELD),
    ],
)
def test_stop_first(position, prices, wanted):
    assert both_sides(stop_first, position, bar(*prices)).exited == wanted


def test_marks_of_a_bar_are_capped_at_the_exit():
    """Favourable: the high, at most the target. Adverse: the stop that was hit, else the low; flat:
    the open.
    """
    held = played(stop_first, long_at(), bar(100, 120, 95, 100)).event
    stopped = played(stop_first, long_at(), bar(100, 150, 80, 100)).event
    target = played(stop_first, short_at(), bar(100, 105, 60, 65)).event
    flat = played(stop_first, Position.flat(), bar(100, 150, 80, 100)).event
    marks = [(int(e.favourable), int(e.adverse)) for e in (held, stopped, target, flat)]
    assert marks == [(120, 95), (130, 90), (70, 105), (100, 100)]


# ---- the liquidation level is a second stop


def test_liquidation_level_above_the_stop_takes_the_position():
    """Drawdown $100 = 8 ticks. Long at 101, balance -2.08: equity net of exit costs is at the floor
    at floor((-100 + 2.08 + 2.08) / 12.50) = -8 ticks: 93, nearer than the stop at 90.
    """
    still = both_sides(stop_first, long_at(), bar(100, 101, 94, 100), limits=LIMITS)
    assert still.exited == HELD
    gone = both_sides(stop_first, long_at(), bar(100, 101, 93, 100), limits=LIMITS)
    assert gone.exited == (1, 92, ExitReason.LIQUIDATION, -C - 9 * V - C)
    opened = both_sides(opening_print, long_at(), i32(88), limits=LIMITS)
    assert opened.exited == (1, 87, ExitReason.LIQUIDATION, -C - 14 * V - C)


def test_a_tie_of_stop_and_liquidation_liquidates():
    gone = played(stop_first, long_at(stop=93), bar(100, 101, 93, 100), limits=LIMITS)
    assert gone.exited[2] == ExitReason.LIQUIDATION
    nearer = played(stop_first, long_at(stop=94), bar(100, 101, 93, 100), limits=LIMITS)
    assert nearer.exited[1:3] == (93, ExitReason.STOP)


def test_the_favourable_extreme_raises_the_floor_before_the_adverse_one_is_tested():
    """High 121: mark -2.08 + 20 ticks = 247.92; floor 147.92; level 101 + floor((147.92 + 4.16) /
    12.5) = 113.
    """
    gone = played(stop_first, long_at(), bar(114, 121, 113, 118), limits=LIMITS)
    assert gone.high_water == 20 * V - C
    assert gone.exited[1:3] == (112, ExitReason.LIQUIDATION)
    held = played(stop_first, long_at(), bar(114, 121, 114, 118), limits=LIMITS)
    assert held.exited[2] == ExitReason.NONE


def test_a_level_that_the_mark_raised_over_the_open_fills_at_the_open():
    """The level is 113, as above, but the bar opened at 110: no price at 113 was traded after
    the high, so the fill is the open less a tick.
    """
    gone = both_sides(stop_first, long_at(), bar(110, 121, 108, 118), limits=LIMITS)
    assert gone.exited == (1, 109, ExitReason.LIQUIDATION, -C + 8 * V - C)
    assert int(gone.event.adverse) == 110


def test_a_target_and_a_breach_in_one_bar_is_a_breach():
    gone = played(stop_first, long_at(), bar(115, 130, 113, 130), limits=LIMITS)
    assert gone.exited[2] == ExitReason.LIQUIDATION
    # the favourable mark is capped at the target: 29 ticks
    assert gone.high_water == 29 * V - C


def test_close_marks_do_not_liquidate_inside_a_bar():
    held = played(stop_first, long_at(), bar(100, 121, 91, 100), limits=LIMITS, marked_inside=False)
    assert held.exited == (0, 0, 0, -C)
    assert held.high_water == 0


# ---- the nearer extreme first


@pytest.mark.parametrize(
    ("prices", "limits", "wanted", "mark"),
    [
        ((100, 129, 91, 100), {}, HELD, 28),
        ((100, 130, 90, 125), {}, STOPPED, -1),  # the low is nearer
        ((100, 130, 65, 70), {}, WON, 29),  # the high is nearer
        ((100, 130, 70, 100), {}, STOPPED, -1),  # as near: the adverse one
        # low 113 before high 121: the floor then comes from the open, 13 ticks up, and its level is
        # 106
        ((114, 121, 113, 118), LIMITS, HELD, 20),
        # ... but the close comes after the high, whose level is 113
        ((114, 121, 113, 113), LIMITS, LIQUIDATED, 20),
        # high first: its level 113 meets the low
        ((119, 121, 113, 118), LIMITS, LIQUIDATED, 20),
        # the target, then a fall of 17 ticks: out before it, no breach; the mark is capped at the
        # target
        ((128, 131, 113, 115), LIMITS, WON, 29),
    ],
)
def test_nearer_extreme(prices, limits, wanted, mark):
    result = both_sides(nearer_extreme, long_at(), bar(*prices), limits=limits)
    assert result.exited == wanted
    assert result.high_water == max(0, mark * V - C)


@pytest.mark.parametrize("order", [stop_first, nearer_extreme])
@pytest.mark.parametrize(
    ("drawdown", "wanted"),
    [
        (6 * V + 2 * C, (1, 94, ExitReason.LIQUIDATION, -C - 7 * V - C)),
        (6 * V + 2 * C + 1, (0, 0, 0, -C)),
    ],
)
def test_a_low_exactly_at_the_floor_leaves_one_mill_above_it_stays(drawdown, wanted, order):
    """At 95 equity net of both commissions is -(6 x 12.50 + 2 x 2.08)."""
    assert (
        played(order, long_at(), bar(100, 100, 95, 98), limits={"drawdown": drawdown}).exited
        == wanted
    )


# ---- the path of second bars


def path_of(inside, open_=100):
    """The path of a market of one bar."""
    made = path_arrays([open_], [inside])
    assert made is not None
    return made


def prices_of(*prices, known=True):
    """Seconds of one price each."""
    return Inside(tuple((p, p) for p in prices), known)


@pytest.mark.slow
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
        (prices_of(100, 129, 91, 100), {}, HELD, 28),
        # one second holds stop and target: the stop; the mark is capped at the target
        (Inside(((100, 100), (135, 90), (125, 125))), {}, STOPPED, 29),
        (Inside(((100, 100), (135, 91), (90, 90))), {}, WON, 29),
        # up to 121, whose level is 113; back to 113 or 114, which is no new low
        (prices_of(114, 110, 121, 113, 118), LIMITS, LIQUIDATED, 20),
        (prices_of(114, 110, 121, 114, 118), LIMITS, HELD, 20),
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
            prices_of(114, 121, 113, 130, 100),
            LIMITS,
            LIQUIDATED,
            20,
        ),  # 8 ticks, the target, then a deeper fall
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
def test_path(inside, limits, wanted, mark):
    """Marks in ticks above the entry at 101; the same upside down for a short at 99."""
    opened = inside.seconds[0][0]
    prices = (
        opened,
        max(s[0] for s in inside.seconds),
        min(s[1] for s in inside.seconds),
        inside.seconds[-1][0],
    )
    result = played(traded_path, long_at(), bar(*prices), path_of(inside, opened), 0, limits=limits)
    assert result.exited == wanted
    assert result.high_water == max(0, mark * V - C)
    path = path_of(mirrored([inside], 100)[0], 200 - opened)
    flipped = upside_down(bar(*prices))
    short = played(traded_path, short_at(), flipped, path, 0, limits=limits)
    assert short.exited == (-wanted[0], 200 - wanted[1] if wanted[0] else 0, *wanted[2:])
    assert short.high_water == max(0, mark * V - C)
    for name in ("favourable", "adverse"):
        assert int(getattr(result.event, name)) == 200 - int(getattr(short.event, name))


def test_a_fall_that_raised_no_mark_meets_the_old_level():
    """The mark stood at 15 ticks (level 108); 115 is 14 ticks up. A fall of 7 from there ends at
    the level.
    """
    mark = 15 * V - C  # level 101 + 7 = 108
    for low, wanted in ((109, HELD), (108, (1, 107, ExitReason.LIQUIDATION, -C + 6 * V - C))):
        path = path_of(prices_of(114, 115, low, 115), 114)
        result = played(
            traded_path,
            long_at(target=NO_LEVEL),
            bar(114, 115, low, 115),
            path,
            0,
            limits=LIMITS,
            high_water=mark,
        )
        assert result.exited == wanted


def test_a_cap_on_the_floor_holds_its_level():
    """A floor that stops rising at the start balance: 114 to 140 and back to 102 is a fall, and no
    breach.
    """
    limits = LIMITS | {"floor_cap": 0}  # level 101: a tick pays for two sides
    for low, wanted in ((102, HELD), (101, (1, 100, ExitReason.LIQUIDATION, -C - V - C))):
        path = path_of(prices_of(114, 140, low, 115), 114)
        result = played(
            traded_path,
            long_at(target=NO_LEVEL),
            bar(114, 140, low, 115),
            path,
            0,
            limits=limits,
        )
        assert result.exited == wanted


def test_close_marks_walk_without_floors():
    path = path_of(prices_of(114, 110, 121, 113, 118), 114)
    held = played(
        traded_path,
        long_at(),
        bar(114, 121, 110, 118),
        path,
        0,
        limits=LIMITS,
        marked_inside=False,
    )
    assert held.exited == HELD
    assert held.high_water == 0


def test_the_transition_reads_the_path_of_the_bar_it_plays():
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
