"""How many sessions bars can have, before they are read; and splits that do not fit."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from jaxtrade.config import SplitConfig, load_config, make_config
from jaxtrade.data.bundled import bundled
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.expected import (
    BUNDLED_DATES,
    ES_EXPIRY,
    ES_WEEK,
    bundled_dates,
    check_split,
    most_sessions,
    weekdays,
)
from jaxtrade.data.market import load_market
from jaxtrade.errors import ConfigError


@pytest.mark.parametrize("days", range(40))
def test_weekdays_are_counted(days):
    first = date(2024, 2, 24) + timedelta(days=days % 7)
    last = first + timedelta(days=days - 1)
    assert weekdays(first, last) == sum(
        (first + timedelta(days=i)).weekday() < 5 for i in range(days)
    )


@pytest.mark.slow
def test_the_dates_of_the_bundled_bars():
    for symbol, dates in BUNDLED_DATES.items():
        contract = get_contract(symbol)
        bars = bundled(contract, roll="volume" if symbol == "ES" else "off")
        days = trade_dates(bars.time, contract)
        assert dates == (str(days.min()), str(days.max()))
    assert bundled_dates("ES", make_config({}).data) == ES_WEEK


@pytest.mark.parametrize("expiry", [None, ES_EXPIRY])
def test_dates_select_among_those_of_one_contract(expiry):
    """Without data.roll the reader takes one contract, so later bars of the file are out of
    reach.
    """
    es = get_contract("ES")
    days = trade_dates(bundled(es, expiry=expiry, start="2000-01-01").time, es)
    data = make_config({"data": {"expiry": expiry, "start": "2000-01-01"}}).data
    assert bundled_dates("ES", data) == (str(days.min()), str(days.max()))


@pytest.mark.parametrize(
    ("overrides", "most"),
    [
        ([], 5),
        (["data.market=EURUSD"], 3131),
        (["data.start=2013-10-08"], 54),
        (["data.start=2013-10-08", "data.roll=volume"], 1631),
        (["data.start=2015-01-01"], 0),
        (["data.end=2013-10-08"], 2),
        (["data.start=2031-01-01"], 0),
        (["data.source=synthetic", "data.market=NQ"], 40),
        (
            [
                "data.source=synthetic",
                "data.market=NQ",
                "data.start=2023-11-20",
                "data.end=2023-11-24",
            ],
            5,
        ),
        (["data.source=synthetic", "data.synthetic=phase_randomised"], 5),
        (
            [
                "data.source=synthetic",
                "data.synthetic=phase_randomised",
                "data.synthetic_sessions=3",
            ],
            3,
        ),
        (["data.source=file", "data.file=a.csv"], None),
    ],
)
def test_the_largest_number_of_sessions(overrides, most):
    data = load_config(None, overrides).data
    assert most_sessions(data, data.market) == most


@pytest.mark.parametrize(
    "overrides", [[], ["data.source=synthetic", "data.market=NQ", "data.synthetic_sessions=8"]]
)
def test_it_is_a_limit_of_what_is_read(overrides):
    config = load_config(None, overrides)
    most = most_sessions(config.data, config.data.market)
    assert most is not None
    assert load_market(config).num_sessions == most


def test_a_copy_needs_bundled_bars():
    data = load_config(
        None, ["data.source=synthetic", "data.synthetic=phase_randomised", "data.market=NQ"]
    ).data
    with pytest.raises(ConfigError, match="bundled for NQ"):
        most_sessions(data, "NQ")


@pytest.mark.parametrize(
    ("split", "need"),
    [
        (SplitConfig(), 2),
        (SplitConfig(test_sessions=0), 1),
        (SplitConfig(validation_sessions=2, test_sessions=3), 6),
        (SplitConfig(validation_sessions=2, test_sessions=3, embargo_sessions=4), 14),
        (SplitConfig(validation_sessions=2, test_sessions=0, embargo_sessions=4), 7),
    ],
)
def test_a_split_needs_a_training_session(split, need):
    check_split(need, split)
    with pytest.raises(ConfigError, match=rf" {need} sessions, .*at most {need - 1};"):
        check_split(need - 1, split, at_most=True)
