"""What the old system's third phase saw of the bar decided on, bar by bar with plain loops; NaN
where too few bars.

Prices in ticks; thresholds as whole numbers, so that a price exactly on one is on the same side
here and there.
"""

import math
import statistics

from tests.oracle import seed_indicators
from tests.oracle.seed_indicators import last

NAMES = [
    "adx_slope",
    "price_to_vwap",
    "vol_regime",
    "volume_regime",
    "price_momentum_20",
    "price_momentum_60",
    "efficiency_ratio",
    "spread",
    "session_trend",
    "trend_strength",
    "sma_50_slope",
    "sma_200_slope",
    "rsi_15min",
    "rsi_60min",
    "volume_ratio_5min",
    "volume_ratio_20min",
    "price_change_60min",
    "price_vs_support",
    "higher_high",
    "lower_low",
    "higher_low",
    "lower_high",
    "double_top",
    "double_bottom",
    "support_20",
    "resistance_20",
    "breakout_signal",
    "breakdown_signal",
]


def mean_slope(tape, i, of, over):
    now, then = (sum(last(tape.bars.close, j, of)) / of for j in (i, i - over))
    return (now - then) / over / now


def adx_slope(tape):
    found = [
        seed_indicators.adx(tape, i) if age >= 28 else math.nan for i, age in enumerate(tape.ages)
    ]
    return tape.rows(lambda i: (found[i] - found[i - 5]) / 5 / found[i] if found[i] else 0.0, 33)


def against(value, level):
    """More than a thousandth above (1) or below (-1) a level."""
    if value * 1000 > level * 1001:
        return 1.0
    return -1.0 if value * 1000 < level * 999 else 0.0


def quiet(tape, i):
    closes = last(tape.bars.close, i, 20)
    return statistics.stdev(closes) / statistics.fmean(closes) < 0.02


def top(tape, i, n):
    return max(last(tape.bars.high, i, n))


def bottom(tape, i, n):
    return min(last(tape.bars.low, i, n))


COLUMNS = {
    "adx_slope": adx_slope,
    "volume_regime": lambda t: t.rows(lambda i: seed_indicators.ratio(t, i, 20), 20),
    "price_momentum_20": lambda t: seed_indicators.back(t, 20),
    "price_momentum_60": lambda t: seed_indicators.back(t, 60),
    "session_trend": lambda t: seed_indicators.back(t, 30),
    "sma_50_slope": lambda t: t.rows(lambda i: mean_slope(t, i, 50, 10), 60),
    "sma_200_slope": lambda t: t.rows(lambda i: mean_slope(t, i, 200, 20), 220),
    "price_vs_support": lambda t: t.rows(lambda i: t.bars.close[i] / bottom(t, i, 20) - 1, 20),
    "higher_high": lambda t: t.rows(lambda i: against(t.bars.high[i], top(t, i - 1, 5)), 6),
    "lower_low": lambda t: t.rows(lambda i: 0 - against(t.bars.low[i], bottom(t, i - 1, 5)), 6),
    "higher_low": lambda t: t.rows(lambda i: against(bottom(t, i, 5), bottom(t, i - 5, 5)), 10),
    "lower_high": lambda t: t.rows(lambda i: 0 - against(top(t, i, 5), top(t, i - 5, 5)), 10),
    "double_top": lambda t: t.rows(
        lambda i: 0.7 * (top(t, i, 20) * 100 < top(t, i - 20, 20) * 99 and quiet(t, i)), 40
    ),
    "double_bottom": lambda t: t.rows(
        lambda i: 0.7 * (bottom(t, i, 20) * 100 > bottom(t, i - 20, 20) * 101 and quiet(t, i)), 40
    ),
    "breakout_signal": lambda t: t.rows(
        lambda i: float(t.bars.close[i] * 1000 > top(t, i - 1, 20) * 1002), 21
    ),
    "breakdown_signal": lambda t: t.rows(
        lambda i: float(t.bars.close[i] * 1000 < bottom(t, i - 1, 20) * 998), 21
    ),
}
# How an observation shows them, as in `seed_indicators`.
OF_PRICE = (
    "sma_50_slope",
    "sma_200_slope",
    "price_vs_support",
    "price_momentum_20",
    "price_momentum_60",
    "session_trend",
)
CENTRED = {"volume_regime": (1, 1)}
