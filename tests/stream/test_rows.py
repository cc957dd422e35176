"""A streamed row has the bytes of that row of the whole market.

    python -m tests.stream.test_rows --full     all bars of every case but the first 3,000, and
                                                1,000 cuts of each

Without --full a part of the bars, as in CI.
"""

import functools
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.bars import Leg
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.device import host_view
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import _SEED, FeatureSpec, context_features
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.errors import DataError
from jaxtrade.stream.rows import StreamRows
from tests.messages import refused

PARAMETRIC = ("sma_7", "ema_12", "rsi_9", "atr_14")
KEEP = 22
HELD = ("open", "high", "low", "close", "tr_sum", "bars_to_flat")
VIEWS = ("value", "level", "now", "context")


def config_of(market="ES", **data):
    """A configuration that shows every built-in feature, and a task that shows all contexts."""
    env = {"task": "advised", "features": [*_SEED, *PARAMETRIC]}
    return make_config({"data": {"market": market, **data}, "env": env})


def bundled(market, **data):
    config = config_of(market, **data)
    return config, bars_of(config)


def half_day():
    """Synthetic NQ with a half day, minutes that are missing, and volumes that are no integers."""
    config = config_of("NQ", source="synthetic")
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


def stream(name, cut, end):
    """Stream the bars [cut, end) of a case after those before them, and compare every row."""
    config, bars, market = case(name)
    history = known_legs(bars.rows(slice(0, cut)))
    before = build_market(history, config, on_device=False)
    assert before.table.tobytes() == market.table[:cut].tobytes()
    rows = StreamRows(before, config, KEEP)
    env, context = config.env, context_features(config.env.task)
    ready = np.zeros(len(bars), bool)
    decided = ready.copy()
    for first, last in zip(market.data.sessions.first, market.data.sessions.last, strict=True):
        decided[int(first) : int(last) + 1] = True
    tables = []
    for at in range(cut, end):
        row = rows.push(known_legs(bars.rows(slice(at, at + 1))))
        assert row.table.tobytes() == market.table[at : at + 1].tobytes(), at
        kept = slice(at + 1 - KEEP, at + 1)
        for key in HELD:
            found = getattr(market.data, key)[kept]
            assert getattr(rows.kept, key).tobytes() == found.tobytes(), (at, key)
        if (value := rows.kept.tick_value) is not None:
            whole: Any = market.data.tick_value
            ratio = value.times[-1] / value.over[-1]
            assert ratio == whole.times[at] / whole.over[at]
        for key in VIEWS:
            found = getattr(market.data.view, key)[kept]
            assert getattr(rows.kept.view, key).tobytes() == found.tobytes(), (at, key)
        # The schedule decides where the last bars of a session do not exist.
        assert row.decides >= decided[at], at
        tables.append(row.table)
    for scaling in ("seed", "relative"):
        whole = host_view(market.table[cut:end], env.features, scaling, 0.25, context).value
        ones = [host_view(each, env.features, scaling, 0.25, context).value for each in tables[:50]]
        assert np.concatenate(ones).tobytes() == whole[:50].tobytes()


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
    config = make_config({"env": {"features": ["bars_so_far"]}})
    rows = StreamRows(
        build_market(bars.rows(slice(0, 2000)), config, on_device=False), config, KEEP
    )
    for at in range(2000, 2010):
        row = rows.push(bars.rows(slice(at, at + 1)))
    assert row.table[0, -1] == 2010.0


def test_a_bar_that_does_not_follow_changes_nothing():
    config, bars, market = case("ES")
    rows = StreamRows(
        build_market(bars.rows(slice(0, 3000)), config, on_device=False), config, KEEP
    )
    old, off = bars.rows(slice(2999, 3000)), bars.rows(slice(3000, 3001))
    for bar in (old, replace(off, time=off.time + 7)):
        with pytest.raises(DataError, match="2013-10-0"):
            rows.push(bar)
    row = rows.push(bars.rows(slice(3000, 3001)))
    assert row.table.tobytes() == market.table[3000:3001].tobytes()


def test_prices_beyond_float32_get_a_base():
    """Whole ticks beyond 2^24 are kept relative to a price, and their differences are the same."""
    config, bars, _ = case("ES")
    up = (1 << 24) - int(bars.high[:3000].max()) - 1  # the history is exact without a base
    lifted = bars.with_quotes(*(type(q)(*(p + np.int32(up) for p in q)) for q in bars.quotes))
    far = replace(
        lifted, **{n: getattr(lifted, n) + (1 << 10) for n in ("open", "high", "low", "close")}
    )
    rows = StreamRows(
        build_market(lifted.rows(slice(0, 3000)), config, on_device=False), config, KEEP
    )
    assert rows.kept.view.base is None
    before = rows.kept.view.now[:, 0].copy()
    rows.push(far.rows(slice(3000, 3001)))
    assert rows.kept.view.base > 0
    kept = rows.kept.view.now[:, 0].astype(np.int64) + rows.kept.view.base
    assert kept[:-1].tolist() == before[1:].astype(np.int64).tolist()
    assert kept[-1] == far.close[3000]


def test_a_calendar_that_is_read_off_the_bars_is_refused():
    config = make_config({"data": {"calendar": "infer"}})
    bars = case("ES")[1]
    market = build_market(bars, config, on_device=False)
    with refused("data.calendar=infer", "data.calendar=table"):
        StreamRows(market, config, KEEP)


def main(full):
    for name in CASES:
        size = len(case(name)[1])
        begin = 3000 if full else size - 1000
        stream(name, begin, size)
        for cut in np.random.default_rng(0).integers(begin, size - 3, 1000 if full else 20):
            stream(name, int(cut), int(cut) + 3)
        print(f"{name}: {size - begin} bars are equal", flush=True)


if __name__ == "__main__":
    main("--full" in sys.argv)
