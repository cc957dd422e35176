"""Feeds of bars, and what may be wrong with a message: the table of faults in docs/deploy.md."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from decimal import Decimal
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import PRICES, Bars
from jaxtrade.data.read.validate import QUOTE_FIELDS
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs.decide import check_date, read_bar, read_bars, read_lines, read_time
from jaxtrade.stream.live import Stream

Message = Mapping[str, Any]
Item = str | Message | None  # a line or its message; None where a live feed is silent


class RefusedError(Exception):
    """A message that is not traded on. args: the kind of fault, and why."""


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


def time_of(item: Item) -> int | None:
    """Return the time of a message in UTC seconds; None if it has none."""
    try:
        return read_time(parse(item or "").get("time"))
    except (RefusedError, DataError):
        return None


def check(line: str | Message, stream: Stream, now: int | None, early: float = 0.0) -> Bars:
    """Return the next bar of a stream. Raises RefusedError.

    now: UTC seconds; None without a clock.
    early: seconds that the clock may be behind.
    """
    message, last, contract = parse(line), stream.rows.bar, stream.contract
    seconds = message.get("bar_seconds", last.bar_seconds)
    if str(message.get("symbol")).upper() != contract.symbol:
        why = f"symbol = {message.get('symbol')}, expected {contract.symbol}"
        raise RefusedError("symbol", why)
    if seconds != last.bar_seconds:
        raise RefusedError("length", f"bar_seconds = {seconds}, expected {last.bar_seconds}")
    try:
        bar = read_bar(message, stream)
    except DataError as error:
        raise RefusedError("value", str(error)) from None
    time, newest = int(bar.time[0]), int(last.time[0])
    early_by = 0 if now is None else time + seconds - now
    if message.get("complete", True) is not True or early_by > early:
        raise RefusedError("unfinished", f"the bar of {time} ends at {time + seconds}, now: {now}")
    if time < newest:
        raise RefusedError("older", f"time = {time}, the newest bar is of {newest}")
    if time == newest:
        same = to_message(bar) == to_message(last)
        raise RefusedError("duplicate" if same else "revision", f"of the bar of {time}")
    check_date(bar, stream)
    return bar


def to_message(bar: Bars) -> dict[str, Any]:
    """Return a bar of length 1 as the message that `read_bar` reads."""
    fields = PRICES if bar.ask is None else QUOTE_FIELDS
    tick, day = bar.contract.tick_size, str(bar.trade_dates[0])
    prices = zip(fields, chain(*bar.quotes), strict=True)
    begun = [leg.expiry for leg in bar.legs if leg.first == "start" or leg.first <= day]
    return {
        "time": int(bar.time[0]),
        "symbol": bar.contract.symbol,
        **{key: str(int(price[0]) * tick) for key, price in prices},
        "volume": float(bar.volume[0]),
        **({"expiry": begun[-1]} if any(begun[-1:]) else {}),
    }


def bars_messages(bars: Bars) -> Iterator[Message]:
    """Yield the bars of a series as messages."""
    for row in range(len(bars)):
        yield to_message(bars.rows(slice(row, row + 1)))


def open_feed(
    source: str, config: RunConfig, overrides: Sequence[str] = ()
) -> tuple[Iterable[Item], float]:
    """Open `--feed`: a file of bars, a file of JSON lines, `-` or ws://HOST:PORT.

    Returns its items, and the UTC seconds of its first bar: infinite for a live feed.
    Raises ConfigError, and DataError for a file that cannot be read.
    """
    path = Path(source)
    if not path.is_file():
        return live(source), inf
    if path.suffix != ".jsonl":
        bars = read_bars(config, path, overrides)
        return bars_messages(bars), int(bars.time[0])
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines, next(filter(None, map(time_of, lines)), inf)


def live(source: str, pause: float = 1.0) -> Iterator[str | None]:
    """Yield the lines of standard input (`-`) or of a WebSocket (ws://, wss://).

    None after each pause without one. Raises ConfigError for another source, or without the
    package `websockets`; DataError for a feed that is lost.
    """
    waiting: queue.Queue[Any] = queue.Queue()
    with nullcontext(read_lines()) if source == "-" else _connect(source) as lines:

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
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise ConfigError(
            f"--feed {source}: needs the package websockets; pip install 'jaxtrade[paper]'"
        ) from None
    try:
        return connect(source)
    except (OSError, ValueError, WebSocketException) as error:
        raise ConfigError(f"--feed {source}: cannot connect ({error})") from None
