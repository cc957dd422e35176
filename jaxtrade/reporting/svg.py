"""What `templates/charts.html` computes with: axes, marks and the pieces of a line.

Also the curves of the shown agent: equity, drawdown, sessions, accounts and their floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from jaxtrade.evaluation.records import BarRecords
from jaxtrade.formatting import at as at_zone
from jaxtrade.formatting import local, short_number
from jaxtrade.reporting.bars import PageClock, extremes
from jaxtrade.reporting.schema import Figures

POINTS = 700  # of a plot
MARKS, TIMES = 6, 8  # of an x axis, dates or times
STEPS = tuple(60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 240, 720))  # of its times
TABLE_ROWS = 8  # of the table of training curves


def axis(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    """Return the map from values to places: `low` is at `start`, `high` at `stop`."""
    return lambda value: (
        start + (stop - start) * ((value - low) / (high - low) if high > low else 0.5)
    )


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """List round numbers from `low` to `high`, at most `most` + 1 of them.

    They are multiples of 1, 2 or 5 times a power of ten.
    """
    span = high - low
    if span <= 0:
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def bounds(values: Sequence[float | None], zero: bool) -> tuple[float, float]:
    """Return least and largest value with a margin; with `zero` 0 is inside.

    Never empty: without another value it is 0..1.
    """
    known = [each for each in values if each is not None] + ([0.0] if zero else [])
    low, high = (min(known), max(known)) if any(known) else (0.0, 1.0)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return (low if zero and low == 0 else low - margin), (
        high if zero and high == 0 else high + margin
    )


def pieces(
    x: Sequence[float], values: Sequence[float | None]
) -> list[list[tuple[float, float | None]]]:
    """Split the points of a line at its gaps, where a value is None."""
    points = zip(x, values, strict=True)
    return [list(each) for known, each in groupby(points, lambda of: of[1] is not None) if known]


def step_marks(last: float) -> list[tuple[float, str]]:
    """Return marks of an axis of steps, in few characters: `250k`, `1.5M`."""
    return [(at, short_number(at)) for at in ticks(0, last, 4)]


def some_of(count: int) -> list[int]:
    """Select at most `TABLE_ROWS` of the numbers 0 .. count - 1, with the first and the last."""
    return sorted({round(i * (count - 1) / (TABLE_ROWS - 1)) for i in range(TABLE_ROWS)})


@dataclass(frozen=True)
class MarkedEquity:
    """The shown agent at the L decision bars, as `equity.csv`. Money in dollars, float64[L].

    at: int64[L] number of the bar at whose close it is marked.
    time: int64[L] UTC seconds of that close.
    session: text[L] trade date.
    account: int64[L] from 1.
    floor: NaN where there is none.
    end: text[L], empty unless the account ended there.
    start: dollars of a new account.
    """

    at: np.ndarray
    time: np.ndarray
    session: np.ndarray
    equity: np.ndarray
    account: np.ndarray
    account_equity: np.ndarray
    floor: np.ndarray
    end: np.ndarray
    start: float
    clock: PageClock

    @property
    def drawdown(self) -> np.ndarray:
        """float64[L]: the highest equity so far less the equity, at least 0.

        The start counts as equity.
        """
        return np.maximum.accumulate(np.maximum(self.equity, self.start)) - self.equity

    @property
    def last(self) -> np.ndarray:
        """int64[n] the last decision bar of each session, in order."""
        return np.append(
            np.flatnonzero(self.session[1:] != self.session[:-1]), len(self.session) - 1
        )


def sessions(marked: MarkedEquity, trades: Sequence[str]) -> list[Figures]:
    """Make a row for each session. trades: the session of each trade."""
    drawdown, before, first = marked.drawdown, marked.start, 0
    counts = dict(zip(*np.unique(np.asarray(trades, str), return_counts=True), strict=True))
    found: list[Figures] = []
    for last in marked.last:
        date, equity = str(marked.session[last]), float(marked.equity[last])
        found.append(
            {
                "date": date,
                "trades": int(counts.get(date, 0)),
                "net": cents(equity - before),
                "equity": equity,
                "drawdown": cents(float(drawdown[first : last + 1].max())),
            }
        )
        before, first = equity, last + 1
    return found


def accounts(marked: MarkedEquity) -> list[Figures]:
    """Make a row for each account that was opened."""
    found: list[Figures] = []
    for number in np.unique(marked.account):
        own = np.flatnonzero(marked.account == number)
        floors, ends = marked.floor[own], [each for each in marked.end[own] if each]
        known = floors[~np.isnan(floors)]
        found.append(
            {
                "number": int(number),
                "first": str(marked.session[own[0]]),
                "last": str(marked.session[own[-1]]),
                "sessions": len(np.unique(marked.session[own])),
                "net": cents(float(marked.account_equity[own[-1]]) - marked.start),
                "floor": float(known[-1]) if len(known) else None,
                "end": str(ends[0]) if ends else None,
            }
        )
    return found


def curve(marked: MarkedEquity) -> dict[str, Any]:
    """Return equity and drawdown in few points.

    They are `at`, `equity`, `drawdown`, and `marks` of the x axis.
    """
    chosen = extremes(marked.equity, POINTS)
    return {
        "at": marked.at[chosen].tolist(),
        "equity": marked.equity[chosen].tolist(),
        "drawdown": [cents(each) for each in marked.drawdown[chosen].tolist()],
        "marks": marks(marked),
    }


def floor(marked: MarkedEquity, rules: str) -> dict[str, Any]:
    """Return account equity and floor in few points, with a gap where an account follows another.

    rules: in words.
    """
    changes = np.flatnonzero(marked.account[1:] != marked.account[:-1])
    chosen = np.union1d(
        extremes(marked.account_equity, POINTS), np.concatenate([changes, changes + 1]).astype(int)
    )
    first = {int(i) + 1 for i in changes}  # of each account but the first one
    at, equity, level = [], [], []
    for i in chosen.tolist():
        if i in first:
            at.append(int(marked.at[i]))
            equity.append(None)
            level.append(None)
        at.append(int(marked.at[i]))
        equity.append(float(marked.account_equity[i]))
        level.append(None if np.isnan(marked.floor[i]) else float(marked.floor[i]))
    return {"rules": rules, "at": at, "equity": equity, "floor": level, "marks": marks(marked)}


def marks(marked: MarkedEquity) -> list[tuple[int, str]]:
    """Return (bar, label) for an x axis, at most `MARKS`.

    They show the date at the first decision bar of some sessions; of one session at most `TIMES`
    round times of day.
    """
    first = np.append(0, marked.last[:-1] + 1)
    if len(first) == 1:
        zone = marked.clock.zone
        shift = at_zone(int(marked.time[0]), zone).utcoffset()
        clock = marked.time + int(shift.total_seconds() if shift else 0)
        for step in STEPS:
            # The first bar of each step, where it begins no later than a tenth of the step after it.
            chosen = np.flatnonzero(
                (np.diff(clock // step, prepend=clock[0] // step - 1) > 0)
                & (clock % step <= step / 10)
            )
            if len(chosen) <= TIMES:
                break
        return [
            (int(marked.at[i]), local(int(marked.time[i] - clock[i] % step), zone, "%H:%M"))
            for i in chosen
        ]
    return [(int(marked.at[i]), str(marked.session[i])) for i in first[:: -(-len(first) // MARKS)]]


def contributions(
    marked: MarkedEquity, bars: BarRecords, shown: str, symbols: Sequence[str]
) -> Figures:
    """Return what each symbol of one account contributed, account rules off.

    It has the symbol's profit in few points, and its metrics.
    """
    chosen, fills = extremes(marked.equity, POINTS), bars.trades[shown]
    profit = np.cumsum(bars.strategy["profit"], axis=0) / 1000
    each = []
    for i, symbol in enumerate(symbols):
        own = fills["symbol"] == i
        each.append(
            {
                "symbol": symbol,
                "net": float(profit[-1, i]),
                "costs": float(fills["cost"][own].sum() / 1000),
                "fills": int(own.sum()),
                "contracts": int(np.abs(fills["quantity"][own]).sum()),
                "exposure": float((bars.strategy["quantity"][:, i] != 0).mean()),
                "profit": profit[chosen, i].tolist(),
            }
        )
    return {"at": marked.at[chosen].tolist(), "each": each, "marks": marks(marked)}


def cents(value: float) -> float:
    """Round dollars to a mill, so that differences of floats print as what they are."""
    return round(value, 3) + 0.0
