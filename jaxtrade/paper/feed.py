"""Feeds of bars, and what may be wrong with a message."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

from jaxtrade.data.bars import PRICES, Bars
from jaxtrade.data.read.validate import QUOTE_FIELDS
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs.decide import read_bar
from jaxtrade.stream.live import Stream

# Fault of a feed: what it is, and what is done.
FAULTS = {
    "text": ("no JSON object on the line", "refused"),
    "fields": ("`time`, `symbol` or a price is missing", "refused"),
    "value": (
        "a time without an offset, a price that is no positive multiple of the tick (NaN), low "
        "above high, a negative volume",
        "refused",
    ),
    "symbol": ("another symbol", "refused"),
    "length": ("another bar length: `bar_seconds`, or a time off the grid", "refused"),
    "unfinished": ("`complete: false`, or the bar ends later than now", "refused"),
    "older": ("older than the newest bar", "refused: an old bar is never changed"),
    "duplicate": ("the newest bar once more", "ignored"),
    "revision": ("the newest bar with other figures", "the first version stays as traded"),
    "calendar": ("the bar cannot follow, or lies outside the calendar", "refused"),
    "late": ("a bar of a session that has been closed", "history: nothing is decided on it"),
    "stale": (
        "no bar for `stale_bars` bar lengths within a session, or a bar that is as late",
        "no entry until a bar arrives in time",
    ),
}
Message = Mapping[str, Any]


class RefusedError(Exception):
    """A message that is not traded on. kind: of `FAULTS`."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def parse(line: str | Message) -> Message:
    """Parse a line of JSON. Raises RefusedError."""
    if isinstance(line, Mapping):
        return line
    try:
        found = json.loads(line, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError) as error:
        raise RefusedError("text", str(error)) from None
    if not isinstance(found, dict):
        raise RefusedError("text", f"expected an object, found {type(found).__name__}")
    return found


def check(message: Message, stream: Stream, now: int | None, early: float = 0.0) -> Bars:
    """Return the next bar of a stream. Raises RefusedError.

    now: UTC seconds; None without a clock.
    early: seconds that the clock may be behind.
    """
    last = stream.rows.bar
    needed = ("time", "symbol", *(PRICES if last.ask is None else QUOTE_FIELDS))
    if absent := [key for key in needed if message.get(key) is None]:
        raise RefusedError("fields", f"no {', '.join(absent)}")
    symbol, seconds = stream.contract.symbol, last.bar_seconds
    if str(message["symbol"]).upper() != symbol:
        raise RefusedError("symbol", f"symbol = {message['symbol']}, expected {symbol}")
    if message.get("bar_seconds", seconds) != seconds:
        raise RefusedError("length", f"bar_seconds = {message['bar_seconds']}, expected {seconds}")
    try:
        bar = read_bar(message, stream)
    except DataError as error:
        raise RefusedError("value", str(error)) from None
    time, newest = int(bar.time[0]), int(last.time[0])
    if message.get("complete", True) is not True or (
        now is not None and time + seconds > now + early
    ):
        raise RefusedError(
            "unfinished", f"the bar of {time} ends at {time + seconds}, now it is {now}"
        )
    if time < newest:
        raise RefusedError("older", f"time = {time}, the newest bar is of {newest}")
    if time == newest:
        same = to_message(bar) == to_message(last)
        raise RefusedError(*("duplicate", "as before") if same else ("revision", "other figures"))
    if (time - newest) % seconds:
        raise RefusedError(
            "length", f"time = {time}, expected {newest} and a multiple of {seconds}"
        )
    return bar


def to_message(bar: Bars) -> dict[str, Any]:
    """Return a bar of length 1 as the message that `read_bar` reads."""
    fields = PRICES if bar.ask is None else QUOTE_FIELDS
    prices = [int(price[0]) for side in bar.quotes for price in side]
    found = {
        "time": int(bar.time[0]),
        "symbol": bar.contract.symbol,
        **{
            key: str(price * bar.contract.tick_size)
            for key, price in zip(fields, prices, strict=True)
        },
        "volume": float(bar.volume[0]),
    }
    day = str(bar.trade_dates[0])
    begun = [leg.expiry for leg in bar.legs if leg.first == "start" or leg.first <= day]
    return found | ({"expiry": begun[-1]} if begun and begun[-1] else {})


def bars_messages(bars: Bars) -> Iterator[Message]:
    """Yield the bars of a series as messages."""
    for row in range(len(bars)):
        yield to_message(bars.rows(slice(row, row + 1)))


def live(source: str, pause: float = 1.0) -> Iterator[str | None]:
    """Yield the lines of standard input (`-`) or of a WebSocket (ws://, wss://).

    None after each pause without one. Raises ConfigError for another source, or without the
    package `websockets`; DataError for a feed that is lost.
    """
    waiting: queue.Queue[Any] = queue.Queue()
    with nullcontext(sys.stdin) if source == "-" else _connect(source) as lines:

        def read() -> None:
            try:
                for line in lines:
                    waiting.put(str(line))
                waiting.put(None)
            except Exception as error:  # a lost connection
                waiting.put(error)

        threading.Thread(target=read, name="jaxtrade-feed", daemon=True).start()
        while True:
            try:
                found = waiting.get(timeout=pause)
            except queue.Empty:
                yield None
                continue
            if found is None:
                return
            if isinstance(found, Exception):
                raise DataError(
                    f"--feed {source}: the feed was lost ({found}); start the command again"
                )
            yield found


def _connect(source: str) -> Any:
    if not source.startswith(("ws://", "wss://")):
        raise ConfigError(f"--feed {source}: expected a file, - or ws://HOST:PORT")
    try:
        from websockets.sync.client import connect
    except ImportError:
        raise ConfigError(
            f"--feed {source}: needs the package websockets; pip install 'jaxtrade[paper]'"
        ) from None
    try:
        return connect(source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--feed {source}: cannot connect ({error})") from None


def is_live(source: str) -> bool:
    """Return whether a feed has a clock: it is no file."""
    return not Path(source).is_file()
