"""Order files for NinjaTrader 8: what the simulated account does, written for its folder to read.

Never run against NinjaTrader: written after its documentation (order instruction files and
information update files of the Automated Trading Interface), and tested with a fake of its folder.

Each file is written elsewhere and renamed into `incoming`, because NinjaTrader reads a file the
instant that it appears. `jaxtrade/sent.json` beside it notes what is sent, before it is, so an order
goes out once at most, also where a restart of NinjaTrader has emptied `outgoing`.
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
        self.folder, self.tick = folder, contract.tick_size
        self._market = {"account": named[0], "instrument": named[1]}
        self._close = instruction("CLOSEPOSITION", **self._market)
        self._file = folder / "jaxtrade" / "sent.json"
        self._sent: dict[str, list[str]] = {}  # name -> lines
        self._position: dict[str, Any] = {}  # the entry that is open or on its way

    def connect(self) -> None:
        """Begin to send."""
        self._file.parent.mkdir(exist_ok=True)
        if self._file.exists():
            self._sent, self._position = json.loads(self._file.read_text())

    def submit(self, intents: Sequence[Intent]) -> None:
        """Write orders: an entry and its provisional stop are one file.

        Raises HaltError for an order that was sent.
        """
        for name, _, wanted, order, close in intents:
            if name in self._sent:
                raise HaltError(f"order {name} was sent twice")
            known, lines = self._position, list[str]()
            if known and wanted * known["quantity"] > 0:
                if int(order.move_stop) != KEEP_STOP:
                    lines.append(self._change_stop(int(order.move_stop)))
            else:
                if known or self.snapshot().quantity:
                    lines.append(self._close)
                side = 1 if wanted > 0 else -1
                stop, target = -side * int(order.stop_ticks), side * int(order.target_ticks)
                known = {"id": name, "quantity": wanted, "stop": stop, "target": target}
                self._position = known if wanted else {}
                if wanted:
                    lines.append(self._place(wanted, name, "MARKET"))
                if wanted and stop:
                    level = self._price(close + stop)
                    lines.append(
                        self._place(-wanted, name + "s", "STOPMARKET", stop=level, oco=name)
                    )
            self._send(name, lines)

    def follow(self, moved: TradedBar) -> None:
        """Move a stop that trails, and leave where our account is flat."""
        known, stop = self._position, int(moved.after.stop)
        if not known:
            return
        if not int(moved.after.quantity):
            self._position = {}
            self._send(known["id"] + "x", [self._close])
        elif stop != int(moved.before.stop) and int(moved.before.quantity) and abs(stop) < NO_LEVEL:
            self._send(f"{known['id']}s{stop}", [self._change_stop(stop)])

    def poll(self) -> Sequence[BrokerFill]:
        """Once an entry is filled, move its stop and place its target around the fill."""
        known = self._position
        name = known.get("id", "")
        if not known or name + "b" in self._sent:
            return []
        state = self._read(f"{name}.txt")
        if state[0] in ENDED:
            self._position = {}
            self._send(name + "b", [instruction("CANCEL", id=name + "s")])
        if state[0] != "FILLED":
            return []
        fill, quantity = round(float(state[2]) / float(self.tick)), known["quantity"]
        lines = [self._change_stop(fill + known["stop"])] if known["stop"] else []
        if known["target"]:
            level = self._price(fill + known["target"])
            lines.append(self._place(-quantity, name + "t", "LIMIT", limit=level, oco=name))
        self._send(name + "b", lines)
        return [BrokerFill(quantity, fill, "entry")]

    def snapshot(self) -> BrokerState:
        """Return the position that NinjaTrader reports, 0 without a report, and what was sent."""
        account, instrument = self._market["account"], self._market["instrument"]
        found = self._read(f"{instrument}*_{account}_Position.txt")
        side = {"LONG": 1, "SHORT": -1}.get(found[0], 0)
        return BrokerState(side * int(found[1]), frozenset(self._sent))

    def close(self) -> None:
        """Leave orders and position as they are."""

    def _read(self, pattern: str) -> list[str]:
        """Return the fields of a file of `outgoing`."""
        for path in (self.folder / "outgoing").glob(pattern):
            return [field.strip().upper() for field in path.read_text().split(";")]
        return ["", "0"]

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

    def _send(self, name: str, lines: list[str]) -> None:
        """Note the lines and the position, then send them, once."""
        if name in self._sent:
            return
        self._sent[name] = lines
        digests.write_whole(self._file, json.dumps([self._sent, self._position]))
        if lines:
            waiting = self._file.with_name(f"{name}.part")
            waiting.write_text("".join(line + "\n" for line in lines))
            number = len(self._sent)  # names in the order of writing
            os.replace(waiting, self.folder / "incoming" / f"oif{number:08}{name}.txt")
