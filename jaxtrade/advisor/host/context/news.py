"""A news feed: a JSONL file of time-stamped texts, of which a question shows those that were known
before its close.

Each line is an object with `time` (ISO with offset), `source`, `text`, and `symbol` if it concerns
one market only.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host.context.quoting import plain, quoted
from jaxtrade.advisor.host.context.stamps import local, seconds_of, text_of
from jaxtrade.advisor.host.names import nearest
from jaxtrade.config.context import ContextConfig
from jaxtrade.errors import DataError

KEY = "advisor.context.news"
LAYOUT: Mapping[str, str] = MappingProxyType(
    {
        "head": "News known before the close, oldest first.",
        "none": "News: {none}",
        "stamp": "%Y-%m-%d %H:%M",
        "name": "NEWS",
    }
)
_FIELDS = ("time", "source", "text", "symbol")
_MOST_SOURCE = 40  # characters of a source that are shown
_HOUR = 3600.0


class NewsItem(NamedTuple):
    """One item. time: UTC seconds of its stamp. symbol: the market that it concerns; None for
    all.
    """

    time: float
    source: str
    text: str
    symbol: str | None


class News(NamedTuple):
    """The items of a feed by time, their times, and the SHA-256 (hex) of the file."""

    items: tuple[NewsItem, ...]
    times: tuple[float, ...]
    sha256: str


def read_news(path: Path) -> News:
    """Read a feed. Raises DataError naming file, line and field of the first fault."""
    text = text_of(path, KEY)
    items = [
        _item(line, f"{path}: line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not items:
        raise DataError(f"{path}: holds no news; expected one JSON object per line ({KEY})")
    items.sort(key=lambda item: item.time)
    return News(
        tuple(items), tuple(item.time for item in items), hashlib.sha256(text.encode()).hexdigest()
    )


def _item(line: str, where: str) -> NewsItem:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where}: not JSON; expected {_EXAMPLE}") from None
    if not isinstance(found, dict):
        raise DataError(f"{where}: {type(found).__name__}, expected an object such as {_EXAMPLE}")
    for name in found:
        if name not in _FIELDS:
            raise DataError(f"{where}: field {ascii(name)[:40]}: unknown{nearest(name, _FIELDS)}")
    if (time := seconds_of(found.get("time"))) is None:
        raise DataError(
            f"{where}: field 'time': {_short(found.get('time'))}; expected a stamp with its UTC offset, as "
            "2013-10-07T09:20:00-04:00"
        )
    source, text = (_words(found, name, where) for name in ("source", "text"))
    symbol = found.get("symbol")
    if symbol is not None and not isinstance(symbol, str):
        raise DataError(
            f"{where}: field 'symbol': {_short(symbol)}; expected text such as ES, or leave it out"
        )
    return NewsItem(time, source, text, symbol)


def _words(found: Mapping[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not plain(value, _MOST_SOURCE):
        raise DataError(
            f"{where}: field {name!r}: {_short(value)}; expected text with at least one readable word, or "
            "take the line out"
        )
    return value


def _short(value: object) -> str:
    return "missing" if value is None else f"found {ascii(value)[:60]}"


_EXAMPLE = '{"time": "2013-10-07T09:20:00-04:00", "source": "wire", "text": "..."}'


def known_before(news: News, close: float, delay: float) -> int:
    """How many items, by time, were known strictly before `close`: those with time + delay <
    close.
    """
    return bisect_left(news.times, close - delay)


def news_block(
    news: News, symbol: str, close: float, zone: str, config: ContextConfig, none: str
) -> str:
    """The news of a market at a bar's close (UTC seconds): the latest items of the look-back,
    oldest first, quoted.

    none: the word for no items. Times are wall times of `zone`.
    """
    first = bisect_left(news.times, close - config.news_hours * _HOUR)
    known = news.items[first : known_before(news, close, config.news_delay_s)]
    shown = [item for item in known if item.symbol in (None, symbol)][-config.news_items :]
    if not shown:
        return LAYOUT["none"].format(none=none)
    return f"{LAYOUT['head']} " + quoted(
        LAYOUT["name"],
        [
            {
                "time": local(item.time, zone, LAYOUT["stamp"]),
                "source": plain(item.source, _MOST_SOURCE),
                "text": plain(item.text, config.news_chars),
            }
            for item in shown
        ],
    )
