"""The calendar: eras, half days, daylight saving on both sides of the Atlantic, and what the real bars say."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.bars import load_bars
from jaxtrade.data.bundled import bundled
from jaxtrade.data.calendar import (
    check_stamps,
    file_schedule,
    findings,
    inferred_schedule,
    schedule_for,
    table_range,
    table_schedule,
    trade_dates,
)
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.describe import check_text
from jaxtrade.data.market import build_market
from jaxtrade.errors import ConfigError, DataError

ES, FX = get_contract("ES"), get_contract("EURUSD")
NEW_YORK = ZoneInfo("America/New_York")


def session(contract, day):
    """(open, close, flat, halt start or None) of one trade date in New York, or None where it is closed."""
    schedule = table_schedule(contract, np.datetime64(day), np.datetime64(day))
    if not len(schedule.dates):
        return None

    def wall(seconds):
        return datetime.fromtimestamp(int(seconds), NEW_YORK).strftime("%m-%d %H:%M")

    halt = schedule.halts[0]
    return (wall(schedule.open[0]), wall(schedule.close[0]), wall(schedule.flat[0]),
            wall(halt[0])[6:] if halt[1] > halt[0] else None)


SESSIONS = [
    ("a week of October 2013: 17:15 close, halt", ES, "2013-10-08", ("10-07 18:00", "10-08 17:15", "10-08 16:59",
                                                                     "16:15")),
    ("Sunday open", ES, "2013-10-07", ("10-06 18:00", "10-07 17:15", "10-07 16:59", "16:15")),
    ("17:00 close since September 2015", ES, "2015-09-21", ("09-20 18:00", "09-21 17:00", "09-21 16:59", "16:15")),
    ("the Friday before", ES, "2015-09-18", ("09-17 18:00", "09-18 17:15", "09-18 16:59", "16:15")),
    ("the last day with a halt", ES, "2021-06-25", ("06-24 18:00", "06-25 17:00", "06-25 16:59", "16:15")),
    ("no halt since", ES, "2021-06-28", ("06-27 18:00", "06-28 17:00", "06-28 16:59", None)),
    ("Friday before November 2012", ES, "2012-11-16", ("11-15 18:00", "11-16 16:15", "11-16 16:14", None)),
    ("holiday halt at 11:30 until 2014", ES, "2014-02-17", ("02-16 18:00", "02-17 11:30", "02-17 11:29", None)),
    ("at 13:00 since Memorial Day 2014", ES, "2014-05-26", ("05-25 18:00", "05-26 13:00", "05-26 12:59", None)),
    ("Thanksgiving", ES, "2023-11-23", ("11-22 18:00", "11-23 13:00", "11-23 12:59", None)),
    ("the Friday after", ES, "2023-11-24", ("11-23 18:00", "11-24 13:15", "11-24 13:14", None)),
    ("3 July", ES, "2025-07-03", ("07-02 18:00", "07-03 13:15", "07-03 13:14", None)),
    ("the Friday after, missing in LEAN", ES, "2024-11-29", ("11-28 18:00", "11-29 13:15", "11-29 13:14", None)),
    ("Good Friday with payrolls", ES, "2023-04-07", ("04-06 18:00", "04-07 09:15", "04-07 09:14", None)),
    ("Good Friday", ES, "2024-03-29", None),
    ("Christmas on a Sunday", ES, "2022-12-26", None),
    ("New Year's Day", ES, "2025-01-01", None),
    ("Saturday", ES, "2023-11-25", None),
    ("FX Monday", FX, "2014-05-05", ("05-04 17:00", "05-05 17:00", "05-05 16:59", None)),
    ("FX Christmas Eve", FX, "2014-12-24", ("12-23 17:00", "12-24 14:00", "12-24 13:59", None)),
    ("FX Christmas", FX, "2014-12-25", None),
    ("FX late open", FX, "2013-01-02", ("01-02 00:00", "01-02 17:00", "01-02 16:59", None)),
]


@pytest.mark.parametrize(("contract", "day", "expected"), [s[1:] for s in SESSIONS], ids=[s[0] for s in SESSIONS])
def test_scheduled_session(contract, day, expected):
    assert session(contract, day) == expected


# New York's clocks change on 2013-03-10 and 2013-11-03, Europe's on 2013-03-31 and 2013-10-27.
@pytest.mark.parametrize(("day", "open_utc"), [
    ("2013-03-08", 23), ("2013-03-11", 22),   # US spring
    ("2013-03-29", None), ("2013-04-01", 22),  # EU spring: nothing changes in New York
    ("2013-10-25", 22), ("2013-10-28", 22),   # EU autumn
    ("2013-11-01", 22), ("2013-11-04", 23),   # US autumn
])
def test_sessions_follow_new_yorks_clock_through_both_daylight_saving_weeks(day, open_utc):
    schedule = table_schedule(ES, np.datetime64(day), np.datetime64(day))
    if open_utc is None:
        assert not len(schedule.dates)  # Good Friday
        return
    assert datetime.fromtimestamp(int(schedule.open[0]), UTC).hour == open_utc
    assert schedule.close[0] - schedule.open[0] == (23 * 60 + 15) * 60


@pytest.mark.parametrize(("contract", "stamp", "day"), [
    (ES, "2013-10-06T22:00", "2013-10-07"), (ES, "2013-10-07T21:59", "2013-10-07"),
    (ES, "2013-10-07T22:00", "2013-10-08"),
    (ES, "2013-11-03T22:59", "2013-11-03"), (ES, "2013-11-03T23:00", "2013-11-04"),
    (FX, "2014-05-04T21:00", "2014-05-05"), (FX, "2014-05-05T20:59", "2014-05-05"),
    (FX, "2014-12-04T21:59", "2014-12-04"),
])
def test_the_trade_date_turns_in_the_evening(contract, stamp, day):
    seconds = np.array([np.datetime64(stamp, "s").astype(np.int64)])
    assert str(trade_dates(seconds, contract)[0]) == day


@pytest.mark.parametrize(("first", "last"), [("2008-12-31", "2009-03-02"), ("2026-12-30", "2027-01-04")])
def test_dates_outside_the_table_name_the_way_out(first, last):
    message = r"bars: trade dates .* outside the calendar of ES.*2009-01-02\.\.2026-12-31.*data\.calendar.*infer"
    with pytest.raises(DataError, match=message):
        table_schedule(ES, np.datetime64(first), np.datetime64(last))


def test_no_date_is_listed_twice_or_on_a_weekend():
    from jaxtrade.data import calendar_tables as t

    for rows in ((*t.CME_EQUITY_EARLY, *t.CME_EQUITY_CLOSED), (*t.FX_EARLY, *t.FX_LATE, *t.FX_CLOSED)):
        days = [day for row in rows for day in row[-1].split()]
        assert len(days) == len(set(days))
        assert all(np.is_busday(np.array(days, "datetime64[D]")))
    for eras in (t.CME_EQUITY_ERAS, t.FX_ERAS):
        for before, after in pairwise(eras):
            assert np.datetime64(before.valid_to) + 1 == np.datetime64(after.valid_from)


def test_early_closes_are_those_of_the_lean_table(shared):
    import json

    from jaxtrade.data import calendar_tables as t

    hours = json.loads((shared / "data/lean_calendar/market_hours_extract.json").read_text())
    hours = hours.get("entries", hours)["Future-cme-ES"]
    lean = {datetime.strptime(day, "%m/%d/%Y").strftime("%Y-%m-%d"): at[:5] for day, at in hours["earlyCloses"].items()}
    ours = {day: at for at, _, days in t.CME_EQUITY_EARLY for day in days.split()}
    low, high = table_range(ES)
    regular = {day for day, at in lean.items() if at == "17:00"}
    assert {d: a for d, a in lean.items() if low <= d <= high and d not in regular} == {
        d: a for d, a in ours.items() if d in lean}
    assert set(ours) - set(lean) == {"2023-07-03", "2024-07-03", "2024-11-29", "2012-10-29", "2012-10-30",
                                     "2018-12-05", "2025-01-09"}


def test_the_real_es_week_agrees_with_the_table(es_bars):
    schedule = schedule_for("table", ES, es_bars.time, 60)
    assert findings(schedule, es_bars.time, 60, ES) == ()
    at = schedule.find(trade_dates(es_bars.time, ES))
    last = np.array([es_bars.time[at == i].max() for i in range(5)])
    assert (schedule.close - last == 60).all()  # the last bar of every day closes with the session


@pytest.mark.parametrize(("expiry", "day", "close"), [("201312", "2013-12-03", "17:15"),
                                                      ("202003", "2020-01-06", "17:00")])
def test_real_single_days_of_both_eras(expiry, day, close):
    from jaxtrade.data.bundled import bundled

    bars = bundled(ES, expiry=expiry, start=day, end=day)
    schedule = schedule_for("table", ES, bars.time, 60)
    assert findings(schedule, bars.time, 60, ES) == ()
    assert datetime.fromtimestamp(int(bars.time[-1]) + 60, NEW_YORK).strftime("%H:%M") == close
    gap = np.flatnonzero(np.diff(bars.time) == 16 * 60)
    assert [datetime.fromtimestamp(int(bars.time[i]), NEW_YORK).strftime("%H:%M") for i in gap] == ["16:14"]


def test_real_eurusd_hours_agree_but_for_known_holes():
    from jaxtrade.data.bundled import bundled

    bars = bundled(FX)
    found = findings(schedule_for("table", FX, bars.time, 3600), bars.time, 3600, FX)
    assert [f[:10] for f in found] == [
        "2007-01-09", "2008-01-01", "2009-12-25", "2015-08-20", "2015-08-21", "2016-12-12", "2016-12-16", "2017-03-31",
        "2017-10-06", "2018-06-08", "2018-10-29"]
    assert "2016-12-12..2016-12-15: 4 scheduled sessions without a bar" in found


def test_bars_in_a_closure_and_missing_bars_are_found(es_bars):
    schedule = schedule_for("table", ES, es_bars.time, 60)
    halt = int(schedule.halts[1, 0])
    moved = es_bars.time.copy()
    late = np.flatnonzero((moved >= halt - 600) & (moved < halt))
    moved[late] += 600  # ten bars into the halt
    found = findings(schedule, moved, 60, ES)
    assert found == (
        "2013-10-08: 10 bars inside a scheduled closure, first 2013-10-08 16:15 exchange time (calendar: table)",)
    keep = (es_bars.time < halt - 7200) | (es_bars.time >= halt)
    missing = findings(schedule, es_bars.time[keep], 60, ES)[0]
    assert missing.startswith("2013-10-08: 134 of 1380 scheduled bars missing")


def test_inferred_hours_say_so_and_match_the_table(es_bars):
    ours, table = inferred_schedule(es_bars.time, 60, ES), schedule_for("table", ES, es_bars.time, 60)
    assert ours.notes == ("calendar inferred from the bars: sessions 18:00-17:15 exchange time",)
    np.testing.assert_array_equal(ours.open, table.open)
    np.testing.assert_array_equal(ours.close, table.close)
    np.testing.assert_array_equal(ours.flat, table.flat)


def test_an_inferred_half_day_closes_early(nq_market):
    bars = nq_market.bars  # Thanksgiving week 2023
    schedule = inferred_schedule(bars.time, 60, bars.contract)
    table = schedule_for("table", bars.contract, bars.time, 60)
    np.testing.assert_array_equal(schedule.close, table.close)
    assert "early closes assumed on 2023-11-23, 2023-11-24" in schedule.notes[0]


def test_a_calendar_file(tmp_path, es_bars):
    path = tmp_path / "hours.csv"
    path.write_text("date,open,close,halt_start,halt_end\n"
                    "2013-10-07,18:00,17:15,16:15,16:30\n2013-10-08,18:00,13:00,,\n")
    schedule = file_schedule(str(path), ES)
    table = schedule_for("table", ES, es_bars.time, 60)
    assert schedule.open.tolist() == table.open[:2].tolist()
    assert schedule.halts[0].tolist() == table.halts[0].tolist()
    assert schedule.flat[1] == schedule.close[1] - 60
    assert any("2013-10-08" in f and "closure" in f for f in findings(schedule, es_bars.time, 60, ES))


@pytest.mark.parametrize(("text", "message"), [
    ("date,open\n", r"line 1: missing column close"),
    ("date,open,close\n2013-10-07,18:00,25:00\n", r"line 2: .*expected YYYY-MM-DD and HH:MM"),
    ("date,open,close\n2013-10-08,18:00,17:00\n2013-10-07,18:00,17:00\n", r"line 3: .*date order"),
])
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
    with pytest.raises(DataError, match=r"week\.csv: the calendar .* has no session on trade dates 2013-10-05"):
        schedule_for(str(path) if calendar == "file" else calendar, ES, saturday, 60, "week.csv")


def test_a_calendar_that_is_not_there():
    with pytest.raises(ConfigError, match=r"data\.calendar = 'tabel': no such file"):
        file_schedule("tabel", ES)


def test_real_fx_minutes_open_on_sunday(shared):
    bars = load_bars(shared / "data/lean_fx_oanda/eurusd_minute_bidask.csv.gz", FX, stamp="open",
                     columns={f: f"bid_{f}" for f in ("open", "high", "low", "close")}, start="2014-05-05",
                     end="2014-05-05")
    assert datetime.fromtimestamp(int(bars.time[0]), NEW_YORK).strftime("%a %H") == "Sun 17"
    found = findings(schedule_for("table", FX, bars.time, 60), bars.time, 60, FX)
    assert found == ("2014-05-05: 78 of 1440 scheduled bars missing (5 %)",)  # quiet minutes, no bar in a closure


# --- shifted stamps ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("shift", "dates", "first"), [
    (60, "5 of 5", "2013-10-07 16:15"),        # close stamps read as opens: the bar before the halt stands in it
    (-60, "6 of 6", "2013-10-06 17:59"),       # open stamps read as closes: the first stands before the open
    (4 * 3600, "6 of 6", "2013-10-07 16:15"),  # UTC read as New York time
])
def test_shifted_stamps_are_refused(es_bars, shift, dates, first):
    moved = replace(es_bars, time=es_bars.time + shift)
    message = rf"bundled ES.*: bars inside a scheduled closure on {dates} trade dates, first {first} .*look shifted"
    with pytest.raises(DataError, match=message):
        build_market(moved, RunConfig())
    with pytest.raises(DataError, match=r"data\.time_zone and data\.stamp; or data\.calendar=infer"):
        check_text(moved, "table")
    assert build_market(moved, make_config({"data": {"calendar": "infer"}})).num_sessions >= 4


@pytest.mark.parametrize("symbol", ["ES", "EURUSD"])
def test_the_bundled_bars_are_not_shifted(symbol):
    contract = get_contract(symbol)
    bars = bundled(contract)
    check_stamps(schedule_for("table", contract, bars.time, bars.bar_seconds), bars.time, contract)


def test_stray_prints_on_few_dates_are_findings(es_bars):
    """One bar in the evening break on 2 of 5 trade dates, or on 2 of 2: reported, not refused."""
    strays = [int(datetime(2013, 10, day, 17, 30, tzinfo=NEW_YORK).timestamp()) for day in (7, 8)]
    schedule = schedule_for("table", es_bars.contract, es_bars.time, 60)
    for time_ in (es_bars.time, es_bars.time[es_bars.time < strays[1]]):
        mixed = np.sort(np.concatenate([time_, strays]))
        check_stamps(schedule, mixed, es_bars.contract)
        lines = findings(schedule, mixed, 60, es_bars.contract)
        assert sum("inside a scheduled closure" in line for line in lines) == 2
