"""Intrabar paths: what finer bars ("second bars") say about the order of prices inside each bar.

A falling price closes a long position when it reaches a level: a stop, or a floor that trails the
high-water mark. Such a level stays put or rises with the running high, and never rises faster than
it. So the depth of fall that reaches the level never shrinks as the high rises. If a fall reaches
the level, then an earlier fall that was at least as deep reached it too. Only the falls that are
deeper than every earlier fall in the bar therefore matter, whatever the level is, and a path stores
just these. A short position uses the same rule on the bar turned upside down.

The order of prices inside one second is unknown. Like `stop_first`, this module assumes the worst:
the high comes before the low (for a short, the low before the high), and the target comes last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jaxtrade.data.bars import PRICES, Bars
from jaxtrade.data.read.validate import suggest_limit
from jaxtrade.errors import DataError
from jaxtrade.formatting import iso, price
from jaxtrade.types import IntrabarPath

FALLS = 8  # K, falls stored per bar: enough for every minute of a week of SPY and of two weeks of EURUSD
MISMATCH_LIMIT = (
    0.001  # default of data.seconds_tolerance: largest share, among the bars that have seconds
)
SHOWN = 3  # mismatched bars quoted in an error message


@dataclass(frozen=True)
class HostPaths:
    """A path in host arrays, with findings about it.

    path: NumPy leaves, see `IntrabarPath`.
    covered: bool[T], bars that have seconds.
    mismatched: bool[T], covered bars whose seconds do not rebuild them.
    notes: counts in words.
    """

    path: IntrabarPath
    covered: np.ndarray
    mismatched: np.ndarray
    notes: tuple[str, ...]


def side_passages(
    bars: Bars, seconds: Bars, tolerance: float = MISMATCH_LIMIT
) -> tuple[HostPaths, ...]:
    """Compute `first_passages` of each side.

    One element for one-sided bars, (bid, ask) for two-sided bars. Raises DataError as
    `first_passages` does, and if only one of `bars` and `seconds` has two sides.
    """
    if bool(bars.ask) != bool(seconds.ask):
        two, one = (bars, seconds) if bars.ask else (seconds, bars)
        raise DataError(
            f"{one.source}: has one side, but {two.source} has bid and ask. Fix: give data.file (or "
            "data.quotes) and data.seconds the same sides; data.columns applies to both files"
        )
    if not bars.ask:
        return (first_passages(bars, seconds, tolerance),)
    own = [first_passages(*pair, tolerance) for pair in zip(bars.sides, seconds.sides, strict=True)]
    found = zip(("bid", "ask"), own, strict=True)
    return tuple(
        replace(own, notes=tuple(f"{side}: {note}" for note in own.notes)) for side, own in found
    )


def market_path(passages: tuple[HostPaths, ...]) -> IntrabarPath:
    """Return the host path of a market.

    A long is closed by selling at the bid, so its falls come from the bid; a short's come from the
    ask. The last axis is cut to the largest number of falls that any unambiguous bar uses.
    """
    long, short = passages[0].path, passages[-1].path
    falls = np.stack([long.falls[:, 0], short.falls[:, 1]], axis=1)
    ambiguous = np.stack([long.ambiguous[:, 0], short.ambiguous[:, 1]], axis=1)
    is_given = np.any(np.where(ambiguous[:, :, None, None], 0, falls) != 0, axis=(0, 1, 2))
    used = (
        int(np.flatnonzero(is_given).max(initial=0)) + 1
    )  # every environment step reads all of them: keep it short
    reached = np.ascontiguousarray(falls[..., :used], np.int32)
    return IntrabarPath(reached, ambiguous)  # type: ignore[arg-type]  # host leaves


def first_passages(bars: Bars, seconds: Bars, tolerance: float = MISMATCH_LIMIT) -> HostPaths:
    """Reduce `seconds` to one path per bar of `bars`.

    A bar is ambiguous if it has no seconds, if its seconds do not rebuild its open, high, low
    and close, or if it has more than `FALLS` falls. The environment resolves an ambiguous bar
    by `stop_first`.

    Args:
        tolerance: largest share of the bars with seconds that may not be rebuilt.

    Raises:
        DataError: the seconds are not finer than the bars or do not divide them, none lies inside a
            bar, or more than `tolerance` of the bars are not rebuilt.
    """
    if seconds.bar_seconds >= bars.bar_seconds or bars.bar_seconds % seconds.bar_seconds:
        raise DataError(
            f"{seconds.source}: bars of {seconds.bar_seconds} s cannot order prices inside bars of "
            f"{bars.bar_seconds} s ({bars.source}). Fix: give data.seconds finer bars, whose length "
            "divides that of data.file's"
        )
    row = np.searchsorted(bars.time, seconds.time, "right") - 1
    inside = (row >= 0) & (seconds.time < bars.time[row] + bars.bar_seconds)
    if not inside.any():
        raise DataError(
            f"{seconds.source}: no second lies inside any bar of {bars.source}; seconds span "
            f"{iso(seconds.time[0])}..{iso(seconds.time[-1])}, bars {iso(bars.time[0])}.."
            f"{iso(bars.time[-1])}. Fix: give the seconds of the same days "
            "(data.time_zone, data.stamp and data.price_scale apply to both files)"
        )
    fine = seconds.rows(inside)
    counts = np.bincount(row[inside], minlength=len(bars))
    covered = counts > 0
    mismatched = _find_mismatches(bars, fine, counts, tolerance)
    path = deepening_falls(bars.open, fine.high, fine.low, counts)
    path = path.replace(ambiguous=path.ambiguous | (mismatched | ~covered)[:, None])
    given, unclear = int(covered.sum()), np.asarray(path.ambiguous).any(axis=1) & covered
    notes = [
        f"{seconds.source}: bars of {seconds.bar_seconds} s inside {given} of {len(bars)} bars"
        + ("" if given == len(bars) else "; the others are resolved stop_first"),
        f"{int(unclear.sum())} of them do not tell the order of prices (resolved stop_first)",
    ]
    if mismatched.any():
        notes.append(
            f"{int(mismatched.sum())} of {given} bars ({100 * mismatched.sum() / given:.3f} %) are not "
            f"rebuilt by their seconds (resolved stop_first), the first at {iso(bars.time[mismatched][0])}"
        )
    if not inside.all():
        notes.append(
            f"{int((~inside).sum())} of {len(seconds)} second bars lie in no bar and are not used"
        )
    return HostPaths(path, covered, mismatched, tuple(notes))


def _find_mismatches(bars: Bars, fine: Bars, counts: np.ndarray, tolerance: float) -> np.ndarray:
    """Find the bars with seconds whose open, high, low or close these do not rebuild (bool[T]).

    counts: seconds of each bar.
    Raises DataError if they are more than `tolerance` of the bars with seconds.
    """
    covered = counts > 0
    first = (np.cumsum(counts) - counts)[covered]
    last = np.append(first[1:], len(fine)) - 1
    found = (
        fine.open[first],
        np.maximum.reduceat(fine.high, first),
        np.minimum.reduceat(fine.low, first),
        fine.close[last],
    )
    made = {name: getattr(bars, name).copy() for name in PRICES}
    for column, prices in zip(made.values(), found, strict=True):
        column[covered] = prices
    mismatched = np.any([made[name] != getattr(bars, name) for name in PRICES], axis=0)
    share, contract = mismatched.sum() / covered.sum(), bars.contract
    if share <= tolerance:
        return mismatched

    lines = [
        f"{fine.source}: the seconds do not rebuild {int(mismatched.sum())} of {int(covered.sum())} bars of "
        f"{bars.source} ({100 * share:.2f} %, limit {100 * tolerance:g} %)"
    ]
    for i in (int(x) for x in np.flatnonzero(mismatched)[:SHOWN]):
        parts = [
            f"{name} {price(getattr(bars, name)[i], contract)}, seconds give {price(made[name][i], contract)}"
            for name in PRICES
            if made[name][i] != getattr(bars, name)[i]
        ]
        lines.append(f"  bar {iso(bars.time[i])}: {'; '.join(parts)}")
    lines.append(
        "Fix: give the seconds of the same instrument and side, stamped like the bars "
        "(data.stamp, data.time_zone, data.price_scale and data.columns apply to both files)"
        + suggest_limit(
            "resolve those bars stop_first, if the files differ by late prints only,",
            "seconds_tolerance",
            share,
        )
    )
    raise DataError("\n".join(lines))


def deepening_falls(
    opened: np.ndarray, high: np.ndarray, low: np.ndarray, counts: np.ndarray
) -> IntrabarPath:
    """Compute the paths, with NumPy leaves, from the seconds of every bar.

    opened: int[T], opens of the bars in ticks.
    high, low: int[S], ticks, of all seconds in time order.
    counts: int[T], seconds per bar: the first `counts[0]` seconds belong to bar 0, the next
        `counts[1]` to bar 1, and so on.
    """
    starts = np.cumsum(counts) - counts
    base = np.repeat(opened.astype(np.int64), counts)
    sides = [
        _falls(up, down, starts, counts)
        for up, down in ((high - base, low - base), (base - low, base - high))
    ]
    falls, ambiguous = (np.stack(leaves, axis=1) for leaves in zip(*sides, strict=True))
    return IntrabarPath(falls.astype(np.int32), ambiguous)  # type: ignore[arg-type]  # host leaves


def _falls(
    high: np.ndarray, low: np.ndarray, starts: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the falls of one side.

    Returns (int64[T, 3, K], bool[T] True where a bar has more than K falls). Axis 1 holds the
    running high before the second, the running high with it, and its low, all relative to the bar's
    open. Round j of the loop handles the j-th second of every bar that has one, so the work is
    vectorised over bars.
    """
    total = len(counts)
    top, deepest, used = (np.zeros(total, np.int64) for _ in range(3))
    falls = np.zeros((total, 3, FALLS), np.int64)
    for j in range(int(counts.max(initial=0))):
        at = np.flatnonzero(counts > j)
        ends, before = low[starts[at] + j], top[at]
        top[at] = np.maximum(before, high[starts[at] + j])
        deeper = top[at] - ends > deepest[at]
        rows, before, ends = at[deeper], before[deeper], ends[deeper]
        deepest[rows] = top[rows] - ends
        # The last stored fall came from this same high, and neither second raised the high: the
        # deeper fall replaces the shallower one.
        place = np.clip(used[rows], 1, FALLS) - 1
        again = (
            (falls[rows, 0, place] == before)
            & (falls[rows, 1, place] == before)
            & (top[rows] == before)
        )
        used[rows] += ~again | (used[rows] == 0)
        place = np.clip(used[rows], 1, FALLS) - 1
        falls[rows, :, place] = np.stack([before, top[rows], ends], axis=1)
    return falls, used > FALLS
