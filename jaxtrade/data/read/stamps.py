"""Convert the stamps of a data file to UTC seconds. Zone and format are given or explicit, never guessed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from jaxtrade.data.formats.layout import Order
from jaxtrade.data.read.cells import whole_numbers
from jaxtrade.data.read.dates import day_and_month, iso_text
from jaxtrade.data.read.faults import Faults
from jaxtrade.data.read.iso import read_iso
from jaxtrade.data.read.tabular import Table, as_numbers
from jaxtrade.errors import ConfigError

EARLIEST, LATEST = 631_152_000, 4_102_444_800  # 1990-01-01 and 2100-01-01 in UTC seconds
SHIFTED = re.compile(r"(.+?)([+-]\d{1,2})h")  # a zone plus whole hours: America/New_York+7h
DATED = re.compile(r"\d{4}-?\d\d-?\d\d")
UNREAD, BROKEN = np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1  # not a stamp; not a whole second
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
OFFSET = re.compile(r"[T\s]\d\d(?::?\d\d(?::?\d\d(?:[.,]\d+)?)?)?\s*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$|\d[Zz]$")


def parse_stamps(table: Table, name: str, rows: np.ndarray, time_zone: str | None, faults: Faults,
                 notes: list[str], date_order: Order | None = None) -> np.ndarray:
    """UTC seconds of the chosen rows, int64[len(rows)]. An unreadable stamp is recorded as a fault and becomes 0.

    Accepted formats: ISO 8601 with an offset; ISO 8601 without an offset, if `time_zone` is given; the same with other
    marks in the date, or with the year last (`date_order`, unless a day above 12 proves it); integers since 1970
    (always UTC). The unit of integers is the only one that puts every stamp between 1990 and 2100.
    """
    zone = _zone(time_zone, faults)
    if not len(rows):
        return np.zeros(0, np.int64)
    order = day_and_month(table, name, rows, date_order, faults, notes)
    usual = _usual(table, name, rows, zone, time_zone, order, faults, notes)
    if usual is not None:
        return usual
    series = table.series(name, rows).reset_index(drop=True)
    kind = series.dtype.kind if hasattr(series.dtype, "kind") else "O"
    if getattr(series.dtype, "tz", None) is not None:
        utc = _seconds(series.dt.tz_convert("UTC").dt.tz_localize(None))
    elif kind == "M":
        utc = _localize(series, series.notna().to_numpy(bool), zone, name, rows, faults)
    else:
        numbers = as_numbers(series)
        if not np.isnan(numbers).any():
            return _epoch(numbers, _whole(series, numbers), table, name, rows, faults, notes)
        utc = _text(iso_text(series.astype(str), order), zone, name, rows, faults)
        _note_offset(str(series.iloc[0]), time_zone, notes)
    return _bounded(utc, table, name, rows, faults)


def _usual(table: Table, name: str, rows: np.ndarray, zone: Zone | None, time_zone: str | None, order: Order | None,
           faults: Faults, notes: list[str]) -> np.ndarray | None:
    """`parse_stamps` for a text column in bytes whose cells all have one usual form; None for any other column."""
    cells = table.cells(name)
    if cells is None:
        return None
    chosen = cells.chosen(rows)
    whole = whole_numbers(chosen)
    if whole is not None:
        return _epoch(whole.astype(np.float64), whole, table, name, rows, faults, notes)
    stamps = read_iso(chosen, order)
    if stamps is None:
        return None
    if stamps.aware:
        _note_offset(chosen.text(0), time_zone, notes)
        return _bounded(stamps.seconds, table, name, rows, faults)
    import pandas as pd

    naive = pd.Series(stamps.seconds.view("datetime64[s]"))
    return _bounded(_localize(naive, np.ones(len(rows), bool), zone, name, rows, faults), table, name, rows, faults)


def _whole(series: Any, numbers: np.ndarray) -> np.ndarray:
    """A column of numbers as int64[n], exactly; `numbers` themselves if one of them is not whole.

    Text such as 1381152600.0 goes over float64, which holds every second of the years 1990 to 2100 in any unit.
    """
    if (numbers % 1 != 0).any():
        return numbers
    if series.dtype.kind == "O" and not series.astype(str).str.strip().str.fullmatch(r"\d+").all():
        return numbers.astype(np.int64)
    return series.astype("int64").to_numpy()


OWN_OFFSET = "stamps carry their own offset"


def _note_offset(first: str, time_zone: str | None, notes: list[str]) -> None:
    if time_zone is not None and OFFSET.search(first):
        notes.append(f"{OWN_OFFSET}; data.time_zone={time_zone} is not needed")


def iso(seconds: int) -> str:
    """UTC seconds as 2013-10-07T13:30:00Z."""
    return f"{np.datetime64(int(seconds), 's')}Z"


class Zone(NamedTuple):
    """Wall time of the IANA zone `name` plus a whole number of hours. Some trading servers use such clocks."""

    name: str
    hours: int


UNKNOWN_ZONE = ("set data.time_zone to an IANA name such as America/New_York or UTC, or to one with a fixed shift such "
                "as America/New_York+7h")


def known_zone(text: str) -> Zone:
    """The zone that a text names. Raises ConfigError if there is none."""
    shifted = SHIFTED.fullmatch(text)
    name, hours = (shifted[1], int(shifted[2])) if shifted else (text, 0)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"unknown time zone '{text}'; {UNKNOWN_ZONE}") from None
    return Zone(name, hours)


def _zone(text: str | None, faults: Faults) -> Zone | None:
    if text is None:
        return None
    try:
        return known_zone(text)
    except ConfigError:
        faults.add(f"unknown time zone '{text}'", UNKNOWN_ZONE)
        faults.stop()
        raise


def _seconds(naive: Any) -> np.ndarray:
    """Naive datetimes in any pandas resolution -> seconds since 1970. Unusable values become UNREAD or BROKEN."""
    values = naive.to_numpy()  # in its own resolution: years beyond 2262 do not fit in nanoseconds
    ticks, second = values.astype(np.int64), PER_SECOND[np.datetime_data(values.dtype)[0]]
    return np.where(np.isnat(values), UNREAD, np.where(ticks % second != 0, BROKEN, ticks // second))


def _text(text: Any, zone: Zone | None, name: str, rows: np.ndarray, faults: Faults) -> np.ndarray:
    """UTC seconds of ISO 8601 text. Either all cells have an offset, or none does."""
    import pandas as pd

    dated = text.str.match(DATED).to_numpy(bool)
    aware = text.str.contains(OFFSET, regex=True).to_numpy(bool) | ~dated  # cells that are not stamps fail below
    if aware.any() and not aware.all() and dated[aware].any():
        odd = int(np.flatnonzero(dated & (aware != aware[dated][0]))[0])
        faults.add("some stamps carry a time zone offset and some do not", "write all of them the same way",
                   int(rows[odd]), name, text.iloc[odd])
        faults.stop()
    if aware[dated].all():
        parsed = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce").dt.tz_localize(None)
        return _seconds(parsed)
    parsed = pd.to_datetime(text, format="ISO8601", errors="coerce")
    return _localize(parsed, parsed.notna().to_numpy(), zone, name, rows, faults)


def _localize(naive: Any, valid: np.ndarray, zone: Zone | None, name: str, rows: np.ndarray,
              faults: Faults) -> np.ndarray:
    if zone is None:
        faults.add("stamps carry no time zone", "set data.time_zone, e.g. data.time_zone=America/New_York or "
                   "data.time_zone=UTC (time_zone=... in Python)", int(rows[0]), name, naive.iloc[0])
        faults.stop()
        raise AssertionError("a fault was added: stop raises")
    shifted = naive - np.timedelta64(zone.hours, "h")
    local = shifted.dt.tz_localize(zone.name, ambiguous="NaT", nonexistent="NaT")
    clash = np.flatnonzero(valid & local.isna().to_numpy())
    for i in clash:
        faults.add(f"this hour occurs twice or never in {zone.name} (daylight saving)", "write the stamps in UTC",
                   int(rows[i]), name, naive.iloc[int(i)])
    out = _seconds(local.dt.tz_convert("UTC").dt.tz_localize(None))
    out[clash] = 0  # already recorded
    return out


def _epoch(numbers: np.ndarray, whole: np.ndarray, table: Table, name: str, rows: np.ndarray, faults: Faults,
           notes: list[str]) -> np.ndarray:
    """numbers: float64[n]. whole: the same as int64[n] if all of them are whole."""
    fits = [unit for unit, scale in UNITS.items()
            if (numbers >= EARLIEST * scale).all() and (numbers <= LATEST * scale).all()]
    if len(fits) != 1:
        faults.add("numbers that are not seconds, milli-, micro- or nanoseconds since 1970 of years 1990-2100",
                   "write stamps as ISO 8601, e.g. 2013-10-07T13:30:00Z", int(rows[0]), name,
                   table.cell(name, int(rows[0])))
        faults.stop()
    notes.append(f"column '{name}' read as {fits[0]} since 1970 (UTC)")
    scale = UNITS[fits[0]]
    utc = np.where(whole % scale != 0, BROKEN, whole // scale).astype(np.int64)
    return _bounded(utc, table, name, rows, faults)


def _bounded(utc: np.ndarray, table: Table, name: str, rows: np.ndarray, faults: Faults) -> np.ndarray:
    if len(utc) and utc.min() >= EARLIEST and utc.max() <= LATEST:
        return utc
    lost = (utc == UNREAD) | (utc == BROKEN)
    for i in np.flatnonzero(utc == BROKEN):
        faults.add("a stamp between whole seconds", "give bars stamped at whole seconds", int(rows[i]), name,
                   table.cell(name, int(rows[i])))
    for i in np.flatnonzero(utc == UNREAD):
        faults.add("not an ISO 8601 stamp", "write YYYY-MM-DD HH:MM:SS, with an offset or with data.time_zone set",
                   int(rows[i]), name, table.cell(name, int(rows[i])))
    for i in np.flatnonzero(~lost & (utc != 0) & ((utc < EARLIEST) | (utc > LATEST))):
        faults.add("a stamp outside 1990-2100", "check the column and its unit", int(rows[i]), name,
                   table.cell(name, int(rows[i])))
    return np.where(lost, 0, utc)
