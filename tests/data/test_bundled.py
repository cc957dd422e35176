"""The bundled currency pairs: stamps and prices of known events, whole ticks, and the market made
from them.
"""

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.contracts import BUNDLED, get_contract
from jaxtrade.data.market import load_market
from jaxtrade.data.read.bars import load_bundled
from tests.data.conftest import utc

PAIRS = ("GBPUSD", "USDJPY", "USDCHF")


@pytest.fixture(scope="module")
def pairs():
    return {symbol: load_bundled(get_contract(symbol)) for symbol in PAIRS}


def row(bars, stamp):
    """The row whose bar opens at `stamp` (UTC)."""
    found = np.flatnonzero(bars.time == utc(stamp))
    assert len(found) == 1
    return int(found[0])


def points(bars, ticks):
    return round(int(ticks) * float(bars.contract.tick_size), bars.contract.decimals)


@pytest.mark.slow
def test_every_pair_is_bundled_with_the_bars_of_its_source(pairs):
    assert set(PAIRS) < set(BUNDLED)
    for symbol, bars in pairs.items():
        assert (len(bars), bars.bar_seconds, bars.ask, bars.contract.symbol) == (
            57_600,
            3600,
            None,
            symbol,
        )
        assert bars.source == f"bundled {symbol} bars ({symbol.lower()}_hour.csv.gz)"
        assert bars.volume.min() > 0


def test_the_franc_lost_its_floor_at_half_past_nine_utc(pairs):
    """The Swiss National Bank announced it on 2015-01-15 at 09:30 UTC, 11:30 in server time."""
    bars = pairs["USDCHF"]
    at = row(bars, "2015-01-15T09:00:00")
    assert int(np.argmax((bars.high - bars.low) / bars.close)) == at
    assert [points(bars, bars.low[at + i]) for i in (0, 1)] == [0.81941, 0.81889]
    assert bars.low.min() == bars.low[at + 1]
    assert points(bars, bars.low[at - 1]) > 1.01


def test_the_pound_fell_when_the_referendum_was_counted(pairs):
    """Votes were counted in the night of 2016-06-24; sterling's low came at 03:00 to 05:00 UTC. Its
    other shock is the fall of 2016-10-06 at 23:07 UTC, and its low of these years that of March
    2020."""
    bars = pairs["GBPUSD"]
    night = bars.rows(slice(row(bars, "2016-06-23T21:00:00"), row(bars, "2016-06-24T12:00:00")))
    fell = night.time[np.argmin(night.low)]
    assert utc("2016-06-24T02:00:00") <= fell <= utc("2016-06-24T05:00:00")
    assert points(bars, night.high.max()) > 1.49
    assert points(bars, night.low.min()) < 1.34
    assert bars.time[np.argmax((bars.high - bars.low) / bars.close)] == utc("2016-10-06T23:00:00")
    lowest = bars.time[np.argmin(bars.low)].astype("datetime64[s]")
    assert str(lowest)[:10] in ("2020-03-19", "2020-03-20")


@pytest.mark.parametrize(
    ("symbol", "least", "most"),
    [("GBPUSD", 1.14098, 1.71898), ("USDJPY", 81.082, 125.853), ("USDCHF", 0.81889, 1.03433)],
)
def test_prices_are_whole_ticks_although_the_file_has_float_noise(pairs, symbol, least, most):
    """GBPUSD's lowest price is written as 114097.99999999999."""
    bars = pairs[symbol]
    assert bars.low.dtype == np.int32
    assert (points(bars, bars.low.min()), points(bars, bars.high.max())) == (least, most)


@pytest.mark.slow
@pytest.mark.parametrize("symbol", PAIRS)
def test_a_market_of_bundled_bars_needs_no_other_key(symbol):
    config = make_config({"data": {"market": symbol, "start": "2021-01-01", "end": "2021-03-31"}})
    market = load_market(config)
    assert (market.contract.symbol, market.has_volume, market.synthetic) == (symbol, True, False)
    assert 56 <= market.num_sessions <= 60  # the first six of 64 sessions only warm the features up
    assert (market.data.tick_value is None) == (symbol == "GBPUSD")
