"""The calendars against real bars: half days, holidays, shares and shifted stamps."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import (
    check_stamps,
    findings,
    local_seconds,
    schedule_for,
    trade_dates,
)
from jaxtrade.data.describe import check_text
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import load_bars
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import set_to, table_of
from tests.data.real_seconds import SPY_KEYS
from tests.data.test_calendar import FX, NEW_YORK, SHARE
from tests.messages import missing

# --- half days and halts of the real bars -----------------------------------------------------------------------------


def clock(seconds):
    return datetime.fromtimestamp(int(seconds), NEW_YORK).strftime("%H:%M")


# Dates of a broker's feed that differ from the table (OANDA's before 2019), and why.
BROKER = """
2012-12-26 opens 01:00
2013-01-01 opens 16:00
2013-01-02 opens 17:00
2013-12-24 12:00
2013-12-26 opens 01:00
2013-12-31 12:00
2014-01-01 opens 16:00
2014-12-26 opens 02:00
2015-01-02 opens 02:00
2015-12-24 12:00
2016-12-26 open
2016-12-30 17:00
2017-01-02 open
2017-12-26 opens 23:00
2018-01-02 opens 17:00
2018-12-24 14:00
2018-12-26 open
2018-12-27 opens 17:00
"""
BROKER_ONLY = {  # of one pair: the first date, holes, strays; GBPUSD closed at 15:00 on 2019-12-24
    "GBPUSD": {"2012-11-16", "2014-05-01", "2018-03-17", "2019-12-24"},
    "USDJPY": {"2012-11-16"},
    "USDCHF": {"2012-11-15", "2012-12-31", "2015-01-15", "2015-01-16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("symbol", list(BROKER_ONLY))
def test_real_broker_hours_agree_but_for_known_holidays(shared, symbol):
    """Hourly bars of 2012-2022 in the server's time (Athens): half days from 2019 on are those of
    the table.
    """
    frame = pd.read_csv(shared / f"data/ejtrader_fx_h1/{symbol}_h1.csv.gz")
    local = pd.to_datetime(frame.iloc[:, 0]).dt.tz_localize("Europe/Athens")
    time_ = (
        local.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("datetime64[s]").astype(np.int64)
    )
    schedule = schedule_for("table", FX, time_, 3600)
    check_stamps(schedule, time_, 3600, FX)
    found = {line[:10] for line in findings(schedule, time_, 3600, FX)}
    assert found - {line[:10] for line in BROKER.splitlines()} == BROKER_ONLY[symbol]
    days = trade_dates(time_, FX).astype(str)
    for day in ("2020-12-24", "2021-12-24"):
        assert clock(time_[days == day][-1] + 3600) == "14:00"
    for day in ("2019-01-02", "2019-12-26", "2020-01-02"):
        assert clock(time_[days == day][0]) == "23:00"


# --- shares -----------------------------------------------------------------------------------------------------------


def share_bars(shared, name, **keys):
    path = shared / f"data/lean_us_equity/{name}_minute_trade_x10000.csv.gz"
    contract = replace(
        SHARE, symbol=name.upper(), tick_size=Decimal("0.0001")
    )  # SPY of 2023 has prints off the cent
    return load_bars(path, contract, **SPY_KEYS | keys)


SHARE_DAYS = {  # trade dates of the files
    "goog": ("2015-12-23", "2015-12-24", "2015-12-28"),
    "aapl": ("2014-06-05", "2014-06-06", "2014-06-09"),
    "spy": (
        "2013-10-04",
        "2013-10-07",
        "2013-10-08",
        "2013-10-09",
        "2013-10-10",
        "2013-10-11",
        "2023-08-03",
    ),
}


@pytest.mark.parametrize("name", list(SHARE_DAYS))
def test_real_shares_trade_when_the_table_says(shared, name):
    bars = share_bars(shared, name)
    days = trade_dates(bars.time, bars.contract)
    assert tuple(np.unique(days).astype(str)) == SHARE_DAYS[name]
    schedule = table_of(bars)
    check_stamps(schedule, bars.time, bars.bar_seconds, bars.contract)
    found = findings(schedule, bars.time, 60, bars.contract)
    assert [line for line in found if "closure" in line] == []
    for i in schedule.find(np.unique(days)):
        regular = bars.time[(bars.time >= schedule.open[i]) & (bars.time < schedule.close[i])]
        assert clock(regular[0]) == "09:30"
        assert regular[-1] + 60 == schedule.close[i]


def test_the_real_half_day_of_goog(shared):
    """13:00 on 2015-12-24: the crowd goes home, and the flat bar closes at 12:59."""
    bars = share_bars(shared, "goog")
    market = build_market(bars, set_to("env.features=[close,volume,sma_5,atr]"))
    assert market.trade_dates.astype(str).tolist() == list(SHARE_DAYS["goog"])
    first, last = (np.asarray(getattr(market.data.sessions, name)) for name in ("first", "last"))
    assert [clock(bars.time[row]) for row in first[1:]] == ["09:30", "09:30"]
    assert [clock(bars.time[row + 1] + 60) for row in last] == ["15:59", "12:59", "15:59"]
    assert np.asarray(market.data.bars_to_flat)[last + 1].tolist() == [0, 0, 0]
    assert np.asarray(market.data.sessions.complete).all()


def test_shares_extended_hours_end(shared):
    bars = share_bars(shared, "aapl")
    strays = [
        int(datetime(2014, 6, 6, *at, tzinfo=NEW_YORK).timestamp()) for at in ((20, 0), (3, 59))
    ]
    (note,) = findings(table_of(bars), np.sort([*bars.time, *strays]), 60, bars.contract)
    assert not missing(note, "2 bars", "2014-06-06 03:59", "table")


def test_shares_have_no_night_and_no_inferred_hours(shared):
    bars = share_bars(shared, "aapl", end="2014-06-06")  # before its split
    with pytest.raises(ConfigError, match=r"session\.overnight = true: AAPL"):
        build_market(bars, set_to("session.overnight=true"))
    with pytest.raises(ConfigError, match=r"data\.calendar=infer: AAPL"):
        build_market(bars, set_to("data.calendar=infer"))


def test_a_calendar_file_for_shares_holds_regular_hours(shared, tmp_path):
    path = tmp_path / "hours.csv"
    path.write_text(
        "date,open,close\n2014-06-05,09:30,16:00\n2014-06-06,09:30,13:00\n2014-06-09,09:30,16:00\n"
    )
    bars = share_bars(shared, "aapl")
    schedule = schedule_for(str(path), bars.contract, bars.time, 60)
    assert [clock(x) for x in schedule.flat] == ["15:59", "12:59", "15:59"]
    assert [line[:10] for line in findings(schedule, bars.time, 60, bars.contract)] == [
        "2014-06-06"
    ]  # after 17:00


# --- shifted stamps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "dates", "first"),
    [
        (
            60,
            "5 of 5",
            "2013-10-07 16:15",
        ),  # close stamps read as opens: the bar before the halt stands in it
        (
            -60,
            "6 of 6",
            "2013-10-06 17:59",
        ),  # open stamps read as closes: the first stands before the open
        (4 * 3600, "6 of 6", "2013-10-07 16:15"),  # UTC read as New York time
    ],
)
def test_shifted_stamps_are_refused(es_bars, shift, dates, first):
    moved = replace(es_bars, time=es_bars.time + shift)
    message = rf"bundled ES.*: bars inside a scheduled closure on {dates} trade dates, first {first} .*look shifted"
    with pytest.raises(DataError, match=message):
        build_market(moved, RunConfig())
    with pytest.raises(DataError, match=r"time_zone .*calendar=infer"):
        check_text(moved, RunConfig())
    assert build_market(moved, set_to("data.calendar=infer")).num_sessions >= 4


def test_stray_prints_on_few_dates_are_findings(es_bars):
    """One bar in the evening break on 2 of 5 trade dates, or on 2 of 2: reported, not refused."""
    strays = [int(datetime(2013, 10, day, 17, 30, tzinfo=NEW_YORK).timestamp()) for day in (7, 8)]
    schedule = table_of(es_bars)
    for time_ in (es_bars.time, es_bars.time[es_bars.time < strays[1]]):
        mixed = np.sort(np.concatenate([time_, strays]))
        check_stamps(schedule, mixed, 60, es_bars.contract)
        lines = findings(schedule, mixed, 60, es_bars.contract)
        assert sum("inside a scheduled closure" in line for line in lines) == 2


# --- by runs of dates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/London", "Asia/Kathmandu", "UTC"])
def test_local_time_is_that_of_each_second(zone):
    """Around every change of the clocks in two years, and in any order."""
    hours = np.arange(1_356_998_400, 1_420_070_400, 1800)  # 2013 and 2014
    local = pd.to_datetime(hours, unit="s", utc=True).tz_convert(zone).tz_localize(None)
    expected = local.as_unit("s").asi8
    order = np.random.default_rng(0).permutation(len(hours))
    for rows in (slice(None), order, order[:1], order[:0]):
        assert local_seconds(hours[rows], zone).tolist() == expected[rows].tolist()
