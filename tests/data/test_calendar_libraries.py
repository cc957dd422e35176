"""Every closure and early close of 2009-2030 against two libraries of exchange calendars,
differences by reason.

Nothing outside checks the hours of spot FX: `FOREX` of pandas_market_calendars and `24/5` of
exchange_calendars know no holiday, so its closures are held against CME's currency futures.
exchange_calendars has one calendar for all of CME (`CMES`); it stands here for equity indices.
Neither library has the era hours (halts, closes at 17:15 and 17:30).
"""

from dataclasses import dataclass

import exchange_calendars
import numpy as np
import pandas_market_calendars
import pytest

from jaxtrade.data.calendar.schedule import CALENDARS

FIRST, LAST = "2009-01-02", "2030-12-31"
DAYS = [str(day) for day in np.arange(FIRST, LAST, dtype="datetime64[D]") if np.is_busday(day)]
NEW_YORK = "America/New_York"
FEW = 8  # differences that are listed one by one


def ours(calendar):
    """Trade date -> "closed", an early close, or "regular"."""
    changes = CALENDARS[calendar].changes(int(FIRST[:4]), int(LAST[:4]))
    special = {
        day: "closed" if change.closed else change.close or "regular"
        for day, change in changes.items()
    }
    return {day: special.get(day, "regular") for day in DAYS}


def theirs(closes, regular):
    """The same of a library's closes (dates -> stamps); `regular` are its ordinary closes."""
    clock = dict(
        zip(
            closes.index.strftime("%Y-%m-%d"),
            closes.dt.tz_convert(NEW_YORK).dt.strftime("%H:%M"),
            strict=True,
        )
    )
    return {
        day: "regular" if clock.get(day) in regular else clock.get(day, "closed") for day in DAYS
    }


def of_exchange_calendars(name, *regular):
    return theirs(
        exchange_calendars.get_calendar(name, start=FIRST, end=LAST).schedule["close"], regular
    )


def of_market_calendars(name, *regular):
    return theirs(
        pandas_market_calendars.get_calendar(name).schedule(FIRST, LAST)["market_close"], regular
    )


def summary(days):
    return " ".join(days) if len(days) <= FEW else f"{len(days)} days {days[0]}..{days[-1]}"


def differences(mine, other):
    found = {}
    for day in DAYS:
        if mine[day] != other[day]:
            found.setdefault((mine[day], other[day]), []).append(day)
    return {pair: summary(days) for pair, days in found.items()}


@dataclass(frozen=True)
class Case:
    """One of our calendars, what a library says, and {(ours, theirs): (days, why)}."""

    calendar: str
    library: object
    name: str
    regular: tuple[str, ...]
    known: dict[tuple[str, str], tuple[str, str]]


SANDY = (
    "2012-10-29 2012-10-30",
    "hurricane Sandy: the library has no entry; CME halted equity indices at 09:15",
)
MOURNING = "2018-12-05 2025-01-09"  # of 2025: CME Group's notice of 2024-12-30, open until 08:30 in Chicago
PLAIN_GOOD_FRIDAYS = (
    "2024-03-29 2025-04-18 2027-03-26 2028-04-14 2029-03-30 2030-04-19",
    "the library takes every Good Friday since 2023 for one with a payrolls report; without one CME "
    "is closed (notices of 2024 and 2025)",
)
CASES = [
    Case("us_equity", of_exchange_calendars, "XNYS", ("16:00",), {}),
    Case("us_equity", of_market_calendars, "NYSE", ("16:00",), {}),
    Case(
        "cme_equity",
        of_market_calendars,
        "CME Globex Equity",
        ("17:00",),
        {
            ("09:15", "regular"): SANDY,
            ("09:30", "regular"): (MOURNING, "days of mourning: the library has no entry"),
            ("closed", "09:15"): PLAIN_GOOD_FRIDAYS,
        },
    ),
    Case(
        "cme_equity",
        of_exchange_calendars,
        "CMES",
        ("18:00",),
        {
            ("09:15", "closed"): (
                "2010-04-02 2012-04-06 2015-04-03 2021-04-02 2023-04-07 2026-04-03",
                "Good Fridays with a payrolls report: the library closes on every Good Friday",
            ),
            ("09:15", "regular"): SANDY,
            ("09:30", "closed"): (MOURNING, "days of mourning: the library closes as NYSE did"),
            ("11:30", "13:00"): (
                "32 days 2009-01-19..2014-02-17",
                "the library has today's halt at all times; it was at "
                "11:30 until Memorial Day 2014 (LEAN, pandas_market_calendars, bars of 2013)",
            ),
            ("13:00", "regular"): (
                "9 days 2022-06-20..2030-06-19",
                "Juneteenth is missing in 4.13.2 and was added since",
            ),
            ("13:15", "13:00"): (
                "35 days 2009-11-27..2030-12-24",
                "the library has the hour of NYSE; real NQ bars of 2023-11-24 end at 13:14",
            ),
            ("13:15", "regular"): (
                "12 days 2012-07-03..2030-07-03",
                "3 July is missing; real MYM bars of 2025-07-03 end at 13:14",
            ),
        },
    ),
    Case(
        "cme_metal_energy",
        of_market_calendars,
        "CMEGlobex_EnergyAndMetals",
        ("17:00",),
        {
            ("13:00", "14:30"): (
                "2025-07-04 2027-06-18",
                "a holiday on a Friday halts at 13:00 (LEAN; CME's schedule of "
                "2026, which the library has for that year alone)",
            ),
            ("13:15", "13:00"): (
                "29 days 2009-05-25..2014-02-17",
                "the library has the halt of 2014 at all times; until "
                "then NYMEX halted at 13:15 (LEAN, notices of 2013 and 2014)",
            ),
            ("13:30", "13:00"): ("2009-07-03", "an own hour in LEAN"),
            ("13:45", "regular"): (
                "12 days 2009-12-24..2030-12-24",
                "the library has Christmas Eve in 2026 alone",
            ),
            ("14:30", "13:00"): (
                "2022-09-05 2023-09-04 2024-09-02 2025-09-01 2027-09-06 2028-09-04 2029-09-03 2030-09-02",
                "the library left Labor Day at the hour before 2022; CME's schedule of 2026 says 14:30",
            ),
            ("14:45", "13:45"): (
                "2025-11-28 2027-11-26 2028-11-24 2029-11-23 2030-11-29",
                "14:45 since 2025 (LEAN; CME's schedule of 2026, which the library has for that year "
                "alone)",
            ),
            ("16:15", "regular"): (
                "10 days 2009-05-22..2011-01-14",
                "Fridays before a holiday: in LEAN alone",
            ),
            ("regular", "13:00"): (
                "2009-01-19 2009-02-16",
                "NYMEX kept trading until 17:15 (its notice of February 2009)",
            ),
        },
    ),
    Case(
        "cme_fx",
        of_market_calendars,
        "CMEGlobex_FX",
        ("17:00",),
        {
            ("11:15", "closed"): (
                "2010-04-02 2012-04-06 2015-04-03",
                "Good Fridays with a payrolls report, which the library knows since 2021",
            ),
            ("13:00", "regular"): (
                "2025-07-04 2026-06-19 2026-07-03 2027-06-18",
                "the library has no holiday since 2022; one on a Friday ends at 13:00 (LEAN)",
            ),
            ("13:15", "regular"): ("2010-12-31", "in LEAN alone"),
            ("13:45", "13:15"): (
                "2025-12-24 2026-12-24 2029-12-24 2030-12-24",
                "13:45 since 2025 (LEAN)",
            ),
            ("14:45", "13:15"): (
                "2025-11-28 2026-11-27 2027-11-26 2028-11-24 2029-11-23 2030-11-29",
                "14:45 since 2025 (LEAN)",
            ),
            ("16:15", "regular"): (
                "34 days 2009-01-16..2015-05-22",
                "Fridays before a holiday: in LEAN alone",
            ),
            ("closed", "11:15"): PLAIN_GOOD_FRIDAYS,
        },
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{case.calendar}-{case.name}" for case in CASES])
def test_every_closure_and_early_close_is_that_of_the_library_or_explained(case):
    found = differences(ours(case.calendar), case.library(case.name, *case.regular))
    assert found == {pair: days for pair, (days, _) in case.known.items()}


def test_spot_fx_is_closed_when_currency_futures_are_at_the_turn_of_the_year():
    closed, futures = (
        {day for day, kind in days.items() if kind == "closed" and day[5:7] in ("12", "01")}
        for days in (ours("fx"), of_market_calendars("CMEGlobex_FX", "17:00"))
    )
    assert closed - futures == {"2018-12-26"}  # OANDA's bars have none
    assert futures - closed == {
        "2009-12-25",  # OANDA's bars end at 04:00
        "2010-12-24",
        "2021-12-24",
        "2027-12-24",  # a Saturday's Christmas: dealers do not move it
        "2011-12-26",
        "2012-01-02",  # OANDA's bars have the day
    }
