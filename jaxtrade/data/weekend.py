"""Bars on weekends, when a market is closed: a sign that all stamps are shifted.

In markets that trade around the clock a shifted week still fills every weekday, so only its ends show the shift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxtrade.data.calendar.clock import run_starts
from jaxtrade.data.calendar.schedule import Schedule
from jaxtrade.data.read.bars import Bars

# Dealers begin and end their weeks some minutes early or late. Quotes of hours without a shift are another's market.
LEAST, ALONE = 1800, 4 * 3600  # seconds
SERVER_HOURS, NEW_YORK_HOURS = (2, 3), (-4, -5)  # ahead of UTC, in winter and summer


class WeekendBars(NamedTuple):
    """Bars on weekends. row: the first. count: of them. size, cause, fix: in words."""

    row: int
    count: int
    size: str
    cause: str
    fix: str


def weekend_bars(bars: Bars, schedule: Schedule, dates: np.ndarray) -> WeekendBars | None:
    """The bars that lie on most of the weekends that the file touches; None if there are few, or if the calendar has
    sessions on weekends or was inferred from the bars. dates: datetime64[D][T], the trade date of each bar."""
    starts = run_starts(dates)
    rest = _on_weekend(dates[starts])
    if schedule.name == "infer" or not rest.any() or _on_weekend(schedule.dates).any():
        return None
    rows = np.flatnonzero(np.repeat(rest, np.diff(starts, append=len(dates))))
    number = (dates[rows].astype(np.int64) - 2) // 7  # of the weekend: 3 January 1970 was a Saturday
    first, last = (int(day) for day in dates[[0, -1]].astype(np.int64))
    touched = (last - 2) // 7 - (first - 3 + 6) // 7 + 1
    begins = run_starts(number)
    if 2 * len(begins) <= touched:
        return None
    ends = np.append(begins[1:], len(rows)) - 1
    hours, alike = _shift(bars, schedule, bars.time[rows[begins]], bars.time[rows[ends]] + bars.bar_seconds)
    if abs(hours) * 3600 < (LEAST if alike else ALONE):
        return None
    size = f"{len(rows)} bars lie on weekends, when the market is closed (on {len(begins)} of {touched} weekends)"
    if not alike:
        return WeekendBars(int(rows[0]), len(rows), size, "quotes outside the market's week, or a wrong data.time_zone",
                           "check data.time_zone; if it is right, remove those rows: no decision is taken on them")
    late = hours > 0
    size += (f", and the weeks {'begin' if late else 'end'} {abs(hours):g} h {'late' if late else 'early'}: all bars "
             f"look {abs(hours):g} h {'late' if late else 'early'}")
    side = abs(hours) * 3600 == bars.bar_seconds
    zone = "America/New_York+7h" if hours in SERVER_HOURS else "America/New_York" if hours in NEW_YORK_HOURS else None
    return WeekendBars(int(rows[0]), len(rows), size, "a wrong data.time_zone" + (" or data.stamp" if side else ""),
                       f"set data.time_zone to the zone of the file's stamps, {abs(hours):g} h "
                       f"{'ahead of' if late else 'behind'} the one they were read with"
                       + (f" (perhaps {zone}, if that was UTC)" if zone else ""))


def _on_weekend(days: np.ndarray) -> np.ndarray:
    return (days.astype(np.int64) + 3) % 7 >= 5


def _shift(bars: Bars, schedule: Schedule, begin: np.ndarray, end: np.ndarray) -> tuple[float, bool]:
    """(hours by which weekends have bars after their closing, or, below zero, before their opening; whether the weeks'
    other ends lack about as much).

    begin, end: UTC seconds of the first open and the last close of the bars of each such weekend.
    """
    after = np.searchsorted(schedule.open, begin, side="right")  # the session that opens next
    known_before, known_after = after > 0, after < len(schedule.open)
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(schedule.open) - 1)
    gone = np.where(known_before, end - schedule.close[before], 0)
    ahead = np.where(known_after, schedule.open[after] - begin, 0)
    late = np.where(known_before & known_after, begin - schedule.close[before] < schedule.open[after] - end,
                    known_before)
    if 2 * late.sum() >= len(late):
        extent = float(np.median(gone[late]))
        opens = schedule.open[after[late & known_after]]
        first = np.searchsorted(bars.time, opens)
        opens, first = opens[first < len(bars)], first[first < len(bars)]
        lacking, sign = bars.time[first] - opens, 1
    else:
        extent = float(np.median(ahead[~late]))
        closes = schedule.close[before[~late & known_before]]
        last = np.searchsorted(bars.time, closes) - 1
        lacking, sign = closes - bars.time[np.maximum(last, 0)] - bars.bar_seconds, -1
    if not len(lacking):  # a file of one week
        lacking = _outer(bars, schedule, sign)
    alike = abs(float(np.median(lacking)) - extent) <= max(LEAST, bars.bar_seconds / 2)
    return sign * round(extent / 1800) / 2, bool(alike)


def _outer(bars: Bars, schedule: Schedule, sign: int) -> np.ndarray:
    """Seconds that a file of one week lacks at its beginning (sign: 1) or at its end (-1), int64[1]."""
    if sign > 0:
        return bars.time[:1] - schedule.open[0]
    return schedule.close[-1] - bars.time[-1:] - bars.bar_seconds
