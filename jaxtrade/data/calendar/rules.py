"""Holidays by rule: the date on which each is observed in a year, and how trading hours change on
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from dateutil.easter import easter
from dateutil.relativedelta import FR, MO, TH, relativedelta

Holiday = Callable[[int], date | None]  # year -> the date on which it is observed, or None
DAY = timedelta(days=1)
MONDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY = 0, 3, 4, 5, 6
MONDAY_TO_THURSDAY, FRIDAYS = range(MONDAY, FRIDAY), range(FRIDAY, SATURDAY)


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


CLOSED, REGULAR = DayChange(closed=True), DayChange()


@dataclass(frozen=True)
class Rule:
    """One change that applies to some holidays of every year.

    since, until: first and last date (ISO). weekdays: the weekdays on which the rule applies;
        Monday is 0. source:
    where the hours come from.
    """

    change: DayChange
    source: str
    holidays: tuple[Holiday, ...]
    since: str = "0001-01-01"
    until: str = "9999-12-31"
    weekdays: range = range(MONDAY, SATURDAY)

    def days(self, year: int) -> list[date]:
        """Dates of a year on which the rule applies, in the order of `holidays`."""
        kept = [day for holiday in self.holidays if (day := holiday(year)) is not None]
        return [
            day
            for day in kept
            if self.since <= day.isoformat() <= self.until and day.weekday() in self.weekdays
        ]


@dataclass(frozen=True)
class Exceptions:
    """One change on dates that the rules miss or get wrong. days: ISO dates."""

    change: DayChange
    source: str
    days: str


def changes(
    rules: tuple[Rule, ...], exceptions: tuple[Exceptions, ...], first: int, last: int
) -> dict[str, DayChange]:
    """The changes in the years first..last, by ISO date. An exception overrides every rule."""
    years = range(first, last + 1)
    by_rule = {
        day.isoformat(): rule.change for rule in rules for year in years for day in rule.days(year)
    }
    return by_rule | {day: known.change for known in exceptions for day in known.days.split()}


def _observed(day: date) -> date:
    """A holiday on a Saturday is observed on Friday, one on a Sunday on Monday."""
    return {SATURDAY: day - DAY, SUNDAY: day + DAY}.get(day.weekday(), day)


def _after_sunday(day: date) -> date | None:
    """A holiday on a Sunday is observed on Monday. One on a Saturday is not observed."""
    return {SATURDAY: None, SUNDAY: day + DAY}.get(day.weekday(), day)


def new_year(year: int) -> date | None:
    """1 January. It is not observed if it is a Saturday, as the old year's books close on the
    Friday before.
    """
    return _after_sunday(date(year, 1, 1))


def martin_luther_king(year: int) -> date:
    """Third Monday of January."""
    return date(year, 1, 1) + relativedelta(weekday=MO(3))


def presidents_day(year: int) -> date:
    """Third Monday of February."""
    return date(year, 2, 1) + relativedelta(weekday=MO(3))


def good_friday(year: int) -> date:
    """The Friday before Easter Sunday."""
    return easter(year) - 2 * DAY


def payrolls_good_friday(year: int) -> date | None:
    """Good Friday if the March US payrolls report is published on it, which is so on the first
    Friday of April.
    """
    day = good_friday(year)
    return day if day == date(year, 4, 1) + relativedelta(weekday=FR(1)) else None


def other_good_friday(year: int) -> date | None:
    """Good Friday if no payrolls report is published on it."""
    return None if payrolls_good_friday(year) else good_friday(year)


def memorial_day(year: int) -> date:
    """Last Monday of May."""
    return date(year, 5, 31) + relativedelta(weekday=MO(-1))


def juneteenth(year: int) -> date | None:
    """19 June, or the weekday on which it is observed. Exchanges have observed it since 2022."""
    return _observed(date(year, 6, 19)) if year >= 2022 else None


def independence_day(year: int) -> date:
    """4 July, or the weekday on which it is observed."""
    return _observed(date(year, 7, 4))


def independence_eve(year: int) -> date | None:
    """3 July, if both 3 and 4 July fall between Monday and Friday."""
    day = date(year, 7, 3)
    return day if day.weekday() <= THURSDAY else None


def labor_day(year: int) -> date:
    """First Monday of September."""
    return date(year, 9, 1) + relativedelta(weekday=MO(1))


def columbus_day(year: int) -> date:
    """Second Monday of October."""
    return date(year, 10, 1) + relativedelta(weekday=MO(2))


def thanksgiving(year: int) -> date:
    """Fourth Thursday of November."""
    return date(year, 11, 1) + relativedelta(weekday=TH(4))


def day_after_thanksgiving(year: int) -> date:
    """The Friday after the fourth Thursday of November."""
    return thanksgiving(year) + DAY


def christmas_eve(year: int) -> date | None:
    """24 December if it falls between Monday and Thursday. On a Friday it is the observed Christmas
    holiday.
    """
    day = date(year, 12, 24)
    return day if day.weekday() <= THURSDAY else None


def christmas(year: int) -> date:
    """25 December, or the weekday on which it is observed."""
    return _observed(date(year, 12, 25))


def christmas_of_dealers(year: int) -> date | None:
    """25 December as dealers of spot FX observe it: on Monday if it is a Sunday, not at all if it
    is a Saturday.
    """
    return _after_sunday(date(year, 12, 25))


def new_years_eve(year: int) -> date:
    """31 December."""
    return date(year, 12, 31)


def friday_before(holiday: Holiday) -> Holiday:
    """The Friday before a holiday, if the holiday is observed on a Monday."""

    def before(year: int) -> date | None:
        day = holiday(year)
        return day - 3 * DAY if day is not None and day.weekday() == MONDAY else None

    return before


# On these holidays shares do not trade, and CME futures stop hours before their usual close.
HALT_HOLIDAYS = (
    martin_luther_king,
    presidents_day,
    memorial_day,
    juneteenth,
    independence_day,
    labor_day,
    thanksgiving,
)
