"""Features: hand-worked numbers, an independent library, and the proof that none sees the
future.
"""

import numpy as np
import pytest
import talib

from jaxtrade.data.features import columns as features
from jaxtrade.data.features.columns import (
    Window,
    compute_feature,
    compute_features,
    true_range_sum,
    true_ranges,
)
from jaxtrade.data.features.schema import (
    CONTEXT_FEATURES,
    MARKET_CONTEXT,
    PATTERNS,
    SEED_FEATURES,
    TIMEFRAMES,
    UNITS,
    absent_features,
    feature_spec,
    longest_warm_up,
    table_columns,
)
from jaxtrade.errors import ConfigError
from tests.data import feature_page
from tests.env import worlds

ALL = (
    *dict.fromkeys(SEED_FEATURES + CONTEXT_FEATURES),
    "ema_7",
    "sma_3",
    "rsi_9",
    "rsi_14",
    "atr_5",
    "atr_14",
)
PERIODS = (2, 5, 14, 50)


def window(n=400, seed=0, volume=True):
    """Random bars of 7 minutes, 150 of them a date."""
    prices = worlds.random_bars(seed, n, 8, 5, 4, 6000)
    traded = np.random.default_rng(seed).integers(0, 500, n) * float(volume)
    row = np.arange(n)
    return Window(*prices, traded, row // 150, (400 + 300 * seed + row * 7) % 1440, 0.25)


def of_closes(closes, **fields):
    close = np.asarray(closes)
    full = {
        "open": close,
        "high": close,
        "low": close,
        "close": close,
        "volume": np.ones(len(close)),
        "date": np.zeros(len(close), int),
        "minute": np.full(len(close), 600),
        "tick_size": 1.0,
    } | fields
    return Window(**full)


def assert_values(bars, at, **expected):
    """The value of each feature at one bar."""
    for name, value in expected.items():
        assert compute_feature(bars, name)[at] == pytest.approx(value, abs=1e-9), name


# --- hand-worked -----------------------------------------------------------------------------------------------------


def test_true_range_by_hand():
    high, low, close = np.array([10, 12, 9]), np.array([8, 11, 5]), np.array([9, 11, 6])
    # bar 1: max(12, 9) - min(11, 9) = 3; bar 2: max(9, 11) - min(5, 11) = 6
    assert true_ranges(of_closes(close, high=high, low=low)).tolist() == [0, 3, 6]


def test_the_bracket_sum_starts_with_the_fifteenth_bar():
    n = 16
    high, low = np.arange(n) + 2, np.arange(n)
    close = np.arange(n) + 1  # every true range is max(i+2, i) - min(i, i) = 2
    bars = of_closes(close, high=high, low=low)
    assert true_range_sum(bars).tolist() == [-1] * 14 + [28, 28]


def test_rsi_of_the_seed_by_hand():
    # 14 changes: ten rises of 2 and four falls of 3, points; G = 20/14, L = 12/14
    changes = [2, 2, -3, 2, 2, -3, 2, 2, -3, 2, 2, -3, 2, 2]
    bars = of_closes(np.concatenate([[100], 100 + np.cumsum(changes)]))
    expected = 100 - 100 / (1 + (20 / 14) / (12 / 14 + 1e-8))
    assert_values(bars, 14, rsi=expected)
    assert expected == pytest.approx(62.5, abs=1e-5)


def test_the_seeds_epsilon_is_in_points():
    closes = np.concatenate([[100_000], 100_000 + np.cumsum([1] * 13 + [-1])])
    fx = compute_feature(of_closes(closes, tick_size=1e-5), "rsi")[14]
    assert fx == pytest.approx(100 - 100 / (1 + (13e-5 / 14) / (1e-5 / 14 + 1e-8)), abs=1e-9)


def test_rsi_without_any_move():
    flat = of_closes([50] * 60)
    # 100 - 100/(1 + 0)
    assert_values(flat, 14, rsi=0.0)
    assert_values(flat, -1, rsi_5=0.0)


def test_macd_by_hand():
    closes = np.array([10.0, 20.0, 20.0])
    fast = 10 + 2 / 13 * 10
    fast += 2 / 13 * (20 - fast)
    slow = 10 + 2 / 27 * 10
    slow += 2 / 27 * (20 - slow)
    long = of_closes(np.concatenate([np.full(200, 10.0), closes]))
    assert_values(long, -1, macd=fast - slow)


def test_vwap_by_hand_restarts_with_the_trade_date():
    bars = of_closes(
        [10, 20, 30, 40],
        volume=np.array([1.0, 3.0, 0.0, 2.0]),
        date=np.array([0, 0, 1, 1]),
        high=np.array([12, 22, 33, 42]),
        low=np.array([8, 18, 30, 38]),
    )
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


def of_bars(highs, lows, closes, **fields):
    return of_closes(closes, high=np.asarray(highs), low=np.asarray(lows), **fields)


def ramp(n, up=2, down=1):
    """Highs rise by `up`, lows fall by `down` a bar; closes stay at 100: every true range is its
    high - low.
    """
    i = np.arange(n)
    return of_bars(110 + up * i, 90 - down * i, np.full(n, 100))


def test_directional_figures_of_the_seed_count_both_sides_of_a_bar():
    bars, t = ramp(40), 27
    ranges = sum(20 + 3 * i for i in range(t - 13, t + 1))
    plus, minus = (
        100 * 14 * 2 / ranges,
        100 * 14 * 1 / ranges,
    )  # the textbook drops the smaller side: minus would be 0
    # every DX is 100 (2 - 1)/(2 + 1)
    assert_values(bars, t, plus_di=plus, minus_di=minus, adx=100 / 3)


@pytest.mark.parametrize(("up", "down", "flag"), [(2, 1, 1.0), (1, 1, -1.0), (8, 5, 0.0)])
def test_trend_strength_by_hand(up, down, flag):
    """ADX is 100 |up - down|/(up + down): 33.3 above 25, 0 below 20, 23.1 between."""
    assert_values(ramp(40, up, down), 30, trend_strength=flag)


def test_cci_of_the_seed_takes_each_deviation_from_its_own_mean():
    closes = np.arange(
        100, 150
    )  # P - SMA20 is 9.5 at every bar: CCI = 1/0.015; the textbook's deviation is 5: 126.7
    assert_values(of_closes(closes), 40, cci=9.5 / (0.015 * 9.5))
    assert talib.CCI(*[closes.astype(float)] * 3, 20)[40] == pytest.approx(
        9.5 / (0.015 * 5), abs=1e-9
    )
    assert_values(of_closes([7] * 50), -1, cci=0.0)


@pytest.mark.parametrize(("n", "gains", "losses"), [(15, 8 * 3, 7), (60, 30 * 3, 30)])
def test_long_rsi_by_hand(n, gains, losses):
    """Rises of 3 and falls of 1 in turn, a rise first."""
    bars = of_closes(100 + np.cumsum([0] + [3, -1] * 40))
    expected = 100 - 100 / (1 + (gains / n) / (losses / n + 1e-8))
    assert_values(bars, n, **{f"rsi_{n}min": expected})


def test_ranks_and_regimes_of_the_range_by_hand():
    bars = ramp(200)  # ATR grows by 3 a bar
    assert_values(bars, 113, vol_percentile=1.0)
    assert_values(bars, 60, vol_regime=3 * np.std(np.arange(20), ddof=1))
    shrinking = of_bars(1000 - np.arange(200), np.arange(200), np.full(200, 500))
    # the least of all so far
    assert_values(shrinking, 150, vol_percentile=1 / (150 - 14 + 1))
    # ties share the mean
    assert_values(of_closes([9] * 150), -1, vol_percentile=(136 + 1) / 2 / 136)


def test_the_rank_forgets_what_left_its_window():
    ranks = features.percent_rank(np.arange(300)[::-1], 120, 100)
    assert ranks[99] == 1 / 100
    assert ranks[250] == 1 / 120


def test_efficiency_by_hand():
    bars = of_closes(np.arange(100, 160))  # every true range is 1: 20 points in 20 ATRs
    assert_values(bars, 40, efficiency_ratio=1.0)
    assert_values(of_closes([5] * 60), 40, efficiency_ratio=0.0)


def test_shares_ratios_and_levels_by_hand():
    """Closes rise by 1 a bar, so 20 of them have the deviation sqrt(35) and their mean lies 9.5
    below the last.
    """
    closes = np.arange(100, 180)
    bars = of_bars(closes + 2, closes - 3, closes, volume=np.arange(80.0))
    assert_values(bars, 0, time_of_day=600 / 1440)
    # bar 0 traded nothing
    assert_values(bars, 1, price_to_vwap=0.0)
    assert_values(bars, 2, price_to_vwap=102 / ((101 + 2 * 102) / 3) - 1)
    assert_values(bars, 10, spread=5 / 110)
    assert_values(
        bars,
        30,
        volume_ratio_5min=30 / 28,
        volume_ratio_20min=30 / 20.5,
        volume_regime=30 / 20.5,
        price_momentum_20=130 / 110 - 1,
        price_vs_support=130 / (111 - 3) - 1,
        bollinger_position=9.5 / (2 * 35**0.5),
        return_1=130 / 129 - 1,
        return_5=130 / 125 - 1,
        return_15=130 / 115 - 1,
    )
    assert_values(bars, 40, session_trend=140 / 110 - 1)
    assert_values(bars, 70, price_momentum_60=170 / 110 - 1)
    assert_values(of_closes([100] * 40), 30, bollinger_position=0.0)


def test_slopes_by_hand():
    """Closes rise by 1 a bar: a mean of n closes rises by 1 too, and lies (n - 1)/2 below the
    close.
    """
    bars = of_closes(np.arange(100, 360))
    assert_values(bars, 70, sma_50_slope=1 / (170 - 24.5))
    assert_values(bars, 250, sma_200_slope=1 / (350 - 99.5))


def test_the_slope_of_the_adx_by_hand():
    """Highs rise by 2 and lows fall by 1, then both by 1: k bars later DX is 100 (14 - k)/(42 -
    k).
    """
    highs = 1000 + np.cumsum([2] * 41 + [1] * 19)
    bars = of_bars(highs, 900 - np.arange(60), np.full(60, 950))
    now = (9 * 100 / 3 + sum(100 * (14 - k) / (42 - k) for k in range(1, 6))) / 14
    slopes = compute_feature(bars, "adx_slope")
    assert slopes[45] == pytest.approx((now - 100 / 3) / 5 / now, abs=1e-12)
    assert slopes[40] == pytest.approx(0.0, abs=1e-15)
    assert_values(of_closes([9] * 60), -1, adx_slope=0.0)


SWINGS = [
    (1002, 1.0),
    (1001, 0.0),
    (999, 0.0),
    (998, -1.0),
]  # a tenth of a percent itself is inside the band


@pytest.mark.parametrize(("last", "value"), SWINGS)
def test_swings_by_hand(last, value):
    """Five bars at 1000, then one; or then five whose extreme is the first of them."""
    one, low, high = (
        [1000] * 5 + [last],
        [1000] * 5 + [last] + [2000] * 4,
        [1000] * 5 + [last] + [500] * 4,
    )
    assert_values(of_bars(one, one, one), -1, higher_high=value, lower_low=-value)
    assert_values(of_bars(low, low, low), -1, higher_low=value)
    assert_values(of_bars(high, high, high), -1, lower_high=-value)


@pytest.mark.parametrize(
    ("top", "bottom", "swing", "value"),
    [
        (9899, 10101, 0, 0.7),
        (9900, 10100, 0, 0.0),  # one percent itself is not enough
        (10000, 10000, 0, 0.0),  # two equal tops, which is what the name says, are not seen
        (9899, 10101, 300, 0.0),  # closes of 9000 +- 300: a deviation of 3.4 %
    ],
)
def test_doubles_by_hand(top, bottom, swing, value):
    closes = 9000 + swing * np.array([1, -1] * 20)
    highs, lows = [10_000] * 20 + [top] * 20, [10_000] * 20 + [bottom] * 20
    assert_values(of_bars(highs, lows, closes), -1, double_top=value, double_bottom=value)


@pytest.mark.parametrize(
    ("close", "out", "down"), [(1003, 1.0, 0.0), (1002, 0.0, 0.0), (998, 0.0, 0.0), (997, 0.0, 1.0)]
)
def test_breakouts_by_hand(close, out, down):
    """Twenty bars at 1000, then a close beyond two thousandths or not; its own high and low do not
    count.
    """
    bars = of_bars([1000] * 20 + [5000], [1000] * 20 + [1], [1000] * 20 + [close])
    assert_values(bars, -1, breakout_signal=out, breakdown_signal=down)


def test_session_flags_are_one_hot_on_the_exchange_clock():
    """Morning from 09:30, midday from 11:00, afternoon from 14:00 to 17:00."""
    minutes = np.array([0, 569, 570, 659, 660, 839, 840, 1019, 1020])
    bars = of_closes([5] * 9, minute=minutes)
    names = ("closed", "morning", "midday", "afternoon")
    flags = np.stack([compute_feature(bars, f"session_{name}") for name in names])
    assert (flags == np.eye(4)[[0, 0, 1, 1, 2, 2, 3, 3, 0]].T).all()


def test_without_volume_slots_are_neutral_and_named_absent():
    bars = window(300, volume=False)
    ratios = {"volume_ratio_5min": 1.0, "volume_ratio_20min": 1.0}
    for name, value in {"volume": 0.0, "mfi": 50.0, **ratios}.items():
        values = compute_feature(bars, name)[feature_spec(name).warm_up - 1 :]
        assert (values == value).all(), name
    assert absent_features(("close", "volume", "rsi", "mfi")) == ("volume", "mfi")


def test_a_flat_range_is_its_middle():
    assert_values(of_closes([5] * 40), -1, stoch_k=50.0, stoch_d=50.0, williams_r=-50.0)


# --- the library ------------------------------------------------------------------------------------------------------


def of_the_library(bars):
    """What the library says of the parametric features, and of each of the seed that is the
    textbook's.
    """
    o, h, low, c, v = (
        x.astype(float) for x in (bars.open, bars.high, bars.low, bars.close, bars.volume)
    )
    sample = np.sqrt(20 / 19)  # the library divides by n
    upper, middle, lower = talib.BBANDS(c, 20, 2, 2)
    stoch_k, stoch_d = talib.STOCHF(h, low, c, 14, 3)
    return {
        **{f"sma_{n}": talib.SMA(c, n) for n in (2, 5, 14, 20, 50, 200)},
        **{f"ema_{n}": talib.EMA(c, n) for n in PERIODS},
        **{f"rsi_{n}": talib.RSI(c, n) for n in PERIODS},
        **{f"atr_{n}": talib.ATR(h, low, c, n) for n in PERIODS},
        "atr": talib.SMA(talib.TRANGE(h, low, c), 14),  # the seed's is the plain mean
        "momentum": talib.ROCR(c, 10),
        "volatility": talib.STDDEV(c, 20) * sample,
        "bb_width": (upper - lower) / middle * sample,
        "stoch_k": stoch_k,
        "stoch_d": stoch_d,
        "williams_r": talib.WILLR(h, low, c, 14),
        "roc": talib.ROCP(c, 10),
        "mfi": talib.MFI(h, low, c, v, 14),
        "support_20": talib.MIN(low, 20),
        "resistance_20": talib.MAX(h, 20),
        "price_change_60min": talib.ROCP(c, 60),
        **{"open": o, "high": h, "low": low, "close": c, "volume": v},
    }


def test_features_agree_with_talib():
    bars = window(900, seed=5)
    expected = of_the_library(bars)
    assert set(expected) >= {
        name for name in SEED_FEATURES if feature_spec(name).source == "textbook"
    }
    for name, values in expected.items():
        rows = slice(max(feature_spec(name).warm_up - 1, 20), None)
        ours = compute_feature(bars, name)
        np.testing.assert_allclose(ours[rows], values[rows], rtol=0, atol=1e-9, err_msg=name)


# --- no look-ahead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("volume", [True, False])
def test_a_prefix_of_the_bars_gives_the_prefix_of_the_feature(name, volume):
    full, ids = window(260, volume=volume), np.repeat([0, 1], [40, 220])
    column = compute_features(full, (name,), ids)
    for t in (0, 13, 39, 40, 41, 150, 258):
        cut = compute_features(features.take(full, slice(0, t + 1)), (name,), ids[: t + 1])
        assert cut.tobytes() == column[: t + 1].tobytes()


def test_nothing_crosses_a_window():
    bars, ids = window(300), np.repeat([0, 1], [150, 150])
    columns = compute_features(bars, ALL, ids)
    for name, column in zip(ALL, columns[150:].T, strict=True):
        alone = compute_feature(features.take(bars, slice(150, 300)), name)
        np.testing.assert_array_equal(column, alone, err_msg=name)


def test_defined_exactly_from_the_declared_warm_up():
    bars = window(300)
    for name in ALL:
        values = compute_feature(bars, name)
        first = feature_spec(name).warm_up - 1
        assert np.isnan(values[:first]).all(), name
        assert np.isfinite(values[first:]).all(), name


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smaa_20", "did you mean 'sma_20'"),
        ("rsi_1", "at least 2"),
        ("sma_0", "unknown feature"),
        ("sma_", "unknown feature"),
        ("future", "known: open"),
    ],
)
def test_unknown_features_are_errors(name, hint):
    with pytest.raises(ConfigError, match=hint):
        feature_spec(name)


def test_a_repeated_feature_is_an_error():
    with pytest.raises(ConfigError, match="'rsi' appears twice"):
        table_columns(("rsi", "close", "rsi"))


def test_the_seeds_42_features_by_name():
    assert len(SEED_FEATURES) == len(set(SEED_FEATURES)) == 42
    assert {feature_spec(name).unit for name in SEED_FEATURES} <= set(UNITS)
    assert longest_warm_up(SEED_FEATURES) == 200


def test_the_features_of_the_context_by_name():
    assert (len(MARKET_CONTEXT), len(TIMEFRAMES), len(PATTERNS)) == (10, 8, 10)
    assert CONTEXT_FEATURES == MARKET_CONTEXT + TIMEFRAMES + PATTERNS
    assert len(set(CONTEXT_FEATURES)) == 28
    assert longest_warm_up(CONTEXT_FEATURES) == 220
    assert absent_features(CONTEXT_FEATURES) == (
        "price_to_vwap",
        "volume_regime",
        "volume_ratio_5min",
        "volume_ratio_20min",
    )
    assert all(
        feature_spec(name).source == "own" for name in set(CONTEXT_FEATURES) - set(SEED_FEATURES)
    )


def test_the_page_of_features_is_current():
    text = feature_page.PAGE.read_text(encoding="utf-8")
    assert feature_page.BEGIN in text
    assert text == feature_page.page(text), "python -m tests.data.feature_page"


# --- smoothing -------------------------------------------------------------------------------------------------------


def smooth_by_hand(values, alpha, seed):
    y, out = float(seed), []
    for x in values:
        y += alpha * (float(x) - y)
        out.append(y)
    return out


@pytest.mark.parametrize("alpha", [1.0, 0.5, 2 / 13, 2 / 27, 1 / 14, 2 / 201])
@pytest.mark.parametrize("n", [0, 1, 3, 1000, 40_000])
def test_smoothing_rounds_as_the_formula_says(alpha, n):
    rng = np.random.default_rng(n)
    walk = 6000 + np.cumsum(rng.integers(-8, 9, n))
    for values in (walk, rng.integers(0, 5, n) * 0.1, walk * 0.37):
        assert features.smooth(values, alpha, 5999.3).tolist() == smooth_by_hand(
            values, alpha, 5999.3
        )
