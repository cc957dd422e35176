"""Fills of one leg in one bar, and the settlement of the bar in the account.

The fills: order at the open, opening print, stop and target inside the bar, forced exit.

A leg is the position in one symbol. These functions neither read nor write the account, so several
legs can be filled by `jax.vmap(fill_leg)`. `settle` enters their results in the account.
Conventions: docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env import rules
from jaxtrade.env.rules import ceil_div, compute_unrealised
from jaxtrade.env.state import (
    KEEP_STOP,
    NO_LEVEL,
    Account,
    AccountParams,
    ContractParams,
    EnvParams,
    Event,
    ExitReason,
    Marks,
    Order,
    Position,
    StopKind,
)
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, IntrabarPath, JointMarket, MarketData

# --- A leg, and the prices of one bar for it

TreeT = TypeVar("TreeT")


def select(when: Array, yes: TreeT, no: TreeT) -> TreeT:
    """Apply `jnp.where` to each leaf of two trees.

    Args:
        when: bool[].
    """
    return jax.tree.map(lambda a, b: jnp.where(when, a, b), yes, no)


class Bar(NamedTuple):
    """One bar in ticks, int32[]."""

    open: Array
    high: Array
    low: Array
    close: Array


class Quote(NamedTuple):
    """One bar of a market.

    bid: the bid side, or the only side.
    ask: the ask side of two-sided bars, else None.
    """

    bid: Bar
    ask: Bar | None

    def leaving(self, side: Array) -> Bar:
        """Return prices at which a position of `side` (int32[] sign) is closed and marked.

        For a short it is the ask.
        """
        return self.bid if self.ask is None else select(side < 0, self.ask, self.bid)

    def entering(self, side: Array) -> Bar:
        """Return prices at which a position of `side` is opened: the ask for a long."""
        return self.leaving(-side)


def quote_at(market: MarketData | JointMarket, row: Array) -> Quote:
    """Return prices of market row `row` (int32[]); of joint symbols int32[S] each."""
    ask = market.ask
    return Quote(
        Bar(market.open[row], market.high[row], market.low[row], market.close[row]),
        None if ask is None else Bar(ask.open[row], ask.high[row], ask.low[row], ask.close[row]),
    )


class LegBar(NamedTuple):
    """The data of one bar for one leg; int32[] and bool[].

    row: market row.
    quote: prices of the bar.
    decided: prices of the decision bar if orders fill at its close (`fill=close`). None (static) if
        they fill at the open of `quote`.
    may_open: True if an entry is permitted.
    largest: maximum contracts of an entry.
    forced: `ExitReason` of a forced exit at the close, NONE if the leg may stay.
    trail: ticks between the close and a trailing stop.
    path: second-bar paths of all rows. None (static) without second bars.
    impact: ticks by which orders at the open fill higher than they would alone. None (static)
        without a shared market.
    """

    row: Array
    quote: Quote
    decided: Quote | None
    may_open: Array
    largest: Array
    forced: Array
    trail: Array
    path: IntrabarPath | None
    impact: Array | None = None

    def add_impact(self, price: Array) -> Array:
        """Return a fill price at the open, moved by the impact of all orders (int32[] ticks)."""
        return price if self.impact is None else price + self.impact


class LegInBar(NamedTuple):
    """A leg inside a bar, with the results of the bar so far.

    cash: int32[] mills, realised profit less commission.
    high: int32[] mills, highest marked `worth`. With `mark=close` there is none (static) until the
        bar closes.
    contract: that of the bar.
    stop_level: the floors that are tested inside the bar; None (static) for none.
    """

    position: Position
    cash: Array
    high: Array | None
    event: Event
    contract: ContractParams
    stop_level: StopLevel | None = None

    def worth(self, price: Array) -> Array:
        """Return cash plus open profit at `price` (ticks), without exit costs (int32[] mills)."""
        return self.cash + compute_unrealised(self.position, price, self.contract)

    def mark(self, price: Array) -> LegInBar:
        """Mark the leg at `price` inside the bar. With `mark=close` the leg is unchanged."""
        return (
            self
            if self.high is None
            else self._replace(high=jnp.maximum(self.high, self.worth(price)))
        )


class LegFill(NamedTuple):
    """Result of a bar for one leg.

    cash: int32[] mills, realised profit less commission.

    `floor` and `breach` of the event belong to the account, and are not set yet.
    """

    position: Position
    cash: Array
    marks: Marks
    event: Event


def empty_event(price: Array) -> Event:
    """Return an event without fills.

    Args:
        price: ticks, the initial value of both marks.
    """
    zero = jnp.int32(0)
    return Event(*[zero] * 8, favourable=price, adverse=price, floor=zero, breach=jnp.bool_(False))


class FallFromHigh(NamedTuple):
    """Part of a bar in which the price falls from a running high.

    All are int32[] ticks from the open, positive on the winning side of the position.

    before: running high before this part.
    high: running high including this part.
    end: the lowest price of the fall, at its end.
    """

    before: Array
    high: Array
    end: Array


def stop_distance(tr_sum: Array, params: EnvParams) -> Array:
    """Return max(min_stop, ceil(stop_atr * S / 14000)) ticks; S is the sum of 14 true ranges."""
    return jnp.maximum(params.contract.min_stop, ceil_div(params.brackets.stop_atr * tr_sum, 14000))


def trail_distance(tr_sum: Array, params: EnvParams) -> Array:
    """Return max(1, ceil(trail_atr * S / 14000)) ticks."""
    return jnp.maximum(1, ceil_div(params.brackets.trail_atr * tr_sum, 14000))


def _close(leg: LegInBar, when: Array, price: Array) -> LegInBar:
    """Close the whole position at `price` if `when`.

    It adds the commission to the event, but not the fill itself.
    """
    position = leg.position
    commission = jnp.where(when, jnp.abs(position.quantity) * leg.contract.commission, 0)
    profit = jnp.where(when, compute_unrealised(position, price, leg.contract), 0)
    return leg._replace(
        position=select(when, Position.flat(), position),
        cash=leg.cash + profit - commission,
        event=leg.event.replace(commission=leg.event.commission + commission),
    )


def _exit(leg: LegInBar, when: Array, price: Array, reason: Array) -> LegInBar:
    """Exit by stop, target, liquidation or force, if `when` and if there is a position."""
    quantity = leg.position.quantity
    when = when & (quantity != 0)
    leg = _close(leg, when, price)
    return leg._replace(
        event=leg.event.replace(
            exit_quantity=jnp.where(when, quantity, leg.event.exit_quantity),
            exit_price=jnp.where(when, price, leg.event.exit_price),
            exit_reason=jnp.where(when, reason, leg.event.exit_reason),
        )
    )


def exit_by_order(leg: LegInBar, order: Order, price: Array) -> LegInBar:
    """Close at `price` (less slippage) if the order does not want the current side any more."""
    quantity = leg.position.quantity
    side = jnp.sign(quantity)
    when = (quantity != 0) & (jnp.sign(order.quantity) != side)
    fill = price - side * leg.contract.slippage
    leg = _close(leg, when, fill)
    return leg._replace(
        event=leg.event.replace(
            order_exit_quantity=jnp.where(when, quantity, 0),
            order_exit_price=jnp.where(when, fill, 0),
        )
    )


def enter(leg: LegInBar, order: Order, bar: LegBar, price: Array) -> LegInBar:
    """Open a position if the leg is flat and an entry is permitted.

    The fill includes slippage and impact; the bracket is around `price` without them. The entry
    pays its commission here.
    """
    side = jnp.sign(order.quantity)
    size = jnp.minimum(jnp.abs(order.quantity), bar.largest)
    when = bar.may_open & (leg.position.quantity == 0) & (side != 0)
    fill = bar.add_impact(price) + side * leg.contract.slippage
    stop = jnp.where(order.stop_ticks > 0, price - side * order.stop_ticks, -side * NO_LEVEL)
    target = jnp.where(order.target_ticks > 0, price + side * order.target_ticks, side * NO_LEVEL)
    trailing = (order.trail == 1).astype(jnp.int32)
    opened = Position(
        side * size, fill, stop, target, jnp.int32(StopKind.INITIAL), trailing, bar.row
    )
    commission = jnp.where(when, size * leg.contract.commission, 0)
    event = leg.event.replace(
        entry_quantity=jnp.where(when, side * size, 0),
        entry_price=jnp.where(when, fill, 0),
        commission=leg.event.commission + commission,
    )
    return leg._replace(
        position=select(when, opened, leg.position), cash=leg.cash - commission, event=event
    )


def amend(position: Position, order: Order) -> Position:
    """Move the stop and switch the trail of the position that was carried into the bar."""
    moved = (order.move_stop != KEEP_STOP) & (position.quantity != 0)
    switched = (order.trail >= 0) & (position.quantity != 0)
    return position.replace(
        stop=jnp.where(moved, order.move_stop, position.stop),
        stop_kind=jnp.where(moved, StopKind.BREAKEVEN, position.stop_kind),
        trailing=jnp.where(switched, order.trail, position.trailing),
    )


def _stop_reason(position: Position) -> Array:
    return jnp.int32(ExitReason.STOP) + position.stop_kind


def _nearest_stop(leg: LegInBar) -> tuple[Array, Array]:
    """Return (price, exit reason) of the stop or the liquidation level.

    The one nearer the market counts. A tie liquidates.
    """
    position = leg.position
    if leg.stop_level is None:
        return position.stop, _stop_reason(position)
    side = jnp.sign(position.quantity)
    level = leg.stop_level.price(leg)
    nearer = side * (level - position.stop) >= 0
    price = jnp.where(nearer, level, position.stop)
    return price, jnp.where(nearer, jnp.int32(ExitReason.LIQUIDATION), _stop_reason(position))


def opening_print(leg: LegInBar, price: Array) -> LegInBar:
    """Apply exits at the open of the bar.

    A bar that opens at or beyond the stop fills at the open less slippage. A bar that opens at or
    beyond the target fills at the open without slippage.
    """
    side = jnp.sign(leg.position.quantity)
    level, reason = _nearest_stop(leg)
    stopped = side * (price - level) <= 0
    leg = _exit(leg, stopped, price - side * leg.contract.slippage, reason)
    hit = side * (price - leg.position.target) >= 0
    return _exit(leg, hit, price, jnp.int32(ExitReason.TARGET))


def stop_first(leg: LegInBar, bar: Bar) -> LegInBar:
    """Apply intrabar order `stop_first`: mark at the favourable extreme, then stop, then target."""
    position = leg.position
    side = jnp.sign(position.quantity)
    best = jnp.where(
        side > 0, jnp.minimum(bar.high, position.target), jnp.maximum(bar.low, position.target)
    )
    worst = jnp.where(side > 0, bar.low, bar.high)
    leg = leg.mark(best)
    level, reason = _nearest_stop(leg)
    held = position.quantity != 0
    stopped = held & (side * (worst - level) <= 0)
    # A gap through the stop has left in `opening_print`. Here the open is worse than the level only
    # where the mark above has just raised the liquidation level over it.
    trigger = jnp.where(side > 0, jnp.minimum(bar.open, level), jnp.maximum(bar.open, level))
    event = leg.event.replace(
        favourable=jnp.where(held, best, leg.event.favourable),
        adverse=jnp.where(held, jnp.where(stopped, trigger, worst), leg.event.adverse),
    )
    leg = _exit(leg._replace(event=event), stopped, trigger - side * leg.contract.slippage, reason)
    hit = side * (best - leg.position.target) >= 0
    return _exit(leg, hit, position.target, jnp.int32(ExitReason.TARGET))


def follow_path(
    leg: LegInBar,
    bar: Bar,
    falls: Sequence[FallFromHigh],
    whole: Array,
) -> LegInBar:
    """Apply intrabar order by falls, in the order in which they were traded.

    Each fall first marks the leg at its running high, but at most at the target. It then tests the
    stop, and the liquidation level that follows from this mark, unless the target was reached
    before the fall. The first fall that reaches one of them decides, and no later price counts.
    Running highs only rise, so the first such fall is the one with the lowest running high.

    Args:
        whole: bool[], True if the only fall goes from extreme to extreme of the bar. Its high may
            raise the liquidation level above the open; the fill is then at the open.
    """
    position = leg.position
    side, held = jnp.sign(position.quantity), position.quantity != 0
    target, stop = side * (position.target - bar.open), side * (position.stop - bar.open)
    best = jnp.where(side > 0, bar.high - bar.open, bar.open - bar.low)
    reached, worst, stopped = jnp.minimum(best, target), jnp.int32(0), jnp.bool_(False)
    for (
        before,
        high,
        end,
    ) in falls:  # a Python loop, because XLA fuses these lines only without an axis of falls
        turn = jnp.minimum(high, target)
        live = before < target
        meets = end <= stop
        if leg.stop_level is not None:
            meets |= leg.stop_level.reached(leg.mark(bar.open + side * turn), bar.open + side * end)
        ends = live & meets
        reached = jnp.where(ends, jnp.minimum(reached, turn), reached)
        worst = jnp.where(live, jnp.minimum(worst, end), worst)
        stopped |= ends
    stopped &= held
    reached, worst = bar.open + side * reached, bar.open + side * worst
    leg = leg.mark(reached)
    level, reason = _nearest_stop(leg)
    trigger = jnp.where(whole, side * jnp.minimum(side * bar.open, side * level), level)
    event = leg.event.replace(
        favourable=jnp.where(held, reached, leg.event.favourable),
        adverse=jnp.where(held, jnp.where(stopped, trigger, worst), leg.event.adverse),
    )
    fill = jnp.where(stopped, trigger - side * leg.contract.slippage, position.target)
    reason = jnp.where(stopped, reason, jnp.int32(ExitReason.TARGET))
    return _exit(leg._replace(event=event), stopped | (best >= target), fill, reason)


def nearer_extreme(leg: LegInBar, bar: Bar) -> LegInBar:
    """Apply intrabar order `nearer_extreme`: open, nearer extreme, other extreme, close.

    The nearer extreme is the one nearer to the open.

    If both extremes are equally near, the adverse one comes first.
    """
    side = jnp.sign(leg.position.quantity)
    up, down = bar.high - bar.open, bar.open - bar.low
    best, worst = jnp.where(side > 0, up, down), -jnp.where(side > 0, down, up)
    first = jnp.where(best < -worst, best, 0)
    falls = (
        FallFromHigh(first, first, worst),
        FallFromHigh(best, best, side * (bar.close - bar.open)),
    )
    return follow_path(leg, bar, falls, jnp.bool_(False))


def traded_path(
    leg: LegInBar,
    bar: Bar,
    path: IntrabarPath,
    row: Array,
) -> LegInBar:
    """Apply intrabar order `path`: the falls of bar `row`, as known from second bars.

    An ambiguous bar counts as one fall from its favourable to its adverse extreme. This
    equals `stop_first`.
    """
    short = (leg.position.quantity < 0).astype(jnp.int32)
    up, down = bar.high - bar.open, bar.open - bar.low
    ambiguous = path.ambiguous[row, short]
    count = path.falls.shape[-1]
    known = jax.lax.dynamic_slice_in_dim(
        path.falls.reshape(-1), (2 * row + short) * 3 * count, 3 * count
    )
    one = FallFromHigh(jnp.int32(0), jnp.where(short, down, up), -jnp.where(short, up, down))
    falls = [select(ambiguous, one, FallFromHigh(*known[k::count])) for k in range(count)]
    return follow_path(leg, bar, falls, ambiguous)


def resolve(
    leg: LegInBar,
    prices: Bar,
    bar: LegBar,
    intrabar: str,
) -> LegInBar:
    """Apply stop, target and liquidation inside the bar, by the intrabar order `intrabar`.

    Raises ConfigError if the order is `path` and the market has no second bars.
    """
    if intrabar == "stop_first":
        return stop_first(leg, prices)
    if intrabar == "nearer_extreme":
        return nearer_extreme(leg, prices)
    if bar.path is None:
        raise ConfigError(
            "env.intrabar=path: this market has no second bars; set data.seconds (--seconds FILE)"
        )
    return traded_path(leg, prices, bar.path, bar.row)


def force_exit(leg: LegInBar, when: Array, price: Array, reason: Array) -> LegInBar:
    """Exit at `price` less slippage.

    This happens at the flat bar, at the end of the data, or on a breach at a close mark.
    """
    side = jnp.sign(leg.position.quantity)
    return _exit(leg, when, price - side * leg.contract.slippage, reason)


def close_mark(leg: LegInBar, close: Array) -> LegInBar:
    """Apply the mark of `mark=close`.

    The close is the only mark of the bar, and the only price that is tested for a floor.
    """
    leg = leg._replace(high=leg.worth(close))
    if leg.stop_level is None:
        return leg
    breached = leg.stop_level.reached(leg, close)
    return force_exit(leg, breached, close, jnp.int32(ExitReason.LIQUIDATION))


def ratchet(position: Position, close: Array, distance: Array) -> Position:
    """Tighten a trailing stop to close -/+ distance (ticks).

    It never loosens, and works from the next bar on.
    """
    side = jnp.sign(position.quantity)
    level = close - side * distance
    tighter = (position.trailing == 1) & (side * (level - position.stop) > 0)
    return position.replace(
        stop=jnp.where(tighter, level, position.stop),
        stop_kind=jnp.where(tighter, StopKind.TRAIL, position.stop_kind),
    )


def fill_leg(
    config: EnvConfig,
    position: Position,
    order: Order,
    bar: LegBar,
    contract: ContractParams,
    stop_level: StopLevel | None = None,
) -> LegFill:
    """Fill one leg in one bar.

    These follow each other: order exit, amended stop, entry, opening print, inside of the bar,
    forced exit, trail.

    With two-sided bars, a leg is marked and closed on one side of the market (a long at the bid)
    and opened on the other.

    Args:
        config: static; only `fill`, `mark` and `intrabar` are read.
        position, order, bar: those of the leg, with scalar leaves.
        contract: that of the bar (`rules.contract_at`).
        stop_level: gives the price at which the account reaches its floor, as a second stop. This
            requires that the account holds this leg alone. None (static) with several legs: there
            is then no such price in one symbol.
    """
    chex.assert_rank([position.quantity, order.quantity, bar.row], 0)
    live_marks = config.mark == "extreme"
    carried, wanted = jnp.sign(position.quantity), jnp.sign(order.quantity)
    prices = bar.quote.leaving(carried)
    if bar.decided is None:
        exit_price, entry_price = prices.open, bar.quote.entering(wanted).open
    else:
        exit_price, entry_price = (
            bar.decided.leaving(carried).close,
            bar.decided.entering(wanted).close,
        )

    opening = compute_unrealised(position, prices.open, contract) if live_marks else None
    leg = LegInBar(
        position,
        jnp.int32(0),
        opening,
        empty_event(prices.open),
        contract,
        stop_level if live_marks else None,
    )
    leg = exit_by_order(leg, order, bar.add_impact(exit_price))
    leg = leg._replace(position=amend(leg.position, order))
    leg = enter(leg, order, bar, entry_price)
    prices = bar.quote.leaving(
        jnp.sign(leg.position.quantity)
    )  # prices for the position after the order
    leg = leg._replace(event=leg.event.replace(favourable=prices.open, adverse=prices.open))
    leg = opening_print(leg, prices.open)
    leg = resolve(leg, prices, bar, config.intrabar)
    leg = force_exit(leg, bar.forced != ExitReason.NONE, prices.close, bar.forced)
    if not live_marks:
        leg = close_mark(leg._replace(stop_level=stop_level), prices.close)
    assert leg.high is not None
    marks = Marks(high=leg.high, close=compute_unrealised(leg.position, prices.close, contract))
    return LegFill(ratchet(leg.position, prices.close, bar.trail), leg.cash, marks, leg.event)


# Settlement of a bar: the results and marks of the legs change the account's balance, equity, high
# water and locks.


def settle(
    account: Account, cash: Array, marks: Marks, filled: Array, limits: AccountParams
) -> tuple[Account, Array]:
    """Settle one bar.

    This is the only function that changes the balance.

    Args:
        account: the account at the start of the bar.
        cash: int32[] mills, sum of the legs' realised profit less commission.
        marks: sums over the legs. With several legs the sum of the highest marks is an upper bound
            of the highest equity, because the legs reach these marks at different times.
        filled: bool[], True if an order, stop, target or forced exit was filled.

    Returns:
        (account after the bar, bool[] True if its equity reached a floor in the bar).
    """
    balance = account.balance + cash
    after = account.replace(
        balance=balance,
        equity=balance + marks.close,
        high_water=rules.high_water_at(account, account.balance + marks.high, limits),
        days=account.days + (filled & ~account.traded).astype(jnp.int32),
        traded=account.traded | filled,
    )
    daily = rules.at_daily_floor(after, limits)
    breach = rules.at_drawdown_floor(after, limits) | (daily & ~account.locked)
    return after.replace(locked=account.locked | daily), breach


class StopLevel(NamedTuple):
    """The floors of an account with a single leg, as a second stop of this leg.

    Inside a bar the level moves with the leg's realised profit and marks. The account itself
    changes only at the end of the bar.

    account: the account at the start of the bar.
    """

    account: Account
    limits: AccountParams

    def _during(self, leg: LegInBar) -> Account:
        """Return the account with the leg's realised profit and marks so far.

        `equity` is not updated; nothing here reads it.
        """
        assert leg.high is not None, "a leg is marked before its level is asked for"
        return self.account.replace(
            balance=self.account.balance + leg.cash,
            high_water=rules.high_water_at(
                self.account, self.account.balance + leg.high, self.limits
            ),
        )

    def price(self, leg: LegInBar) -> Array:
        """Return `rules.liquidation_level` (int32[] ticks)."""
        return rules.liquidation_level(leg.position, self._during(leg), self.limits, leg.contract)

    def reached(self, leg: LegInBar, price: Array) -> Array:
        """Return whether equity at `price` (ticks) is at or below a floor (bool[]).

        Equity is net of the exit commission.
        """
        account = self._during(leg)
        floor = rules.highest_floor(account, self.limits)
        exit_cost = jnp.abs(leg.position.quantity) * leg.contract.commission
        net = account.balance + compute_unrealised(leg.position, price, leg.contract) - exit_cost
        return (floor != rules.NO_FLOOR) & (net <= floor)
