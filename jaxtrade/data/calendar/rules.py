"""Trading hours and holidays by rule: the date on which each holiday is observed in a year, and how
trading hours change on it. hours.yaml has the hours of each product group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from dateutil.easter import easter
from dateutil.relativedelta import FR, MO, TH, relativedelta
from pydantic import TypeAdapter

from jaxtrade.config.yaml12 import parse_yaml

Holiday = Callable[[int], date | None]  # year -> the date on which it is observed, or None
A_DAY = timedelta(days=1)
MONDAY, THURSDAY, SATURDAY, SUNDAY = 0, 3, 5, 6
PROJECTED_TO = "2050-12-31"  # stamps after this date are treated as errors


def _observed(day: date) -> date:
    """A holiday on a Saturday is observed on Friday, one on a Sunday on Monday."""
    return {SATURDAY: day - A_DAY, SUNDAY: day + A_DAY}.get(day.weekday(), day)


def _after_sunday(day: date) -> date | None:
    """A holiday on a Sunday is observed on Monday. One on a Saturday is not observed."""
    return None if day.weekday() == SATURDAY else _observed(day)


def _to_thursday(day: date) -> date | None:
    """The day itself if it falls between Monday and Thursday."""
    return day if day.weekday() <= THURSDAY else None


def _on(**rule: Any) -> Callable[[int], date]:
    """A date by its `relativedelta` from 1 January, such as the third Monday of a month."""
    return lambda year: date(year, 1, 1) + relativedelta(**rule)


thanksgiving = _on(month=11, weekday=TH(4))


def good_friday(year: int) -> date:
    """The Friday before Easter Sunday."""
    return easter(year) - 2 * A_DAY


def payrolls_good_friday(year: int) -> date | None:
    """Good Friday if the March US payrolls report is published on it, which is so on the first
    Friday of April.
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
    "juneteenth": lambda year: _observed(date(year, 6, 19)) if year >= 2022 else None,
    "independence_eve": lambda year: _to_thursday(date(year, 7, 3)),
    "independence_day": lambda year: _observed(date(year, 7, 4)),
    "labor_day": _on(month=9, weekday=MO(1)),
    "columbus_day": _on(month=10, weekday=MO(2)),
    "thanksgiving": thanksgiving,
    "day_after_thanksgiving": lambda year: thanksgiving(year) + A_DAY,
    # On a Friday it is the observed Christmas holiday.
    "christmas_eve": lambda year: _to_thursday(date(year, 12, 24)),
    "christmas": lambda year: _observed(date(year, 12, 25)),
    "christmas_of_dealers": lambda year: _after_sunday(date(year, 12, 25)),  # of spot FX
    "new_years_eve": _on(month=12, day=31),
}


@dataclass(frozen=True)
class DayChange:
    """How a trade date differs from its era's hours: no session, or another close or open
    ("HH:MM").

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

    holidays: names of `HOLIDAYS`. since, until: first and last date (ISO). weekdays: the weekdays
        on which the rule applies; Monday is 0. friday_before: it applies to the Friday before each
        holiday that is observed on a Monday, in place of the holiday. source: where the hours come
        from.
    """

    change: DayChange
    source: str
    holidays: tuple[str, ...]
    since: str = "0001-01-01"
    until: str = "9999-12-31"
    weekdays: tuple[int, ...] = tuple(range(MONDAY, SATURDAY))
    friday_before: bool = False

    def days(self, year: int) -> list[date]:
        """Dates of a year on which the rule applies, in the order of `holidays`."""
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
    """One change on dates that the rules miss or get wrong. days: ISO dates."""

    change: DayChange
    source: str
    days: str


@dataclass(frozen=True, kw_only=True)
class Era:
    """Regular hours of trade dates valid_from..valid_to (ISO dates, inclusive).

    An open at or after the contract's turn hour is on the evening before. friday: the close on
    Fridays, if it differs.
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
    decide_from: the time from which decisions are allowed; None for the whole trade date. flat: the
        latest flat time;
    a session is flat at this time or a minute before its close, whichever is earlier. overnight:
    whether
    `session.overnight` may allow decisions on the whole trade date. extended: minutes before the open and after the
    close in which bars are allowed; they feed features, but no decision is taken in them.
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
        """Changes to the era's hours in the years first..last, by ISO date. Other dates have their
        era's hours. An exception overrides every rule.
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
