"""Orders at the open, brackets and trails, and whole bars through the public transition."""

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import transition
from jaxtrade.env.episode import start
from jaxtrade.env.execution import enter, ratchet, stop_distance, trail_distance
from jaxtrade.env.state import (
    KEEP_STOP,
    Account,
    ExitReason,
    Order,
    Position,
)
from jaxtrade.env.state import StopKind as Kind
from jaxtrade.types import Quotes
from tests.env import worlds
from tests.env.test_execution import (
    BUY,
    QUIET,
    C,
    V,
    bar_of,
    leg_of,
    long_at,
    params_for,
    short_at,
)
from tests.env.worlds import i32, ints, rules

# ---- orders at the open


def test_entry_fills_slipped_with_the_bracket_around_the_unslipped_open():
    order = Order(*map(i32, (1, 12, 36, KEEP_STOP, -1)))
    result = enter(leg_of(Position.flat()), order, bar_of(row=7), i32(100))
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
    short = enter(leg_of(Position.flat()), order.replace(quantity=i32(-1)), bar_of(), i32(100))
    assert [int(getattr(short.position, k)) for k in ("quantity", "entry", "stop", "target")] == [
        -1,
        99,
        112,
        64,
    ]


def test_entry_is_capped_refused_and_never_added_to():
    order = Order(*map(i32, (5, 12, 36, KEEP_STOP, -1)))
    capped = enter(leg_of(Position.flat()), order, bar_of(largest=2), i32(100))
    assert int(capped.position.quantity) == int(capped.event.entry_quantity) == 2
    refused = enter(leg_of(Position.flat()), order, bar_of(may_open=False), i32(100))
    assert int(refused.position.quantity) == int(refused.cash) == 0
    kept = enter(leg_of(long_at()), order, bar_of(), i32(100))
    assert int(kept.position.quantity) == 1
    assert int(kept.event.entry_quantity) == 0


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
def test_stop_and_trail_distances(tr_sum, stop, trail):
    """max(8, ceil(3 S / 28)) and max(1, ceil(S / 14)) ticks."""
    assert int(stop_distance(i32(tr_sum), params_for())) == stop
    assert int(trail_distance(i32(tr_sum), params_for())) == trail


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
def test_ratchet_tightens_only(position, close, stop, kind):
    on = position.replace(trailing=i32(1))
    result = ratchet(on, i32(close), i32(8))
    assert ints(result, "stop", "stop_kind") == [stop, kind]
    off = ratchet(position, i32(close), i32(8))
    assert worlds.leaves_differ(off, position) == []


# ---- one bar through the public transition


def run(
    rows,
    orders,
    config=None,
    **kwargs,
):
    """States and events after each order, from flat at the close of row 0."""
    params = params_for([QUIET, *rows, QUIET, QUIET], **kwargs)
    state = start(params, i32(0), i32(0), jnp.uint32(0), i32(0))
    step = jax.jit(lambda state, order: transition(config or EnvConfig(), state, order, params))
    out = []
    for order in orders:
        state, event = step(state, order)
        out.append((state, event))
    return out


SELL = BUY.replace(quantity=i32(-1))
CLOSE = BUY.replace(quantity=i32(0))


def test_a_stop_in_the_entry_bar():
    """Buy at 101; the same bar falls to 88 = 100 - 12: out at 87. Two sides: 14 ticks and 4.16
    lost.
    """
    ((state, event),) = run([(100, 102, 88, 95)], [BUY])
    assert ints(event, "entry_price", "exit_price", "exit_reason") == [
        101,
        87,
        ExitReason.STOP,
    ]
    assert int(state.account.equity) == int(state.account.balance) == -14 * V - 2 * C
    assert int(event.commission) == 2 * C


def test_a_moved_stop_is_tested_at_the_next_open():
    """Bar 2 opens through the stop moved at its eve: the fill is the open, not the stop."""
    moved = BUY.replace(move_stop=i32(103))
    (_, _), (state, event) = run([(100, 110, 99, 108), (101, 101, 101, 101)], [BUY, moved])
    assert ints(event, "exit_price", "exit_reason") == [100, ExitReason.BREAKEVEN]
    assert int(state.account.balance) == -V - 2 * C


def test_the_trail_is_live_from_the_bar_after_the_ratchet():
    """Close 120 ratchets the stop to 112 after bar 1. Bar 1 itself traded at 99, bar 2 opens at 115
    and touches 112.
    """
    on = BUY.replace(trail=i32(1))
    rows = [(100, 110, 99, 108), (108, 121, 99, 120), (115, 116, 112, 113)]
    (_, _), (second, event), (_, last) = run(rows, [BUY, on, BUY])
    assert int(event.exit_reason) == ExitReason.NONE
    assert ints(second.position, "stop", "stop_kind") == [112, Kind.TRAIL]
    assert ints(last, "exit_price", "exit_reason") == [111, ExitReason.TRAIL]


def test_a_flip_closes_and_opens_in_one_bar():
    (_, _), (state, event) = run([(100, 102, 98, 100), (105, 106, 104, 105)], [BUY, SELL])
    assert ints(event, "order_exit_quantity", "order_exit_price") == [1, 104]
    assert ints(event, "entry_quantity", "entry_price") == [-1, 104]
    assert int(event.commission) == 2 * C
    assert int(state.account.balance) == 3 * V - 3 * C
    assert int(state.account.equity) == 3 * V - 3 * C - V  # marked at 105
    assert ints(state.position, "stop", "target") == [117, 69]


def test_order_exit_precedes_a_gap_through_the_stop():
    (_, _), (_, event) = run([(100, 102, 98, 100), (80, 81, 79, 80)], [BUY, CLOSE])
    assert ints(event, "order_exit_price", "exit_reason") == [79, ExitReason.NONE]


def test_the_open_is_marked_before_the_order_exit():
    """High-water mark: the open of the exit bar counts, its later high does not."""
    (_, _), (state, _) = run([(100, 102, 98, 100), (111, 140, 110, 120)], [BUY, CLOSE])
    assert int(state.account.high_water) == 10 * V - C


def test_fill_at_the_close_brackets_around_it_and_still_meets_the_open():
    """Optimistic preset: entry at close[t] = 100, slipped to 101; the next open at 87 is through
    the stop at 88.
    """
    config = EnvConfig(fill="close", mark="close")
    ((state, event),) = run([(87, 90, 86, 89)], [BUY], config)
    assert ints(event, "entry_price", "exit_price", "exit_reason") == [
        101,
        86,
        ExitReason.STOP,
    ]
    assert int(state.account.high_water) == 0


def test_an_order_exit_at_the_close_takes_the_close_before_it():
    """Decided at the close of 104: out there, less a tick, whatever the next bar opens at."""
    config = EnvConfig(fill="close", mark="close")
    (_, _), (_, event) = run([(101, 105, 100, 104), (96, 97, 95, 96)], [BUY, CLOSE], config)
    assert ints(event, "order_exit_price", "exit_reason") == [103, ExitReason.NONE]


@pytest.mark.parametrize(("drawdown", "held"), [(7 * V + 2 * C, 0), (7 * V + 2 * C + 1, 1)])
def test_a_close_mark_exactly_at_the_floor_leaves_one_mill_above_it_stays(drawdown, held):
    """Bought at 101: at a close of 94 equity net of both commissions is -(7 x 12.50 + 2 x 2.08). Out
    at 93.
    """
    config, limits = EnvConfig(mark="close"), rules(drawdown=drawdown)
    ((state, event),) = run([(100, 102, 93, 94)], [BUY], config, account=limits)
    assert int(state.position.quantity) == held
    assert bool(event.breach) == (not held)
    if not held:
        assert ints(event, "exit_price", "exit_reason") == [93, ExitReason.LIQUIDATION]
        assert int(state.account.equity) == -8 * V - 2 * C


def test_the_flat_bar_leaves_at_its_close_after_its_stop():
    rows = [(100, 102, 98, 100), (100, 101, 99, 100)]
    results = run(rows, [BUY, BUY, BUY, BUY])
    assert int(results[-1][0].row) == 4
    event = results[-1][1]
    assert ints(event, "exit_price", "exit_reason") == [99, ExitReason.FLAT]
    assert int(results[-1][0].position.quantity) == 0


# ---- two sides


@pytest.mark.parametrize(("held", "wanted", "price"), [(long_at(), -2, 98), (short_at(), 2, 104)])
@pytest.mark.parametrize(("fill", "mark"), [("next_open", "extreme"), ("close", "close")])
def test_a_flip_sells_twice_at_the_bid_or_buys_twice_at_the_ask(held, wanted, price, fill, mark):
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
    assert ints(event, "order_exit_price", "entry_price") == [price, price]
    assert int(event.entry_quantity) == wanted
    # the new position is marked on the side it would leave at: four ticks of spread and one of
    # slippage, twice
    assert int(moved.account.equity - moved.account.balance) == -2 * 5 * V
