"""The session table: the decision rows of each session, its flat bar, and the distance to the flat
time.

The flat time is the time at which every position must be closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time, timedelta
from typing import Literal

import numpy as np

from jaxtrade.data.calendar.schedule import (
    Schedule,
    hours_of,
    of_evening,
    run_starts,
    schedule_for,
    spread,
    wall_to_utc,
)
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import ConfigError

NO_SPLICES = np.array([], "datetime64[D]")


@dataclass(frozen=True)
class SessionRows:
    """Sessions with at least one decision bar; each field has shape [N].

    `jaxtrade.types.SessionTable` explains the row fields. date: datetime64[D]. flat: UTC seconds.
    """

    start: np.ndarray
    end: np.ndarray
    first: np.ndarray
    last: np.ndarray
    complete: np.ndarray
    date: np.ndarray
    flat: np.ndarray


def schedule_of(bars: Bars, calendar: str) -> Schedule:
    """`schedule_for` the trade dates of bars."""
    return schedule_for(calendar, bars.contract, bars.time, bars.bar_seconds, bars.source)


def window_clock(contract: Contract, overnight: bool) -> time:
    """Exchange time from which decisions are allowed. For FX and `overnight` it is the start of the
    trade date.

    Raises ConfigError for `overnight` in a market that does not trade at night.
    """
    hours = hours_of(contract)
    if overnight and not hours.overnight:
        raise ConfigError(
            f"session.overnight = true: {contract.symbol} is decided on in regular hours only "
            f"({hours.decide_from}-{hours.flat}); drop session.overnight"
        )
    if overnight or hours.decide_from is None:
        return time(contract.turn_hour)
    return time.fromisoformat(hours.decide_from)


def window_minutes(contract: Contract, overnight: bool) -> int:
    """Minutes from the window's opening to the flat time on an ordinary day.

    449 for futures, 1379 for futures with `overnight`, 1439 for FX, 389 for shares.
    """
    opening, flat = window_clock(contract, overnight), time.fromisoformat(hours_of(contract).flat)
    minutes = (flat.hour - opening.hour) * 60 + flat.minute - opening.minute
    return minutes if minutes > 0 else minutes + 24 * 60


def window_openings(dates: np.ndarray, contract: Contract, overnight: bool) -> np.ndarray:
    """UTC seconds at which each trade date's decision window opens, int64[N]."""
    clock = window_clock(contract, overnight)
    evening = timedelta(days=1 if of_evening(clock, contract) else 0)
    return np.array(
        [wall_to_utc(day - evening, clock, contract.zone) for day in dates.astype(object)], np.int64
    )


def window_ids(
    dates: np.ndarray,
    schedule: Schedule,
    reset: Literal["hole", "session"] = "hole",
    splices: np.ndarray = NO_SPLICES,
) -> np.ndarray:
    """The feature window of each row, int32[T], counted from 0. No feature looks back beyond its
    window.

    reset: with `hole`, a new window starts after a gap that contains more than one whole scheduled
        session, and on each
    trade date in `splices`, where another contract begins. With `session`, it starts on every trade
    date.
    """
    if reset == "session":
        return np.concatenate([[0], np.cumsum(dates[1:] != dates[:-1])]).astype(np.int32)
    starts = run_starts(dates)
    days = dates[starts]
    before = np.searchsorted(schedule.dates, days[:-1], side="right")
    after = np.searchsorted(schedule.dates, days[1:], side="left")
    contract = np.searchsorted(splices, days, side="right")
    ids = np.concatenate([[0], np.cumsum((after - before > 1) | (np.diff(contract) > 0))]).astype(
        np.int32
    )
    return spread(ids, starts, len(dates))


def window_ages(ids: np.ndarray) -> np.ndarray:
    """Number of rows since the feature window began, int64[T]; 0 at its first row."""
    starts = np.concatenate([[True], np.diff(ids) != 0])
    rows = np.arange(len(ids))
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


def bars_to_flat(bars: Bars, schedule: Schedule, dates: np.ndarray) -> np.ndarray:
    """Whole bar lengths from each bar's scheduled close to its session's flat time, int32[T]; 0
    after that time.
    """
    at = schedule.find(dates)
    left = (schedule.flat[at] - (bars.time + bars.bar_seconds)) // bars.bar_seconds
    return np.where(at >= 0, np.maximum(left, 0), 0).astype(np.int32)


def session_rows(
    bars: Bars, schedule: Schedule, dates: np.ndarray, ready: np.ndarray, overnight: bool
) -> SessionRows:
    """Every session that has at least one decision bar.

    Args:
        dates: trade date of each row.
        ready: bool[T], True where a decision has all the history that it needs.
    """
    days, starts, counts = np.unique(dates, return_index=True, return_counts=True)
    at = schedule.find(days)
    days, starts, counts, at = (x[at >= 0] for x in (days, starts, counts, at))
    opens = window_openings(days, bars.contract, overnight)
    closes = bars.time + bars.bar_seconds
    table = []
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        rows = np.arange(start, start + count)
        in_time = rows[closes[rows] <= schedule.flat[at[i]]]
        decide = rows[(bars.time[rows] >= opens[i]) & ready[rows]]
        if not len(in_time) or not len(decide) or decide[0] >= in_time[-1]:
            continue
        flat_row = int(in_time[-1])
        at_end = flat_row == len(bars) - 1
        next_open, halt = int(closes[flat_row]), schedule.halts[at[i]]
        if halt[0] <= next_open < halt[1]:
            next_open = int(halt[1])
        cut = at_end and next_open + bars.bar_seconds <= schedule.flat[at[i]]
        table.append((start, start + count, decide[0], flat_row - 1, not cut, i))
    kept = np.array([row[5] for row in table], np.int64)
    columns = np.array([row[:4] for row in table], np.int32).reshape(-1, 4)
    return SessionRows(
        start=columns[:, 0],
        end=columns[:, 1],
        first=columns[:, 2],
        last=columns[:, 3],
        complete=np.array([row[4] for row in table], bool),
        date=days[kept],
        flat=schedule.flat[at[kept]],
    )
