"""How many sessions bars can have, before they are read; and splits that do not fit."""

import pytest

from jaxtrade.config import RunConfig, load_config, make_config
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.contracts import BUNDLED, get_contract
from jaxtrade.data.market import load_market
from jaxtrade.data.members import (
    ES_EXPIRY,
    ES_WEEK,
    bundled_dates,
    check_split,
    most_sessions,
)
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.errors import ConfigError
from tests.data.conftest import split_of


@pytest.mark.slow
def test_the_dates_of_the_bundled_bars():
    for symbol, dates in BUNDLED.items():
        contract = get_contract(symbol)
        bars = load_bundled(contract, roll="volume" if symbol == "ES" else "off")
        days = trade_dates(bars.time, contract)
        assert dates == (str(days.min()), str(days.max()))
    assert bundled_dates("ES", RunConfig().data) == ES_WEEK


@pytest.mark.parametrize("expiry", [None, ES_EXPIRY])
def test_dates_select_among_those_of_one_contract(expiry):
    """Without data.roll the reader takes one contract, so later bars of the file are out of
    reach.
    """
    es = get_contract("ES")
    days = trade_dates(load_bundled(es, expiry=expiry, start="2000-01-01").time, es)
    data = make_config({"data": {"expiry": expiry, "start": "2000-01-01"}}).data
    assert bundled_dates("ES", data) == (str(days.min()), str(days.max()))


MOST = [
    ("", 5),
    ("market=EURUSD", 3131),
    ("start=2013-10-08", 54),
    ("start=2013-10-08 roll=volume", 1631),
    ("start=2015-01-01", 0),
    ("end=2013-10-08", 2),
    ("start=2031-01-01", 0),
    ("source=synthetic market=NQ", 40),
    ("source=synthetic market=NQ start=2023-11-20 end=2023-11-24", 5),
    ("source=synthetic synthetic=phase_randomised", 5),
    ("source=synthetic synthetic=phase_randomised synthetic_sessions=3", 3),
    ("source=file file=a.csv", None),
]


@pytest.mark.parametrize(
    ("keys", "most"),
    MOST,
)
def test_the_largest_number_of_sessions(keys, most):
    data = load_config(None, [f"data.{key}" for key in keys.split()]).data
    assert most_sessions(data, data.market) == most


@pytest.mark.parametrize(
    "overrides", [[], ["data.source=synthetic", "data.market=NQ", "data.synthetic_sessions=8"]]
)
def test_it_is_a_limit_of_what_is_read(overrides):
    config = load_config(None, overrides)
    most = most_sessions(config.data, config.data.market)
    assert load_market(config).num_sessions == most


def test_a_copy_needs_bundled_bars():
    data = load_config(
        None, ["data.source=synthetic", "data.synthetic=phase_randomised", "data.market=NQ"]
    ).data
    with pytest.raises(ConfigError, match="bundled for NQ"):
        most_sessions(data, "NQ")


@pytest.mark.parametrize(
    ("validation", "test", "embargo", "need"),
    [(0, 1, 0, 2), (0, 0, 0, 1), (2, 3, 0, 6), (2, 3, 4, 14), (2, 0, 4, 7)],
)
def test_a_split_needs_a_training_session(validation, test, embargo, need):
    split = split_of(validation, test, embargo)
    check_split(need, split)
    with pytest.raises(ConfigError, match=rf" {need} sessions, .*at most {need - 1};"):
        check_split(need - 1, split, at_most=True)
