"""Whether the first and the last session of a file are whole. Exports often begin or end in the
middle of a day.

A cut last session matters most: sessions are held out from the end of the data, so it is a test
day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import Schedule, run_starts
from jaxtrade.data.calendar.sessions import window_openings
from jaxtrade.data.read.bars import Bars
from jaxtrade.text import local

# A boundary session is cut short if it lacks 5 % of its window more than its neighbours do at that
# end. Calendar findings use the same share. Neighbours: the hours of a file may change over the
# years. 90 %: a session among them may itself have a hole there.
SHARE, NEIGHBOURS, USUAL = 0.05, 20, 0.9


@dataclass(frozen=True)
class CutShort:
    """A first or last session of which bars are missing at the outer end.

    date: the trade date. last: whether it is the last session, else it is the first. before: the
        trade date before it
    that has a session; None if there is none. found: bars in the trading window, which ends at the
    flat time. due: bars that its neighbours have there. edge: the window's first or last bar,
    exchange time HH:MM; None without bars.
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
        if self.edge is None:
            return f"0 of {self.due} bars in the trading window"
        return (
            f"{self.found} of {self.due} bars in the trading window, the {'last' if self.last else 'first'} at "
            f"{self.edge} exchange time"
        )

    def text(self) -> str:
        """A note for `data check`, `data describe` and training."""
        if not self.last:
            return (
                f"{self.date}: the first session is cut short: {self.bars}; what is there is history, and is "
                "traded in training"
            )
        if self.found < 2:  # a decision needs a bar after it
            return f"{self.date}: the last session is cut short: {self.bars}; no decision is taken in it"
        fix = (
            ""
            if self.before is None
            else f". Fix: leave it out with data.end={self.before} (--set), or export the day again when it is over"
        )
        return (
            f"WARNING: {self.date}: the last session is cut short: {self.bars}; sessions are held out from the "
            f"end, so a test day is no whole day{fix}"
        )


def cut_short(
    bars: Bars, schedule: Schedule, dates: np.ndarray, config: RunConfig
) -> tuple[CutShort, ...]:
    """The boundary sessions that are cut short, in order.

    Early closes of the calendar are whole sessions. Without a second session nothing shows what is
    usual, so nothing is found. dates: datetime64[D][T], the trade date of each bar.
    """
    days = dates[run_starts(dates)]
    at = schedule.find(days)
    days, at = days[at >= 0], at[at >= 0]
    if bars.synthetic or len(days) < 2:
        return ()
    ends = [slice(0, NEIGHBOURS + 1), slice(-NEIGHBOURS - 1, None)]
    cut = [
        _cut(bars, schedule, days[end], at[end], config.session.overnight, last)
        for last, end in enumerate(ends)
    ]
    return tuple(each for each in cut if each is not None)


def _cut(
    bars: Bars, schedule: Schedule, days: np.ndarray, at: np.ndarray, overnight: bool, last: int
) -> CutShort | None:
    """The first (last: 0) or last (1) of some neighbouring sessions, if it is cut short."""
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
