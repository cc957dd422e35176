"""The same orders in NautilusTrader's simulated exchange, to compare fills.

It runs in a process of its own (`nautilus_child.py`). It is an exchange that others wrote, fed bar
by bar by its backtest engine, so it gives the same fills every time, for a file and for a live
feed. Nothing here reaches a market. Account and flat time stay ours: at a liquidation it is told
the level, and at a forced exit the bar at whose close to leave. Commissions are ours as well, in
mills: it keeps whole cents.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jaxtrade.env.state import KEEP_STOP, NO_LEVEL
from jaxtrade.errors import ConfigError
from jaxtrade.paper.broker import BrokerFill, BrokerState, HaltError, Intent, TradedBar

GAP, CHILD = ("target", "limit"), Path(__file__).with_name("nautilus_child.py")
FORCED = ("flat", "end_of_data")
# Difference of fills: its rule.
DIFFERENCES = {
    "target_gap": "a bar opens beyond the target: it fills at the limit there, at the open here",
    "order_in_bar": "intrabar = path: second bars show the order here; there the stop comes first",
    "other": "none is declared",
}


def step_of(moved: TradedBar, slippage: int, nearer_extreme: bool, again: bool) -> dict[str, Any]:
    """Describe a bar and its orders for the child.

    again: the bar has been played, and now turns out to be the last of its session.
    """
    order, before, bar = moved.order, moved.before, moved.bar
    sides = [[int(price[0]) for price in side] for side in bar.quotes]
    moves = int(order.move_stop) != KEEP_STOP
    stop = int(order.move_stop if moves else before.stop)
    guards = [
        fill.price + (slippage if fill.quantity < 0 else -slippage)
        for fill in moved.fills
        if fill.why == "liquidation"
    ]
    return {
        "time": int(bar.time[0]),
        "sides": [sides[0], sides[-1]],
        "exit": any(fill.why == "order" for fill in moved.fills),
        "enter": [fill.quantity for fill in moved.fills if fill.why == "entry"],
        "bracket": [int(order.stop_ticks) or None, int(order.target_ticks) or None],
        "stop": stop if abs(stop) < NO_LEVEL else None,
        "guard": guards[0] if guards else None,
        "force": any(fill.why in FORCED for fill in moved.fills),
        "nearer_extreme": nearer_extreme,
        "again": again,
    }


def differences(
    ours: Sequence[BrokerFill], theirs: Sequence[BrokerFill], intrabar: str
) -> list[str]:
    """Return how the fills of a bar differ, a kind of `DIFFERENCES` for each."""

    def kind(mine: BrokerFill | None, other: BrokerFill | None) -> str:
        gap = mine and other and mine[0] == other[0] and (mine.why, other.why) == GAP
        return "target_gap" if gap else "order_in_bar" if intrabar == "path" else "other"

    pairs = zip_longest(ours, theirs)
    return [kind(a, b) for a, b in pairs if a is None or b is None or a[:2] != b[:2]]


class NautilusBroker:
    """A sink that fills the same orders in NautilusTrader's simulated exchange.

    Raises ConfigError where the package is absent.

    slippage: ticks. intrabar: `env.intrabar`.
    found: UTC seconds of a bar -> how many fills it has here, and how those differ.
    """

    def __init__(self, slippage: int, intrabar: str) -> None:
        if importlib.util.find_spec("nautilus_trader") is None:
            raise ConfigError(
                "--engine nautilus: needs the package nautilus_trader and Python 3.13; pip install "
                "'jaxtrade[nautilus]'"
            )
        self.slippage, self.intrabar = slippage, intrabar
        self.found = dict[int, tuple[int, list[str]]]()
        self._fills, self._time, self._known = list[BrokerFill](), 0, BrokerState(0, frozenset())
        command = [sys.executable, "-P", str(CHILD), str(slippage)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def connect(self) -> None:
        """Do nothing: what is recorded is played as well."""

    def submit(self, intents: Sequence[Intent]) -> None:
        """Note orders; they are filled in the bar that `follow` brings."""
        orders = self._known.orders | {intent.id for intent in intents}
        self._known = self._known._replace(orders=orders)

    def follow(self, moved: TradedBar) -> None:
        """Play a bar. Raises HaltError if the process has ended."""
        into, out = self._child.stdin, self._child.stdout
        assert into and out  # noqa: PT018
        time = int(moved.bar.time[0])
        again, self._time = time == self._time, time
        step = step_of(moved, self.slippage, self.intrabar == "nearer_extreme", again)
        print(json.dumps(step), file=into, flush=True)
        if not (line := out.readline()):
            raise HaltError("the process of NautilusTrader has ended; see what it printed")
        new = [BrokerFill(*fill) for fill in json.loads(line)]
        self._fills = self._fills + new if again else new
        held = self._known.quantity + sum(fill.quantity for fill in new)
        self._known = self._known._replace(quantity=held)
        kinds = differences(moved.fills, self._fills, self.intrabar)
        self.found[time] = len(moved.fills), kinds

    def counts(self) -> dict[str, int]:
        """Count the fills here, and how they differ there."""
        kinds = Counter(kind for _, kinds in self.found.values() for kind in kinds)
        return {"fills": sum(fills for fills, _ in self.found.values()), **kinds}

    def poll(self) -> Sequence[BrokerFill]:
        """Return the fills of the newest bar."""
        return self._fills

    def snapshot(self) -> BrokerState:
        """Return what the exchange holds."""
        return self._known

    def close(self) -> None:
        """End the process."""
        self._child.communicate()
