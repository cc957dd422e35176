"""Patterns that real markets do not make: copied blocks, regular gaps, another zone's hours."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.data.calendar.schedule import DAY, Schedule, local_seconds, on_weekend, run_starts
from jaxtrade.data.read.stamps import find_zones, utc_offsets
from jaxtrade.formatting import iso

# Copied blocks. Blocks of 60 equal bars do not occur by chance, unless prices stand still: blocks of
# which fewer than a third of the closes move are left to `findings._stale`. Sums of bars times powers
# of an odd number tell blocks apart, in arithmetic modulo 2^64.
LEAST_BLOCK, LEAST_MOVES = 60, 20
MIXER = 0x9E3779B97F4A7C15
# Regular gaps. 33 steps of the same size, longer than a bar, do not occur by chance (a thin market
# has such a step with a chance of a third). A minute of the hour is missing if it has less than 5 %
# of the bars of a usual minute.
LEAST_STEPS, EMPTY, LEAST_PER_SLOT = 32, 0.05, 20
# Bars of 2 minutes and more open where the last one closed: their gaps are 0 to 5 % of their bodies
# in real bars. If every second bar is dropped, the gap is the body of the bar between, so the two
# are alike.
HALVED, LEAST_LENGTH = 0.75, 120
# Two levels in one date. Turns are jumps from one bar to the next by 4 usual ranges of a bar and by
# a quarter of a usual daily move, and back by about as much. Real liquid minutes have at most 3 a
# date; a thin contract (ES of March, in October) turns in 4 % of its bars, one of June with 40 bars
# a date 5 times on one date.
LEAST_LEVEL, LEVEL_DAY, LEAST_TURNS, LEAST_SHARE = 4.0, 0.25, 20, 0.1
# Regular hours of the US cash market (New York, seconds), and their lengths until 16:00, 16:15 and
# 17:00.
OPENING, LENGTHS, SLACK, HALF_HOUR = 34_200, (23_400, 24_300, 27_000), 300, 1800
LEAST_DATES = 3
ZONES = {-1: "America/Chicago", -4: "America/New_York", -5: "America/New_York", 4: "UTC", 5: "UTC"}


class BarFinding(NamedTuple):
    """One thing that looks wrong.

    kind: split, jump, spike, levels, stale, copy, no_volume, gaps or zone.
    row: the first bar; -1 for the whole series.
    where: file and line of that bar, and its stamp.
    bars: how many bars it concerns.
    size: how large it is, in words.
    date, ratio (NEW:OLD): of a split, which refuses training until it is stated.
    """

    kind: str
    row: int
    where: str
    bars: int
    size: str
    cause: str
    fix: str
    date: str = ""
    ratio: str = ""

    def text(self) -> str:
        """Format the finding as one line."""
        fix = self.fix or "none needed: data.allow_jumps accepts it"
        return f"WARNING: {self.where}: {self.size}; likely {self.cause}. Fix: {fix}"


def finding(kind: str, bars: Bars, row: int, *facts: Any, **split: str) -> BarFinding:
    """Make the finding of this kind that begins at a row; below 0, of the whole series.

    facts, split: the fields from `bars` on.
    """
    where = bars.source if row < 0 or not bars.places else bars.places.text(row)
    stamp = "" if row < 0 else f": bar {iso(bars.time[row])}"
    return BarFinding(kind, row, where + stamp, *facts, **split)


def runs(flags: np.ndarray, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (where at least `least` flags in a row begin, how many there are), int64 each."""
    begins = run_starts(flags)
    lengths = np.diff(begins, append=len(flags))
    long = flags[begins] & (lengths >= least)
    return begins[long], lengths[long]


def copied_block(bars: Bars) -> BarFinding | None:
    """Find the first long block that occurs twice, at its copy."""
    import pandas as pd

    count = len(bars) - LEAST_BLOCK + 1
    if count <= LEAST_BLOCK:
        return None
    columns = *bars.quotes[0], bars.volume.view(np.uint64)
    mixed = np.zeros(len(bars), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(MIXER)
        mixed ^= mixed >> np.uint64(29)

    def powers(factor: int) -> np.ndarray:
        return np.cumprod(np.full(len(bars), factor, np.uint64))

    def of_blocks(values: np.ndarray) -> np.ndarray:
        total = np.append(values[:1] * 0, np.cumsum(values))
        return total[LEAST_BLOCK:] - total[:-LEAST_BLOCK]

    key = of_blocks(mixed * powers(MIXER)) * powers(pow(MIXER, -1, 1 << 64))[:count]
    lively = np.flatnonzero(of_blocks(np.diff(bars.close, prepend=0) != 0) >= LEAST_MOVES)
    if not pd.Series(key[lively]).duplicated().any():
        return None
    number, _ = pd.factorize(key[lively])  # in the order in which they occur first
    first = lively[np.unique(number, return_index=True)[1]][number]
    copies = np.flatnonzero(lively - first >= LEAST_BLOCK)
    if not len(copies):
        return None
    row, source = int(lively[copies[0]]), int(first[copies[0]])
    ahead = slice(source, source + min(row - source, len(bars) - row))
    equal = np.all([column[row:][: row - source] == column[ahead] for column in columns], axis=0)
    length = int(np.argmin(np.append(equal, False)))
    return finding(
        "copy",
        bars,
        row,
        length,
        f"{length} bars repeat those from {iso(bars.time[source])} on, price by price",
        "a block that was copied",
        "export those dates again, or leave them out (data.start, data.end)",
    )


DROPPED = (
    "rows that were dropped at regular places",
    "export the bars again, without a filter; or resample them to a length that the file holds whole",
)


def regular_gaps(bars: Bars) -> BarFinding | None:
    """Find the bars around the gaps, where bars are missing in a regular pattern."""
    step = np.diff(bars.time)
    begins, lengths = runs((step[1:] == step[:-1]) & (step[1:] > bars.bar_seconds), LEAST_STEPS)
    if len(begins):
        count, each = int((lengths + 1).sum()), int(step[begins[0]])
        size = (
            f"from here on, {count} bars follow each other in steps of {each} s, in a file of "
            f"{bars.bar_seconds} s bars"
        )
        return finding("gaps", bars, int(begins[0]), count, size, *DROPPED)
    # Minutes of the hour that never have a bar, between others that have.
    slots = 3600 // bars.bar_seconds
    if slots < 4:
        return None
    counts = np.bincount(bars.time % 3600 // bars.bar_seconds, minlength=slots)
    usual = float(np.median(counts))
    empty = counts < EMPTY * usual
    if usual < LEAST_PER_SLOT or not empty.any():
        return None
    full = np.flatnonzero(~empty)
    if (
        np.diff(np.append(full, full[0] + slots)).max() - 1 > slots // 4
    ):  # the market is closed there
        return None
    named = ", ".join(f":{int(k) * bars.bar_seconds // 60:02d}" for k in np.flatnonzero(empty)[:6])
    size = (
        f"{int(empty.sum())} of {slots} places in the hour have no bars: {named}"
        f"{' ...' if empty.sum() > 6 else ''}"
    )
    return finding("gaps", bars, 0, len(bars), size, *DROPPED)


def halved_bars(bars: Bars) -> BarFinding | None:
    """Find long bars that do not open where the one before closed.

    They look as if every second bar had been dropped.
    """
    if bars.bar_seconds < LEAST_LENGTH or len(bars) < 100:
        return None
    rows = np.flatnonzero(np.diff(bars.time) == bars.bar_seconds)
    body = np.abs(bars.close[rows] - bars.open[rows]).astype(np.float64)
    if not len(rows) or float((bars.high[rows] == bars.low[rows]).mean()) > 0.2:
        return None  # too thin to tell
    most = 10 * float(body.mean())  # so that no single bar decides
    gap = np.minimum(np.abs(bars.open[rows + 1] - bars.close[rows]), most).mean()
    share = float(gap / np.minimum(body, most).mean()) if most else 0.0
    if share < HALVED:
        return None
    size = (
        f"bars of {bars.bar_seconds} s open {share:.1f} times their usual body away from the close "
        f"before; they look like every second bar of {bars.bar_seconds // 2} s"
    )
    return finding("gaps", bars, 0, len(bars), size, *DROPPED)


def two_levels(bars: Bars) -> BarFinding | None:
    """Find turns where bars of one date stand now on one price level and now on another.

    They look as if rows of two contracts, sides or symbols were mixed.
    """
    starts = bars.date_starts
    extent = (bars.high - bars.low).astype(np.float64)
    extent = extent[extent > 0]
    if not len(extent):
        return None
    usual, per_date = float(np.median(extent)), bars_per_date(bars)
    up, down = (
        bars.low[1:] - bars.high[:-1],
        bars.low[:-1] - bars.high[1:],
    )  # ticks between bars that do not meet
    least = usual * max(LEAST_LEVEL, LEVEL_DAY * per_date**0.5)
    rows = np.flatnonzero(np.maximum(up, down) > least) + 1
    rows = rows[~np.isin(rows, starts)]
    size = np.where(up[rows - 1] > 0, up[rows - 1], -down[rows - 1]).astype(np.float64)
    date = np.searchsorted(starts, rows, side="right")
    ratio = np.abs(size[1:]) / np.abs(size[:-1])
    turns = (
        (np.sign(size[1:]) != np.sign(size[:-1]))
        & (date[1:] == date[:-1])
        & (ratio > 0.5)
        & (ratio < 2.0)
    )
    counts = np.bincount(date[1:][turns], minlength=len(starts) + 1)
    bars_of = np.append(0, bars.date_ends - starts)
    dates = np.flatnonzero((counts >= LEAST_SHARE * bars_of) & (counts > 0))
    mine = turns & np.isin(date[1:], dates)
    if mine.sum() < LEAST_TURNS:
        return None
    at = rows[1:][mine]
    apart = float(np.median(np.abs(bars.close[at] - bars.close[at - 1]))) * float(
        bars.contract.tick_size
    )
    return finding(
        "levels",
        bars,
        int(at[0]),
        int(mine.sum()),
        f"bars of one date turn {int(mine.sum())} times between two price levels, about "
        f"{apart:.{bars.contract.decimals}f} apart, on {len(dates)} dates",
        "rows of two contracts or symbols, or bid and ask, in one file",
        "give the rows of one of them (around a roll: one contract, or data.roll with an expiry column); "
        "no market traded between the levels",
    )


def wrong_hours(bars: Bars) -> BarFinding | None:
    """Find the bars where regular hours stand at another time of the day.

    Only for the markets that have the hours of the US cash market.
    """
    if bars.contract.calendar not in ("cme_equity", "us_equity") or bars.bar_seconds > HALF_HOUR:
        return None
    starts, ends = bars.date_starts, bars.date_ends
    length = bars.time[ends - 1] + bars.bar_seconds - bars.time[starts]
    shaped = np.abs(length[:, None] - np.array(LENGTHS)).min(axis=1) <= SLACK
    shaped &= (ends - starts) * bars.bar_seconds >= 0.8 * length  # one session without a hole
    if shaped.sum() < LEAST_DATES or 2 * shaped.sum() <= len(starts):
        return None
    first = local_seconds(bars.time[starts], bars.contract.zone) % DAY
    shift = np.where(shaped, first - OPENING, 0)
    moved = (np.abs(shift) >= HALF_HOUR) & (
        np.abs(shift - np.round(shift / HALF_HOUR) * HALF_HOUR) <= SLACK
    )
    if 2 * moved.sum() <= len(starts):
        return None
    row = int(np.argmax(moved))
    hours = round(float(np.median(shift[moved])) / HALF_HOUR) / 2
    begin, end = (
        f"{int(x) // 3600:02d}:{int(x) % 3600 // 60:02d}"
        for x in (first[row], first[row] + length[row])
    )
    zone = ZONES.get(int(hours)) if hours == int(hours) else None
    likely = f" (perhaps {zone})" if zone else ""
    return finding(
        "zone",
        bars,
        int(starts[row]),
        int((ends - starts)[moved].sum()),
        f"bars stand at {begin}-{end} exchange time on {int(moved.sum())} of {len(starts)} trade dates, and have "
        f"the length of regular hours, which begin at 09:30: they look {abs(hours):g} h "
        f"{'early' if hours < 0 else 'late'}",
        "a wrong data.time_zone",
        f"set data.time_zone to the zone of the file's stamps{likely}",
    )


NORMAL = 1.4826  # the standard deviation of a normal variable, over its median absolute deviation


class Scale(NamedTuple):
    """The usual moves of a series.

    bar: usual size of a move from close to close that is not zero, as a share of the price.
    day: of the moves of as many bars as a trade date usually has, if they were independent.
    """

    bar: float
    day: float


def bars_per_date(bars: Bars) -> float:
    """Return how many bars a trade date usually has."""
    return float(np.median(bars.date_ends - bars.date_starts))


def scale_of(bars: Bars) -> Scale:
    """Compute the scale of one-sided bars; without end if no price changes.

    The median ignores up to half of the moves, so bad prints and splits do not enter. Moves of zero
    are left out: in a thin market most moves are zero, and the median would be, too.
    """
    moves = np.abs(bars.close[1:] / bars.close[:-1] - 1.0)
    moves = moves[moves > 0]
    if not len(moves):
        return Scale(math.inf, math.inf)
    bar = NORMAL * float(np.median(moves))
    return Scale(bar, bar * math.sqrt(bars_per_date(bars)))


# Dealers begin and end their weeks some minutes early or late. Quotes of hours without a shift are
# another's market.
LEAST, ALONE = 1800, 4 * 3600  # seconds
SEASON = 0.2  # share of the weekends from which on a shift is named
NEVER = -(1 << 40)  # UTC seconds before all sessions


def weekend_of(dates: np.ndarray) -> np.ndarray:
    """Return the number of each date's weekend; of a weekday, of the one before it (int64[T])."""
    return (dates.astype(np.int64) - 2) // 7  # 3 January 1970 was a Saturday


class _Shift(NamedTuple):
    """The shift of the hours that weekends show.

    at: int64[W], the first bar of each weekend that shows the shift, UTC seconds.
    hours: float64[W], by which it has bars after its closing, or, below zero, before its opening.
    alike: whether the week's other end lacks about as much.
    """

    at: np.ndarray
    hours: np.ndarray
    alike: bool


def weekend_bars(bars: Bars, schedule: Schedule, zone: str | None = None) -> BarFinding | None:
    """Find the bars that lie on most of the weekends that the file touches.

    None if there are few, or if the calendar has sessions on weekends or was inferred from
    the bars.
    zone: the zone of the stamps (`data.time_zone`).
    """
    dates, starts = bars.trade_dates, bars.date_starts
    rest = on_weekend(dates[starts])
    if schedule.name == "infer" or not rest.any() or on_weekend(schedule.dates).any():
        return None
    rows = np.flatnonzero(np.repeat(rest, bars.date_ends - starts))
    number, (first, last) = weekend_of(dates[rows]), weekend_of(dates[[0, -1]])
    touched = int(last - first + rest[0])  # a first weekday belongs to a weekend before the file
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
        return finding(
            "zone",
            bars,
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
    return finding(
        "zone",
        bars,
        int(rows[0]),
        len(rows),
        size,
        "a wrong data.time_zone" + (" or data.stamp" if side else ""),
        _fix(shift, zone, f"{extent} h {'ahead of' if late else 'behind'}", bars.contract.symbol),
    )


def _extent(hours: np.ndarray) -> str:
    """Describe the size of the shift: 2, or 2 to 3 where summer differs from winter."""
    values, counts = np.unique(np.abs(hours), return_counts=True)
    usual = values[counts >= SEASON * len(hours)]
    usual = usual if len(usual) else np.median(np.abs(hours), keepdims=True)
    return " to ".join(f"{value:g}" for value in dict.fromkeys((usual[0], usual[-1])))


def _fix(shift: _Shift, zone: str | None, ahead: str, symbol: str) -> str:
    """Say what to set.

    zone: `data.time_zone`; None if the file's stamps carry their offset, or it is not known.
    """
    seconds = np.round(3600 * shift.hours).astype(np.int64)
    times = shift.at - seconds  # what the stamps seem to mean
    found = " or ".join(find_zones(times, utc_offsets(shift.at, zone or "UTC") + seconds))
    if zone is None or not found:
        return (
            f"set data.time_zone to the zone of the file's stamps, {ahead} the one they were read with"
            + (f" (perhaps {found}, if that was UTC)" if found and zone is None else "")
        )
    return (
        f"set data.time_zone={found} (it is {zone} now); for this symbol alone, "
        f"data.per_market.{symbol}.time_zone"
    )


def _shift(bars: Bars, schedule: Schedule, begin: np.ndarray, end: np.ndarray) -> _Shift:
    """Find the shift that the ends of the weeks show.

    Bars after a week's last close are compared with those that lack after its first open, and bars
    before a week's first open with those that lack before its last close.

    begin, end: UTC seconds of the first open and the last close of the bars of each such weekend.
    """
    week = weekend_of(schedule.dates)
    at = np.searchsorted(schedule.open, begin, side="right")  # the session that opens next
    gone = begin - np.append(NEVER, schedule.close)[at]
    left = np.append(schedule.open, -NEVER)[at] - end
    late = gone < left
    sign = 1 if 2 * late.sum() >= len(late) else -1
    mine = np.flatnonzero(late == (sign > 0))
    if sign > 0:
        last = at[mine] - 1
        opens = schedule.open[np.searchsorted(week, week[last])]
        extent = end[mine] - schedule.close[last]
        lacking = bars.time[np.searchsorted(bars.time, opens)] - opens
    else:
        first = at[mine]
        closes = schedule.close[np.searchsorted(week, week[first], side="right") - 1]
        extent = schedule.open[first] - begin[mine]
        before = np.searchsorted(bars.time, closes) - 1
        lacking = closes - bars.time[before] - bars.bar_seconds
    near = np.abs(lacking - extent) <= max(LEAST, bars.bar_seconds / 2)
    alike = bool(2 * near.sum() >= len(near))
    chosen = near if alike else slice(None)
    return _Shift(begin[mine][chosen], sign * np.round(extent[chosen] / 1800) / 2, alike)
