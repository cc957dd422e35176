"""What takes orders: the protocol, and the simulated broker, which is the environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from jaxtrade.data.bars import Bars
from jaxtrade.env.state import (
    KEEP_STOP,
    EnvParams,
    EnvState,
    Event,
    ExitReason,
    Order,
    Position,
)
from jaxtrade.errors import JaxtradeError
from jaxtrade.stream.live import Stream


class HaltError(JaxtradeError):
    """Paper trading stops: what is recorded and what is found differ. Says what, and where."""

    exit_code = 1


class Intent(NamedTuple):
    """An order before it is sent.

    id: its name at the broker, the same whenever it is made again.
    time: UTC seconds of the bar at whose close it was decided.
    quantity: the wanted position, signed contracts.
    order: of `env.decode`; the bracket and the moves of a stop.
    close: of that bar, ticks.
    """

    id: str
    time: int
    quantity: int
    order: Order
    close: int


class BrokerFill(NamedTuple):
    """A fill: contracts bought (or sold, negative), price in ticks, and why."""

    quantity: int
    price: int
    why: str


class BrokerState(NamedTuple):
    """What a broker reports: the position, signed contracts, and the ids of all orders it knows."""

    quantity: int
    orders: frozenset[str]


class Broker(Protocol):
    """What takes orders. Everything raises HaltError where the broker cannot be trusted.

    An intent is on disk before `submit` sees it, and comes once: after a restart only those come
    again that `snapshot` does not know.
    """

    def connect(self) -> None:
        """Begin."""
        ...

    def submit(self, intents: Sequence[Intent]) -> None:
        """Send orders."""
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


class TradedBar(NamedTuple):
    """A bar that has been traded.

    bar: of length 1. order: filled in it. before, after: the position. fills: ours, in time order.
    """

    bar: Bars
    order: Order
    before: Position
    after: Position
    fills: list[BrokerFill]


class Sink(Broker, Protocol):
    """A broker beside the simulated one, whose account counts."""

    def follow(self, moved: TradedBar) -> None:
        """Take a bar that has been traded.

        The bars before `connect` are those of a journal that is run again. A bar that turns out to
        be the last of its session comes again.
        """
        ...


class SimulatedBroker:
    """The environment's `transition` as a broker. It needs no connection."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self._held, self._orders, self._fills = (
            stream,
            0,
            set[str](),
            list[BrokerFill](),
        )

    def connect(self) -> None:
        """Do nothing."""

    close = connect

    def submit(self, intents: Sequence[Intent]) -> None:
        """Take orders. Raises HaltError for one that it has."""
        for intent in intents:
            if intent.id in self._orders:
                raise HaltError(f"order {intent.id} was sent twice")
            self._orders.add(intent.id)

    def poll(self) -> Sequence[BrokerFill]:
        """Return the fills of the newest step."""
        found, self._fills = self._fills, []
        return found

    def snapshot(self) -> BrokerState:
        """Return the position after the newest step."""
        return BrokerState(self._held, frozenset(self._orders))

    def step(self, state: EnvState, order: Order, params: EnvParams) -> tuple[EnvState, Event]:
        """Fill an order in the newest bar of `params`, in place of an earlier step into it."""
        now, self.stream.params = self.stream.params, params
        moved, event = self.stream.step(state, order)
        self.stream.params = now
        self._held, self._fills = int(moved.position.quantity), fills_of(event)
        return moved, event


def fills_of(event: Event) -> list[BrokerFill]:
    """List the fills of a bar in time order."""
    reason = ExitReason(int(event.exit_reason)).name.lower()
    legs: list[tuple[Any, Any, str]] = [
        (-event.order_exit_quantity, event.order_exit_price, "order"),
        (event.entry_quantity, event.entry_price, "entry"),
        (-event.exit_quantity, event.exit_price, reason),
    ]
    return [BrokerFill(int(count), int(price), why) for count, price, why in legs if int(count)]


def changes(order: Order, held: int) -> bool:
    """Return whether an order asks the broker for anything."""
    moves = int(order.move_stop) != KEEP_STOP or int(order.trail) >= 0
    return int(order.quantity) != held or (held != 0 and moves)
