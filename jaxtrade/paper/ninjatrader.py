"""Order files for NinjaTrader 8: what the simulated account does, written for its folder to read.

Never run against NinjaTrader: written after its documentation (order instruction files and
information update files of the Automated Trading Interface), and tested with a fake of its folder.

Each file is written elsewhere and renamed into `incoming`, because NinjaTrader reads a file the
instant that it appears. `jaxtrade/sent.json` beside it notes what is sent, before it is, so an order
goes out once at most, also where a restart of NinjaTrader has emptied `outgoing`. What was noted and
never renamed is forgotten at the next start: the engine sends it again, unless it is too old by then.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtrade.data.contracts import Contract
from jaxtrade.env.state import KEEP_STOP, NO_LEVEL
from jaxtrade.errors import ConfigError
from jaxtrade.paper.broker import BrokerFill, BrokerState, HaltError, Intent, TradedBar
from jaxtrade.paper.rails import NINJATRADER, PaperConfig
from jaxtrade.storage import digests

NOTE = (
    "note: these order files were never run against NinjaTrader; use an account of its simulation, and watch "
    "it"
)
ORDER = ("account", "instrument", "action", "qty", "type", "limit", "stop", "tif", "oco", "id")
NOTHING = "", 0, 0.0
ENDED = ("REJECTED", "CANCELLED", "CANCELED")


def instruction(name: str, **fields: object) -> str:
    """Return a line: its fields by name, the others and those of a strategy empty."""
    return ";".join([name, *(str(fields.get(key, "")) for key in ORDER), "", ""])


def read_report(file: Path) -> tuple[str, int, float]:
    """Return state, contracts and price of a file of `outgoing`; NOTHING while it cannot be read."""
    try:
        state, count, price, *_ = file.read_text(errors="replace").replace(",", ".").split(";")
        return state.strip().upper(), int(count), float(price)
    except (OSError, ValueError):
        return NOTHING


class NinjaTraderFiles:
    """A sink that writes order files.

    Raises ConfigError unless the rails say broker: ninjatrader and name one account, that of the
    simulation, and the instrument.

    folder: NinjaTrader's, with `incoming` and `outgoing`.
    """

    def __init__(self, folder: Path, rails: PaperConfig, contract: Contract) -> None:
        named = (*rails.accounts, rails.instrument)
        plain = all(each.strip() and each.isprintable() and ";" not in each for each in named)
        if not (plain and rails.broker == NINJATRADER and len(named) == 2 and rails.simulation):
            raise ConfigError(
                f"--sink ninjatrader: --rails FILE has to say broker: {NINJATRADER}, accounts: [NAME] (one, in "
                'full), instrument: "ES 12-26" (as NinjaTrader writes it) and simulation: true'
            )
        if not all((folder / name).is_dir() for name in ("incoming", "outgoing")):
            raise ConfigError(
                f"--sink ninjatrader:{folder}: expected a folder with incoming, outgoing"
            )
        self.folder, self.tick = folder, contract.tick_size
        self._market = {"account": named[0], "instrument": named[1]}
        self._close = instruction("CLOSEPOSITION", **self._market)
        self._file = folder / "jaxtrade" / "sent.json"
        self._report = re.compile(
            rf"{re.escape(named[1])}( [^_]*)?_{re.escape(named[0])}_Position\.txt"
        )
        self._sent: dict[str, list[Any]] = {}  # name -> lines, and `_position` after them

    def connect(self) -> None:
        """Begin to send."""
        self._file.parent.mkdir(exist_ok=True)
        if self._file.exists():
            self._sent = json.loads(self._file.read_text())
        if kept := [*self._file.parent.glob("*.part")]:  # the process ended before the rename
            names = {part.stem for part in kept}
            self._note({name: sent for name, sent in self._sent.items() if name not in names})
        for part in kept:
            part.unlink()

    def submit(self, intents: Sequence[Intent]) -> None:
        """Write orders: an entry and its provisional stop are one file.

        Raises HaltError for an order that was sent.
        """
        for name, _, wanted, order, close, held in intents:
            if name in self._sent:
                raise HaltError(f"order {name} was sent twice")
            known, lines = self._position, list[str]()
            if wanted * held > 0:  # a position that is not there is not opened late
                if known and int(order.move_stop) != KEEP_STOP:
                    lines.append(self._change_stop(int(order.move_stop)))
            else:
                if known or not wanted or self.snapshot().quantity:
                    lines.append(self._close)
                side = 1 if wanted > 0 else -1
                stop, target = -side * int(order.stop_ticks), side * int(order.target_ticks)
                known = {"id": name, "quantity": wanted, "stop": stop, "target": target}
                known = known if wanted else {}
                if wanted:
                    lines.append(self._place(wanted, name, "MARKET"))
                if wanted and stop:
                    level = self._price(close + stop)
                    lines.append(
                        self._place(-wanted, name + "s", "STOPMARKET", stop=level, oco=name)
                    )
            self._send(name, lines, known)

    def follow(self, moved: TradedBar) -> None:
        """Move a stop that trails, and leave where our account is flat."""
        known, stop = self._position, int(moved.after.stop)
        if not known:
            return
        if not int(moved.after.quantity):
            self._send(known["id"] + "x", [self._close], {})
        elif stop != int(moved.before.stop) and int(moved.before.quantity) and abs(stop) < NO_LEVEL:
            self._send(f"{known['id']}s{stop}", [self._change_stop(stop)], known)

    def poll(self) -> Sequence[BrokerFill]:
        """Once an entry is filled, move its stop and place its target around the fill."""
        known = self._position
        name = known.get("id", "")
        if not known or name + "b" in self._sent:
            return []
        state, _, price = read_report(self.folder / "outgoing" / f"{name}.txt")
        if state in ENDED:  # an order to leave is harmless, so the position stays
            self._send(name + "b", [instruction("CANCEL", id=name + "s")], known)
        if state != "FILLED":
            return []
        fill, quantity = round(price / float(self.tick)), known["quantity"]
        lines = [self._change_stop(fill + known["stop"])] if known["stop"] else []
        if known["target"]:
            level = self._price(fill + known["target"])
            lines.append(self._place(-quantity, name + "t", "LIMIT", limit=level, oco=name))
        self._send(name + "b", lines, known)
        return [BrokerFill(quantity, fill, "entry")]

    def snapshot(self) -> BrokerState:
        """Return the position that NinjaTrader reports, 0 without a report, and what was sent."""
        files = (self.folder / "outgoing").glob("*_Position.txt")
        found = [read_report(file) for file in files if self._report.fullmatch(file.name)]
        side, count, _ = found[0] if found else NOTHING
        quantity = {"LONG": 1, "SHORT": -1}.get(side, 0) * count
        return BrokerState(quantity, frozenset(self._sent), self._position.get("quantity", 0))

    def close(self) -> None:
        """Leave orders and position as they are."""

    @property
    def _position(self) -> dict[str, Any]:
        """The entry that is open or on its way, as the newest order left it."""
        return next(reversed(self._sent.values()), [[], {}])[1]

    def _place(self, quantity: int, name: str, kind: str, **fields: object) -> str:
        action = "BUY" if quantity > 0 else "SELL"
        about = {"action": action, "qty": abs(quantity), "type": kind, "tif": "DAY", "id": name}
        return instruction("PLACE", **self._market, **about, **fields)

    def _change_stop(self, level: int) -> str:
        """Return the change of the stop; 0 leaves a field as it is."""
        name = self._position["id"] + "s"
        return instruction("CHANGE", qty=0, limit=0, stop=self._price(level), id=name)

    def _price(self, level: int) -> str:
        return f"{level * self.tick:f}"

    def _send(self, name: str, lines: list[str], position: dict[str, Any]) -> None:
        """Note the lines and the position after them, then send them, once."""
        if name in self._sent:
            return
        part = self._file.with_name(f"{name}.part")
        if lines:
            digests.write_whole(part, "".join(line + "\n" for line in lines), sync=True)
        self._note({**self._sent, name: [lines, position]})
        if lines:
            number = len(self._sent)  # names in the order of writing
            os.replace(part, self.folder / "incoming" / f"oif{number:08}{name}.txt")
            digests.fsync_directory(part.parent)

    def _note(self, sent: dict[str, list[Any]]) -> None:
        digests.write_whole(self._file, json.dumps(sent), sync=True)
        self._sent = sent
