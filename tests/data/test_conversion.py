"""Money of a tick where profits arise in another currency: figures by hand, rates known in time,
faults.
"""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.contracts import get_contract, load_contract
from jaxtrade.data.sources import describe_conversion, dollars_per_tick, load_rates, tick_values
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import set_to, utc
from tests.data.damaged import flat_bars
from tests.messages import refused

EURGBP = load_contract("EURGBP")
GBPUSD, USDJPY = get_contract("GBPUSD"), get_contract("USDJPY")
TUESDAY = utc("2013-10-08T13:00:00")


def mills(bars, rates=None):
    value = tick_values(bars, rates)
    assert value.times.dtype == value.over.dtype == np.int32
    return [Fraction(int(a), int(b)) for a, b in zip(value.times, value.over, strict=True)]


def test_a_pair_of_the_dollar_converts_at_its_own_open():
    """100 JPY a tick at 100.000 is one dollar, at 125.000 eighty cents; 1 CHF at 0.80000 is
    $1.25.
    """
    assert mills(flat_bars(USDJPY, TUESDAY, [100_000, 125_000])) == [1_000, 800]
    assert mills(flat_bars(get_contract("USDCHF"), TUESDAY, [80_000, 100_000])) == [1_250, 1_000]
    bars = flat_bars(USDJPY, TUESDAY, [100_000, 110_000])
    moved = replace(bars, high=bars.high + 900, low=bars.low - 900, close=bars.close + 70)
    assert mills(bars) == mills(moved) == [1_000, Fraction(10_000, 11)]


def test_dollars_need_no_conversion():
    assert tick_values(flat_bars(GBPUSD, TUESDAY, [160_000]), None) is None
    assert describe_conversion(GBPUSD) is None
    assert dollars_per_tick(get_contract("ES"), None, np.arange(3)) == 12.5


def test_a_cross_converts_at_the_last_rate_that_had_closed_by_the_open():
    """GBPUSD bars of 13:00..16:00: the bar of 13:00 closes at 14:00, so an open at 14:59 still
    knows only that one.
    """
    rates = flat_bars(GBPUSD, TUESDAY, [160_000, 161_000, 162_000])
    bars = flat_bars(EURGBP, TUESDAY + 3600, [84_000] * 3, seconds=60)
    assert mills(bars, rates) == [1_600] * 3
    late = flat_bars(EURGBP, TUESDAY + 2 * 3600 - 60, [84_000] * 2, seconds=60)
    assert mills(late, rates) == [1_600, 1_610]
    yen = replace(
        EURGBP, symbol="EURJPY", currency="JPY", tick_size=Decimal("0.001"), tick_mills=100_000
    )
    dollar = flat_bars(USDJPY, TUESDAY, [98_000, 80_000])
    assert mills(flat_bars(yen, TUESDAY + 7200, [130_000]), dollar) == [1_250]


def test_later_rates_do_not_reach_back():
    rates = flat_bars(GBPUSD, TUESDAY, [160_000, 161_000, 162_000, 163_000])
    bars = flat_bars(EURGBP, TUESDAY + 3600, [84_000] * 120, seconds=60)
    other = replace(rates, close=rates.close + np.array([0, 0, 500, 900], np.int32))
    assert mills(bars, rates) == mills(bars, other)


@pytest.mark.parametrize(
    ("rate", "bar", "served"),
    [
        ("2013-10-08T13:00:00", "2013-10-09T13:00:00", True),
        ("2013-10-08T13:00:00", "2013-10-10T13:00:00", False),
        ("2013-10-11T13:00:00", "2013-10-14T13:00:00", True),  # over the weekend to Monday
        ("2014-12-24T16:00:00", "2014-12-26T13:00:00", True),  # a closed day is no session
        ("2014-12-24T16:00:00", "2014-12-29T13:00:00", False),
    ],
)
def test_a_rate_serves_until_the_next_session(rate, bar, served):
    rates = flat_bars(GBPUSD, utc(rate), [160_000])
    bars = flat_bars(EURGBP, utc(bar), [84_000])
    if served:
        assert mills(bars, rates) == [1_600]
        return
    with pytest.raises(DataError, match=r"for 1 of 1 bars"):
        tick_values(bars, rates)


def test_rates_that_are_missing_are_errors():
    rates = flat_bars(GBPUSD, TUESDAY, [160_000, 161_000])
    with pytest.raises(DataError, match=r"GBPUSD .* 2 of 3 bars .* 2013-10-08T12:00:00Z"):
        tick_values(flat_bars(EURGBP, TUESDAY - 3600, [84_000] * 3), rates)
    with pytest.raises(ConfigError, match=r"EURGBP: .* in GBP"):
        tick_values(flat_bars(EURGBP, TUESDAY, [84_000]), None)
    for symbol, price in (("EURUSD", 130_000), ("USDJPY", 98_000)):
        with pytest.raises(ConfigError, match=f"{symbol}: .*needs no rates"):
            tick_values(flat_bars(get_contract(symbol), TUESDAY, [price]), rates)


def test_dates_without_a_rate_are_left_out_by_the_keys_that_do_it():
    """Rates of Tuesday to Thursday serve bars until Friday. No key is advised that is set already:
    where dates between others lack a rate, or all dates do, none helps."""
    day = 86_400
    hours = np.concatenate([TUESDAY + i * day + 3600 * np.arange(4) for i in range(3)])
    rates = flat_bars(GBPUSD, TUESDAY, [160_000] * len(hours))
    rates = replace(rates, time=hours)

    def advised(first, days, of):
        with pytest.raises(DataError) as caught:
            tick_values(flat_bars(EURGBP, first + 3600, [84_000] * days, seconds=day), of)
        return re.findall(r"data\.\w+=\S+", str(caught.value).partition("Fix: ")[2])

    assert advised(TUESDAY - day, 4, rates) == ["data.start=2013-10-08"]
    assert advised(TUESDAY, 7, rates) == ["data.end=2013-10-11"]
    assert advised(TUESDAY + 700 * day, 3, rates) == []
    later = replace(rates, time=np.where(hours > TUESDAY + day, hours + 7 * day, hours))
    assert advised(TUESDAY, 10, later) == []


def test_a_tick_worth_less_than_a_mill_is_an_error():
    small = replace(USDJPY, tick_mills=100)
    with pytest.raises(ConfigError, match=r"USDJPY: .* 0.1 JPY .* a mill"):
        tick_values(flat_bars(small, TUESDAY, [110_000]), None)


def test_the_file_of_rates(write):
    def config(prices):
        rows = [f"2013-10-08T{hour}:00:00Z,{prices}" for hour in (13, 14, 15)]
        path = write(rows, header="time,open,high,low,close")
        return set_to(f"data.conversion={path} data.stamp=open")

    rates = load_rates(config("1.6,1.61,1.59,1.605").data, EURGBP)
    assert (rates.contract.symbol, rates.close.tolist()) == ("GBPUSD", [160_500] * 3)
    with pytest.raises(DataError, match="contradict GBPUSD"):
        load_rates(config("0.85,0.85,0.85,0.85").data, EURGBP)


@pytest.mark.parametrize(
    ("contract", "file", "text"),
    [
        (EURGBP, None, "GBPUSD with data.conversion="),
        (EURGBP, "none.csv", "data.conversion = 'none.csv'"),
        (get_contract("ES"), "rates.csv", "needs no file"),
        (USDJPY, "rates.csv", "needs no file"),
        (replace(EURGBP, currency="SEK"), None, "CHF, EUR, GBP, JPY"),
    ],
)
def test_what_cannot_be_converted_is_refused(contract, file, text):
    with refused(text):
        load_rates(make_config({"data": {"conversion": file}}).data, contract)
