"""Holidays by rule: the date on which each is observed in a year, and how trading hours change on
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from dateutil.easter import easter
from dateutil.relativedelta import FR, MO, TH, relativedelta

from jaxtrade.data.calendar import rules as on

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


PROJECTED_TO = "2050-12-31"  # stamps after this date are treated as errors


@dataclass(frozen=True)
class Era:
    """Regular hours of trade dates valid_from..valid_to (ISO dates, inclusive).

    An open at or after the contract's turn hour is on the evening before. friday: the close on
    Fridays, if it differs.
    """

    valid_from: str
    valid_to: str
    open: str
    close: str
    halt: tuple[str, str] | None
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
        era's hours.
        """
        return on.changes(self.rules, self.exceptions, first, last)


CME_EQUITY_ERAS = (
    Era(
        "2009-01-02",
        "2012-11-18",
        "18:00",
        "17:30",
        ("16:15", "16:30"),
        "CME hours before 2012-11-19",
        "16:15",
    ),
    Era(
        "2012-11-19",
        "2015-09-20",
        "18:00",
        "17:15",
        ("16:15", "16:30"),
        "CME notice of November 2012; BARS 2013",
    ),
    Era(
        "2015-09-21",
        "2021-06-27",
        "18:00",
        "17:00",
        ("16:15", "16:30"),
        "CME notice of September 2015; BARS 2020",
    ),
    Era(
        "2021-06-28",
        PROJECTED_TO,
        "18:00",
        "17:00",
        None,
        "CME notice 2021-06-21 (halt ends 2021-06-28); LEAN",
    ),
)
# After an early close, trading does not resume on the same trade date. The early close on holidays
# moved from 11:30 to 13:00 with Memorial Day 2014.
CME_EQUITY_RULES = (
    Rule(DayChange(close="11:30"), "LEAN", on.HALT_HOLIDAYS, until="2014-05-25"),
    Rule(DayChange(close="13:00"), "LEAN", on.HALT_HOLIDAYS, since="2014-05-26"),
    Rule(
        DayChange(close="13:15"),
        "LEAN; 2023-07-03, 2024-07-03 and 2024-11-29: CME",
        (on.independence_eve, on.day_after_thanksgiving, on.christmas_eve),
    ),
    Rule(DayChange(close="09:15"), "LEAN", (on.payrolls_good_friday,)),
    Rule(CLOSED, "CME; LEAN from 2026", (on.new_year, on.other_good_friday, on.christmas)),
)
CME_EQUITY_EXCEPTIONS = (
    Exceptions(DayChange(close="09:15"), "CME (hurricane Sandy)", "2012-10-29 2012-10-30"),
    Exceptions(
        DayChange(close="09:30"), "CME (national days of mourning)", "2018-12-05 2025-01-09"
    ),
)

# NYMEX and COMEX (crude oil, gold and their micros).
CME_METAL_ENERGY_ERAS = (
    Era(
        "2009-01-02",
        "2015-09-20",
        "18:00",
        "17:15",
        None,
        "CME notice of September 2015; LEAN 2009",
    ),
    Era("2015-09-21", PROJECTED_TO, "18:00", "17:00", None, "CME notice of September 2015; LEAN"),
)
CME_METAL_ENERGY_RULES = (
    # Before May 2009 these holidays were full days: NYMEX traded until 17:15 on Presidents' Day
    # 2009.
    Rule(
        DayChange(close="13:15"), "LEAN", on.HALT_HOLIDAYS, since="2009-05-01", until="2014-05-25"
    ),
    Rule(
        DayChange(close="13:00"), "LEAN", on.HALT_HOLIDAYS, since="2014-05-26", until="2021-12-31"
    ),
    Rule(
        DayChange(close="14:30"),
        "LEAN",
        on.HALT_HOLIDAYS,
        since="2022-01-01",
        weekdays=on.MONDAY_TO_THURSDAY,
    ),
    Rule(
        DayChange(close="13:00"), "LEAN", on.HALT_HOLIDAYS, since="2022-01-01", weekdays=on.FRIDAYS
    ),
    Rule(
        DayChange(close="13:45"),
        "LEAN; 2024-11-29: CME",
        (on.day_after_thanksgiving,),
        until="2024-12-31",
    ),
    Rule(DayChange(close="14:45"), "LEAN; CME", (on.day_after_thanksgiving,), since="2025-01-01"),
    Rule(DayChange(close="13:45"), "LEAN", (on.christmas_eve,)),
    Rule(
        DayChange(close="16:15"),
        "LEAN",
        tuple(
            on.friday_before(holiday)
            for holiday in (
                on.martin_luther_king,
                on.presidents_day,
                on.memorial_day,
                on.independence_day,
                on.labor_day,
                on.columbus_day,
            )
        ),
        since="2009-05-01",
        until="2011-01-31",
    ),
    Rule(CLOSED, "CME; LEAN from 2026", (on.new_year, on.good_friday, on.christmas)),
)
CME_METAL_ENERGY_EXCEPTIONS = (
    Exceptions(DayChange(close="13:30"), "LEAN", "2009-07-03"),
    Exceptions(DayChange(close="16:15"), "LEAN", "2010-12-31"),
)

# Currency futures.
CME_FX_ERAS = (Era("2009-01-02", PROJECTED_TO, "18:00", "17:00", None, "LEAN"),)
CME_FX_RULES = (
    Rule(DayChange(close="13:00"), "LEAN", on.HALT_HOLIDAYS, until="2021-12-31"),
    Rule(
        DayChange(close="13:00"), "LEAN", on.HALT_HOLIDAYS, since="2022-01-01", weekdays=on.FRIDAYS
    ),
    Rule(
        DayChange(close="13:15"),
        "LEAN; 2024-11-29: CME",
        (on.day_after_thanksgiving, on.christmas_eve),
        until="2024-12-31",
    ),
    Rule(DayChange(close="14:45"), "LEAN", (on.day_after_thanksgiving,), since="2025-01-01"),
    Rule(DayChange(close="13:45"), "LEAN", (on.christmas_eve,), since="2025-01-01"),
    Rule(DayChange(close="11:15"), "LEAN", (on.payrolls_good_friday,)),
    Rule(
        DayChange(close="16:15"),
        "LEAN",
        tuple(
            on.friday_before(holiday)
            for holiday in (
                on.martin_luther_king,
                on.presidents_day,
                on.memorial_day,
                on.independence_day,
                on.labor_day,
            )
        ),
        until="2015-05-31",
    ),
    Rule(
        DayChange(close="16:15"), "LEAN", (on.friday_before(on.columbus_day),), until="2012-12-31"
    ),
    Rule(CLOSED, "CME; LEAN from 2026", (on.new_year, on.other_good_friday, on.christmas)),
)
CME_FX_EXCEPTIONS = (
    Exceptions(DayChange(close="13:15"), "LEAN", "2010-12-31"),
    Exceptions(DayChange(close="16:15"), "LEAN", "2009-04-09"),
)

# Every FX dealer sets its own holiday hours. Where two dealers disagree before 2019, these are
# OANDA's. A late open is on the trade date itself; at 17:00 or later it is on the evening before.
FX_ERAS = (
    Era(
        "2007-01-01",
        PROJECTED_TO,
        "17:00",
        "17:00",
        None,
        "BARS 2007-2018 (hourly EURUSD); OANDA from 2019",
    ),
)
FX_RULES = (
    Rule(CLOSED, "BARS and OANDA", (on.christmas_of_dealers,), since="2012-01-01"),
    Rule(CLOSED, "BARS and OANDA", (on.new_year,), since="2010-01-01"),
    Rule(
        DayChange(close="14:00"),
        "BARS and OANDA",
        (on.christmas_eve, on.new_years_eve),
        since="2012-01-01",
        until="2015-12-31",
    ),
)
FX_EXCEPTIONS = (
    Exceptions(REGULAR, "BARS", "2012-01-02"),
    Exceptions(CLOSED, "BARS and OANDA", "2018-12-26"),
    Exceptions(DayChange(close="14:00"), "BARS and OANDA", "2016-12-30"),
    Exceptions(DayChange(close="14:00"), "BROKER", "2019-12-24 2020-12-24 2021-12-24"),
    Exceptions(DayChange(close="04:00"), "BARS", "2007-12-25 2008-12-25 2009-12-25"),
    Exceptions(DayChange(open="16:00"), "BARS", "2007-01-01"),
    Exceptions(DayChange(open="13:00"), "BARS", "2008-01-01 2009-01-01"),
    Exceptions(DayChange(open="08:00"), "BARS", "2012-12-26"),
    Exceptions(DayChange(open="00:00"), "BARS", "2013-01-02"),
    Exceptions(DayChange(open="19:00"), "BARS", "2017-12-26 2018-01-02 2018-12-27"),
    Exceptions(DayChange(open="23:00"), "BROKER", "2019-01-02 2019-12-26 2020-01-02"),
)

US_EQUITY_ERAS = (Era("2007-01-01", PROJECTED_TO, "09:30", "16:00", None, "NYSE; LEAN"),)
US_EQUITY_RULES = (
    Rule(CLOSED, "NYSE; LEAN", (on.new_year, *on.HALT_HOLIDAYS, on.good_friday, on.christmas)),
    Rule(
        DayChange(close="13:00"),
        "NYSE; LEAN",
        (on.independence_eve, on.day_after_thanksgiving, on.christmas_eve),
    ),
)
US_EQUITY_EXCEPTIONS = (
    Exceptions(CLOSED, "LEAN (national days of mourning)", "2007-01-02 2018-12-05 2025-01-09"),
    Exceptions(CLOSED, "LEAN (hurricane Sandy)", "2012-10-29 2012-10-30"),
)

CALENDARS: dict[str, Hours] = {
    "cme_equity": Hours(CME_EQUITY_ERAS, CME_EQUITY_RULES, CME_EQUITY_EXCEPTIONS, "2026-12-31"),
    "cme_metal_energy": Hours(
        CME_METAL_ENERGY_ERAS, CME_METAL_ENERGY_RULES, CME_METAL_ENERGY_EXCEPTIONS, "2026-12-31"
    ),
    "cme_fx": Hours(CME_FX_ERAS, CME_FX_RULES, CME_FX_EXCEPTIONS, "2026-12-31"),
    "fx": Hours(FX_ERAS, FX_RULES, FX_EXCEPTIONS, "2026-12-23", decide_from=None),
    "us_equity": Hours(
        US_EQUITY_ERAS,
        US_EQUITY_RULES,
        US_EQUITY_EXCEPTIONS,
        "2028-12-31",
        flat="15:59",
        overnight=False,
        extended=(330, 240),
    ),
}
