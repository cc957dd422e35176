"""Convert the stamps of a data file to UTC seconds.

Zone and format are given or explicit, never guessed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from jaxtrade.data.calendar.schedule import local_seconds, most_common
from jaxtrade.data.formats.recognise import SERVER
from jaxtrade.data.read.grammar import BROKEN, LAST, UNREAD, Order, read_stamps
from jaxtrade.data.read.tabular import Table, as_numbers
from jaxtrade.errors import ConfigError

EARLIEST, LATEST = 631_152_000, 4_102_444_800  # 1990-01-01 and 2100-01-01 in UTC seconds
SHIFTED = re.compile(r"(.+?)([+-]\d{1,2})h")  # a zone plus whole hours: America/New_York+7h
NUMBER = re.compile(r"[\d.eE+-]+", re.ASCII)
PROBES = 5000  # cells in which a day above 12 is looked for
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
TWICE = BROKEN + 1  # an hour of the wall clock that occurs twice or never


def parse_stamps(
    table: Table, name: str, time_zone: str | None, date_order: Order | None = None
) -> tuple[np.ndarray, list[str]]:
    """Parse the stamps of a column -> (int64[n] UTC seconds, what was assumed).

    A cell that says no time is a fault of the table, and becomes 0.

    Accepted formats: ISO 8601 with an offset; ISO 8601 without an offset, if `time_zone` is given;
    the same with other marks in the date, or with the year last (`date_order`, unless a day above
    12 proves it); integers since 1970 (always UTC). The unit of integers is the only one that puts
    every stamp between 1990 and 2100.

    Raises DataError if the column cannot be read: no or an unknown zone, stamps with and without an
    offset, an order of day and month or a unit that is not known.
    """
    import pyarrow as pa

    zone = Zone("", 0)
    if time_zone is not None:
        try:
            zone = known_zone(time_zone)
        except ConfigError:
            problem = f"unknown time zone '{time_zone}'"
            raise table.refusal(problem, UNKNOWN_ZONE) from None
    if not len(table):
        return np.zeros(0, np.int64), []
    column, notes = table.data.column(name), []
    if pa.types.is_timestamp(column.type):
        seconds, naive = _seconds(column), not column.type.tz
    elif (numbers := _whole_numbers(column)) is not None:
        seconds, unit = _epoch(*numbers, table, name)
        naive, notes = False, [f"column '{name}' read as {unit} since 1970 (UTC)"]
    else:
        order, notes = day_and_month(table, name, date_order)
        seconds, aware = read_stamps(column.cast(pa.large_string()), order)
        if time_zone is not None and aware[0]:
            notes.append(f"{OWN_OFFSET}; data.time_zone={time_zone} is not needed")
        known = seconds > TWICE
        if (odd := known & (aware != aware[known.argmax()])).any():
            problem = "some stamps carry a time zone offset and some do not"
            raise table.refusal(problem, "write all of them the same way", name, int(odd.argmax()))
        naive = ~aware
    naive &= seconds > TWICE
    if naive.any():
        if not zone.name:
            raise table.refusal(*NO_ZONE, name, int(naive.argmax()))
        seconds[naive], clash = utc_of(seconds[naive], zone)
        seconds[np.flatnonzero(naive)[clash]] = TWICE
    _check_cells(table, name, seconds, zone)
    return np.where(seconds <= TWICE, 0, seconds), notes


NO_ZONE = (
    "stamps carry no time zone",
    "set data.time_zone, e.g. data.time_zone=America/New_York or "
    "data.time_zone=UTC (time_zone=... in Python)",
)


def _check_cells(table: Table, name: str, seconds: np.ndarray, zone: Zone) -> None:
    """Find the cells that say no time of the years 1990 to 2100."""
    if seconds.min() >= EARLIEST and seconds.max() <= LATEST:
        return
    clash = f"this hour occurs twice or never in {zone.name} (daylight saving)"
    table.fault(clash, "write the stamps in UTC", name, seconds == TWICE)
    whole = "give bars stamped at whole seconds"
    table.fault("a stamp between whole seconds", whole, name, seconds == BROKEN)
    write = "write YYYY-MM-DD HH:MM:SS, with an offset or with data.time_zone set"
    table.fault("not a stamp", write, name, seconds == UNREAD)
    far = (seconds > TWICE) & ((seconds < EARLIEST) | (seconds > LATEST))
    table.fault("a stamp outside 1990-2100", "check the column and its unit", name, far)


def _whole_numbers(column: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (float64[n], the same as int64[n], exactly, if all are whole) of a column of numbers.

    None for any other column. Text such as 1381152600.0 goes over float64, which holds every second
    of the years 1990 to 2100 in any unit.
    """
    import pyarrow as pa

    if pa.types.is_large_string(column.type) and not NUMBER.fullmatch(str(column[0])):
        return None
    numbers = as_numbers(column)
    if np.isnan(numbers).any():
        return None
    if (numbers % 1 != 0).any():
        return numbers, numbers
    try:
        return numbers, column.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # beyond 2^62 lies no year before 2100
        return numbers, np.clip(numbers, 0, 1 << 62).astype(np.int64)


OWN_OFFSET = "stamps carry their own offset"


class Zone(NamedTuple):
    """Wall time of the IANA zone `name` plus a whole number of hours.

    Some trading servers use such clocks.
    """

    name: str
    hours: int


UNKNOWN_ZONE = (
    "set data.time_zone to an IANA name such as America/New_York or UTC, or to one with a fixed shift such "
    "as America/New_York+7h"
)


def known_zone(text: str) -> Zone:
    """Return the zone that a text names. Raises ConfigError if there is none."""
    shifted = SHIFTED.fullmatch(text)
    name, hours = (shifted[1], int(shifted[2])) if shifted else (text, 0)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"unknown time zone '{text}'; {UNKNOWN_ZONE}") from None
    return Zone(name, hours)


def _seconds(column: Any) -> np.ndarray:
    """Convert timestamps in any resolution to seconds since 1970.

    Unusable values become UNREAD or BROKEN.
    """
    import pyarrow as pa

    ticks = column.cast(pa.int64()).fill_null(UNREAD).to_numpy()
    second = PER_SECOND[column.type.unit]
    return np.where(ticks == UNREAD, UNREAD, np.where(ticks % second, BROKEN, ticks // second))


def utc_of(wall: np.ndarray, zone: Zone) -> tuple[np.ndarray, np.ndarray]:
    """Convert wall-clock seconds to UTC seconds -> (int64[n], bool[n]).

    The second is True, with 0 seconds, for hours that occur twice or never.
    """
    import pandas as pd

    shifted = pd.Series((wall - 3600 * zone.hours).astype("datetime64[s]"))
    local = shifted.dt.tz_localize(zone.name, ambiguous="NaT", nonexistent="NaT")
    clash = local.isna().to_numpy()
    utc = local.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    return np.where(clash, 0, utc.astype(np.int64)), clash


def _units(numbers: np.ndarray) -> list[str]:
    """Find the units in which all numbers since 1970 are of the years 1990 to 2100."""
    return [
        unit
        for unit, scale in UNITS.items()
        if (numbers >= EARLIEST * scale).all() and (numbers <= LATEST * scale).all()
    ]


def _epoch(
    numbers: np.ndarray, whole: np.ndarray, table: Table, name: str
) -> tuple[np.ndarray, str]:
    """Return (seconds since 1970, the unit of the numbers).

    numbers: float64[n].
    whole: the same as int64[n] if all of them are whole.
    Raises DataError if no unit is that of all of them.
    """
    fits, alone = _units(numbers), _units(numbers[:1])
    if len(fits) == 1:
        scale = UNITS[fits[0]]
        return np.where(whole % scale != 0, BROKEN, whole // scale).astype(np.int64), fits[0]
    if len(alone) != 1:
        raise table.refusal(
            "numbers that are not seconds, milli-, micro- or nanoseconds since 1970 of years 1990-2100",
            "write stamps as ISO 8601, e.g. 2013-10-07T13:30:00Z",
            name,
        )
    scale = UNITS[alone[0]]
    i = int(np.argmax((numbers < EARLIEST * scale) | (numbers > LATEST * scale)))
    other = next(iter(_units(numbers[i : i + 1])), "none of the years 1990-2100")
    raise table.refusal(
        f"the rows before are {alone[0]} since 1970, and this one is {other}",
        "write all stamps in one unit",
        name,
        i,
    )


def day_and_month(table: Table, name: str, stated: Order | None) -> tuple[Order | None, list[str]]:
    """Find the order of day and month in a column of dates with the year last.

    Returns (whether the month or the day comes first, notes); None for other columns. The order is
    `stated`, or a day above 12 proves it, and a note says so. Raises DataError otherwise.
    """
    if stated or not LAST.match(str(table.cell(name, 0))):
        return stated, []
    order, proof = proven_order(table, name)
    if order:
        first = "day" if order == "dmy" else "month"
        return order, [f"dates are read with the {first} first, as '{proof}' shows"]
    raise table.refusal(
        "the first number of the date could be the month or the day",
        "state it: data.date_order=mdy (month first) or data.date_order=dmy (day first)",
        name,
    )


def proven_order(table: Table, name: str) -> tuple[Order | None, str]:
    """Return (the order of dates with the year last, the date that proves it).

    None if no day above 12 is found.
    """
    count = len(table)
    probes = np.unique(np.linspace(0, count - 1, min(PROBES, count)).astype(np.int64))
    for cell in table.data.column(name).take(probes).to_pandas():
        found = LAST.match(str(cell))
        if found and max(int(found[1]), int(found[3])) > 12:
            return ("dmy" if int(found[1]) > 12 else "mdy"), found[0].strip()
    return None, ""


USUAL = ("UTC", "America/New_York", "America/Chicago", SERVER, "Etc/GMT+5", "Europe/London")
MOST = 0.75  # share of the times at which a zone's offset is the clock's: weeks of changing clocks and holidays differ
HOUR = 3600


def utc_offsets(utc: np.ndarray, zone: str) -> np.ndarray:
    """Return the seconds by which a zone is ahead of UTC at these UTC seconds (int64[T]).

    The zone may be shifted, as America/New_York+7h. Raises ConfigError for an unknown zone.
    """
    name, hours = known_zone(zone)
    return local_seconds(utc, name) - utc + HOUR * hours


def find_zones(utc: np.ndarray, offsets: np.ndarray) -> tuple[str, ...]:
    """Find the zones that are `offsets` seconds ahead of UTC at most of these times.

    More than one where the times do not tell them apart, none where no usual zone and no fixed
    number of hours fits.

    utc: int64[T], UTC seconds.
    offsets: int64[T].
    """
    shares = {zone: float(np.mean(utc_offsets(utc, zone) == offsets)) for zone in USUAL}
    best = max(shares.values())
    if best >= MOST:
        return tuple(zone for zone, share in shares.items() if share == best)
    fixed = most_common(offsets)
    if (offsets == fixed).mean() < MOST or fixed % HOUR or not -12 <= fixed // HOUR <= 14:
        return ()
    return (f"Etc/GMT{-fixed // HOUR:+d}",)  # POSIX: Etc/GMT-3 is three hours ahead of UTC
