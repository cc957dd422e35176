"""Order files for NinjaTrader 8: what the simulated account does, written for its folder to read.

Never run against NinjaTrader: written after its documentation (order instruction files and
information update files of the Automated Trading Interface), and tested with a fake of its folder.

Each file is written elsewhere and renamed into `incoming`, because NinjaTrader reads a file the
instant that it appears. `jaxtrade/` beside it notes what was sent, before it is, so an order goes
out once at most, also where a restart of NinjaTrader has emptied `outgoing`.
"""

from __future__ import annotations

import json
import os
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
ENDED = ("REJECTED", "CANCELLED", "CANCELED")


def instruction(name: str, **fields: object) -> str:
    """Return a line: its fields by name, the others and those of a strategy empty."""
    return ";".join([name, *(str(fields.get(key, "")) for key in ORDER), "", ""])


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
        self.folder, self.sent, self.tick = folder, folder / "jaxtrade", contract.tick_size
        self._market = {"account": named[0], "instrument": named[1]}
        self._last = self.sent / "position.json"
        self._position: dict[str, Any] = {}  # the entry that is open or on its way

    def connect(self) -> None:
        """Begin to send."""
        self.sent.mkdir(exist_ok=True)
        if self._last.exists():
            self._position = json.loads(self._last.read_text())

    def submit(self, intents: Sequence[Intent]) -> None:
        """Write orders: an entry and its provisional stop are one file.

        Raises HaltError for an order that was sent.
        """
        for intent in intents:
            if self._note_of(intent.id).exists():
                raise HaltError(f"order {intent.id} was sent twice")
            order, wanted, known = intent.order, intent.quantity, self._position
            if known and wanted * known["quantity"] > 0:
                moves = int(order.move_stop) != KEEP_STOP
                self._write(intent.id, [self._change_stop(int(order.move_stop))] if moves else [])
                continue
            lines = []
            if known or self.snapshot().quantity:
                lines.append(instruction("CLOSEPOSITION", **self._market))
            brackets = int(order.stop_ticks), int(order.target_ticks)
            position = {"id": intent.id, "quantity": wanted, "brackets": brackets}
            self._keep(position if wanted else {})
            if wanted:
                lines.append(self._place(wanted, intent.id, type="MARKET"))
                if brackets[0]:
                    level = intent.close - _sign(wanted) * brackets[0]
                    stop = {"type": "STOPMARKET", "stop": self._price(level), "oco": intent.id}
                    lines.append(self._place(-wanted, intent.id + "s", **stop))
            self._write(intent.id, lines)

    def follow(self, moved: TradedBar) -> None:
        """Move a stop that trails, and leave where our account is flat."""
        known, stop = self._position, int(moved.after.stop)
        if not known:
            return
        if not int(moved.after.quantity):
            self._write(known["id"] + "x", [instruction("CLOSEPOSITION", **self._market)])
            self._keep({})
        elif stop != int(moved.before.stop) and int(moved.before.quantity) and abs(stop) < NO_LEVEL:
            self._write(f"{known['id']}s{stop}", [self._change_stop(stop)])

    def poll(self) -> Sequence[BrokerFill]:
        """Once an entry is filled, move its stop and place its target around the fill."""
        known = self._position
        name = known.get("id", "")
        if not known or self._note_of(name + "b").exists():
            return []
        state = self._read(f"{name}.txt")
        if state[0] in ENDED:
            self._write(name + "b", [instruction("CANCEL", id=name + "s")])
            self._keep({})
        if state[0] != "FILLED":
            return []
        fill, quantity = round(float(state[2]) / float(self.tick)), known["quantity"]
        side, (stop, target) = _sign(quantity), known["brackets"]
        lines = [self._change_stop(fill - side * stop)] if stop else []
        if target:
            limit = {"type": "LIMIT", "limit": self._price(fill + side * target), "oco": name}
            lines.append(self._place(-quantity, name + "t", **limit))
        self._write(name + "b", lines)
        return [BrokerFill(quantity, fill, "entry")]

    def snapshot(self) -> BrokerState:
        """Return the position that NinjaTrader reports, 0 without a report, and what was sent."""
        account, instrument = self._market["account"], self._market["instrument"]
        found = self._read(f"{instrument}*_{account}_Position.txt")
        quantity = {"LONG": 1, "SHORT": -1}.get(found[0], 0) and int(found[1])
        orders = frozenset(path.stem for path in self.sent.glob("*.txt"))
        return BrokerState(-quantity if found[0] == "SHORT" else quantity, orders)

    def close(self) -> None:
        """Leave orders and position as they are."""

    def _read(self, pattern: str) -> list[str]:
        """Return the fields of a file of `outgoing`; one empty field if there is none."""
        for path in (self.folder / "outgoing").glob(pattern):
            fields = path.read_text().strip().split(";")
            return [field.strip().upper() for field in fields]
        return [""]

    def _place(self, quantity: int, name: str, **fields: object) -> str:
        action = "BUY" if quantity > 0 else "SELL"
        about = {**self._market, "action": action, "qty": abs(quantity), "tif": "DAY", "id": name}
        return instruction("PLACE", **about, **fields)

    def _change_stop(self, level: int) -> str:
        """Return the change of the stop; 0 leaves a field as it is."""
        name = self._position["id"] + "s"
        return instruction("CHANGE", qty=0, limit=0, stop=self._price(level), id=name)

    def _price(self, level: int) -> str:
        return f"{level * self.tick:f}"

    def _note_of(self, name: str) -> Path:
        return self.sent / f"{name}.txt"

    def _keep(self, position: dict[str, Any]) -> None:
        self._position = position
        digests.write_whole(self._last, json.dumps(position))

    def _write(self, name: str, lines: Sequence[str]) -> None:
        """Note the lines, then send them, once."""
        if self._note_of(name).exists():
            return
        text = "".join(line + "\n" for line in lines)
        digests.write_whole(self._note_of(name), text)
        if lines:
            waiting = self.sent / f"{name}.part"
            waiting.write_text(text)
            number = sum(1 for _ in self.sent.glob("*.txt"))  # names in the order of writing
            os.replace(waiting, self.folder / "incoming" / f"oif{number:08}{name}.txt")


def _sign(quantity: int) -> int:
    return 1 if quantity > 0 else -1
