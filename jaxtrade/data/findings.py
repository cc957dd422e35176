"""What looks wrong in bars that are formally right.

Such are splits, bad prints, stale or copied bars, gaps, a wrong time zone.

Nothing is repaired. A finding names the first bar, the number of bars, the size, the likely cause
and the fix. A likely share split refuses the market until it is stated; every other finding is a
warning.

Thresholds are multiples of the series' own robust scale (`scale_of`), so that quiet and wild
markets, and bars of any length, are judged alike. The constants below say what each multiple
separates, as found in 2.5 million real bars of ES, EURUSD, GBPUSD, USDJPY, USDCHF, SPY, AAPL and
GOOG. All checks are array operations on integer ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxtrade.config import DataConfig, RunConfig, ShareSplit
from jaxtrade.data.bars import Bars, splice_dates
from jaxtrade.data.calendar.schedule import Schedule, check_stamps, findings
from jaxtrade.data.calendar.sessions import cut_short, schedule_of
from jaxtrade.data.patterns import (
    BarFinding,
    Scale,
    bars_per_date,
    copied_block,
    finding,
    halved_bars,
    regular_gaps,
    runs,
    scale_of,
    two_levels,
    weekend_bars,
    wrong_hours,
)
from jaxtrade.data.read.stamps import OWN_OFFSET
from jaxtrade.data.read.validate import NO_VOLUME_COLUMN
from jaxtrade.errors import DataError
from jaxtrade.formatting import iso, price

# A bad print stands off both neighbours by 60 usual bar moves and by 4 usual daily moves, and
# leaves no trace: the next bar opens within 15 % of the excursion from the last close. Real prints
# after a halt reach 3 daily moves (ES, 2013-12-18). Real shocks leave a trace: 23 % in GBPUSD's
# fall of 2016-10-07, the largest in the data.
SPIKE_BAR, SPIKE_DAY, TRACE = 60.0, 4.0, 0.15
# A split moves the level by 10 usual daily moves and by a factor of 1.4 (3:2 is the smallest common
# one) from one trade date to the next. It lies near a simple ratio: within 4 daily moves, at least
# 3 % (AAPL opened 2.2 % off 4:1 in 2020), at most 8 %, because some ratios are 13 % apart.
SPLIT_DAY, SPLIT_LEAST, NEAR_DAY, NEAR = 10.0, np.log(1.4), 4.0, (0.03, 0.08)
RATIOS = (
    1.5,
    2.0,
    2.5,
    3.0,
    4.0,
    5.0,
    6.0,
    7.0,
    8.0,
    10.0,
    12.0,
    15.0,
    20.0,
    25.0,
    30.0,
    40.0,
    50.0,
    100.0,
)
LEVEL_BARS = 15  # at the end of a date and at the start of the next; their medians are the levels
MOST_SESSIONS = 5  # across a longer hole, prices may have moved that far by themselves
# A run of identical bars is stale from 90 bars on (in bars of an hour: from a day on), and from 5
# times the usual longest run of a date. Quotes of ES before the opening reach 64 bars, quotes of
# SPY by the second 92 with 20 a date.
STALE_BARS, STALE_LEAST, STALE_TIMES = 90, 20, 5


def bar_findings(
    bars: Bars,
    schedule: Schedule,
    splits: tuple[ShareSplit, ...] = (),
    zone: str | None = None,
) -> tuple[BarFinding, ...]:
    """Find what is unusual in a series.

    Two-sided bars are judged by their mid price. Generated bars have no findings.
    splits: those for which the bars are adjusted already.
    zone: the zone in which the stamps were read (`data.time_zone`).
    """
    if bars.synthetic or len(bars) < 3:
        return ()
    bars = bars.mid
    scale = scale_of(bars)
    found = (
        *_level_changes(bars, schedule, scale, splits),
        _spikes(bars, scale),
        two_levels(bars) or _other_level(bars),
        _stale(bars),
        copied_block(bars),
        _without_volume(bars),
        regular_gaps(bars) or halved_bars(bars),
        wrong_hours(bars) or weekend_bars(bars, schedule, zone),
    )
    return tuple(each for each in found if each)


def require_stated(bars: Bars, schedule: Schedule, data: DataConfig) -> tuple[str, ...]:
    """Return the findings as warnings, one line each.

    Raises DataError for likely splits that neither `data.splits` nor `data.allow_jumps` allows for.
    """
    own = any(
        note.startswith(OWN_OFFSET) for note in bars.notes
    )  # data.time_zone has no effect then
    found = bar_findings(bars, schedule, data.splits, None if own else data.time_zone)
    refused = [each for each in found if each.ratio]
    if refused and not data.allow_jumps:
        raise DataError(_refusal(refused, data.splits))
    return tuple(each.text() for each in found)


class MarketCheck(NamedTuple):
    """What the bars of a market show beside its calendar.

    It is their schedule, warnings (findings, and sessions that are cut short), and where they
    differ from the schedule.
    """

    schedule: Schedule
    warnings: tuple[str, ...]
    differences: tuple[str, ...]


def check_bars(bars: Bars, config: RunConfig) -> MarketCheck:
    """Check validated bars, and return all that can be said of them.

    Raises DataError for dates without a session, stamps that look shifted, and likely splits that
    are not stated.
    """
    schedule = schedule_of(bars, config.data.calendar)
    stamps = bars.time, bars.bar_seconds, bars.contract
    check_stamps(schedule, *stamps, bars.source)
    found = require_stated(bars, schedule, config.data)
    cut = (each.text() for each in cut_short(bars, schedule, config))
    return MarketCheck(schedule, (*found, *cut), findings(schedule, *stamps))


# --- levels -----------------------------------------------------------------------------------------------------------


def _level_changes(
    bars: Bars,
    schedule: Schedule,
    scale: Scale,
    splits: tuple[ShareSplit, ...],
) -> Iterator[BarFinding]:
    """Find splits and other changes of the price level between neighbouring trade dates."""
    starts, ends = bars.date_starts, bars.date_ends
    days, back = bars.trade_dates[starts], np.arange(LEVEL_BARS)
    before = np.median(
        bars.close[np.maximum(ends[:-1, None] - 1 - back, starts[:-1, None])], axis=1
    )
    after = np.median(bars.close[np.minimum(starts[1:, None] + back, ends[1:, None] - 1)], axis=1)
    gap = np.log(after / before)
    hole = np.diff(np.searchsorted(schedule.dates, days))
    far = (np.abs(gap) >= max(SPLIT_DAY * scale.day, SPLIT_LEAST)) & (hole <= MOST_SESSIONS)
    spliced = np.diff(np.searchsorted(splice_dates(bars.legs), days, side="right")) > 0
    for i in np.flatnonzero(far & ~spliced):
        whole = [float(np.median(bars.close[starts[k] : ends[k]])) for k in (i, i + 1)]
        if abs(np.log(whole[1] / whole[0]) - gap[i]) > 0.5 * abs(gap[i]):
            continue  # the level does not stay: no split
        row, levels = int(starts[i + 1]), (before[i], after[i])
        yield _level_change(bars, row, str(days[i + 1]), levels, scale, splits)


def _level_change(
    bars: Bars,
    row: int,
    day: str,
    levels: tuple[float, float],
    scale: Scale,
    splits: tuple[ShareSplit, ...],
) -> BarFinding:
    gap = np.log(levels[0] / levels[1])
    nearest = min(RATIOS, key=lambda ratio: abs(abs(gap) - np.log(ratio)))
    rest = abs(abs(gap) - np.log(nearest))
    moved = f"prices go from {price(levels[0], bars.contract)} to {price(levels[1], bars.contract)} and stay"
    if any(split.date == day for split in splits):
        return finding(
            "split",
            bars,
            row,
            1,
            f"after data.splits, {moved}",
            "a file that is adjusted already, or a wrong ratio",
            f"correct or drop {day} in data.splits (ratio: new shares for one old share)",
            date=day,
            ratio="1:1",
        )
    if rest > np.clip(NEAR_DAY * scale.day, *NEAR):
        return finding(
            "jump",
            bars,
            row,
            1,
            f"{moved} (a factor of {np.exp(abs(gap)):.2f}, "
            f"{abs(gap) / scale.day:.0f} times a usual daily move)",
            "another instrument, another price scale, or news",
            "check the file on both sides of that date; set data.start or data.end if it is wrong",
        )
    whole = f"{nearest:g}:1" if nearest % 1 == 0 else f"{2 * nearest:g}:2"
    ratio = whole if gap > 0 else ":".join(reversed(whole.split(":")))
    cause = f"a share split {ratio} that the prices are not adjusted for"
    if bars.contract.kind != "equity":
        cause = f"two price scales in one file ({ratio})"
    size = f"{moved} (within {100 * rest:.1f} % of {ratio})"
    return finding("split", bars, row, 1, size, cause, "", date=day, ratio=ratio)


def _refusal(refused: list[BarFinding], splits: tuple[ShareSplit, ...]) -> str:
    """Return the error for splits that are not stated, with the keys that state or accept them."""
    lines = [
        f"{each.where}: {each.size}; likely {each.cause}"
        + (f". Fix: {each.fix}" if each.fix else "")
        for each in refused
    ]
    unstated = {each.date: each.ratio for each in refused if each.ratio != "1:1"}
    if unstated:
        stated = {split.date: split.ratio for split in splits} | unstated
        listed = ", ".join(
            f"{{date: {day}, ratio: {_short(stated[day])}}}" for day in sorted(stated)
        )
        lines.append(
            f"Fix: --set 'data.splits=[{listed}]' divides the prices before each date by its ratio; or, if "
            "the jump is real, accept it with --set data.allow_jumps=true"
        )
    else:
        lines.append("Or, if the jump is real, accept it with --set data.allow_jumps=true")
    return "\n".join(lines)


def _short(ratio: str) -> str:
    return ratio.removesuffix(":1") if not ratio.startswith("1:") else f"'{ratio}'"


# --- single bars ------------------------------------------------------------------------------------------------------


def _spikes(bars: Bars, scale: Scale) -> BarFinding | None:
    """Find bars that stand far off both neighbours and leave no trace.

    The first and the last bar are not judged.
    """
    least = max(SPIKE_BAR * scale.bar, SPIKE_DAY * scale.day)
    high, low = bars.high, bars.low
    top, bottom = np.maximum(high[:-2], high[2:]), np.minimum(low[:-2], low[2:])
    up, down = high[1:-1] - top, bottom - low[1:-1]
    above, below = up / top, down / low[1:-1]
    size = np.maximum(above, below)
    left = np.abs(bars.open[2:] / bars.close[:-2] - 1.0)
    bad = (size > least) & (left <= TRACE * size)
    if not bad.any():
        return None
    rows, size = np.flatnonzero(bad) + 1, np.where(above >= below, above, -down / bottom)[bad]
    first, worst = int(rows[0]), int(np.argmax(np.abs(size)))
    more = (
        ""
        if len(rows) == 1
        else (
            f" ({len(rows)} such bars; the largest {100 * size[worst]:+.1f} % at "
            f"{iso(bars.time[int(rows[worst])])})"
        )
    )
    return finding(
        "spike",
        bars,
        first,
        len(rows),
        f"stands {100 * size[0]:+.1f} % off the bars before and after it, and no trace remains{more}",
        "a bad print",
        "correct or remove the row; such a bar fills stops and targets that no market would have filled",
    )


# --- runs of bars -----------------------------------------------------------------------------------------------------


def _stale(bars: Bars) -> BarFinding | None:
    """Find runs of identical bars, far longer than the longest run of a usual date."""
    same = np.ones(len(bars) - 1, bool)
    for name in ("close", "open", "high", "low"):
        prices = getattr(bars, name)
        same &= prices[1:] == prices[:-1]
    begins, lengths = runs(same, 1)
    if not len(begins):
        return None
    lengths = lengths + 1  # bars
    starts = bars.date_starts
    longest = np.zeros(len(starts), np.int64)
    np.maximum.at(longest, np.searchsorted(starts, begins, side="right") - 1, lengths)
    least = max(
        STALE_LEAST,
        min(STALE_BARS, bars_per_date(bars)),
        STALE_TIMES * float(np.median(longest)),
    )
    bad = lengths >= least
    if not bad.any():
        return None
    first, count = int(begins[bad][0]), int(lengths[bad].sum())
    several = (
        "" if bad.sum() == 1 else f" (in {int(bad.sum())} runs; the longest {int(lengths.max())})"
    )
    return finding(
        "stale",
        bars,
        first,
        count,
        f"{count} bars repeat one price, open to close{several}",
        "a feed that stood still, or filled gaps",
        "remove those rows, or give bars of another source",
    )


def _other_level(bars: Bars) -> BarFinding | None:
    """Find a change of the price level inside one trade date that stays."""
    starts, ends = bars.date_starts, bars.date_ends
    for row in np.flatnonzero(np.abs(np.log(bars.open[1:] / bars.close[:-1])) >= SPLIT_LEAST) + 1:
        date = int(np.searchsorted(starts, row, side="right")) - 1
        sides = bars.close[starts[date] : row], bars.close[row : ends[date]]
        if min(map(len, sides)) < LEVEL_BARS:
            continue
        before, after = (float(np.median(side)) for side in sides)
        if abs(np.log(after / before)) >= SPLIT_LEAST:
            return finding(
                "levels",
                bars,
                int(row),
                len(sides[1]),
                f"inside one trade date, prices go from {price(before, bars.contract)} to "
                f"{price(after, bars.contract)} and stay",
                "another instrument, another price scale, or prices adjusted in one part only",
                "check the file on both sides of that bar; set data.start or data.end",
            )
    return None


# --- the whole series -------------------------------------------------------------------------------------------------


def _without_volume(bars: Bars) -> BarFinding | None:
    if NO_VOLUME_COLUMN in bars.notes or bars.volume.any():
        return None
    return finding(
        "no_volume",
        bars,
        -1,
        len(bars),
        "the volume column holds 0 in every bar",
        "an export without volume",
        "map the right column (data.columns={volume: NAME}), or choose env.features without volume",
    )
