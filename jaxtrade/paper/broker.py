"""What takes the orders beside the environment, which fills them, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from jaxtrade.data.bars import Bars
from jaxtrade.env.state import Event, ExitReason, Order, Position
from jaxtrade.errors import JaxtradeError


class HaltError(JaxtradeError):
    """Paper trading stops: what is recorded and what is found differ. Says what, and where."""

    exit_code = 1


class Intent(NamedTuple):
    """An order before it is sent.

    id: its name at the broker, the same whenever it is made again.
    time: UTC seconds of the bar at whose close it was decided.
    quantity, held: the wanted position and that of the account, signed contracts.
    order: of `env.decode`; the bracket and the moves of a stop.
    close: of that bar, ticks.
    """

    id: str
    time: int
    quantity: int
    order: Order
    close: int
    held: int


class BrokerFill(NamedTuple):
    """A fill: contracts bought (or sold, negative), price in ticks, and why."""

    quantity: int
    price: int
    why: str


class BrokerState(NamedTuple):
    """What a broker reports, in signed contracts.

    quantity: the position. orders: the ids of all that it knows.
    entry: the position of its newest entry, unless it was told to leave.
    """

    quantity: int
    orders: frozenset[str]
    entry: int = 0


class TradedBar(NamedTuple):
    """A bar that has been traded.

    bar: of length 1. order: filled in it. before, after: the position. fills: ours, in time order.
    """

    bar: Bars
    order: Order
    before: Position
    after: Position
    fills: Sequence[BrokerFill]


class Sink(Protocol):
    """A broker beside the environment, whose account counts.

    Everything raises HaltError where the broker cannot be trusted. An intent is on disk before
    `submit` sees it, and comes once: after a restart only those come again that `snapshot` does not
    know.
    """

    def connect(self) -> None:
        """Begin."""
        ...

    def submit(self, intents: Sequence[Intent]) -> None:
        """Send orders."""
        ...

    def follow(self, moved: TradedBar) -> None:
        """Take a bar that has been traded.

        The bars before `connect` are those of a journal that is run again, and the newest of them
        comes again after it. So does a bar that turns out to be the last of its session.
        """
        ...

    def poll(self) -> Sequence[BrokerFill]:
        """Return the fills since the last call."""
        ...

    def snapshot(self) -> BrokerState:
        """Return what is held and known."""
        ...

    def close(self) -> None:
        """End, and leave orders and position as they are."""
        ...


def fills_of(event: Event) -> list[BrokerFill]:
    """List the fills of a bar in time order."""
    reason = ExitReason(int(event.exit_reason)).name.lower()
    legs: list[tuple[Any, Any, str]] = [
        (-event.order_exit_quantity, event.order_exit_price, "order"),
        (event.entry_quantity, event.entry_price, "entry"),
        (-event.exit_quantity, event.exit_price, reason),
    ]
    return [BrokerFill(int(count), int(price), why) for count, price, why in legs if int(count)]
