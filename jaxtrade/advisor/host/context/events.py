"""A calendar of scheduled events: a CSV file with the columns time, name, importance and,
optionally, actual.

A schedule is known ahead, so events to come are shown by their scheduled time and name. The value
that an event brought (`actual`) is shown only once its time, and the delay of the feed, have
passed.
"""

from __future__ import annotations

import csv
import hashlib
import io
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jaxtrade.advisor.host.context.quoting import plain, quoted
from jaxtrade.advisor.host.context.stamps import local, seconds_of, text_of
from jaxtrade.advisor.host.names import nearest
from jaxtrade.config.context import ContextConfig
from jaxtrade.errors import DataError

KEY = "advisor.context.calendar"
IMPORTANCE = ("low", "medium", "high")
LAYOUT: Mapping[str, str] = MappingProxyType(
    {
        "head": "Scheduled events around the close, oldest first; those without a value are "
        "still to come, or their value "
        "is not known.",
        "none": "Scheduled events: {none}",
        "stamp": "%Y-%m-%d %H:%M",
        "name": "EVENTS",
    }
)
_NEEDED, _ALL = ("time", "name", "importance"), ("time", "name", "importance", "actual")
_MOST_NAME, _MOST_VALUE = 80, 40  # characters that are shown
_HOUR = 3600.0


class Event(NamedTuple):
    """A scheduled event. time: UTC seconds. actual: the value that it brought; None if the file has
    none.
    """

    time: float
    name: str
    importance: str
    actual: str | None


class Events(NamedTuple):
    """The events of a calendar by time, their times, and the SHA-256 (hex) of the file."""

    items: tuple[Event, ...]
    times: tuple[float, ...]
    sha256: str


def read_events(path: Path) -> Events:
    """Read a calendar. Raises DataError naming file, line and column of the first fault."""
    text = text_of(path, KEY)
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        _check_head(head, path)
        found = [
            _event(
                dict(zip(head, row, strict=False)),
                len(row) == len(head),
                f"{path}: line {reader.line_num}",
            )
            for row in reader
            if row
        ]
    except csv.Error as error:
        raise DataError(
            f"{path}: line {reader.line_num}: no CSV ({error}); put cells that hold a comma in "
            "quotes"
        ) from None
    if not found:
        raise DataError(f"{path}: holds no events; expected rows below {','.join(_NEEDED)} ({KEY})")
    found.sort(key=lambda event: event.time)
    return Events(
        tuple(found),
        tuple(event.time for event in found),
        hashlib.sha256(text.encode()).hexdigest(),
    )


def _check_head(head: Sequence[str], path: Path) -> None:
    for name in head:
        if name not in _ALL:
            raise DataError(
                f"{path}: line 1: column {ascii(name)[:40]}: unknown{nearest(name, _ALL)} ({KEY})"
            )
    missing = [name for name in _NEEDED if name not in head]
    if missing or len(set(head)) < len(head):
        raise DataError(
            f"{path}: line 1: columns {','.join(head) or 'none'}; expected each of {','.join(_NEEDED)} "
            f"once, and actual if the values are known ({KEY})"
        )


def _event(row: Mapping[str, str], whole: bool, where: str) -> Event:
    if not whole:
        raise DataError(
            f"{where}: has not as many cells as the first line; put cells that hold a comma in quotes"
        )
    if (time := seconds_of(row["time"].strip())) is None:
        raise DataError(
            f"{where}: column 'time': found {ascii(row['time'])[:60]}; expected a stamp with its UTC "
            "offset, as 2013-10-08T08:30:00-04:00"
        )
    if not plain(row["name"], _MOST_NAME):
        raise DataError(f"{where}: column 'name': found {ascii(row['name'])[:60]}; expected text")
    if (importance := row["importance"].strip()) not in IMPORTANCE:
        raise DataError(
            f"{where}: column 'importance': found {ascii(importance)[:40]}; expected one of "
            f"{', '.join(IMPORTANCE)}"
        )
    return Event(time, row["name"], importance, row.get("actual", "").strip() or None)


def value_at(event: Event, close: float, delay: float) -> str | None:
    """The event's value if it was known strictly before `close` (UTC seconds); None if it was not,
    or is missing.
    """
    return event.actual if event.time + delay < close else None


def events_block(events: Events, close: float, zone: str, config: ContextConfig, none: str) -> str:
    """The events around a bar's close (UTC seconds), oldest first, quoted. none: the word for no
    events.
    """
    first = bisect_left(events.times, close - config.calendar_back_hours * _HOUR)
    last = bisect_right(events.times, close + config.calendar_ahead_hours * _HOUR)
    least = IMPORTANCE.index(config.calendar_importance)
    shown = [
        _shown(event, close, zone, config.news_delay_s)
        for event in events.items[first:last]
        if IMPORTANCE.index(event.importance) >= least
    ]
    if not shown:
        return LAYOUT["none"].format(none=none)
    return f"{LAYOUT['head']} " + quoted(LAYOUT["name"], shown)


def _shown(event: Event, close: float, zone: str, delay: float) -> dict[str, str]:
    value = value_at(event, close, delay)
    return {
        "time": local(event.time, zone, LAYOUT["stamp"]),
        "name": plain(event.name, _MOST_NAME),
        **({} if value is None else {"value": plain(value, _MOST_VALUE)}),
    }
