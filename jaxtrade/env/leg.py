"""A leg, which is the position in one symbol, and the prices of one bar for it. See
`env.execution`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxtrade.env.rules import unrealised
from jaxtrade.env.state import ContractParams, Event, Marks, Position
from jaxtrade.types import Array, IntrabarPath, MarketData

TreeT = TypeVar("TreeT")


def select(when: Array, yes: TreeT, no: TreeT) -> TreeT:
    """`jnp.where` for each leaf of two trees. when: bool[]."""
    return jax.tree.map(lambda a, b: jnp.where(when, a, b), yes, no)


class Bar(NamedTuple):
    """One bar in ticks, int32[]."""

    open: Array
    high: Array
    low: Array
    close: Array


class Quote(NamedTuple):
    """One bar of a market. bid: the bid side, or the only side. ask: the ask side of two-sided
    bars, else None.
    """

    bid: Bar
    ask: Bar | None

    def leaving(self, side: Array) -> Bar:
        """Prices at which a position of `side` (int32[] sign) is closed and marked: the ask for a
        short.
        """
        return self.bid if self.ask is None else select(side < 0, self.ask, self.bid)

    def entering(self, side: Array) -> Bar:
        """Prices at which a position of `side` is opened: the ask for a long."""
        return self.leaving(-side)


def quote_at(market: MarketData, row: Array) -> Quote:
    """Prices of market row `row` (int32[])."""
    ask = market.ask
    return Quote(
        Bar(market.open[row], market.high[row], market.low[row], market.close[row]),
        None if ask is None else Bar(ask.open[row], ask.high[row], ask.low[row], ask.close[row]),
    )


class LegBar(NamedTuple):
    """The data of one bar for one leg; int32[] and bool[].

    row: market row. quote: prices of the bar. decided: prices of the decision bar if orders fill at
        its close
    (`fill=close`). None (static) if they fill at the open of `quote`. may_open: True if an entry is
    permitted. largest: maximum contracts of an entry. forced: `ExitReason` of a forced exit at the
    close, NONE if the leg may stay. trail: ticks between the close and a trailing stop. path:
    second-bar paths of all rows. None (static) without second bars.
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

    def moved(self, price: Array) -> Array:
        """int32[] ticks: a price at which orders fill at the open, moved by the impact of all of
        them.
        """
        return price if self.impact is None else price + self.impact


class LegInBar(NamedTuple):
    """A leg inside a bar, with the results of the bar so far.

    cash: int32[] mills, realised profit less commission. high: int32[] mills, highest marked
        `worth`. With `mark=close`
    it is None (static) until the bar closes.
    """

    position: Position
    cash: Array
    high: Array | None
    event: Event

    def worth(self, price: Array, contract: ContractParams) -> Array:
        """int32[] mills: cash plus open profit at `price` (ticks), without exit costs."""
        return self.cash + unrealised(self.position, price, contract)

    def marked(self, price: Array, contract: ContractParams) -> LegInBar:
        """The leg after a mark at `price` inside the bar. With `mark=close` the leg is
        unchanged.
        """
        return (
            self
            if self.high is None
            else self._replace(high=jnp.maximum(self.high, self.worth(price, contract)))
        )


class LegFill(NamedTuple):
    """Result of a bar for one leg. cash: int32[] mills, realised profit less commission.

    `floor` and `breach` of the event belong to the account, and are not set yet.
    """

    position: Position
    cash: Array
    marks: Marks
    event: Event


def empty_event(price: Array) -> Event:
    """An event without fills. price: ticks, the initial value of both marks."""
    zero = jnp.int32(0)
    return Event(
        zero, zero, zero, zero, zero, zero, zero, zero, price, price, zero, jnp.bool_(False)
    )
