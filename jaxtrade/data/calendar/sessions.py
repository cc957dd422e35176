"""The session table: each session's decision rows, flat bar, and distance to the flat time.

The flat time is the time at which every position must be closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time, timedelta
from typing import NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars, splice_dates
from jaxtrade.data.calendar.schedule import (
    Schedule,
    hours_of,
    of_evening,
    schedule_for,
    spread,
    wall_to_utc,
)
from jaxtrade.data.contracts import Contract
from jaxtrade.errors import ConfigError
from jaxtrade.formatting import local
from jaxtrade.types import SessionTable


def schedule_of(bars: Bars, calendar: str) -> Schedule:
    """Return `schedule_for` the trade dates of bars."""
    return schedule_for(calendar, bars.contract, bars.time, bars.bar_seconds, bars.source)


def window_clock(contract: Contract, overnight: bool) -> time:
    """Return the exchange time from which decisions are allowed.

    For FX and `overnight` it is the start of the trade date. Raises ConfigError for `overnight` in
    a market that does not trade at night.
    """
    hours = hours_of(contract)
    if overnight and not hours.overnight:
        raise ConfigError(
            f"session.overnight = true: {contract.symbol} is decided on in regular hours only "
            f"({hours.decide_from}-{hours.flat}); drop session.overnight"
        )
    if overnight or not hours.decide_from:
        return time(contract.turn_hour)
    return time.fromisoformat(hours.decide_from)


def window_minutes(contract: Contract, overnight: bool) -> int:
    """Return the minutes from the window's opening to the flat time on an ordinary day.

    They are 449 for futures, 1379 for futures with `overnight`, 1439 for FX, 389 for shares.
    """
    opening, flat = window_clock(contract, overnight), time.fromisoformat(hours_of(contract).flat)
    minutes = (flat.hour - opening.hour) * 60 + flat.minute - opening.minute
    return minutes if minutes > 0 else minutes + 24 * 60


def window_openings(dates: np.ndarray, contract: Contract, overnight: bool) -> np.ndarray:
    """Return when each trade date's decision window opens (int64[N], UTC seconds)."""
    clock = window_clock(contract, overnight)
    evening = timedelta(days=1 if of_evening(clock, contract) else 0)
    return np.array(
        [wall_to_utc(day - evening, clock, contract.zone) for day in dates.astype(object)], np.int64
    )


def feature_windows(bars: Bars, schedule: Schedule, config: RunConfig) -> np.ndarray:
    """Return the feature window of each row (int32[T], counted from 0).

    No feature looks back beyond its window. With `data.window_reset` = `hole`, a new window starts
    after a gap that contains more than one whole scheduled session, and on each trade date on which
    another contract begins. With `session`, it starts on every trade date.
    """
    starts, count = bars.date_starts, len(bars)
    if config.data.window_reset == "session":
        return spread(np.arange(len(starts), dtype=np.int32), starts, count)
    days = bars.trade_dates[starts]
    before = np.searchsorted(schedule.dates, days[:-1], side="right")
    after = np.searchsorted(schedule.dates, days[1:], side="left")
    contract = np.searchsorted(splice_dates(bars.legs), days, side="right")
    ids = np.concatenate([[0], np.cumsum((after - before > 1) | (np.diff(contract) > 0))]).astype(
        np.int32
    )
    return spread(ids, starts, count)


def window_ages(ids: np.ndarray) -> np.ndarray:
    """Count the rows since the feature window began (int64[T]); 0 at its first row."""
    starts = np.concatenate([[True], np.diff(ids) != 0])
    rows = np.arange(len(ids))
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


# A shorter hole is usual where few trade at night.
HOLE = 300  # seconds


class Hole(NamedTuple):
    """Scheduled time without a bar, between two bars of a session.

    day: the trade date. begin, end: UTC seconds. seconds: its length, without the daily halt.
    """

    day: str
    begin: int
    end: int
    seconds: int


def list_holes(bars: Bars, schedule: Schedule, longer: int = HOLE) -> list[Hole]:
    """Return the holes of more than five minutes, in order.

    longer: other seconds than these five minutes.

    What is missing at the ends of a session is none: a file may have regular hours alone.
    """
    at = schedule.find(bars.trade_dates)
    begin, end = bars.time[:-1] + bars.bar_seconds, bars.time[1:]
    rows = np.flatnonzero((end - begin > longer) & (at[1:] == at[:-1]) & (at[1:] >= 0))
    own = at[rows]
    begin = np.clip(begin[rows], schedule.open[own], schedule.close[own])
    end = np.clip(end[rows], schedule.open[own], schedule.close[own])
    halt = np.clip(schedule.halts[own], begin[:, None], end[:, None])
    seconds = end - begin - (halt[:, 1] - halt[:, 0])
    return [
        Hole(str(schedule.dates[own[i]]), int(begin[i]), int(end[i]), int(seconds[i]))
        for i in np.flatnonzero(seconds > longer)
    ]


def bars_to_flat(bars: Bars, schedule: Schedule) -> np.ndarray:
    """Count whole bar lengths from each bar's scheduled close to its session's flat time.

    The counts are int32[T], 0 after that time.
    """
    at = schedule.find(bars.trade_dates)
    left = (schedule.flat[at] - (bars.time + bars.bar_seconds)) // bars.bar_seconds
    return np.where(at >= 0, np.maximum(left, 0), 0).astype(np.int32)


def session_rows(
    bars: Bars, schedule: Schedule, ready: np.ndarray, overnight: bool
) -> SessionTable:
    """Return every session that has at least one decision bar, with NumPy leaves.

    ready: bool[T], True where a decision has all the history that it needs.
    """
    starts = bars.date_starts
    days, ends = bars.trade_dates[starts], bars.date_ends
    at = schedule.find(days)
    days, starts, ends, at = (x[at >= 0] for x in (days, starts, ends, at))
    closes = bars.time + bars.bar_seconds
    # The first bar of the window that is ready, and the last that has closed by the flat time.
    begin = np.searchsorted(bars.time, window_openings(days, bars.contract, overnight))
    usable = np.append(np.flatnonzero(ready), len(bars))
    first = usable[np.searchsorted(usable, np.maximum(begin, starts))]
    flat = np.minimum(np.searchsorted(closes, schedule.flat[at], side="right"), ends) - 1
    decided = first < flat
    days, starts, ends, at, first, flat = (
        x[decided] for x in (days, starts, ends, at, first, flat)
    )
    next_open, (halt, resumed) = closes[flat], schedule.halts[at].T
    next_open = np.where((halt <= next_open) & (next_open < resumed), resumed, next_open)
    cut = (flat == len(bars) - 1) & (next_open + bars.bar_seconds <= schedule.flat[at])
    return SessionTable(
        *np.array([starts, ends, first, flat - 1], np.int32),  # type: ignore[arg-type]
        date=days.astype(np.int64).astype(np.int32),  # type: ignore[arg-type]  # host leaves
        complete=~cut,  # type: ignore[arg-type]
    )


# Whether the first and the last session of a file are whole. Exports often begin or end in the
# middle of a day.
#
# A cut last session matters most: sessions are held out from the end of the data, so it is a test
# day.

# A boundary session is cut short if it lacks 5 % of its window more than its neighbours do at that
# end. Calendar findings use the same share. Neighbours: the hours of a file may change over the
# years. 90 %: a session among them may itself have a hole there.
SHARE, NEIGHBOURS, USUAL = 0.05, 20, 0.9


@dataclass(frozen=True)
class CutShort:
    """A first or last session of which bars are missing at the outer end.

    date: the trade date.
    last: whether it is the last session, else it is the first.
    before: the trade date before it that has a session; None if there is none.
    found: bars in the trading window, which ends at the flat time.
    due: bars that its neighbours have there.
    edge: the window's first or last bar, exchange time HH:MM; None without bars.
    """

    date: np.datetime64
    last: bool
    before: np.datetime64 | None
    found: int
    due: int
    edge: str | None

    @property
    def bars(self) -> str:
        """How much is there, in words."""
        if not self.edge:
            return f"0 of {self.due} bars in the trading window"
        return (
            f"{self.found} of {self.due} bars in the trading window, the {'last' if self.last else 'first'} at "
            f"{self.edge} exchange time"
        )

    def text(self) -> str:
        """Return a note for `data check`, `data describe` and training."""
        if not self.last:
            return (
                f"{self.date}: the first session is cut short: {self.bars}; what is there is history, and is "
                "traded in training"
            )
        if self.found < 2:  # a decision needs a bar after it
            return f"{self.date}: the last session is cut short: {self.bars}; no decision is taken in it"
        fix = f". Fix: leave it out with data.end={self.before} (--set), or export the day again when it is over"
        return (
            f"WARNING: {self.date}: the last session is cut short: {self.bars}; sessions are held out from the "
            f"end, so a test day is no whole day{'' if self.before is None else fix}"
        )


def cut_short(bars: Bars, schedule: Schedule, config: RunConfig) -> tuple[CutShort, ...]:
    """List the boundary sessions that are cut short, in order.

    Early closes of the calendar are whole sessions. Without a second session nothing shows what is
    usual, so nothing is found.
    """
    days = bars.trade_dates[bars.date_starts]
    at = schedule.find(days)
    days, at = days[at >= 0], at[at >= 0]
    if bars.synthetic or len(days) < 2:
        return ()
    ends = [slice(0, NEIGHBOURS + 1), slice(-NEIGHBOURS - 1, None)]
    cut = [
        _find_cut_session(bars, schedule, days[end], at[end], config.session.overnight, last)
        for last, end in enumerate(ends)
    ]
    return tuple(filter(None, cut))


def _find_cut_session(
    bars: Bars, schedule: Schedule, days: np.ndarray, at: np.ndarray, overnight: bool, last: int
) -> CutShort | None:
    """Return the first (last: 0) or last (1) of some neighbouring sessions, if it is cut short."""
    opens = np.maximum(window_openings(days, bars.contract, overnight), schedule.open[at])
    flat = schedule.flat[at]
    begin = np.searchsorted(bars.time, opens)
    end = np.maximum(np.searchsorted(bars.time, flat - bars.bar_seconds, side="right"), begin)
    found, length = end - begin, flat - opens
    edge = np.clip(end - 1 if last else begin, 0, len(bars) - 1)
    missing = (flat - bars.time[edge] - bars.bar_seconds) if last else (bars.time[edge] - opens)
    missing = np.where(found > 0, missing, length)
    own, others = (-1, slice(None, -1)) if last else (0, slice(1, None))
    beyond = missing[own] - np.quantile(missing[others], USUAL)
    if beyond <= max(SHARE * length[own], bars.bar_seconds):
        return None
    stamp = local(int(bars.time[edge[own]]), bars.contract.zone, "%H:%M")
    scheduled = int(length[own] // bars.bar_seconds)
    return CutShort(
        days[own],
        bool(last),
        days[-2] if last else None,
        int(found[own]),
        min(int(np.median(found[others])), scheduled),
        stamp if found[own] else None,
    )
