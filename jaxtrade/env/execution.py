"""Fills inside one bar: order at the open, opening print, intrabar stop and target, forced exit.

Conventions: semantics page of the docs. Every function works on one environment; batch with vmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.money import ceil_div
from jaxtrade.env.state import (
    KEEP_STOP,
    NO_LEVEL,
    Account,
    EnvParams,
    Event,
    ExitReason,
    Order,
    Position,
    StopKind,
)
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, IntrabarPath, MarketData


class Bar(NamedTuple):
    """One bar in ticks, int32[]."""

    open: Array
    high: Array
    low: Array
    close: Array


class Quote(NamedTuple):
    """One bar of a market: the bid, or the only, side, and the ask side where there are two."""

    bid: Bar
    ask: Bar | None

    def leaving(self, side: Array) -> Bar:
        """Prices at which a position of `side` (int32[] sign) would leave, and is marked: the ask for a short."""
        return self.bid if self.ask is None else select(side < 0, self.ask, self.bid)

    def entering(self, side: Array) -> Bar:
        """Prices at which a position of `side` is opened: the ask for a long."""
        return self.leaving(-side)


class Fall(NamedTuple):
    """Part of a bar in which the price fell from a running high: running high before and with it, and its end, int32[]
    ticks from the open towards the position's side."""

    before: Array
    high: Array
    end: Array


class Book(NamedTuple):
    """Position and account while a bar is worked through, and what has happened in it."""

    position: Position
    account: Account
    event: Event


TreeT = TypeVar("TreeT")


def select(when: Array, yes: TreeT, no: TreeT) -> TreeT:
    """Leaf-wise where, for a scalar condition."""
    return jax.tree.map(lambda a, b: jnp.where(when, a, b), yes, no)


def quote_at(market: MarketData, row: Array) -> Quote:
    """Prices of market row `row` (int32[])."""
    ask = market.ask
    return Quote(Bar(market.open[row], market.high[row], market.low[row], market.close[row]),
                 None if ask is None else Bar(ask.open[row], ask.high[row], ask.low[row], ask.close[row]))


def empty_event(price: Array) -> Event:
    """Nothing happened yet; `price` (ticks) stands for both marks."""
    zero = jnp.int32(0)
    return Event(zero, zero, zero, zero, zero, zero, zero, zero, price, price, zero, jnp.bool_(False))


def stop_distance(tr_sum: Array, params: EnvParams) -> Array:
    """max(min_stop, ceil(stop_atr * S / 14000)) ticks, where S is the sum of 14 true ranges."""
    return jnp.maximum(params.contract.min_stop, ceil_div(params.brackets.stop_atr * tr_sum, 14000))


def trail_distance(tr_sum: Array, params: EnvParams) -> Array:
    """max(1, ceil(trail_atr * S / 14000)) ticks."""
    return jnp.maximum(1, ceil_div(params.brackets.trail_atr * tr_sum, 14000))


def _settle(book: Book, when: Array, price: Array, params: EnvParams) -> tuple[Position, Account, Array]:
    """Close the whole position at `price` where `when`; -> (position, account, commission paid)."""
    position, account = book.position, book.account
    commission = jnp.where(when, jnp.abs(position.quantity) * params.contract.commission, 0)
    profit = jnp.where(when, rules.unrealised(position, price, params.contract), 0)
    closed = select(when, Position.flat(), position)
    return closed, account.replace(balance=account.balance + profit - commission), commission


def _exit(book: Book, when: Array, price: Array, reason: Array, params: EnvParams) -> Book:
    """Leave by stop, target, liquidation or force where `when` (and in position)."""
    when = when & (book.position.quantity != 0)
    position, account, commission = _settle(book, when, price, params)
    event = book.event.replace(
        exit_quantity=jnp.where(when, book.position.quantity, book.event.exit_quantity),
        exit_price=jnp.where(when, price, book.event.exit_price),
        exit_reason=jnp.where(when, reason, book.event.exit_reason),
        commission=book.event.commission + commission,
    )
    return Book(position, account, event)


def exit_by_order(book: Book, order: Order, price: Array, params: EnvParams) -> Book:
    """Close at `price` (unslipped) where the order no longer wants this side."""
    quantity = book.position.quantity
    side = jnp.sign(quantity)
    when = (quantity != 0) & (jnp.sign(order.quantity) != side)
    fill = price - side * params.contract.slippage
    position, account, commission = _settle(book, when, fill, params)
    event = book.event.replace(
        order_exit_quantity=jnp.where(when, quantity, 0),
        order_exit_price=jnp.where(when, fill, 0),
        commission=book.event.commission + commission,
    )
    return Book(position, account, event)


def enter(book: Book, order: Order, allowed: Array, price: Array, row: Array, params: EnvParams) -> Book:
    """Open where flat and allowed: slipped fill, bracket around the unslipped `price`, commission at entry."""
    side = jnp.sign(order.quantity)
    size = jnp.minimum(jnp.abs(order.quantity), params.account.max_contracts)
    when = allowed & (book.position.quantity == 0) & (side != 0)
    fill = price + side * params.contract.slippage
    stop = jnp.where(order.stop_ticks > 0, price - side * order.stop_ticks, -side * NO_LEVEL)
    target = jnp.where(order.target_ticks > 0, price + side * order.target_ticks, side * NO_LEVEL)
    trailing = (order.trail == 1).astype(jnp.int32)
    opened = Position(side * size, fill, stop, target, jnp.int32(StopKind.INITIAL), trailing, row)
    position = select(when, opened, book.position)
    commission = jnp.where(when, size * params.contract.commission, 0)
    event = book.event.replace(
        entry_quantity=jnp.where(when, side * size, 0),
        entry_price=jnp.where(when, fill, 0),
        commission=book.event.commission + commission,
    )
    return Book(position, book.account.replace(balance=book.account.balance - commission), event)


def amend(position: Position, order: Order) -> Position:
    """Move the stop and switch the trail of the position carried into the bar."""
    moved = (order.move_stop != KEEP_STOP) & (position.quantity != 0)
    switched = (order.trail >= 0) & (position.quantity != 0)
    return position.replace(
        stop=jnp.where(moved, order.move_stop, position.stop),
        stop_kind=jnp.where(moved, StopKind.BREAKEVEN, position.stop_kind),
        trailing=jnp.where(switched, order.trail, position.trailing),
    )


def _stop_reason(position: Position) -> Array:
    return jnp.int32(ExitReason.STOP) + position.stop_kind


def _nearest_stop(book: Book, liquidates: bool, params: EnvParams) -> tuple[Array, Array]:
    """The stop or liquidation level nearer the market, and the exit reason it gives (a tie liquidates)."""
    position = book.position
    if not liquidates:
        return position.stop, _stop_reason(position)
    side = jnp.sign(position.quantity)
    level = rules.liquidation_level(position, book.account, params)
    nearer = side * (level - position.stop) >= 0
    price = jnp.where(nearer, level, position.stop)
    return price, jnp.where(nearer, jnp.int32(ExitReason.LIQUIDATION), _stop_reason(position))


def opening_print(book: Book, price: Array, liquidates: bool, params: EnvParams) -> Book:
    """A bar that opens through the stop fills at the open, slipped; at or beyond the target, at the open unslipped."""
    side = jnp.sign(book.position.quantity)
    level, reason = _nearest_stop(book, liquidates, params)
    stopped = side * (price - level) <= 0
    book = _exit(book, stopped, price - side * params.contract.slippage, reason, params)
    hit = side * (price - book.position.target) >= 0
    return _exit(book, hit, price, jnp.int32(ExitReason.TARGET), params)


def stop_first(book: Book, bar: Bar, liquidates: bool, params: EnvParams) -> Book:
    """Intrabar order `stop_first`: high-water mark at the favourable extreme, then the stop, then the target."""
    position = book.position
    side = jnp.sign(position.quantity)
    best = jnp.where(side > 0, jnp.minimum(bar.high, position.target), jnp.maximum(bar.low, position.target))
    worst = jnp.where(side > 0, bar.low, bar.high)
    if liquidates:
        book = book._replace(account=rules.raise_high_water(position, book.account, best, params))
    level, reason = _nearest_stop(book, liquidates, params)
    held = position.quantity != 0
    stopped = held & (side * (worst - level) <= 0)
    trigger = jnp.where(side > 0, jnp.minimum(bar.open, level), jnp.maximum(bar.open, level))
    event = book.event.replace(
        favourable=jnp.where(held, best, book.event.favourable),
        adverse=jnp.where(held, jnp.where(stopped, trigger, worst), book.event.adverse),
    )
    book = _exit(book._replace(event=event), stopped, trigger - side * params.contract.slippage, reason, params)
    hit = side * (best - book.position.target) >= 0
    return _exit(book, hit, position.target, jnp.int32(ExitReason.TARGET), params)


def walk(book: Book, bar: Bar, falls: Sequence[Fall], whole: Array, liquidates: bool, params: EnvParams) -> Book:
    """Intrabar order by falls, in the order they were traded.

    A fall raises the high-water mark to its running high, capped at the target, and then meets the stop or the
    liquidation level of that mark, unless the target was reached before it. The first to do so decides: as running
    highs only rise, the one with the lowest. No later price counts.
    whole: bool[] the bar is told as one fall; a level that its high has raised above the open fills at the open.
    """
    position, account = book.position, book.account
    side, held = jnp.sign(position.quantity), position.quantity != 0
    target, stop = side * (position.target - bar.open), side * (position.stop - bar.open)
    best = jnp.where(side > 0, bar.high - bar.open, bar.open - bar.low)
    reached, worst, stopped = jnp.minimum(best, target), jnp.int32(0), jnp.bool_(False)
    for before, high, end in falls:  # one after the other: with an axis of falls no two of these lines share a loop
        turn = jnp.minimum(high, target)
        live = before < target
        meets = end <= stop
        if liquidates:
            meets |= _breaches(position, account, bar.open + side * turn, bar.open + side * end, params)
        ends = live & meets
        reached = jnp.where(ends, jnp.minimum(reached, turn), reached)
        worst = jnp.where(live, jnp.minimum(worst, end), worst)
        stopped |= ends
    stopped &= held
    reached, worst = bar.open + side * reached, bar.open + side * worst
    if liquidates:
        book = book._replace(account=rules.raise_high_water(position, account, reached, params))
    level, reason = _nearest_stop(book, liquidates, params)
    trigger = jnp.where(whole, side * jnp.minimum(side * bar.open, side * level), level)
    event = book.event.replace(
        favourable=jnp.where(held, reached, book.event.favourable),
        adverse=jnp.where(held, jnp.where(stopped, trigger, worst), book.event.adverse),
    )
    fill = jnp.where(stopped, trigger - side * params.contract.slippage, position.target)
    reason = jnp.where(stopped, reason, jnp.int32(ExitReason.TARGET))
    return _exit(book._replace(event=event), stopped | (best >= target), fill, reason, params)


def _breaches(position: Position, account: Account, high: Array, low: Array, params: EnvParams) -> Array:
    """bool[]: once marked at `high`, equity net of exit commission is at or below a floor at `low`. int32[] ticks."""
    marked = rules.raise_high_water(position, account, high, params)
    floor = rules.highest_floor(marked, params.account)
    exit_cost = jnp.abs(position.quantity) * params.contract.commission
    net = account.balance + rules.unrealised(position, low, params.contract) - exit_cost
    return (floor != rules.NO_FLOOR) & (net <= floor)


def nearer_extreme(book: Book, bar: Bar, liquidates: bool, params: EnvParams) -> Book:
    """Intrabar order `nearer_extreme`: the extreme nearer the open came first, at a tie the adverse one; then the
    other, then the close."""
    side = jnp.sign(book.position.quantity)
    up, down = bar.high - bar.open, bar.open - bar.low
    best, worst = jnp.where(side > 0, up, down), -jnp.where(side > 0, down, up)
    first = jnp.where(best < -worst, best, 0)
    falls = Fall(first, first, worst), Fall(best, best, side * (bar.close - bar.open))
    return walk(book, bar, falls, jnp.bool_(False), liquidates, params)


def traded_path(book: Book, bar: Bar, path: IntrabarPath, row: Array, liquidates: bool, params: EnvParams) -> Book:
    """Intrabar order `path`: what second bars tell of bar `row`, `stop_first` where they do not: the bar as one fall
    from its favourable to its adverse extreme."""
    short = (book.position.quantity < 0).astype(jnp.int32)
    up, down = bar.high - bar.open, bar.open - bar.low
    ambiguous = path.ambiguous[row, short]
    count = path.falls.shape[-1]
    told = jax.lax.dynamic_slice_in_dim(path.falls.reshape(-1), (2 * row + short) * 3 * count, 3 * count)
    one = Fall(jnp.int32(0), jnp.where(short, down, up), -jnp.where(short, up, down))
    falls = [select(ambiguous, one, Fall(*told[k::count])) for k in range(count)]
    return walk(book, bar, falls, ambiguous, liquidates, params)


def resolve(book: Book, bar: Bar, row: Array, mode: str, liquidates: bool, params: EnvParams) -> Book:
    """Stop, target and liquidation inside the bar `row`, by the intrabar order `mode`."""
    if mode == "stop_first":
        return stop_first(book, bar, liquidates, params)
    if mode == "nearer_extreme":
        return nearer_extreme(book, bar, liquidates, params)
    path = params.market.path
    if path is None:
        raise ConfigError("env.intrabar=path: this market has no second bars; give --seconds FILE")
    return traded_path(book, bar, path, row, liquidates, params)


def force_exit(book: Book, when: Array, price: Array, reason: Array, params: EnvParams) -> Book:
    """Leave at `price` less slippage: the flat bar, the end of the data, a breach found at a close mark."""
    side = jnp.sign(book.position.quantity)
    return _exit(book, when, price - side * params.contract.slippage, reason, params)


def ratchet(position: Position, close: Array, tr_sum: Array, params: EnvParams) -> Position:
    """Tighten a trailing stop to close -/+ trail distance; never loosened, live from the next bar."""
    side = jnp.sign(position.quantity)
    level = close - side * trail_distance(tr_sum, params)
    tighter = (position.trailing == 1) & (side * (level - position.stop) > 0)
    return position.replace(
        stop=jnp.where(tighter, level, position.stop),
        stop_kind=jnp.where(tighter, StopKind.TRAIL, position.stop_kind),
    )
