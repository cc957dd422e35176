"""Features: hand-worked numbers, an independent library, and the proof that none sees the future."""

import numpy as np
import pytest
import talib

from jaxtrade.data import features
from jaxtrade.data.features import Window, compute_feature, compute_features, true_range_sum, true_ranges
from jaxtrade.data.schema import FIXED_COLUMNS, feature_spec, longest_warm_up, table_columns
from jaxtrade.errors import ConfigError

ALL = ("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr", "vwap", "ema_7", "sma_3", "rsi_9",
       "rsi_14", "atr_5", "atr_14")


def window(n: int = 400, seed: int = 0, tick_size: float = 0.25, volume: bool = True) -> Window:
    rng = np.random.default_rng(seed)
    close = 6000 + np.cumsum(rng.integers(-8, 9, n))
    open_ = close + rng.integers(-4, 5, n)
    high = np.maximum(open_, close) + rng.integers(0, 6, n)
    low = np.minimum(open_, close) - rng.integers(0, 6, n)
    traded = rng.integers(0, 500, n) * float(volume)
    return Window(open_, high, low, close, traded, np.arange(n) // 150, tick_size)


def of_closes(closes, **fields) -> Window:
    close = np.asarray(closes)
    full = {"open": close, "high": close, "low": close, "close": close, "volume": np.ones(len(close)),
            "date": np.zeros(len(close), int), "tick_size": 1.0} | fields
    return Window(**full)


# --- hand-worked -----------------------------------------------------------------------------------------------------

def test_true_range_by_hand():
    high, low, close = np.array([10, 12, 9]), np.array([8, 11, 5]), np.array([9, 11, 6])
    # bar 1: max(12, 9) - min(11, 9) = 3; bar 2: max(9, 11) - min(5, 11) = 6
    assert true_ranges(high, low, close).tolist() == [0, 3, 6]


def test_the_bracket_sum_starts_with_the_fifteenth_bar():
    n = 16
    high, low = np.arange(n) + 2, np.arange(n)
    close = np.arange(n) + 1  # every true range is max(i+2, i) - min(i, i) = 2
    assert true_range_sum(high, low, close).tolist() == [-1] * 14 + [28, 28]


def test_atr_is_the_sum_over_fourteen():
    bars = window(40)
    expected = np.mean([max(bars.high[i], bars.close[i - 1]) - min(bars.low[i], bars.close[i - 1])
                        for i in range(7, 21)])
    assert compute_feature(bars, "atr")[20] == pytest.approx(expected, abs=1e-12)


def test_rsi_of_the_seed_by_hand():
    # 14 changes: ten rises of 2 and four falls of 3, points; G = 20/14, L = 12/14
    changes = [2, 2, -3, 2, 2, -3, 2, 2, -3, 2, 2, -3, 2, 2]
    bars = of_closes(np.concatenate([[100], 100 + np.cumsum(changes)]))
    expected = 100 - 100 / (1 + (20 / 14) / (12 / 14 + 1e-8))
    assert compute_feature(bars, "rsi")[14] == pytest.approx(expected, abs=1e-12)
    assert expected == pytest.approx(62.5, abs=1e-5)


def test_the_seeds_epsilon_is_in_points():
    closes = np.concatenate([[100_000], 100_000 + np.cumsum([1] * 13 + [-1])])
    fx = compute_feature(of_closes(closes, tick_size=1e-5), "rsi")[14]
    assert fx == pytest.approx(100 - 100 / (1 + (13e-5 / 14) / (1e-5 / 14 + 1e-8)), abs=1e-9)


def test_rsi_without_any_move():
    flat = of_closes([50] * 60)
    assert compute_feature(flat, "rsi")[14] == 0.0  # 100 - 100/(1 + 0)
    assert compute_feature(flat, "rsi_5")[-1] == 0.0


def test_macd_by_hand():
    closes = np.array([10.0, 20.0, 20.0])
    fast = 10 + 2 / 13 * 10
    fast += 2 / 13 * (20 - fast)
    slow = 10 + 2 / 27 * 10
    slow += 2 / 27 * (20 - slow)
    long = of_closes(np.concatenate([np.full(200, 10.0), closes]))
    assert compute_feature(long, "macd")[-1] == pytest.approx(fast - slow, abs=1e-12)


def test_momentum_is_a_ratio():
    assert compute_feature(of_closes(np.arange(100, 120)), "momentum")[12] == 112 / 102


def test_vwap_by_hand_restarts_with_the_trade_date():
    bars = of_closes([10, 20, 30, 40], volume=np.array([1.0, 3.0, 0.0, 2.0]), date=np.array([0, 0, 1, 1]),
                     high=np.array([12, 22, 33, 42]), low=np.array([8, 18, 30, 38]))
    # date 0: 10, (10 + 60)/4; date 1: nothing traded yet -> typical (33+30+30)/3, then 40
    assert compute_feature(bars, "vwap").tolist() == [10.0, 17.5, 31.0, 40.0]


def test_vwap_without_volume_is_the_mean_typical_price():
    bars = of_closes([10, 20], volume=np.zeros(2), high=np.array([13, 22]), low=np.array([7, 18]))
    assert compute_feature(bars, "vwap").tolist() == [10.0, 15.0]


def test_volume_mean_over_twenty_bars():
    volume = np.arange(1.0, 31.0)
    mean = features.volume_mean(volume)
    assert mean[:3].tolist() == [1.0, 1.5, 2.0]
    assert mean[29] == volume[10:].mean()


# --- the library ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("period", [2, 5, 14, 50])
@pytest.mark.parametrize("kind", ["sma", "ema", "rsi", "atr"])
def test_parametric_features_agree_with_talib(kind, period):
    bars = window(600, seed=3)
    close, high, low = (x.astype(float) for x in (bars.close, bars.high, bars.low))
    reference = {"sma": lambda: talib.SMA(close, period), "ema": lambda: talib.EMA(close, period),
                 "rsi": lambda: talib.RSI(close, period), "atr": lambda: talib.ATR(high, low, close, period)}[kind]()
    name = f"{kind}_{period}"
    ours = compute_feature(bars, name)
    start = feature_spec(name).warm_up - 1
    assert np.isnan(ours[:start]).all()
    np.testing.assert_allclose(ours[start:], reference[start:], rtol=0, atol=1e-9)
    assert len(ours[start:]) > 300


def test_seed_sma_and_atr_agree_with_talib_too():
    bars = window(300, seed=4)
    close, high, low = (x.astype(float) for x in (bars.close, bars.high, bars.low))
    np.testing.assert_allclose(compute_feature(bars, "sma_20")[19:], talib.SMA(close, 20)[19:], rtol=0, atol=1e-9)
    ranges = talib.TRANGE(high, low, close)[1:]
    np.testing.assert_allclose(compute_feature(bars, "atr")[14:], talib.SMA(ranges, 14)[13:], rtol=0, atol=1e-9)


# --- no look-ahead ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("volume", [True, False])
def test_a_prefix_of_the_bars_gives_the_prefix_of_the_feature(name, volume):
    full, ids = window(260, volume=volume), np.repeat([0, 1], [40, 220])
    column = compute_features(full, (name,), ids)
    for t in (0, 1, 13, 39, 40, 41, 54, 100, 150, 151, 200, 258):
        cut = compute_features(features.take(full, slice(0, t + 1)), (name,), ids[:t + 1])
        assert cut.tobytes() == column[:t + 1].tobytes()


@pytest.mark.parametrize("name", ALL)
def test_changing_later_bars_changes_nothing_before(name):
    a, b, t = window(300), window(300, seed=9), 180
    fields = {f: np.concatenate([getattr(a, f)[:t + 1], getattr(b, f)[t + 1:]])
              for f in ("open", "high", "low", "close", "volume")}
    mixed = Window(**fields, date=a.date, tick_size=a.tick_size)
    before = compute_feature(a, name)
    after = compute_feature(mixed, name)
    assert after[:t + 1].tobytes() == before[:t + 1].tobytes()
    assert not np.array_equal(after[t + 1:], before[t + 1:], equal_nan=True)


def test_a_planted_leak_is_caught_by_the_prefix_test(monkeypatch):
    monkeypatch.setitem(features._COMPUTE, "close", lambda bars, _: np.full(len(bars.close), bars.close.mean()))
    full = window(100)
    cut = compute_feature(features.take(full, slice(0, 50)), "close")
    assert cut.tobytes() != compute_feature(full, "close")[:50].tobytes()


@pytest.mark.parametrize("name", [n for n in ALL if n != "volume"])
def test_nothing_crosses_a_window(name):
    bars, ids = window(300), np.repeat([0, 1], [150, 150])
    alone = compute_feature(features.take(bars, slice(150, 300)), name)
    np.testing.assert_array_equal(compute_features(bars, (name,), ids)[150:, 0], alone)


def test_defined_exactly_from_the_declared_warm_up():
    bars = window(300)
    for name in ALL:
        values = compute_feature(bars, name)
        first = feature_spec(name).warm_up - 1
        assert np.isnan(values[:first]).all(), name
        assert np.isfinite(values[first:]).all(), name


# --- declarations -----------------------------------------------------------------------------------------------------

def test_columns_are_unique_and_in_order():
    columns = table_columns(("close", "rsi", "ema_9"))
    assert columns == (*FIXED_COLUMNS, "feature.close", "feature.rsi", "feature.ema_9")
    assert len(set(columns)) == len(columns)


@pytest.mark.parametrize(("name", "hint"), [("smaa_20", "did you mean 'sma_20'"), ("rsi_1", "at least 2"),
                                            ("sma_0", "unknown feature"), ("sma_", "unknown feature"),
                                            ("future", "known: close")])
def test_unknown_features_are_errors(name, hint):
    with pytest.raises(ConfigError, match=hint):
        feature_spec(name)


def test_a_repeated_feature_is_an_error():
    with pytest.raises(ConfigError, match="'rsi' appears twice"):
        table_columns(("rsi", "close", "rsi"))


def test_warm_ups():
    assert longest_warm_up(("close", "sma_20", "rsi", "atr", "momentum")) == 20
    assert longest_warm_up(("close", "macd")) == 104
    assert feature_spec("ema_50").warm_up == 200
