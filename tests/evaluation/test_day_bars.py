"""Digests of the days of an evaluation: of the day's bars alone, whatever else a run did with
them.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.evaluation.test_set_history import NO_BARS, day_bars


def market(*overrides):
    return load_market(
        load_config(
            None,
            ["data.market=ES", "data.source=synthetic", "data.synthetic_sessions=6", *overrides],
        )
    )


@pytest.fixture(scope="module")
def bundled():
    return market()


def dates_of(found):
    return found.trade_dates.astype(str).tolist()


def changed(found, **columns):
    """The market with other bars."""
    return SimpleNamespace(
        members=(SimpleNamespace(contract=found.contract, bars=replace(found.bars, **columns)),)
    )


def test_a_digest_is_of_its_day_alone(bundled):
    dates = dates_of(bundled)
    [(symbol, digests)] = day_bars(bundled, dates).items()
    assert symbol == "ES"
    assert len(set(digests)) == len(dates) == 6
    assert day_bars(bundled, dates[2:4]) == {"ES": digests[2:4]}
    assert day_bars(bundled, ["1999-01-04", dates[1], "2050-01-03"]) == {
        "ES": (NO_BARS, digests[1], NO_BARS)
    }
    high = bundled.bars.high.copy()
    high[-2] = high.max() + 1  # of the last day
    again = day_bars(changed(bundled, high=high), dates)["ES"]
    assert again[:-1] == digests[:-1]
    assert again[-1] != digests[-1]


def test_features_task_and_window_change_the_data_but_no_day(bundled):
    other = market("env.features=[close, rsi_14]", "env.task=entry", "env.window=7")
    assert other.fingerprint != bundled.fingerprint
    assert day_bars(other, dates_of(bundled)) == day_bars(bundled, dates_of(bundled))


def test_bars_of_five_minutes_have_the_same_days(bundled):
    bars, width = bundled.bars, 300
    edges = np.flatnonzero(np.diff(bars.time // width, prepend=-1))
    wide = {
        "time": bars.time[edges] // width * width,
        "open": bars.open[edges],
        "high": np.maximum.reduceat(bars.high, edges),
        "low": np.minimum.reduceat(bars.low, edges),
        "close": bars.close[np.append(edges[1:], len(bars)) - 1],
        "volume": np.add.reduceat(bars.volume, edges),
    }
    found = changed(bundled, bar_seconds=width, **wide)
    assert len(found.members[0].bars) < len(bars) / 4
    assert day_bars(found, dates_of(bundled)) == day_bars(bundled, dates_of(bundled))


def test_each_price_counts(bundled):
    dates = dates_of(bundled)
    found = day_bars(bundled, dates)["ES"]
    shifted = {name: getattr(bundled.bars, name) + 1 for name in ("open", "high", "low", "close")}
    assert not set(found) & set(day_bars(changed(bundled, **shifted), dates)["ES"])
    assert not set(found) & set(day_bars(market("data.synthetic_seed=1"), dates)["ES"])
