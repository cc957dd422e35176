"""The same orders in NautilusTrader's simulated exchange, to compare fills.

It runs in a process of its own (`nautilus_child.py`). It is an exchange that others wrote, fed by
its backtest engine, so it gives the same fills every time, for a file and for a live feed. Nothing
here reaches a market. A bar is shown as quotes: its open, and every tick from there to one extreme,
to the other and to the close, so that stops and targets are met at their levels. Account, slippage,
levels and flat time stay ours. Commissions are ours as well, in mills: it keeps whole cents.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from jaxtrade.env.state import KEEP_STOP, NO_LEVEL
from jaxtrade.errors import ConfigError
from jaxtrade.paper.broker import BrokerFill, BrokerState, HaltError, Intent, TradedBar

GAP, CHILD = ("target", "limit"), Path(__file__).with_name("nautilus_child.py")
FORCED = {"flat", "end_of_data"}
# Difference of fills: its rule.
DIFFERENCES = {
    "target_gap": "a bar opens beyond the target: it fills at the limit there, at the open here",
    "order_in_bar": "intrabar = path: second bars show the order here; there the stop comes first",
    "other": "none is declared",
}
CLOSE = ("market", None)
Step = tuple[list[Any] | None, list[tuple[int, int]]]  # of the child


def steps_of(moved: TradedBar, slippage: int, nearer_extreme: bool) -> list[Step]:
    """Describe a bar and its orders for the child."""
    order, before, quotes = moved.order, moved.before, moved.bar.quotes
    bid, ask = ([int(price[0]) for price in quotes[side]] for side in (0, -1))
    fills = {fill.why: fill for fill in moved.fills}

    def protect(side: int, stop: int, target: int) -> list[Any]:
        """Order the stop, or what liquidates before it, and the target."""
        if guard := fills.get("liquidation"):
            stop = side * max(side * stop, side * guard.price + slippage)
        orders = ("stop_market", None, stop), ("limit", None, target)
        return [each for each in orders if 0 < each[-1] < NO_LEVEL]

    side = 1 if before.quantity > 0 else -1
    stop = int(before.stop if int(order.move_stop) == KEEP_STOP else order.move_stop)
    market, bracket = list[Any]([CLOSE] if "order" in fills else []), None
    resting = [] if market else protect(side, stop, int(before.target))  # just before the open
    if entry := fills.get("entry"):
        side = 1 if entry.quantity > 0 else -1
        market.append(("market", entry.quantity))
        stop, target = (side * (int(x) or NO_LEVEL) for x in (order.stop_ticks, order.target_ticks))
        base = entry.price - side * slippage
        bracket = protect(side, base - stop, base + target)
    opened = [(bid[0], ask[0])]
    path = path_of(bid, ask, side, nearer_extreme)
    return [(resting, []), (market or None, opened), (bracket, opened), (None, path)]


def path_of(
    bid: Sequence[int], ask: Sequence[int], side: int, nearer_extreme: bool
) -> list[tuple[int, int]]:
    """Return the quotes after the open, tick by tick on the side on which a position leaves."""
    start, high, low, close = bid if side > 0 else ask
    extremes = sorted((low, high), reverse=side < 0)  # the adverse one first
    if nearer_extreme:
        extremes.sort(key=lambda level: abs(level - start))
    spread, path = ask[0] - bid[0], list[int]()
    for here, there in pairwise((start, *extremes, close)):
        way = 1 if there > here else -1
        path += range(here + way, there + way, way)
    return [(at, at + spread) if side > 0 else (at - spread, at) for at in path]


def differences(
    ours: Sequence[BrokerFill], theirs: Sequence[BrokerFill], intrabar: str
) -> list[str]:
    """Return how the fills of a bar differ, a kind of `DIFFERENCES` for each."""
    rest = "order_in_bar" if intrabar == "path" else "other"
    pairs = zip_longest(ours, theirs, fillvalue=BrokerFill(0, 0, ""))
    return [
        "target_gap" if (a.quantity, a.why, b.why) == (b.quantity, *GAP) else rest
        for a, b in pairs
        if a[:2] != b[:2]
    ]


class NautilusBroker:
    """A sink that fills the same orders in NautilusTrader's simulated exchange.

    Raises ConfigError where the package is absent.

    slippage: ticks. intrabar: `env.intrabar`.
    found: UTC seconds of a bar -> its fills here and there.
    """

    def __init__(self, slippage: int, intrabar: str) -> None:
        if importlib.util.find_spec("nautilus_trader") is None:
            raise ConfigError(
                "--engine nautilus: needs the package nautilus_trader and Python 3.13; pip install "
                "'jaxtrade[nautilus]'"
            )
        self.slippage, self.intrabar = slippage, intrabar
        self.found = dict[int, tuple[Sequence[BrokerFill], list[BrokerFill]]]()
        command, pipe = [sys.executable, "-P", str(CHILD)], subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def connect(self) -> None:
        """Do nothing: what is recorded is played as well."""

    def submit(self, intents: Sequence[Intent]) -> None:
        """Do nothing: `follow` brings the orders of a bar with it."""

    def follow(self, moved: TradedBar) -> None:
        """Play a bar. Raises HaltError if the process has ended."""
        into, out = self._child.stdin, self._child.stdout
        assert into and out  # noqa: PT018
        time = int(moved.bar.time[0])
        _, fills = self.found.get(time, ((), []))
        again = time in self.found  # it turns out to be the last of its session
        nearer = self.intrabar == "nearer_extreme"
        steps = [] if again else steps_of(moved, self.slippage, nearer)
        if FORCED & {fill.why for fill in moved.fills}:
            steps.append(([CLOSE], []))
        with suppress(BrokenPipeError):  # it has ended, so it does not answer either
            print(json.dumps(steps), file=into, flush=True)
        if not (line := out.readline()):
            raise HaltError("the process of NautilusTrader has ended; see what it printed")
        for quantity, price, kind in json.loads(line):
            worse = 0 if kind == "limit" else self.slippage if quantity > 0 else -self.slippage
            fills = [*fills, BrokerFill(quantity, price + worse, kind)]
        self.found[time] = moved.fills, fills

    def counts(self) -> dict[str, int]:
        """Count the fills here, and how they differ there."""
        pairs = self.found.values()
        kinds = Counter(kind for pair in pairs for kind in differences(*pair, self.intrabar))
        return {"fills": sum(len(ours) for ours, _ in pairs), **kinds}

    def poll(self) -> Sequence[BrokerFill]:
        """Return the fills of the newest bar."""
        return next((fills for _, fills in reversed(self.found.values())), [])

    def snapshot(self) -> BrokerState:
        """Return what the exchange holds."""
        held = sum(fill.quantity for _, fills in self.found.values() for fill in fills)
        return BrokerState(held, frozenset())

    def close(self) -> None:
        """End the process."""
        self._child.communicate()
