"""Convert the stamps of a data file to UTC seconds. Zone and format are given or explicit, never
guessed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from jaxtrade.data.calendar.schedule import local_seconds, most_common
from jaxtrade.data.formats.recognise import SERVER
from jaxtrade.data.read.grammar import BROKEN, LAST, UNREAD, Order, read_stamps
from jaxtrade.data.read.tabular import Table, as_numbers, is_text, texts_of
from jaxtrade.errors import ConfigError

EARLIEST, LATEST = 631_152_000, 4_102_444_800  # 1990-01-01 and 2100-01-01 in UTC seconds
SHIFTED = re.compile(r"(.+?)([+-]\d{1,2})h")  # a zone plus whole hours: America/New_York+7h
NUMBER = re.compile(r"[\d.eE+-]+", re.ASCII)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
PROBES = 5000  # cells in which a day above 12 is looked for
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def parse_stamps(
    table: Table, name: str, time_zone: str | None, date_order: Order | None = None
) -> np.ndarray:
    """UTC seconds of the rows, int64[n]. An unreadable stamp is recorded as a fault
    and becomes 0.

    Accepted formats: ISO 8601 with an offset; ISO 8601 without an offset, if `time_zone` is given;
    the same with other marks in the date, or with the year last (`date_order`, unless a day above
    12 proves it); integers since 1970 (always UTC). The unit of integers is the only one that puts
    every stamp between 1990 and 2100.
    """
    zone = _zone(time_zone, table)
    if not len(table):
        return np.zeros(0, np.int64)
    series = table.series(name).reset_index(drop=True)
    if getattr(series.dtype, "tz", None) is not None:
        wall = _seconds(series.dt.tz_convert("UTC").dt.tz_localize(None))
    elif series.dtype.kind == "M":
        wall = _localize(_seconds(series), zone, table, name)
    elif (whole := _whole_numbers(series)) is not None:
        wall = _epoch(*whole, table, name)
    else:
        order = day_and_month(table, name, date_order)
        wall, aware = read_stamps(texts_of(series), order)
        if time_zone is not None and aware[0]:
            table.notes.append(f"{OWN_OFFSET}; data.time_zone={time_zone} is not needed")
        known = (wall != UNREAD) & (wall != BROKEN)
        kinds = aware[known]
        if len(kinds) and (odd := kinds != kinds[0]).any():
            table.fault(
                "some stamps carry a time zone offset and some do not",
                "write all of them the same way",
                name,
                int(np.flatnonzero(known)[odd.argmax()]),
            )
            table.stop()
        naive = known & ~aware
        if naive.any():
            wall[naive] = _localize(wall[naive], zone, table.chosen(naive), name)
    return _bounded(wall, table, name)


def _whole_numbers(series: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """(float64[n], the same as int64[n], exactly, if all of them are whole) of a column of numbers;
    None for any other.

    Text such as 1381152600.0 goes over float64, which holds every second of the years 1990 to 2100
    in any unit.
    """
    import pyarrow as pa

    if is_text(series) and not NUMBER.fullmatch(str(series.iloc[0])):
        return None
    numbers = as_numbers(series)
    if np.isnan(numbers).any():
        return None
    if (numbers % 1 != 0).any():
        return numbers, numbers
    if series.dtype.kind != "O":
        return numbers, series.astype("int64").to_numpy()
    try:
        return numbers, texts_of(series).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # beyond 2^62 lies no year before 2100
        return numbers, np.clip(numbers, 0, 1 << 62).astype(np.int64)


OWN_OFFSET = "stamps carry their own offset"


class Zone(NamedTuple):
    """Wall time of the IANA zone `name` plus a whole number of hours. Some trading servers use such
    clocks.
    """

    name: str
    hours: int


UNKNOWN_ZONE = (
    "set data.time_zone to an IANA name such as America/New_York or UTC, or to one with a fixed shift such "
    "as America/New_York+7h"
)


def known_zone(text: str) -> Zone:
    """The zone that a text names. Raises ConfigError if there is none."""
    shifted = SHIFTED.fullmatch(text)
    name, hours = (shifted[1], int(shifted[2])) if shifted else (text, 0)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"unknown time zone '{text}'; {UNKNOWN_ZONE}") from None
    return Zone(name, hours)


def _zone(text: str | None, table: Table) -> Zone | None:
    if text is None:
        return None
    try:
        return known_zone(text)
    except ConfigError:
        table.fault(f"unknown time zone '{text}'", UNKNOWN_ZONE)
        table.stop()
        raise


def _seconds(naive: Any) -> np.ndarray:
    """Naive datetimes in any pandas resolution -> seconds since 1970. Unusable values become UNREAD
    or BROKEN.
    """
    values = naive.to_numpy()  # in its own resolution: years beyond 2262 do not fit in nanoseconds
    ticks, second = values.astype(np.int64), PER_SECOND[np.datetime_data(values.dtype)[0]]
    return np.where(
        np.isnat(values), UNREAD, np.where(ticks % second != 0, BROKEN, ticks // second)
    )


def _localize(wall: np.ndarray, zone: Zone | None, table: Table, name: str) -> np.ndarray:
    """UTC seconds of wall-clock seconds, int64[n]. UNREAD and BROKEN stay."""
    if zone is None:
        table.fault(
            "stamps carry no time zone",
            "set data.time_zone, e.g. data.time_zone=America/New_York or "
            "data.time_zone=UTC (time_zone=... in Python)",
            name,
        )
        table.stop()
        raise AssertionError("a fault was added: stop raises")
    out = wall.copy()
    valid = (wall != UNREAD) & (wall != BROKEN)
    out[valid], clash = utc_of(wall[valid], zone)
    table.chosen(valid).fault(
        f"this hour occurs twice or never in {zone.name} (daylight saving)",
        "write the stamps in UTC",
        name,
        clash,
    )
    return out


def utc_of(wall: np.ndarray, zone: Zone) -> tuple[np.ndarray, np.ndarray]:
    """(UTC seconds of wall-clock seconds, int64[n]; bool[n], True and 0 seconds for hours that
    occur twice or never).
    """
    import pandas as pd

    shifted = pd.Series((wall - 3600 * zone.hours).astype("datetime64[s]"))
    local = shifted.dt.tz_localize(zone.name, ambiguous="NaT", nonexistent="NaT")
    clash = local.isna().to_numpy()
    return np.where(clash, 0, _seconds(local.dt.tz_convert("UTC").dt.tz_localize(None))), clash


def _units(numbers: np.ndarray) -> list[str]:
    """The units in which all numbers since 1970 are of the years 1990 to 2100."""
    return [
        unit
        for unit, scale in UNITS.items()
        if (numbers >= EARLIEST * scale).all() and (numbers <= LATEST * scale).all()
    ]


def _epoch(
    numbers: np.ndarray,
    whole: np.ndarray,
    table: Table,
    name: str,
) -> np.ndarray:
    """numbers: float64[n]. whole: the same as int64[n] if all of them are whole."""
    fits = _units(numbers)
    if len(fits) != 1:
        alone = _units(numbers[:1])
        if len(alone) == 1:
            scale = UNITS[alone[0]]
            i = int(np.argmax((numbers < EARLIEST * scale) | (numbers > LATEST * scale)))
            other = _units(numbers[i : i + 1])
            table.fault(
                f"the rows before are {alone[0]} since 1970, and this one is "
                + (other[0] if other else "none of the years 1990-2100"),
                "write all stamps in one unit",
                name,
                i,
            )
            table.stop()
        table.fault(
            "numbers that are not seconds, milli-, micro- or nanoseconds since 1970 of years 1990-2100",
            "write stamps as ISO 8601, e.g. 2013-10-07T13:30:00Z",
            name,
        )
        table.stop()
    table.notes.append(f"column '{name}' read as {fits[0]} since 1970 (UTC)")
    scale = UNITS[fits[0]]
    return np.where(whole % scale != 0, BROKEN, whole // scale).astype(np.int64)


def _bounded(utc: np.ndarray, table: Table, name: str) -> np.ndarray:
    if utc.min() >= EARLIEST and utc.max() <= LATEST:
        return utc
    broken, unread = utc == BROKEN, utc == UNREAD
    lost = broken | unread
    table.fault("a stamp between whole seconds", "give bars stamped at whole seconds", name, broken)
    table.fault(
        "not a stamp",
        "write YYYY-MM-DD HH:MM:SS, with an offset or with data.time_zone set",
        name,
        unread,
    )
    table.fault(
        "a stamp outside 1990-2100",
        "check the column and its unit",
        name,
        ~lost & (utc != 0) & ((utc < EARLIEST) | (utc > LATEST)),
    )
    return np.where(lost, 0, utc)


def day_and_month(table: Table, name: str, stated: Order | None) -> Order | None:
    """Whether the month or the day comes first, in a column of dates with the year last; None for
    other columns.

    It is `stated`, or a day above 12 proves it, and a note says so. Otherwise a fault is raised.
    """
    if not LAST.match(str(table.cell(name, 0))) or stated is not None:
        return stated
    order, proof = proven_order(table, name)
    if order is not None:
        table.notes.append(
            f"dates are read with the {'day' if order == 'dmy' else 'month'} first, as '{proof}' shows"
        )
        return order
    table.fault(
        "the first number of the date could be the month or the day",
        "state it: data.date_order=mdy (month first) or data.date_order=dmy (day first)",
        name,
    )
    table.stop()
    raise AssertionError("a fault was added: stop raises")


def proven_order(table: Table, name: str) -> tuple[Order | None, str]:
    """(the order of dates with the year last, the date that proves it). None if no day above 12 is
    found.
    """
    count = len(table)
    for row in np.unique(np.linspace(0, count - 1, min(PROBES, count)).astype(np.int64)):
        found = LAST.match(str(table.cell(name, row)))
        if found is not None and max(int(found[1]), int(found[3])) > 12:
            return ("dmy" if int(found[1]) > 12 else "mdy"), found[0].strip()
    return None, ""


USUAL = ("UTC", "America/New_York", "America/Chicago", SERVER, "Etc/GMT+5", "Europe/London")
MOST = 0.75  # share of the times at which a zone's offset is the clock's: weeks of changing clocks and holidays differ
HOUR = 3600


def utc_offsets(utc: np.ndarray, zone: str) -> np.ndarray:
    """Seconds by which a zone (perhaps shifted, as America/New_York+7h) is ahead of UTC at these
    UTC seconds, int64[T]. Raises ConfigError for an unknown zone."""
    name, hours = known_zone(zone)
    return local_seconds(utc, name) - utc + HOUR * hours


def keeping(utc: np.ndarray, offsets: np.ndarray) -> tuple[str, ...]:
    """The zones that are `offsets` seconds ahead of UTC at most of these times; more than one where
    the times do not tell them apart, none where no usual zone and no fixed number of hours fits.

    utc: int64[T], UTC seconds. offsets: int64[T].
    """
    shares = {zone: float(np.mean(utc_offsets(utc, zone) == offsets)) for zone in USUAL}
    best = max(shares.values())
    if best >= MOST:
        return tuple(zone for zone, share in shares.items() if share == best)
    fixed = most_common(offsets)
    if (offsets == fixed).mean() < MOST or fixed % HOUR or not -12 <= fixed // HOUR <= 14:
        return ()
    return (f"Etc/GMT{-fixed // HOUR:+d}",)  # POSIX: Etc/GMT-3 is three hours ahead of UTC
