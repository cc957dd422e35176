"""Fills of all legs of an account in one bar: orders at the open, joint liquidation, exits at the
flat bar.

`Book` holds what a bar has done so far, [S] for S symbols. Conventions: docs/semantics.md, "Several symbols in one
account". The legs of one symbol (`env.execution`) open from flat only; these add to a position and take parts of it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.execution import Quote
from jaxtrade.env.money import ceil_div, money_of, muldiv
from jaxtrade.env.portfolio.state import CostParams, Legs
from jaxtrade.env.state import Account, AccountParams, ContractParams, ExitReason
from jaxtrade.types import Array

# Costs of a fill: commission, fee, a share of the notional, and an impact that grows with the
# notional's square root.
#
# All integers; docs/semantics.md, "Several symbols in one account", points 8 and 9.

PER_ONE = 1_000_000_000  # a rate of 1, in the unit of `CostParams.rate`
SHARES = 100_000_000  # a participation of 1; its square root is in units of 10^-4
MOST_BASES = 20  # the largest notional that an impact may have, in bases: 20 * SHARES fits int32


def notional(contracts: Array, price: Array, contract: ContractParams) -> Array:
    """int32 mills >= 0: value of `contracts` (any sign) at `price` (ticks), elementwise."""
    return jnp.abs(money_of(contracts * price, contract))


def root_of(value: Array) -> Array:
    """floor(sqrt(value)) of int32 0 <= value <= 20 * 10^8, exactly.

    The float32 root is less than one away from the exact root, so at most one correction is needed
    on each side.
    """
    near = jnp.sqrt(value.astype(jnp.float32)).astype(jnp.int32)
    near = near - (near * near > value)
    return near + ((near + 1) * (near + 1) <= value)


def share_of(value: Array, costs: CostParams) -> Array:
    """int32 mills: the part of a notional `value` (mills) that a fill of it pays, rounded once,
    half to even.
    """
    rate = jnp.int32(0) if costs.rate is None else costs.rate
    if costs.impact is not None:
        rate = rate + costs.impact * root_of(muldiv(value, jnp.int32(SHARES), costs.base))
    if costs.rate is None and costs.impact is None:
        return jnp.zeros_like(value)
    return muldiv(value, rate, jnp.int32(PER_ONE))


def fill_cost(contracts: Array, value: Array, contract: ContractParams, costs: CostParams) -> Array:
    """int32 mills: all costs of a fill but slippage; 0 without contracts. value: its notional
    (mills), elementwise.
    """
    size = jnp.abs(contracts)
    return jnp.where(size > 0, size * contract.commission + costs.fee + share_of(value, costs), 0)


class Terms(NamedTuple):
    """What a fill of the bar costs. contract: leaves [S], figures of this bar."""

    contract: ContractParams
    costs: CostParams


class Fill(NamedTuple):
    """A fill of each leg, int32[S]: signed change of the position, and its price in ticks; both 0
    without a fill.
    """

    quantity: Array
    price: Array


class Book(NamedTuple):
    """The legs inside a bar. cash, cost: int32[S] mills booked in the bar. turnover: int32[]
    mills.
    """

    quantity: Array
    paid: Array
    cash: Array
    cost: Array
    turnover: Array

    @classmethod
    def of(cls, legs: Legs) -> Book:
        """The legs at the start of a bar."""
        zero = jnp.zeros_like(legs.quantity)
        return cls(legs.quantity, legs.paid, zero, zero, jnp.int32(0))

    @property
    def side(self) -> Array:
        """int32[S]: the sign of each position."""
        return jnp.sign(self.quantity)

    def marks(self, prices: Array, contract: ContractParams) -> Array:
        """int32[S] mills: open profit of each leg at `prices` (int32[S] ticks)."""
        return money_of(self.quantity * prices - self.paid, contract)

    def worth(self, prices: Array, contract: ContractParams) -> Array:
        """int32[] mills: booked cash plus open profit of all legs."""
        return self.cash.sum() + self.marks(prices, contract).sum()


def _book(
    book: Book, fill: Fill, profit: Array, paid: Array, terms: Terms, cost: Array | None = None
) -> Book:
    value = notional(fill.quantity, fill.price, terms.contract)
    cost = (
        fill_cost(fill.quantity, value, *terms)
        if cost is None
        else jnp.where(fill.quantity != 0, cost, 0)
    )
    return Book(
        book.quantity + fill.quantity,
        paid,
        book.cash + profit - cost,
        book.cost + cost,
        book.turnover + value.sum(),
    )


def close_part(
    book: Book,
    keep: Array,
    price: Array,
    terms: Terms,
    cost: Array | None = None,
    partly: bool = False,
) -> tuple[Book, Fill]:
    """Close each leg down to `keep` contracts at `price` (both int32[S], slipped).

    keep: of the sign of the position or 0, and not larger. cost: int32[S] mills instead of the
        fill's own costs.
    partly: static; False if each leg is closed whole or not at all, which needs no division.
    """
    change = keep - book.quantity
    when = change != 0
    taken = book.paid
    if partly:
        part = muldiv(book.paid, jnp.abs(change), jnp.maximum(jnp.abs(book.quantity), 1))
        taken = jnp.where(keep == 0, book.paid, part)
    profit = jnp.where(when, money_of(-change * price - taken, terms.contract), 0)
    fill = Fill(change, jnp.where(when, price, 0))
    return _book(
        book, fill, profit, jnp.where(when, book.paid - taken, book.paid), terms, cost
    ), fill


def open_part(book: Book, want: Array, price: Array, terms: Terms) -> tuple[Book, Fill]:
    """Open what each leg lacks of `want` contracts at `price` (both int32[S], slipped). No leg may
    have another side.
    """
    change = want - book.quantity
    fill = Fill(change, jnp.where(change != 0, price, 0))
    return _book(book, fill, jnp.zeros_like(change), book.paid + change * price, terms), fill


def orders(
    book: Book, want: Array, quote: Quote, terms: Terms, partly: bool
) -> tuple[Book, Fill, Fill]:
    """Fill the orders at the open: what is closed, then what is opened -> (book, closed, opened).

    want: int32[S] contracts. partly: as in `close_part`.
    """
    held, slip = book.side, terms.contract.slippage
    same = jnp.sign(want) == held
    keep = jnp.where(same, held * jnp.minimum(jnp.abs(want), jnp.abs(book.quantity)), 0)
    book, closed = close_part(
        book, keep, quote.leaving(held).open - held * slip, terms, partly=partly
    )
    wanted = jnp.sign(want)
    book, opened = open_part(book, want, quote.entering(wanted).open + wanted * slip, terms)
    return book, closed, opened


def leave(
    book: Book, when: Array, price: Array, terms: Terms, cost: Array | None = None
) -> tuple[Book, Fill]:
    """All legs leave at `price` (int32[S] ticks) less slippage, if `when` (bool[])."""
    keep = jnp.where(when, 0, book.quantity)
    return close_part(book, keep, price - book.side * terms.contract.slippage, terms, cost)


class Floors(NamedTuple):
    """The floors of the account inside a bar. account: that at the start of the bar. high: int32[]
    mills, the highest sum of cash and marks in the bar so far."""

    account: Account
    limits: AccountParams
    high: Array

    def marked(self, worth: Array) -> Floors:
        """The floors after a mark of all legs, cash of the bar included."""
        return self._replace(high=jnp.maximum(self.high, worth))

    def room(self, worth: Array) -> Array:
        """int32[] mills that net equity is above the higher floor; at most 0 if the floor is met.
        worth: net of exit costs. Without a floor it is positive."""
        raised = rules.high_water_at(self.account, self.account.balance + self.high, self.limits)
        floor = rules.highest_floor(self.account.replace(high_water=raised), self.limits)
        return jnp.where(floor == rules.NO_FLOOR, 1, self.account.balance + worth - floor)


def _steps(
    book: Book,
    bar_open: Array,
    worst: Array,
    met: Array,
    within: Array,
    exits: Array,
    floors: Floors,
    terms: Terms,
) -> Array:
    """int32[S] ticks: the prices of the first step at which the floor is met, where `met`.

    Net equity never rises from one step to the next, so the step is found by halving. The loop does
    nothing in a batch without a breach, which is the usual case.
    """
    far = jnp.abs(bar_open - worst) * (book.quantity != 0)
    most = far.max()

    def at(step: Array) -> Array:
        # `params` refuses bars whose distances could pass int32 when multiplied.
        return bar_open - book.side * ceil_div(far * step, jnp.maximum(most, 1))

    def halve(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        reached = floors.room(book.worth(at(middle), terms.contract) - exits) <= 0
        return jnp.where(reached, low, middle + 1), jnp.where(reached, middle, high)

    start = jnp.int32(0), jnp.where(met & ~within, most, 0)
    _, step = jax.lax.while_loop(lambda bounds: bounds[0] < bounds[1], halve, start)
    return at(step)


def liquidation(
    book: Book, quote: Quote, floors: Floors, terms: Terms
) -> tuple[Book, Fill, Floors]:
    """The floors inside the bar, after its orders -> (book, what was liquidated, floors after the
    favourable marks).
    """
    side = book.side
    prices = quote.leaving(side)
    held = (side != 0).any()
    value = notional(book.quantity, prices.open, terms.contract)
    each = fill_cost(book.quantity, value, *terms)
    exits = each.sum()
    opening = held & (floors.room(book.worth(prices.open, terms.contract) - exits) <= 0)
    best = jnp.where(side > 0, prices.high, prices.low)
    worst = jnp.where(side > 0, prices.low, prices.high)
    raised = floors.marked(book.worth(best, terms.contract))
    met = held & (raised.room(book.worth(worst, terms.contract) - exits) <= 0)
    level = _steps(book, prices.open, worst, met, opening, exits, raised, terms)
    level = jnp.where(opening, prices.open, level)
    after, fill = leave(book, opening | met, level, terms, each)
    # A liquidation at the open comes before any favourable price.
    high = jnp.where(opening, floors.marked(after.cash.sum()).high, raised.high)
    return after, fill, raised._replace(high=high)


def exit_reason(liquidated: Fill, flat: Fill, complete: Array) -> Array:
    """int32[S] `ExitReason` of the exits of a bar that no order asked for. complete: bool[] of the
    session.
    """
    forced = jnp.where(complete, ExitReason.FLAT, ExitReason.END_OF_DATA)
    reason = jnp.where(flat.quantity != 0, forced, ExitReason.NONE)
    return jnp.where(liquidated.quantity != 0, ExitReason.LIQUIDATION, reason).astype(jnp.int32)
