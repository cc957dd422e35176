"""A streamed row has the bytes of that row of the whole market.

python -m tests.stream.test_rows --full     all bars of every case but the first 3,000, and
                                            1,000 cuts spread over the cases
"""

import functools
import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrade.config import changed_config, make_config
from jaxtrade.data.bars import Leg, Side
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.features import columns
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import _SEED, FeatureSpec
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.errors import DataError
from jaxtrade.stream import rows as stream_rows
from jaxtrade.stream.rows import StreamRows
from tests.messages import refused

PARAMETRIC = ("sma_7", "ema_12", "rsi_9", "atr_14")
KEEP = 22


def config_of(market="ES", **data):
    """A configuration that shows every built-in feature, and a task that shows all contexts."""
    env = {"task": "advised", "features": [*_SEED, *PARAMETRIC]}
    return make_config({"data": {"market": market, **data}, "env": env})


def bundled(market, **data):
    config = config_of(market, **data)
    return config, bars_of(config)


def half_day():
    """Synthetic NQ, seed scaling, a half day, missing minutes, volumes that are no integers."""
    config = changed_config(config_of("NQ", source="synthetic"), {"env.scaling": "seed"})
    bars = synthetic_bars(get_contract("NQ"), 5)
    random = np.random.default_rng(3)
    bars = replace(bars, volume=bars.volume * random.random(len(bars)), synthetic=False)
    days, short = bars.trade_dates, bars.trade_dates[bars.date_starts[2]]
    late = (days == short) & (bars.minutes >= 13 * 60) & (bars.minutes < 18 * 60)
    return config, bars.rows(~late & (random.random(len(bars)) > 0.05))


def holed():
    """ES with a missing week, so that a feature window begins anew, and a splice after it."""
    config, bars = bundled("ES")
    again = replace(bars, time=bars.time + 21 * 86_400)
    both = {
        name: np.concatenate([getattr(bars, name), getattr(again, name)])
        for name in ("time", "open", "high", "low", "close", "volume")
    }
    last = str(again.trade_dates[again.date_starts[2]])
    legs = (Leg("201312", "start"), Leg("201403", last))
    return config, replace(bars, **both, legs=legs, places=None)


CASES = {
    "ES": lambda: bundled("ES"),
    "EURUSD": lambda: bundled("EURUSD"),
    "GBPUSD": lambda: bundled("GBPUSD"),
    "USDCHF": lambda: bundled("USDCHF"),
    "USDJPY": lambda: bundled("USDJPY"),
    "half day": half_day,
    "holed": holed,
}


@functools.cache
def case(name):
    """The configuration, the bars and the whole market of a case."""
    config, bars = CASES[name]()
    return config, bars, build_market(bars, config, on_device=False)


def known_legs(bars):
    """Bars with the contracts that are known by the last of them."""
    date = str(bars.trade_dates[-1])
    known = [leg for leg in bars.legs if leg.first == "start" or leg.first <= date]
    return replace(bars, legs=tuple(known))


def begin(config, bars, cut):
    """The rows of a market after the first bars, and that market."""
    market = build_market(known_legs(bars.rows(slice(cut))), config, on_device=False)
    return StreamRows(market, config, KEEP), market


def arrays(data):
    return data.replace(sessions=None, fingerprint=None, tick_value=None)


def alike(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def stream(name, cut, end):
    """Stream the bars [cut, end) of a case after those before them, and compare every row."""
    config, bars, market = case(name)
    rows, before = begin(config, bars, cut)
    assert alike(before.table, market.table[:cut])
    whole, sessions = arrays(market.data), market.data.sessions
    value: Any = market.data.tick_value
    for at in range(cut, end):
        row = rows.push(known_legs(bars.rows(slice(at, at + 1))))
        assert alike(row.table, market.table[at : at + 1]), at
        if at % 10 == 0 or at > end - 3:  # so every row is compared twice
            kept = jax.tree.map(lambda leaf, at=at: leaf[at + 1 - KEEP : at + 1], whole)
            assert jax.tree.all(jax.tree.map(alike, arrays(rows.kept), kept)), at
        if rows.kept.tick_value is not None:
            times, over = rows.kept.tick_value.times, rows.kept.tick_value.over
            assert times[-1] / over[-1] == value.times[at] / value.over[at]
        # The schedule decides where the last bars of a session do not exist.
        decided = ((sessions.first <= at) & (at <= sessions.last)).any()
        assert row.decides >= decided, at


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ES", "EURUSD", "GBPUSD", "USDJPY", "half day"])
def test_rows_are_those_of_the_whole_market(name):
    size = len(case(name)[1])
    stream(name, size - 1000, size)


@pytest.mark.slow
def test_rows_after_a_missing_week_and_a_splice():
    """The window begins anew after the hole, and with the other contract's first trade date."""
    _, bars, _ = case("holed")
    hole = len(bars) // 2
    stream("holed", hole - 3, hole + 250)
    splice = int(np.searchsorted(bars.trade_dates, np.datetime64(bars.legs[1].first)))
    stream("holed", splice - 3, splice + 250)


@pytest.mark.slow
def test_rows_after_random_cuts():
    for cut in np.random.default_rng(1).integers(1500, len(case("half day")[1]) - 3, 20):
        stream("half day", int(cut), int(cut) + 3)


@pytest.mark.parametrize("at", [2503, 4011])
def test_rows_after_a_cut(at):
    stream("ES", at, at + 8)


def test_a_feature_of_ones_own_sees_its_whole_window():
    """The number of bars so far in the window, which no tail knows."""
    spec = FeatureSpec("bars_so_far", "fraction", 3, "bars so far")
    register_feature(spec, lambda bars, spec: np.arange(1.0, len(bars.close) + 1))
    bars = case("ES")[1]
    rows, _ = begin(make_config({"env": {"features": ["bars_so_far"]}}), bars, 2000)
    for at in range(2000, 2010):
        row = rows.push(bars.rows(slice(at, at + 1)))
    assert row.table[0, -1] == 2010.0


def test_a_rank_forgets_what_it_no_longer_looks_back_to(monkeypatch):
    """Of 500 sums of true ranges, for which 514 bars are kept."""
    for module in (columns, stream_rows):
        monkeypatch.setattr(module, "RANK_BARS", 500)
    config = make_config({"env": {"features": ["vol_percentile", "macd"]}})
    bars = case("ES")[1].rows(slice(2100))
    rows, _ = begin(config, bars, 2000)
    found = [rows.push(bars.rows(slice(at, at + 1))).table for at in range(2000, 2100)]
    assert alike(np.concatenate(found), build_market(bars, config, on_device=False).table[2000:])
    assert len(rows.window.close) == 514


def test_a_bar_that_does_not_follow_changes_nothing():
    config, bars, market = case("ES")
    rows, _ = begin(config, bars, 3000)
    old, off = bars.rows(slice(2999, 3000)), bars.rows(slice(3000, 3001))
    for bar in (old, replace(off, time=off.time + 7)):
        with pytest.raises(DataError, match="2013-10-0"):
            rows.push(bar)
    two_sided = off.with_quotes(*off.quotes, Side(*off.quotes[0]))
    with refused("one side", "bid and ask", kind=DataError):
        rows.push(two_sided)
    with refused(off.contract.symbol, "60", "3600", kind=DataError):
        rows.push(replace(off, bar_seconds=3600))
    assert alike(rows.push(off).table, market.table[3000:3001])


def test_prices_beyond_float32_get_a_base():
    """Whole ticks beyond 2^24 are kept relative to a price, and their differences are the same."""
    config, bars, _ = case("ES")

    def lifted(by):
        return bars.with_quotes(*(type(q)(*(p + np.int32(by) for p in q)) for q in bars.quotes))

    up = (1 << 24) - int(bars.high[:3000].max()) - 1  # the history is exact without a base
    rows, _ = begin(config, lifted(up), 3000)
    assert rows.kept.view.base is None
    rows.push(lifted(up + (1 << 10)).rows(slice(3000, 3001)))
    base: Any = rows.kept.view.base
    assert base > 0
    ticks = rows.kept.view.now[:, 0].astype(np.int64) + base
    assert ticks.tolist() == rows.kept.close.tolist()
    assert ticks.max() > 1 << 24


def test_a_calendar_that_is_read_off_the_bars_is_refused():
    with refused("data.calendar=infer", "data.calendar=table"):
        begin(make_config({"data": {"calendar": "infer"}}), case("ES")[1], 3000)


def main(full):
    for name in CASES:
        size = len(case(name)[1])
        start = 3000 if full else size - 1000
        stream(name, start, size)
        for cut in np.random.default_rng(0).integers(start, size - 3, 143 if full else 20):
            stream(name, int(cut), int(cut) + 3)
        print(f"{name}: {size - start} bars are equal", flush=True)


if __name__ == "__main__":
    main("--full" in sys.argv)
