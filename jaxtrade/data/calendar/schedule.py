"""When a market trades: trade dates of stamps, and each session's open, close, halt and flat time.

Hours are exchange wall time and are converted to UTC date by date, so daylight saving in New York
needs no extra rule.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from dateutil.easter import easter
from dateutil.relativedelta import FR, MO, TH, relativedelta
from pydantic import TypeAdapter

from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.data.contracts import Contract
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import local

# UTC seconds as wall-clock seconds, computed once per run of equal days.

DAY = 86_400


def run_starts(values: np.ndarray) -> np.ndarray:
    """Find where a value differs from the one before it (int64[runs], beginning with 0).

    Bars come in time order, so their dates and hours stand in a few long runs. What depends on the
    date alone is computed once per run.
    """
    return np.flatnonzero(
        np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])
    )


def spread(per_run: np.ndarray, starts: np.ndarray, count: int) -> np.ndarray:
    """Expand the value of each run to the value of each element, [count].

    starts: `run_starts`.
    """
    return np.repeat(per_run, np.diff(starts, append=count))


@functools.cache
def _seconds_ahead(hour: int, zone: str) -> int:
    """Return the seconds by which a zone is ahead of UTC in an hour, counted since 1970."""
    ahead = datetime.fromtimestamp(3600 * hour, ZoneInfo(zone)).utcoffset() or timedelta()
    return int(ahead.total_seconds())


def local_seconds(utc: np.ndarray, zone: str) -> np.ndarray:
    """Convert UTC seconds to wall-clock seconds of the zone since its 1970-01-01 00:00 (int64[T]).

    A zone's offset is the same all hour.
    """
    utc = np.asarray(utc, np.int64)
    hours = utc // 3600
    starts = run_starts(hours)
    ahead = [_seconds_ahead(hour, zone) for hour in hours[starts].tolist()]
    return utc + spread(np.array(ahead, np.int64), starts, len(utc))


def years_of(utc: np.ndarray) -> np.ndarray:
    """Return the calendar year of UTC seconds (int64[T])."""
    return utc.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970


def most_common(values: np.ndarray) -> int:
    """Return the most common whole number; of several, the smallest."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])


# Trading hours and holidays by rule: the date on which each holiday is observed in a year, and how
# trading hours change on it. hours.yaml has the hours of each product group.

Holiday = Callable[[int], date | None]  # year -> the date on which it is observed, or None
A_DAY = timedelta(days=1)
MONDAY, THURSDAY, SATURDAY, SUNDAY = 0, 3, 5, 6
PROJECTED_TO = "2050-12-31"  # stamps after this date are treated as errors


def _move_off_weekend(day: date) -> date:
    """Move a holiday on a Saturday to Friday and one on a Sunday to Monday."""
    return {SATURDAY: day - A_DAY, SUNDAY: day + A_DAY}.get(day.weekday(), day)


def _after_sunday(day: date) -> date | None:
    """Move a holiday on a Sunday to Monday. One on a Saturday is not observed."""
    return None if day.weekday() == SATURDAY else _move_off_weekend(day)


def _to_thursday(day: date) -> date | None:
    """Return the day itself if it falls between Monday and Thursday."""
    return day if day.weekday() <= THURSDAY else None


def _on(**rule: Any) -> Callable[[int], date]:
    """Make the rule of a date by its `relativedelta` from 1 January, e.g. a month's third Monday."""
    return lambda year: date(year, 1, 1) + relativedelta(**rule)


thanksgiving = _on(month=11, weekday=TH(4))


def good_friday(year: int) -> date:
    """Return the Friday before Easter Sunday."""
    return easter(year) - 2 * A_DAY


def payrolls_good_friday(year: int) -> date | None:
    """Return Good Friday if the March US payrolls report is published on it.

    That is so on the first Friday of April.
    """
    day = good_friday(year)
    return day if day == date(year, 4, 1) + relativedelta(weekday=FR(1)) else None


HOLIDAYS: dict[str, Holiday] = {
    # Not observed on a Saturday, as the old year's books close on the Friday before.
    "new_year": lambda year: _after_sunday(date(year, 1, 1)),
    "martin_luther_king": _on(weekday=MO(3)),
    "presidents_day": _on(month=2, weekday=MO(3)),
    "good_friday": good_friday,
    "payrolls_good_friday": payrolls_good_friday,
    "other_good_friday": lambda year: None if payrolls_good_friday(year) else good_friday(year),
    "memorial_day": _on(month=5, day=31, weekday=MO(-1)),
    # Exchanges have observed it since 2022.
    "juneteenth": lambda year: _move_off_weekend(date(year, 6, 19)) if year >= 2022 else None,
    "independence_eve": lambda year: _to_thursday(date(year, 7, 3)),
    "independence_day": lambda year: _move_off_weekend(date(year, 7, 4)),
    "labor_day": _on(month=9, weekday=MO(1)),
    "columbus_day": _on(month=10, weekday=MO(2)),
    "thanksgiving": thanksgiving,
    "day_after_thanksgiving": lambda year: thanksgiving(year) + A_DAY,
    # On a Friday it is the observed Christmas holiday.
    "christmas_eve": lambda year: _to_thursday(date(year, 12, 24)),
    "christmas": lambda year: _move_off_weekend(date(year, 12, 25)),
    "christmas_of_dealers": lambda year: _after_sunday(date(year, 12, 25)),  # of spot FX
    "new_years_eve": _on(month=12, day=31),
}


@dataclass(frozen=True)
class DayChange:
    """How a trade date differs from its era's hours: no session, or another close or open.

    Times are "HH:MM".

    With all fields at their defaults, the date has its era's hours. An exception can use this to
    cancel a rule.
    """

    closed: bool = False
    close: str | None = None
    open: str | None = None


REGULAR = DayChange()


@dataclass(frozen=True)
class Rule:
    """One change that applies to some holidays of every year.

    holidays: names of `HOLIDAYS`.
    since, until: first and last date (ISO).
    weekdays: the weekdays on which the rule applies; Monday is 0.
    friday_before: it applies to the Friday before each holiday that is observed on a Monday, in
        place of the holiday.
    source: where the hours come from.
    """

    change: DayChange
    source: str
    holidays: tuple[str, ...]
    since: str = "0001-01-01"
    until: str = "9999-12-31"
    weekdays: tuple[int, ...] = tuple(range(MONDAY, SATURDAY))
    friday_before: bool = False

    def days(self, year: int) -> list[date]:
        """List the dates of a year on which the rule applies, in the order of `holidays`."""
        found = [day for name in self.holidays if (day := HOLIDAYS[name](year)) is not None]
        if self.friday_before:
            found = [day - 3 * A_DAY for day in found if day.weekday() == MONDAY]
        return [
            day
            for day in found
            if self.since <= day.isoformat() <= self.until and day.weekday() in self.weekdays
        ]


@dataclass(frozen=True)
class Exceptions:
    """One change on dates that the rules miss or get wrong.

    days: ISO dates.
    """

    change: DayChange
    source: str
    days: str


@dataclass(frozen=True, kw_only=True)
class Era:
    """Regular hours of trade dates valid_from..valid_to (ISO dates, inclusive).

    An open at or after the contract's turn hour is on the evening before.
    friday: the close on Fridays, if it differs.
    """

    valid_from: str
    valid_to: str = PROJECTED_TO
    open: str
    close: str
    halt: tuple[str, str] | None = None
    source: str
    friday: str | None = None


@dataclass(frozen=True)
class Hours:
    """A product group's calendar.

    verified_to: the last trade date (ISO) that notices or bars have verified; later dates are
        projected by rule.
    decide_from: the time from which decisions are allowed; None for the whole trade date.
    flat: the latest flat time; a session is flat at this time or a minute before its close,
        whichever is earlier.
    overnight: whether `session.overnight` may allow decisions on the whole trade date.
    extended: minutes before the open and after the close in which bars are allowed; they feed
        features, but no decision is taken in them.
    """

    eras: tuple[Era, ...]
    rules: tuple[Rule, ...]
    exceptions: tuple[Exceptions, ...]
    verified_to: str
    decide_from: str | None = "09:30"
    flat: str = "16:59"
    overnight: bool = True
    extended: tuple[int, int] = (0, 0)

    def changes(self, first: int, last: int) -> dict[str, DayChange]:
        """Return changes to the era's hours in the years first..last, by ISO date.

        Other dates have their era's hours. An exception overrides every rule.
        """
        years = range(first, last + 1)
        by_rule = {
            day.isoformat(): rule.change
            for rule in self.rules
            for year in years
            for day in rule.days(year)
        }
        return by_rule | {day: each.change for each in self.exceptions for day in each.days.split()}


_FILE = Path(__file__).with_name("hours.yaml")
CALENDARS = TypeAdapter(dict[str, Hours]).validate_python(
    parse_yaml(_FILE.read_text(encoding="utf-8"), _FILE.name)
)


TradeDay = tuple[
    date, int, int, int, int
]  # trade date; open, close, halt start and halt end in UTC seconds
ONE_DAY, NO_DATE = np.timedelta64(1, "D"), np.datetime64("NaT", "D")
SHIFTED_DATES = 3  # with fewer trade dates that have bars in a closure, they are findings and not a shift of all stamps


@dataclass(frozen=True)
class Schedule:
    """N sessions in date order. Closed dates are left out.

    dates: datetime64[D][N], increasing.
    open, close, flat: int64[N], UTC seconds.
    halts: int64[N, 2], UTC seconds [start, end); both are equal if there is no halt.
    extended: seconds before the open and after the close in which bars are allowed.
    name: where the hours come from.
    notes: what was inferred or projected.
    verified_to: the last trade date of the shipped table that notices or bars have verified; NaT
        for other calendars.
    """

    dates: np.ndarray
    open: np.ndarray
    close: np.ndarray
    flat: np.ndarray
    halts: np.ndarray
    name: str
    extended: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    verified_to: np.datetime64 = NO_DATE

    @property
    def is_projected(self) -> np.ndarray:
        """bool[N], True where a session is projected by rule.

        No notice and no bars verify it.
        """
        return self.dates > self.verified_to  # nothing is later than NaT

    def find(self, dates: np.ndarray) -> np.ndarray:
        """Return the index of each trade date's session (int64); -1 if the date has no session."""
        if not len(self.dates):
            return np.full(len(dates), -1)
        starts = run_starts(dates)
        days = dates[starts]
        at = np.minimum(np.searchsorted(self.dates, days), len(self.dates) - 1)
        return spread(np.where(self.dates[at] == days, at, -1), starts, len(dates))


def trade_dates(utc: np.ndarray, contract: Contract) -> np.ndarray:
    """Return the trade date of each bar's open stamp (datetime64[D][T]).

    The next date begins at the contract's `turn_hour`.
    """
    local = local_seconds(utc, contract.zone) + (24 - contract.turn_hour) % 24 * 3600
    return (local // DAY).astype("datetime64[D]")


def on_weekend(dates: np.ndarray) -> np.ndarray:
    """Return whether each date (datetime64[D]) is a Saturday or a Sunday."""
    return ~np.is_busday(dates)


def wall_to_utc(day: date, clock: time, zone: str) -> int:
    """Convert a date and wall time in a zone to UTC seconds."""
    return int(datetime.combine(day, clock, ZoneInfo(zone)).timestamp())


def _hour(day: date, text: str, contract: Contract) -> int:
    """Return the UTC seconds of an exchange time "HH:MM" on a date."""
    return wall_to_utc(day, time.fromisoformat(text), contract.zone)


def _opening(day: date, text: str, contract: Contract) -> int:
    """Return the UTC seconds of a session's open.

    An evening hour lies on the day before the trade date.
    """
    evening = of_evening(time.fromisoformat(text), contract)
    return _hour(day - A_DAY if evening else day, text, contract)


def of_evening(clock: time, contract: Contract) -> bool:
    """Return whether a wall time of a trade date lies on the evening before that date."""
    return 0 < contract.turn_hour <= clock.hour


def hours_of(contract: Contract) -> Hours:
    """Return the calendar of the contract's product group."""
    return CALENDARS[contract.calendar]


def flat_time(day: date, close: int, contract: Contract) -> int:
    """Return min(the calendar's flat time, scheduled close - 1 minute) in UTC seconds."""
    return min(_hour(day, hours_of(contract).flat, contract), close - 60)


def _schedule(
    rows: list[TradeDay],
    contract: Contract,
    name: str,
    notes: tuple[str, ...] = (),
    verified_to: np.datetime64 = NO_DATE,
) -> Schedule:
    """Make a Schedule of rows in date order."""
    table = np.array([row[1:] for row in rows], np.int64).reshape(-1, 4)
    flat = np.array([flat_time(row[0], row[2], contract) for row in rows], np.int64)
    days = np.array([row[0] for row in rows], "datetime64[D]")
    before, after = hours_of(contract).extended
    return Schedule(
        days,
        table[:, 0],
        table[:, 1],
        flat,
        table[:, 2:],
        name,
        (60 * before, 60 * after),
        notes,
        verified_to,
    )


def table_schedule(
    contract: Contract, first: np.datetime64, last: np.datetime64, source: str = "bars"
) -> Schedule:
    """Return the sessions of trade dates first..last in the shipped table.

    A note names those that are projected by rule. Raises DataError, naming `data.calendar`, for
    dates before the table begins or after its last projected year.
    """
    hours = hours_of(contract)
    low, high = hours.eras[0].valid_from, hours.eras[-1].valid_to
    if first < np.datetime64(low) or last > np.datetime64(high):
        raise DataError(
            f"{source}: trade dates {first}..{last} are outside the calendar of {contract.symbol}, which covers "
            f"{low}..{high}. Fix: give data.start and data.end inside it, or set data.calendar to a calendar file "
            "(columns date,open,close,halt_start,halt_end), or data.calendar=infer to read the hours off the bars"
        )
    changes = hours.changes(first.astype(object).year, last.astype(object).year)
    rows = []
    for era in hours.eras:
        day = max(first, np.datetime64(era.valid_from)).astype(object)
        end = min(last, np.datetime64(era.valid_to)).astype(object)
        while day <= end:
            change = changes.get(day.isoformat(), REGULAR)
            if day.weekday() < 5 and not change.closed:
                regular = era.friday if era.friday and day.weekday() == 4 else era.close
                start = _opening(day, change.open or era.open, contract)
                close = _hour(day, change.close or regular, contract)
                halt = [_hour(day, at, contract) for at in era.halt or ()]
                if not halt or halt[1] > close:  # one that has not ended by an early close
                    halt = [close, close]
                rows.append((day, start, close, halt[0], halt[1]))
            day += A_DAY
    verified = np.datetime64(hours.verified_to)
    notes: tuple[str, ...] = ()
    if last > verified:
        begin = max(first, verified + ONE_DAY)
        notes = (
            f"calendar: {begin}..{last} projected by rule; holidays and early closes are verified until {verified}, "
            "later notices of the exchange may differ",
        )
    return _schedule(rows, contract, "table", notes, verified)


def inferred_schedule(time_: np.ndarray, bar_seconds: int, contract: Contract) -> Schedule:
    """Infer sessions from the bars.

    They have the hours of most trade dates, with an earlier close on half days. A date is a half
    day if its last bar closes more than half an hour before the usual close and it is not the last
    date of the data. Its early close is then known from the morning on, as it would be from a
    calendar. Weekends have no sessions, and a note says so if they have bars.

    Raises ConfigError for a market with extended hours, because its bars do not show where the
    session ends.
    """
    if any(hours_of(contract).extended):
        raise ConfigError(
            f"data.calendar=infer: {contract.symbol} has bars before its open and after its close, which "
            "do not show its session; set data.calendar=table, or give a calendar file"
        )
    days = trade_dates(time_, contract)
    dates, first, count = np.unique(days, return_index=True, return_counts=True)
    off = on_weekend(dates)
    weekends = int(count[off].sum())
    dates, first, count = dates[~off], first[~off], count[~off]
    if not len(dates):
        return _schedule([], contract, "infer")
    clock = local_seconds(time_, contract.zone) - days.astype(np.int64) * DAY
    opens, closes = clock[first], clock[first + count - 1] + bar_seconds
    usual_open, usual_close = most_common(opens), most_common(closes)
    rows, short = [], []
    for i, day in enumerate(dates.astype(object)):
        close = usual_close
        if usual_close - closes[i] > 1800 and i + 1 < len(dates):
            close = int(closes[i])
            short.append(day.isoformat())
        midnight = datetime.combine(day, time(0), ZoneInfo(contract.zone))
        ends = [
            int((midnight + timedelta(seconds=s)).timestamp())  # on the wall clock
            for s in (min(usual_open, int(opens[i])), max(close, int(closes[i])))
        ]
        rows.append((day, ends[0], ends[1], ends[1], ends[1]))
    notes = (
        f"calendar inferred from the bars: sessions {hhmm(usual_open)}-{hhmm(usual_close)} exchange time"
        + (f"; early closes assumed on {', '.join(short[:10])}" if short else "")
        + (f" and {len(short) - 10} more" if len(short) > 10 else ""),
    )
    if weekends:
        notes += (
            f"data.calendar=infer knows Mondays to Fridays: {weekends} bars of weekends lie in no session, and "
            "no decision is taken on them (a calendar file may list weekends)",
        )
    return _schedule(rows, contract, "infer", notes)


def hhmm(seconds: int) -> str:
    """Format seconds of a day as a time of day, HH:MM."""
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}"


def file_schedule(path: str, contract: Contract) -> Schedule:
    """Read a user's calendar: a CSV file in exchange time.

    The header is date,open,close and optionally halt_start,halt_end. An open at or after the
    contract's turn hour lies on the evening before the date. Dates that are not listed are closed.
    Raises ConfigError (no such file), or DataError naming the line.
    """
    if not Path(path).is_file():
        raise ConfigError(
            f"data.calendar = '{path}': no such file (expected 'table', 'infer' or a CSV file)"
        )
    rows = []
    with open(path, newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        missing = {"date", "open", "close"} - set(reader.fieldnames or ())
        if missing:
            raise DataError(
                f"{path}: line 1: missing column {', '.join(sorted(missing))} "
                "(expected date,open,close and optionally halt_start,halt_end)"
            )
        for line in reader:
            try:
                day = date.fromisoformat(line["date"])
                start = _opening(day, line["open"], contract)
                close = _hour(day, line["close"], contract)
                halt = [
                    _hour(day, line.get(key) or line["close"], contract)
                    for key in ("halt_start", "halt_end")
                ]
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{path}: line {reader.line_num}: {error}; expected YYYY-MM-DD and HH:MM"
                ) from None
            if not start < close or halt[0] > halt[1] or (rows and rows[-1][0] >= day):
                raise DataError(
                    f"{path}: line {reader.line_num}: sessions must be in date order and open before they "
                    "close"
                )
            rows.append((day, start, close, halt[0], halt[1]))
    return _schedule(rows, contract, path)


def schedule_for(
    calendar: str, contract: Contract, time_: np.ndarray, bar_seconds: int, source: str = "bars"
) -> Schedule:
    """Return the schedule of the bars' trade dates.

    calendar: 'table', 'infer' or a file.
    source: the name of the bars in errors.
    Raises DataError if the calendar has no session on those dates.
    """
    days = trade_dates(time_[[0, -1]], contract)
    if calendar == "infer":
        schedule = inferred_schedule(time_, bar_seconds, contract)
    elif calendar == "table":
        schedule = table_schedule(contract, days[0], days[-1], source)
    else:
        schedule = file_schedule(calendar, contract)
    if not len(schedule.dates):
        raise DataError(
            f"{source}: the calendar ({schedule.name}) has no session on trade dates {days[0]}..{days[-1]}"
            ". Fix: check the stamps' time zone (data.time_zone), or data.calendar"
        )
    return schedule


def find_sessions(
    schedule: Schedule, time_: np.ndarray, days: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the session of each bar, and whether the market is scheduled to be open.

    Returns the index of the session (-1: none) and whether the market is open at the bar's
    open stamp.
    """
    at = schedule.find(days)
    before, after = schedule.extended
    inside = (
        (at >= 0) & (time_ >= schedule.open[at] - before) & (time_ < schedule.close[at] + after)
    )
    halted = (time_ >= schedule.halts[at, 0]) & (time_ < schedule.halts[at, 1])
    return at, inside & ~halted


def check_stamps(
    schedule: Schedule,
    time_: np.ndarray,
    bar_seconds: int,
    contract: Contract,
    source: str = "bars",
) -> None:
    """Check that the stamps have the right zone and side.

    Wrong ones put bars into closures on most days. A stray print in a closure is tolerated, and so
    are `closing_bars`. Raises DataError if more than half of the trade dates, and at least
    SHIFTED_DATES of them, have other bars in a closure.
    """
    days = trade_dates(time_, contract)
    at, open_ = find_sessions(schedule, time_, days)
    closed = ~open_ & ~closing_bars(schedule, time_, at, bar_seconds)
    dates, bad = np.unique(days[run_starts(days)]), np.unique(days[closed])
    if len(bad) < SHIFTED_DATES or 2 * len(bad) <= len(dates):
        return
    first = local(int(time_[np.argmax(closed)]), contract.zone)
    raise DataError(
        f"{source}: bars inside a scheduled closure on {len(bad)} of {len(dates)} trade dates, first "
        f"{first} exchange time (calendar: {schedule.name}): the stamps look shifted. Fix: check "
        "data.time_zone and data.stamp; or data.calendar=infer if this market really trades then"
    )


def findings(
    schedule: Schedule, time_: np.ndarray, bar_seconds: int, contract: Contract
) -> tuple[str, ...]:
    """Describe differences between the bars and the schedule, in date order.

    They are: `closing_bars`, where several dates have them (one line for all); other bars inside a
    scheduled closure; sessions that lack more than 5 % of their scheduled bars; sessions that lack
    all of them (neighbouring dates share one line).
    """
    return tuple(text for _, text in sorted(_differences(schedule, time_, bar_seconds, contract)))


def _differences(
    schedule: Schedule, time_: np.ndarray, bar_seconds: int, contract: Contract
) -> Iterator[tuple[np.datetime64, str]]:
    """Yield (trade date, text) of each finding."""
    days = trade_dates(time_, contract)
    at, open_ = find_sessions(schedule, time_, days)

    def first(bad: np.ndarray) -> str:
        return f"first {local(int(time_[np.argmax(bad)]), contract.zone)} exchange time"

    last = closing_bars(schedule, time_, at, bar_seconds)
    last &= len(np.unique(days[last])) >= SHIFTED_DATES  # a few are named by date
    if last.any():
        yield (
            days[np.argmax(last)],
            f"{int(last.sum())} bars are stamped exactly at the end of their session, {first(last)}: "
            "read as closing prints; no decision is taken on them",
        )
    open_ |= last
    for day in np.unique(days[~open_]):
        bad = ~open_ & (days == day)
        yield (
            day,
            f"{day}: {int(bad.sum())} bars inside a scheduled closure, {first(bad)} (calendar: "
            f"{schedule.name})",
        )
    halt = schedule.halts[:, 1] - schedule.halts[:, 0]
    expected = np.maximum((schedule.close - schedule.open - halt) // bar_seconds, 1)
    regular = open_ & (time_ >= schedule.open[at]) & (time_ < schedule.close[at])
    found = np.bincount(at[regular], minlength=len(schedule.dates))
    covered = (schedule.dates >= days[0]) & (schedule.dates <= days[-1])
    for i in np.flatnonzero(covered & (found > 0) & (found < 0.95 * expected)):
        day, missing = schedule.dates[i], expected[i] - found[i]
        yield (
            day,
            f"{day}: {missing} of {expected[i]} scheduled bars missing "
            f"({100 * missing / expected[i]:.0f} %)",
        )
    absent = np.flatnonzero(covered & (found == 0))
    for run in np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1):
        if len(run):
            begin, end = schedule.dates[run[[0, -1]]]
            yield begin, f"{begin}..{end}: {len(run)} scheduled sessions without a bar"


PRINT = 4  # a print takes at most this part of the closure that it begins: a quarter of an hour of a daily hour


def closing_bars(
    schedule: Schedule, time_: np.ndarray, at: np.ndarray, bar_seconds: int
) -> np.ndarray:
    """Find the closing bars: those stamped at the very end of a session (bool[T]).

    The session (extended hours included) must also have a bar at its very beginning, and the bars
    must be short beside the closure that follows. Some vendors write the closing quote or print as
    one more bar. Such bars do not show that the stamps are shifted: shifted stamps move the first
    bar of the session too, so that no bar stands at its beginning. A bar of an hour that fills a
    daily closure is no print.

    time_: UTC seconds of the open stamps.
    at: index of each bar's session, -1 for none.
    """
    before, after = schedule.extended
    begin, end = schedule.open - before, schedule.close + after
    last = (at >= 0) & (time_ == end[at])
    begun = np.zeros(len(begin), bool)
    begun[at[(at >= 0) & (time_ == begin[at])]] = True
    closure = begin[1:] - end[:-1]
    closure = np.append(
        closure, np.median(closure) if len(closure) else np.inf
    )  # after the last session: a usual one
    short = PRINT * bar_seconds <= closure
    last[last] = (begun & short)[at[last]]
    return last
