"""Bars on weekends, when a market is closed: a sign that all stamps are shifted.

In markets that trade around the clock a shifted week still fills every weekday, so only its ends
show the shift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxtrade.data.calendar.clock import run_starts
from jaxtrade.data.calendar.schedule import Schedule
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.zones import keeping, utc_offsets

# Dealers begin and end their weeks some minutes early or late. Quotes of hours without a shift are
# another's market.
LEAST, ALONE = 1800, 4 * 3600  # seconds
SEASON = 0.2  # share of the weekends from which on a shift is named


class WeekendBars(NamedTuple):
    """Bars on weekends. row: the first. count: of them. size, cause, fix: in words."""

    row: int
    count: int
    size: str
    cause: str
    fix: str


class _Shift(NamedTuple):
    """at: int64[W], the first bar of each weekend that shows the shift, UTC seconds. hours:
    float64[W], by which it has bars after its closing, or, below zero, before its opening. alike:
    whether the week's other end lacks about as much."""

    at: np.ndarray
    hours: np.ndarray
    alike: bool


def weekend_bars(
    bars: Bars, schedule: Schedule, dates: np.ndarray, zone: str | None = None
) -> WeekendBars | None:
    """The bars that lie on most of the weekends that the file touches; None if there are few, or if
    the calendar has sessions on weekends or was inferred from the bars.

    dates: datetime64[D][T], the trade date of each bar. zone: the zone of the stamps
        (`data.time_zone`).
    """
    starts = run_starts(dates)
    rest = _on_weekend(dates[starts])
    if schedule.name == "infer" or not rest.any() or _on_weekend(schedule.dates).any():
        return None
    rows = np.flatnonzero(np.repeat(rest, np.diff(starts, append=len(dates))))
    number = (
        dates[rows].astype(np.int64) - 2
    ) // 7  # of the weekend: 3 January 1970 was a Saturday
    first, last = (int(day) for day in dates[[0, -1]].astype(np.int64))
    touched = (last - 2) // 7 - (first - 3 + 6) // 7 + 1
    begins = run_starts(number)
    if 2 * len(begins) <= touched:
        return None
    ends = np.append(begins[1:], len(rows)) - 1
    shift = _shift(
        bars, schedule, bars.time[rows[begins]], bars.time[rows[ends]] + bars.bar_seconds
    )
    hours = float(np.median(shift.hours))
    if abs(hours) * 3600 < (LEAST if shift.alike else ALONE):
        return None
    size = f"{len(rows)} bars lie on weekends, when the market is closed (on {len(begins)} of {touched} weekends)"
    if not shift.alike:
        return WeekendBars(
            int(rows[0]),
            len(rows),
            size,
            "quotes outside the market's week, or a wrong data.time_zone",
            "check data.time_zone; if it is right, remove those rows: no decision is taken on them",
        )
    late, extent = hours > 0, _extent(shift.hours)
    size += (
        f", and the weeks {'begin' if late else 'end'} {extent} h {'late' if late else 'early'}: all bars "
        f"look {extent} h {'late' if late else 'early'}"
    )
    side = abs(hours) * 3600 == bars.bar_seconds
    return WeekendBars(
        int(rows[0]),
        len(rows),
        size,
        "a wrong data.time_zone" + (" or data.stamp" if side else ""),
        _fix(shift, zone, f"{extent} h {'ahead of' if late else 'behind'}", bars.contract.symbol),
    )


def _extent(hours: np.ndarray) -> str:
    """The size of the shift in words: 2, or 2 to 3 where summer differs from winter."""
    values, counts = np.unique(np.abs(hours), return_counts=True)
    usual = values[counts >= SEASON * len(hours)]
    usual = usual if len(usual) else np.median(np.abs(hours), keepdims=True)
    return " to ".join(f"{value:g}" for value in dict.fromkeys((usual[0], usual[-1])))


def _fix(shift: _Shift, zone: str | None, ahead: str, symbol: str) -> str:
    """What to set. zone: `data.time_zone`; None if the file's stamps carry their offset, or it is
    not known.
    """
    seconds = np.round(3600 * shift.hours).astype(np.int64)
    times = shift.at - seconds  # what the stamps seem to mean
    found = " or ".join(keeping(times, utc_offsets(shift.at, zone or "UTC") + seconds))
    if zone is None or not found:
        return (
            f"set data.time_zone to the zone of the file's stamps, {ahead} the one they were read with"
            + (f" (perhaps {found}, if that was UTC)" if found and zone is None else "")
        )
    return (
        f"set data.time_zone={found} (it is {zone} now); for this symbol alone, "
        f"data.per_market.{symbol}.time_zone"
    )


def _on_weekend(days: np.ndarray) -> np.ndarray:
    return (days.astype(np.int64) + 3) % 7 >= 5


def _shift(bars: Bars, schedule: Schedule, begin: np.ndarray, end: np.ndarray) -> _Shift:
    """The shift that the ends of the weeks show. Both ends of one weekend are compared: a zone with
    another summer time than the market's shifts some weeks by an hour more.

    begin, end: UTC seconds of the first open and the last close of the bars of each such weekend.
    """
    after = np.searchsorted(schedule.open, begin, side="right")  # the session that opens next
    known_before, known_after = after > 0, after < len(schedule.open)
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(schedule.open) - 1)
    gone = np.where(known_before, end - schedule.close[before], 0)
    ahead = np.where(known_after, schedule.open[after] - begin, 0)
    late = np.where(
        known_before & known_after,
        begin - schedule.close[before] < schedule.open[after] - end,
        known_before,
    )
    if 2 * late.sum() >= len(late):
        sign, mine, extent, both = 1, late, gone, late & known_after
        opens = schedule.open[after]
        first = np.searchsorted(bars.time, opens)
        both &= first < len(bars)
        lacking = bars.time[np.minimum(first, len(bars) - 1)] - opens
    else:
        sign, mine, extent, both = -1, ~late, ahead, ~late & known_before
        closes = schedule.close[before]
        last = np.maximum(np.searchsorted(bars.time, closes) - 1, 0)
        lacking = closes - bars.time[last] - bars.bar_seconds
    enough = max(LEAST, bars.bar_seconds / 2)
    if not both.any():  # a file of one week
        alike = (
            abs(float(np.median(_outer(bars, schedule, sign))) - float(np.median(extent[mine])))
            <= enough
        )
        both = mine
    else:
        near = both & (np.abs(lacking - extent) <= enough)
        alike = 2 * near.sum() >= both.sum()
        both = near if alike else mine
    return _Shift(begin[both], sign * np.round(extent[both] / 1800) / 2, bool(alike))


def _outer(bars: Bars, schedule: Schedule, sign: int) -> np.ndarray:
    """Seconds that a file of one week lacks at its beginning (sign: 1) or at its end (-1),
    int64[1].
    """
    if sign > 0:
        return bars.time[:1] - schedule.open[0]
    return schedule.close[-1] - bars.time[-1:] - bars.bar_seconds
