"""The calendars' tables: regular hours by era, holidays that change them, and exceptions that
follow no rule.

Times are exchange wall time (New York). A session belongs to its trade date; an evening open is on
the date before. The rules reproduce every date that notices or bars have verified
(`Hours.verified_to`). Later years are a projection.
Sources:
    LEAN   market-hours table of QuantConnect LEAN (Apache-2.0), 2009-2028
    CME    CME Group holiday notices and rule changes; dates that the LEAN table lacks, or full closures
    NYSE   NYSE Group's yearly notice of holidays and early closes, the last one for 2026-2028
    BARS   read off real bars: the bundled ones, and EURUSD 2007-2018 of OANDA
    BROKER read off hourly GBPUSD, USDJPY and USDCHF bars of a retail broker, 2012-2022
    OANDA  the forex entries of the LEAN table
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtrade.data.calendar import rules as on
from jaxtrade.data.calendar.rules import CLOSED, REGULAR, DayChange, Exceptions, Rule

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
