"""First-passage paths: what finer bars ("second bars") say about the order of prices inside each bar.

A running high and a running low start at the bar's open. Every time one of them is passed a turning point is noted;
new extremes of the same side in a row are one point, the last of them. For any two levels on either side of the open,
the first of the alternating points at or beyond one of them tells which was touched first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.errors import DataError
from jaxtrade.types import IntrabarPath

POINTS = 8  # K: enough for every minute of a week of SPY and of two weeks of EURUSD
INT16 = np.iinfo(np.int16)
MISMATCH_LIMIT = 0.001  # of the bars that have seconds
SHOWN = 3
FIELDS = ("open", "high", "low", "close")


@dataclass(frozen=True)
class Passages:
    """A path in host arrays, and what was found while it was made.

    path: NumPy leaves, see `IntrabarPath`. covered: bool[T] bars that have seconds. mismatched: bool[T] covered bars
    that their seconds do not rebuild. notes: counts, for people.
    """

    path: IntrabarPath
    covered: np.ndarray
    mismatched: np.ndarray
    notes: tuple[str, ...]


def side_passages(bars: Bars, seconds: Bars) -> tuple[Passages, ...]:
    """`first_passages` of each side: one of one-sided bars, (bid, ask) of two-sided ones.

    Raises DataError as `first_passages`, and where one has two sides and the other one.
    """
    if (bars.ask is None) != (seconds.ask is None):
        two, one = (seconds, bars) if bars.ask is None else (bars, seconds)
        raise DataError(f"{one.source}: has one side, but {two.source} has bid and ask. Fix: give data.file (or "
                        "data.quotes) and data.seconds the same sides; data.columns applies to both files")
    if bars.ask is None:
        return (first_passages(bars, seconds),)
    found = zip(("bid", "ask"), map(first_passages, bars.sides, seconds.sides), strict=True)
    return tuple(replace(made, notes=tuple(f"{side}: {note}" for note in made.notes)) for side, made in found)


def first_passages(bars: Bars, seconds: Bars) -> Passages:
    """Reduce `seconds` to one path per bar of `bars`.

    A bar without seconds, or one that its seconds do not rebuild (open, high, low, close), is ambiguous: `stop_first`
    resolves it.

    Raises:
        DataError: seconds that are not finer than the bars or do not fit into them, none inside any bar, or more than
            0.1 % of the bars not rebuilt.
    """
    if seconds.bar_seconds >= bars.bar_seconds or bars.bar_seconds % seconds.bar_seconds:
        raise DataError(f"{seconds.source}: bars of {seconds.bar_seconds} s cannot order prices inside bars of "
                        f"{bars.bar_seconds} s ({bars.source}). Fix: give data.seconds finer bars, whose length "
                        "divides that of data.file's")
    row = np.searchsorted(bars.time, seconds.time, "right") - 1
    inside = (row >= 0) & (seconds.time < bars.time[row] + bars.bar_seconds)
    if not inside.any():
        raise DataError(f"{seconds.source}: no second lies inside any bar of {bars.source}; seconds span "
                        f"{_iso(seconds.time[0])}..{_iso(seconds.time[-1])}, bars {_iso(bars.time[0])}.."
                        f"{_iso(bars.time[-1])}. Fix: give the seconds of the same days "
                        "(data.time_zone, data.stamp and data.price_scale apply to both files)")
    fine = seconds.rows(inside)
    counts = np.bincount(row[inside], minlength=len(bars))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    covered = counts > 0
    mismatched = _mismatched(bars, fine, starts, covered)
    share = mismatched.sum() / covered.sum()
    if share > MISMATCH_LIMIT:
        raise DataError(_not_rebuilt(bars, fine, starts, covered, mismatched))
    path = _reduce(bars, fine, starts, counts)
    path = path.replace(ambiguous=path.ambiguous | mismatched | ~covered)
    return Passages(path, covered, mismatched, _notes(bars, seconds, covered, mismatched,
                                                     np.asarray(path.ambiguous), inside))


def _rebuilt(fine: Bars, starts: np.ndarray, covered: np.ndarray) -> dict[str, np.ndarray]:
    """open, high, low, close of the covered bars from their seconds, int32[covered.sum()]."""
    first = starts[covered]
    last = np.concatenate([first[1:], [len(fine)]]) - 1
    return {"open": fine.open[first], "high": np.maximum.reduceat(fine.high, first),
            "low": np.minimum.reduceat(fine.low, first), "close": fine.close[last]}


def _mismatched(bars: Bars, fine: Bars, starts: np.ndarray, covered: np.ndarray) -> np.ndarray:
    found = _rebuilt(fine, starts, covered)
    wrong = np.zeros(len(bars), bool)
    wrong[covered] = np.any([found[name] != getattr(bars, name)[covered] for name in FIELDS], axis=0)
    return wrong


def _reduce(bars: Bars, fine: Bars, starts: np.ndarray, counts: np.ndarray) -> IntrabarPath:
    """Paths of all bars at once: round j takes the j-th second of every bar that has one."""
    total = len(bars)
    opened = bars.open.astype(np.int64)
    top, bottom = opened.copy(), opened.copy()
    points = np.zeros((total, POINTS), np.int64)
    used, side = np.zeros(total, np.int64), np.zeros(total, np.int64)
    fall, rise = np.zeros(total, np.int64), np.zeros(total, np.int64)
    fall_from, rise_from = np.zeros(total, np.int64), np.zeros(total, np.int64)
    ambiguous = np.zeros(total, bool)
    for j in range(int(counts.max(initial=0))):
        at = np.flatnonzero(counts > j)
        high = fine.high[starts[at] + j].astype(np.int64)
        low = fine.low[starts[at] + j].astype(np.int64)
        up, down = high > top[at], low < bottom[at]
        ambiguous[at] |= up & down
        top[at], bottom[at] = np.maximum(top[at], high), np.minimum(bottom[at], low)
        for moved, to, sign in ((up, top, 1), (down, bottom, -1)):
            rows = at[moved]
            used[rows] += side[rows] != sign
            side[rows] = sign
            points[rows, np.clip(used[rows], 1, POINTS) - 1] = to[rows] - opened[rows]
        # Inside one second the order of high and low is not known: a fall from its own new high counts as possible.
        for depth, size, origin, turn in ((top[at] - low, fall, fall_from, top), (high - bottom[at], rise, rise_from,
                                                                                 bottom)):
            rows = at[depth > size[at]]
            size[rows] = depth[depth > size[at]]
            origin[rows] = turn[rows] - opened[rows]
    ambiguous |= used > POINTS
    last = np.take_along_axis(points, np.clip(used, 1, POINTS)[:, None] - 1, axis=1)
    points = np.where(np.arange(POINTS) < np.maximum(used, 1)[:, None], points, last)
    offsets = (points, fall[:, None], fall_from[:, None], rise[:, None], rise_from[:, None])
    ambiguous |= np.any([(np.abs(x) > INT16.max).any(axis=1) for x in offsets], axis=0)
    narrow: list[Any] = [np.clip(x, INT16.min, INT16.max).astype(np.int16) for x in offsets]
    return IntrabarPath(narrow[0], *(x[:, 0] for x in narrow[1:]), ambiguous=ambiguous)  # type: ignore[arg-type]  # host leaves


def _notes(bars: Bars, seconds: Bars, covered: np.ndarray, mismatched: np.ndarray, ambiguous: np.ndarray,
           inside: np.ndarray) -> tuple[str, ...]:
    given = int(covered.sum())
    notes = [f"{seconds.source}: bars of {seconds.bar_seconds} s inside {given} of {len(bars)} bars"
             + ("" if given == len(bars) else "; the others are resolved stop_first"),
             f"{int((ambiguous & covered).sum())} of them do not tell the order of prices (resolved stop_first)"]
    if mismatched.any():
        notes.append(f"{int(mismatched.sum())} of {given} bars ({100 * mismatched.sum() / given:.3f} %) are not "
                     f"rebuilt by their seconds (resolved stop_first), the first at {_iso(bars.time[mismatched][0])}")
    if not inside.all():
        notes.append(f"{int((~inside).sum())} of {len(seconds)} second bars lie in no bar and are not used")
    return tuple(notes)


def _not_rebuilt(bars: Bars, fine: Bars, starts: np.ndarray, covered: np.ndarray, mismatched: np.ndarray) -> str:
    contract, found = bars.contract, _rebuilt(fine, starts, covered)
    rank = np.cumsum(covered) - 1

    def price(ticks: np.ndarray, i: int) -> str:
        return f"{int(ticks[i]) * contract.tick_size:.{contract.decimals}f}"

    lines = [f"{fine.source}: the seconds do not rebuild {int(mismatched.sum())} of {int(covered.sum())} bars of "
             f"{bars.source} ({100 * mismatched.sum() / covered.sum():.2f} %, limit {100 * MISMATCH_LIMIT:.1f} %)"]
    for i in (int(x) for x in np.flatnonzero(mismatched)[:SHOWN]):
        parts = [f"{name} {price(getattr(bars, name), i)}, seconds give {price(found[name], int(rank[i]))}"
                 for name in FIELDS if found[name][rank[i]] != getattr(bars, name)[i]]
        lines.append(f"  bar {_iso(int(bars.time[i]))}: {'; '.join(parts)}")
    return "\n".join([*lines, "Fix: give the seconds of the same instrument and side, stamped like the bars "
                      "(data.stamp, data.time_zone, data.price_scale and data.columns apply to both files)"])


def _iso(seconds: int) -> str:
    return f"{np.datetime64(int(seconds), 's')}Z"
