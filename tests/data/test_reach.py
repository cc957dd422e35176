"""How far features reach back, and that the purge of a walk-forward covers it: leaks are planted in
a test block.
"""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.data.features.schema import _SEED
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.splits import (
    LEFT_OVER,
    OF_DATE,
    Reach,
    add_look_backs,
    blocks,
    find_touching_sessions,
    fold_of,
    folds_of,
    reach_bars,
    reach_of,
    reach_on,
    smoothed_bars,
)

PARAMETRIC = ("sma_5", "sma_200", "ema_9", "ema_40", "rsi_2", "rsi_14", "atr_14", "atr_20")
ALL = (*_SEED, *PARAMETRIC)
SMALL = 1e-6  # of the scale of a feature: a larger change would be a leak
TESTED = 8  # the block of cpcv that is tested, of 20

# Bars of an hour, so that a day has few of them and a purge that is too short by some bars is too
# short by a day.
HOURLY = """
data.market=EURUSD data.start=2014-03-01 data.end=2014-12-31 data.allow_jumps=true env.window=1
walk.on=true walk.mode=cpcv walk.groups=20 walk.test_groups=1 walk.embargo=0
"""


def configured(*features):
    return load_config("quickstart", [*HOURLY.split(), f"env.features=[{', '.join(features)}]"])


def rows_of(market):
    """First and last decision bar of each session."""
    return np.asarray(market.data.sessions.first), np.asarray(market.data.sessions.last)


@pytest.fixture(scope="module")
def planted():
    """(a market, its features, those of the same market with other bars in the tested block: moved
    up by 3 % of the price, with thrice the volume). Features: float64[T, len(ALL)].
    """
    config = configured(*ALL)
    bars = load_market(configured("close")).bars
    volume = np.random.default_rng(0).integers(1, 1_000, len(bars)).astype(np.float64)
    bars = replace(bars, volume=volume)
    market = build_market(bars, config)
    first, last = rows_of(market)
    test = blocks(len(first), config.walk.groups)[TESTED]
    row = np.arange(len(bars))
    tested = (row >= first[test[0]]) & (row < last[test[-1]] + 2)
    up = (tested * int(bars.close[first[test[0]]] * 0.03)).astype(np.int32)
    moved = {name: getattr(bars, name) + up for name in ("open", "high", "low", "close")}
    other = build_market(replace(bars, **moved, volume=volume * (1 + 2 * tested)), config)
    columns = [market.columns.index(f"feature.{name}") for name in ALL]
    return market, *(each.table[:, columns].astype(np.float64) for each in (market, other))


def seen_in_training(market, config):
    """(bars that observations of training sessions show, those of them after the test, first bar of
    the test). All sessions are candidates, so the purge alone keeps bars from training."""
    first, last = rows_of(market)
    test = blocks(len(first), config.walk.groups)[TESTED]
    fold = fold_of(first, last, np.arange(len(first)), test, reach_on(market, config), 0)
    shown = np.concatenate([np.arange(first[i] - config.env.window, last[i]) for i in fold.train])
    return shown, shown[shown > last[fold.test[-1]]], first[fold.test[0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_no_training_observation_outside_the_purge_sees_a_test_bar(planted, name):
    market, *columns = planted
    before, after = (each[:, ALL.index(name)] for each in columns)
    changed = np.abs(after - before) > SMALL * np.abs(before).max()
    shown, later, begin = seen_in_training(market, configured(name))
    assert not changed[shown].any(), f"{changed[shown].sum()} bars that training shows"
    assert not changed[:begin].any(), "no feature looks ahead"
    assert len(later) or name == "vol_percentile", (
        "some training session lies after the test, or nothing was checked"
    )


@pytest.mark.parametrize("alpha", [1 / 2, 1 / 14, 2 / 27, 2 / 201, 1 / 9999])
def test_a_smoothed_value_has_forgotten_what_lies_beyond_its_reach(alpha):
    """The weight of everything older, and one bar less would be too few."""
    bars = smoothed_bars(alpha)
    assert (1 - alpha) ** bars <= LEFT_OVER < (1 - alpha) ** (bars - 1)


def test_the_reach_of_each_kind():
    assert [
        reach_bars(name) for name in ("close", "sma_50", "rsi", "atr", "adx", "vwap", "ema_1")
    ] == [1, 50, 15, 15, 28, 1, 1]
    assert [reach_bars(name) for name in ("rsi_14", "atr_14", "ema_20", "macd")] == [
        281,
        281,
        208,
        270,
    ]
    assert reach_bars("vol_percentile") == 14 + 252 * 390


def test_a_feature_of_the_trade_date_reaches_to_its_first_bar():
    """Trade dates of 10 bars: 6 decisions, the flat bar, 3 bars more. A look-back of 2 bars stays
    behind the flat bar of the session before; the average of those 2 bars begins with their trade
    date. A look-back of 0 does not leave the own one."""
    first = 10 * np.arange(4)
    last, opens, test = first + 5, np.repeat(first, 10), np.array([1])
    for date_back, touched in ((None, [1]), (2, [1, 2]), (0, [1])):
        reach = add_look_backs(Reach(2, date_back=date_back), first, opens)
        assert np.flatnonzero(find_touching_sessions(first, last, test, reach)).tolist() == touched


def test_the_folds_of_a_market_are_purged_by_the_reach_on_it(planted):
    config, market = configured("macd"), planted[0]
    first, last = rows_of(market)
    for fold in folds_of(market, config)[TESTED : TESTED + 2]:
        own = fold_of(first, last, np.arange(len(first)), fold.test, reach_on(market, config), 0)
        assert (own.train.tolist(), own.purged.tolist()) == (
            fold.train.tolist(),
            fold.purged.tolist(),
        )
        assert len(own.purged) >= 270 // 24


def test_which_configurations_reach_to_the_start_of_a_trade_date():
    """By a window of the observation, or by the bar that is decided on, whose context the task
    `advised` shows.
    """

    def date_back(*keys):
        return reach_of(load_config("quickstart", ["env.window=8", *keys])).date_back

    assert [date_back(f"env.features=[close, {name}]") for name in OF_DATE] == [8, 8]
    assert date_back("env.features=[close]") is None
    assert date_back("env.features=[close]", "env.task=advised") == 0
