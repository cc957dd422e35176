"""The calendar: eras, half days, daylight saving on both sides of the Atlantic, what notices and
real bars say.
"""

import csv
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jaxtrade.data.calendar.schedule import (
    CALENDARS,
    ONE_DAY,
    PROJECTED_TO,
    REGULAR,
    DayChange,
    file_schedule,
    findings,
    good_friday,
    inferred_schedule,
    payrolls_good_friday,
    schedule_for,
    table_schedule,
    trade_dates,
)
from jaxtrade.data.contracts import Contract, get_contract
from jaxtrade.data.read.bars import load_bars, load_bundled
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import table_of
from tests.messages import missing

ES, FX = get_contract("ES"), get_contract("EURUSD")
OIL, EURO = replace(ES, calendar="cme_metal_energy"), replace(ES, calendar="cme_fx")
SHARE = Contract(
    "GOOG", "equity", Decimal("0.01"), 1_000, "USD", 500, 1, 5, False, 0, "us_equity", ()
)


NEW_YORK = ZoneInfo("America/New_York")


def session(contract, day):
    """What a line of `SESSIONS` says of one trade date."""
    schedule = table_schedule(contract, np.datetime64(day), np.datetime64(day))
    if not len(schedule.dates):
        return "closed"
    moments = (schedule.open[0], schedule.close[0], schedule.flat[0], schedule.halts[0, 0])
    *times, halt = (datetime.fromtimestamp(int(each), NEW_YORK) for each in moments)
    said = " ".join(f"{each:%m-%d %H:%M}" for each in times)
    halted = schedule.halts[0, 1] > schedule.halts[0, 0]
    return f"{said} halt {halt:%H:%M}" if halted else said


# Contract, trade date, its open, close and flat time in New York, and when a halt begins.
SESSIONS = """
ES    2013-10-08 10-07 18:00 10-08 17:15 10-08 16:59 halt 16:15 # a week of October 2013: 17:15 close, halt
ES    2013-10-07 10-06 18:00 10-07 17:15 10-07 16:59 halt 16:15 # Sunday open
ES    2015-09-21 09-20 18:00 09-21 17:00 09-21 16:59 halt 16:15 # 17:00 close since September 2015
ES    2015-09-18 09-17 18:00 09-18 17:15 09-18 16:59 halt 16:15 # the Friday before
ES    2021-06-25 06-24 18:00 06-25 17:00 06-25 16:59 halt 16:15 # the last day with a halt
ES    2021-06-28 06-27 18:00 06-28 17:00 06-28 16:59           # no halt since
ES    2012-11-16 11-15 18:00 11-16 16:15 11-16 16:14           # Friday before November 2012
ES    2014-02-17 02-16 18:00 02-17 11:30 02-17 11:29           # holiday halt at 11:30 until 2014
ES    2014-05-26 05-25 18:00 05-26 13:00 05-26 12:59           # at 13:00 since Memorial Day 2014
ES    2023-11-24 11-23 18:00 11-24 13:15 11-24 13:14           # the Friday after
ES    2024-11-29 11-28 18:00 11-29 13:15 11-29 13:14           # the Friday after, missing in LEAN
ES    2023-04-07 04-06 18:00 04-07 09:15 04-07 09:14           # Good Friday with payrolls
ES    2022-12-26 closed                                        # Christmas on a Sunday
ES    2023-11-25 closed                                        # Saturday
FX    2014-05-05 05-04 17:00 05-05 17:00 05-05 16:59           # FX Monday
FX    2014-12-24 12-23 17:00 12-24 14:00 12-24 13:59           # FX Christmas Eve
SHARE 2015-12-23 12-23 09:30 12-23 16:00 12-23 15:59           # shares
SHARE 2015-12-24 12-24 09:30 12-24 13:00 12-24 12:59           # shares, half day
OIL   2013-10-08 10-07 18:00 10-08 17:15 10-08 16:59           # crude oil in 2013
OIL   2015-09-21 09-20 18:00 09-21 17:00 09-21 16:59           # crude oil since September 2015
OIL   2020-01-20 01-19 18:00 01-20 13:00 01-20 12:59           # crude oil on a holiday until 2021
OIL   2022-01-17 01-16 18:00 01-17 14:30 01-17 14:29           # and since
OIL   2023-04-07 closed                                        # crude oil, Good Friday with payrolls
EURO  2023-04-07 04-06 18:00 04-07 11:15 04-07 11:14           # euro futures on it
EURO  2020-01-20 01-19 18:00 01-20 13:00 01-20 12:59           # euro futures on a holiday until 2021
EURO  2022-01-17 01-16 18:00 01-17 17:00 01-17 16:59           # and since
OIL   2024-11-29 11-28 18:00 11-29 13:45 11-29 13:44           # crude oil, the Friday after, missing in LEAN
EURO  2024-11-29 11-28 18:00 11-29 13:15 11-29 13:14           # euro futures on it
FX    2013-01-02 01-02 00:00 01-02 17:00 01-02 16:59           # FX late open
"""
# Notices of NYSE and what LEAN has of CME for 2027 agree; the rest are the rules' own answers.
PROJECTED = """
ES    2027-01-01 closed                                        # New Year 2027 on a Friday
ES    2027-01-04 01-03 18:00 01-04 17:00 01-04 16:59           # the first session of 2027
OIL   2027-01-18 01-17 18:00 01-18 14:30 01-18 14:29           # Martin Luther King Day
ES    2027-06-18 06-17 18:00 06-18 13:00 06-18 12:59           # Juneteenth kept on a Friday: stocks
OIL   2027-06-18 06-17 18:00 06-18 13:00 06-18 12:59           # oil
EURO  2027-06-18 06-17 18:00 06-18 13:00 06-18 12:59           # euro futures
ES    2027-12-24 closed                                        # Christmas on a Saturday
FX    2027-12-24 12-23 17:00 12-24 17:00 12-24 16:59           # dealers trade on
ES    2027-12-31 12-30 18:00 12-31 17:00 12-31 16:59           # New Year on a Saturday is not kept
FX    2026-12-25 closed                                        # Christmas 2026 of dealers
ES    2034-04-07 04-06 18:00 04-07 09:15 04-07 09:14           # payrolls on Good Friday 2034
ES    2050-07-01 06-30 18:00 07-01 17:00 07-01 16:59           # the last year but summer time
"""


@pytest.mark.parametrize("line", [line for line in (SESSIONS + PROJECTED).splitlines() if line])
def test_scheduled_session(line):
    symbol, day, *expected = line.partition("#")[0].split()
    contract = {"ES": ES, "FX": FX, "OIL": OIL, "EURO": EURO, "SHARE": SHARE}[symbol]
    assert session(contract, day) == " ".join(expected)


# New York's clocks change on 2013-03-10 and 2013-11-03, Europe's on 2013-03-31 and 2013-10-27.
@pytest.mark.parametrize(
    ("day", "open_utc"),
    [
        ("2013-03-08", 23),
        ("2013-03-11", 22),  # US spring
        ("2013-04-01", 22),  # EU spring: nothing changes in New York
        ("2013-10-28", 22),  # EU autumn
        ("2013-11-01", 22),
        ("2013-11-04", 23),  # US autumn
    ],
)
def test_sessions_follow_new_yorks_clock_through_both_daylight_saving_weeks(day, open_utc):
    schedule = table_schedule(ES, np.datetime64(day), np.datetime64(day))
    assert datetime.fromtimestamp(int(schedule.open[0]), UTC).hour == open_utc
    assert schedule.close[0] - schedule.open[0] == (23 * 60 + 15) * 60


@pytest.mark.parametrize(
    ("contract", "stamp", "day"),
    [
        (ES, "2013-10-06T22:00", "2013-10-07"),
        (ES, "2013-10-07T21:59", "2013-10-07"),
        (ES, "2013-10-07T22:00", "2013-10-08"),
        (ES, "2013-11-03T22:59", "2013-11-03"),
        (ES, "2013-11-03T23:00", "2013-11-04"),
        (FX, "2014-05-04T21:00", "2014-05-05"),
        (FX, "2014-05-05T20:59", "2014-05-05"),
        (FX, "2014-12-04T21:59", "2014-12-04"),
    ],
)
def test_the_trade_date_turns_in_the_evening(contract, stamp, day):
    seconds = np.array([np.datetime64(stamp, "s").astype(np.int64)])
    assert str(trade_dates(seconds, contract)[0]) == day


@pytest.mark.parametrize(
    ("first", "last"), [("2008-12-31", "2009-03-02"), ("2050-12-30", "2051-01-03")]
)
def test_dates_outside_the_table_name_the_way_out(first, last):
    message = r"bars: trade dates .* outside the calendar of ES.*2009-01-02\.\.2050-12-31.*data\.calendar.*infer"
    with pytest.raises(DataError, match=message):
        table_schedule(ES, np.datetime64(first), np.datetime64(last))


# --- rules and exceptions ---------------------------------------------------------------------------------------------


def changes(name):
    """Date -> DayChange of a calendar's verified trade dates, ordinary dates left out."""
    hours = CALENDARS[name]
    first, last = hours.eras[0].valid_from, hours.verified_to
    found = hours.changes(int(first[:4]), int(last[:4]))
    return {
        day: change for day, change in found.items() if first <= day <= last and change != REGULAR
    }


@pytest.mark.parametrize("name", list(CALENDARS))
def test_rules_give_every_verified_day_and_no_other(name):
    """verified_days.csv lists the days that differ from the regular hours, as notices and bars have
    them.
    """
    with open(Path(__file__).parent / "verified_days.csv", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["calendar"] == name]
    listed = {
        row["date"]: DayChange(
            **({"closed": True} if row["change"] == "closed" else {row["change"]: row["at"]})
        )
        for row in rows
    }
    assert len(listed) == len(rows) > 40
    assert changes(name) == listed


@pytest.mark.parametrize("name", list(CALENDARS))
def test_rules_do_not_overlap_and_stay_on_weekdays(name):
    hours = CALENDARS[name]
    days = [day for rule in hours.rules for year in range(2007, 2051) for day in rule.days(year)]
    assert len(days) == len(set(days))
    assert all(day.weekday() < 5 for day in days)
    for before, after in pairwise(hours.eras):
        assert np.datetime64(before.valid_to) + ONE_DAY == np.datetime64(after.valid_from)
    assert hours.eras[-1].valid_to == PROJECTED_TO > hours.verified_to


def test_good_fridays_with_a_payrolls_report():
    """The payrolls of March come on the third Friday after the week of the 12th."""
    assert str(good_friday(2038)) == "2038-04-23"
    for year in range(2009, 2051):
        twelfth = np.datetime64(f"{year}-03-12")
        week_end = twelfth + (5 - (twelfth.astype(int) + 3) % 7) % 7  # its Saturday
        report = str(week_end + 20 * ONE_DAY)
        assert (payrolls_good_friday(year) is not None) == (report == str(good_friday(year))), year


def test_sessions_after_the_verified_dates_are_marked_as_projected():
    first, last = np.datetime64("2026-12-28"), np.datetime64("2027-01-08")
    schedule = table_schedule(ES, first, last)
    assert schedule.dates[schedule.is_projected].astype(str).tolist() == [
        f"2027-01-0{d}" for d in (4, 5, 6, 7, 8)
    ]
    (note,) = schedule.notes
    assert not missing(note, "2027-01-01..2027-01-08", "projected", "2026-12-31")
    verified = table_schedule(ES, first, np.datetime64("2026-12-31"))
    assert verified.notes == ()
    assert not verified.is_projected.any()


# --- against real bars ----------------------------------------------------------------------------------------------


def test_the_real_es_week_agrees_with_the_table(es_bars):
    """On each date, the last bar before the halt and the last of all end with them, and the first
    after it begins with its end.
    """
    schedule = table_of(es_bars)
    assert findings(schedule, es_bars.time, 60, ES) == ()
    at = schedule.find(trade_dates(es_bars.time, ES))
    for i, (halt, resumed) in enumerate(schedule.halts):
        time_ = es_bars.time[at == i]
        assert time_[time_ < halt][-1] == halt - 60
        assert time_[time_ >= halt][0] == resumed
        assert time_[-1] == schedule.close[i] - 60


@pytest.mark.slow
def test_real_eurusd_hours_agree_but_for_known_holes():

    bars = load_bundled(FX)
    found = findings(table_of(bars), bars.time, 3600, FX)
    assert [f[:10] for f in found] == [
        "2007-01-09",
        "2008-01-01",
        "2009-12-25",
        "2015-08-20",
        "2015-08-21",
        "2016-12-12",
        "2016-12-16",
        "2017-03-31",
        "2017-10-06",
        "2018-06-08",
        "2018-10-29",
    ]
    assert "2016-12-12..2016-12-15: 4 scheduled sessions without a bar" in found


def test_bars_in_a_closure_and_missing_bars_are_found(es_bars):
    schedule = table_of(es_bars)
    halt = int(schedule.halts[1, 0])
    moved = es_bars.time.copy()
    late = np.flatnonzero((moved >= halt - 600) & (moved < halt))
    moved[late] += 600  # ten bars into the halt
    found = findings(schedule, moved, 60, ES)
    (note,) = found
    assert not missing(note, "10 bars", "2013-10-08 16:15", "table")
    keep = (es_bars.time < halt - 7200) | (es_bars.time >= halt)
    absent = findings(schedule, es_bars.time[keep], 60, ES)[0]
    assert absent.startswith("2013-10-08: 134 of 1380 scheduled bars missing")


def test_inferred_hours_say_so_and_match_the_table(es_bars):
    ours, table = (
        inferred_schedule(es_bars.time, 60, ES),
        table_of(es_bars),
    )
    (note,) = ours.notes
    assert not missing(note, "inferred", "18:00-17:15")
    np.testing.assert_array_equal(ours.open, table.open)
    np.testing.assert_array_equal(ours.close, table.close)
    np.testing.assert_array_equal(ours.flat, table.flat)


def test_inferred_hours_say_that_weekends_have_none(es_bars):
    saturday = np.array(
        [
            int(datetime(2013, 10, 12, 12, minute, tzinfo=NEW_YORK).timestamp())
            for minute in range(30)
        ]
    )
    schedule = inferred_schedule(np.concatenate([es_bars.time, saturday]), 60, ES)
    assert any(not missing(note, "30 bars", "no session") for note in schedule.notes)


def test_an_inferred_half_day_closes_early(nq_market):
    bars = nq_market.bars  # Thanksgiving week 2023
    schedule = inferred_schedule(bars.time, 60, bars.contract)
    table = table_of(bars)
    np.testing.assert_array_equal(schedule.close, table.close)
    assert "early closes assumed on 2023-11-23, 2023-11-24" in schedule.notes[0]


def test_a_calendar_file(tmp_path, es_bars):
    path = tmp_path / "hours.csv"
    path.write_text(
        "date,open,close,halt_start,halt_end\n"
        "2013-10-07,18:00,17:15,16:15,16:30\n2013-10-08,18:00,13:00,,\n"
    )
    schedule = file_schedule(str(path), ES)
    table = table_of(es_bars)
    assert schedule.open.tolist() == table.open[:2].tolist()
    assert schedule.halts[0].tolist() == table.halts[0].tolist()
    assert schedule.flat[1] == schedule.close[1] - 60
    assert any(
        "2013-10-08" in f and "closure" in f for f in findings(schedule, es_bars.time, 60, ES)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date,open\n", r"line 1: missing column close"),
        ("date,open,close\n2013-10-07,18:00,25:00\n", r"line 2: .*YYYY-MM-DD"),
        (
            "date,open,close\n2013-10-08,18:00,17:00\n2013-10-07,18:00,17:00\n",
            r"line 3: .*date order",
        ),
    ],
)
def test_a_bad_calendar_file_names_the_line(tmp_path, text, message):
    path = tmp_path / "hours.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        file_schedule(str(path), ES)


@pytest.mark.parametrize("calendar", ["table", "infer", "file"])
def test_bars_on_no_session_at_all(tmp_path, calendar):
    path = tmp_path / "hours.csv"
    path.write_text("date,open,close\n")
    saturday = np.datetime64("2013-10-05T12:00", "s").astype(np.int64) + 60 * np.arange(5)
    with pytest.raises(DataError, match=r"week\.csv: .*no session.*2013-10-05"):
        schedule_for(str(path) if calendar == "file" else calendar, ES, saturday, 60, "week.csv")


def test_a_calendar_that_is_not_there():
    with pytest.raises(ConfigError, match=r"data\.calendar = 'tabel'"):
        file_schedule("tabel", ES)


def test_real_fx_minutes_open_on_sunday(shared):
    bars = load_bars(
        shared / "data/lean_fx_oanda/eurusd_minute_bidask.csv.gz",
        FX,
        stamp="open",
        columns={f: f"bid_{f}" for f in ("open", "high", "low", "close")},
        start="2014-05-05",
        end="2014-05-05",
    )
    assert datetime.fromtimestamp(int(bars.time[0]), NEW_YORK).strftime("%a %H") == "Sun 17"
    found = findings(table_of(bars), bars.time, 60, FX)
    assert found == (
        "2014-05-05: 78 of 1440 scheduled bars missing (5 %)",
    )  # quiet minutes, no bar in a closure
