"""A leg, which is the position in one symbol, and the prices it meets in one bar. See `env.execution`."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxtrade.env.rules import unrealised
from jaxtrade.env.state import ContractParams, Event, Marks, Position
from jaxtrade.types import Array, IntrabarPath, MarketData

TreeT = TypeVar("TreeT")


def select(when: Array, yes: TreeT, no: TreeT) -> TreeT:
    """Leaf-wise where, for a scalar condition."""
    return jax.tree.map(lambda a, b: jnp.where(when, a, b), yes, no)


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


def quote_at(market: MarketData, row: Array) -> Quote:
    """Prices of market row `row` (int32[])."""
    ask = market.ask
    return Quote(Bar(market.open[row], market.high[row], market.low[row], market.close[row]),
                 None if ask is None else Bar(ask.open[row], ask.high[row], ask.low[row], ask.close[row]))


class LegBar(NamedTuple):
    """One bar as one leg meets it; int32[] and bool[].

    row: of the market. quote: the bar's prices. decided: prices of the bar decided on, at whose close orders fill
    (`fill=close`); None (static) where they fill at the open of `quote`. may_open: an entry is permitted. largest:
    most contracts of an entry. forced: `ExitReason` of an exit at the close, NONE where the leg may stay. trail: ticks
    between the close and a trailing stop. path: the market's, for all rows; None (static) without second bars.
    """

    row: Array
    quote: Quote
    decided: Quote | None
    may_open: Array
    largest: Array
    forced: Array
    trail: Array
    path: IntrabarPath | None


class LegInBar(NamedTuple):
    """A leg while a bar is worked through, and what has happened to it in the bar so far.

    cash: int32[] mills, realised profit less commission. high: int32[] mills, the highest `worth` that the leg was
    marked at; None (static) under `mark=close` until the bar closes.
    """

    position: Position
    cash: Array
    high: Array | None
    event: Event

    def worth(self, price: Array, contract: ContractParams) -> Array:
        """int32[] mills: cash and open profit at `price` (ticks), no exit costs."""
        return self.cash + unrealised(self.position, price, contract)

    def marked(self, price: Array, contract: ContractParams) -> LegInBar:
        """The leg after a mark inside the bar; the same leg where only closes are marked."""
        return self if self.high is None else self._replace(high=jnp.maximum(self.high, self.worth(price, contract)))


class LegFill(NamedTuple):
    """What a bar made of a leg: its position, cash (int32[] mills, realised profit less commission), marks and event.
    The event's `floor` and `breach` are the account's, and still empty."""

    position: Position
    cash: Array
    marks: Marks
    event: Event


def empty_event(price: Array) -> Event:
    """Nothing happened yet; `price` (ticks) stands for both marks."""
    zero = jnp.int32(0)
    return Event(zero, zero, zero, zero, zero, zero, zero, zero, price, price, zero, jnp.bool_(False))
