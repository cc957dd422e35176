"""How far back the value of a feature reaches: what the purge between training and test sessions
has to leave out.

Most features read the bars of their warm-up and no more. Three kinds read further: those that
smooth exponentially, those that start with the trade date, and the rank of a year. Warm-ups are not
touched by this: they say when a feature may be shown, and a longer one would change the
observations of every run.
"""

from __future__ import annotations

import math

from jaxtrade.data.features.schema import RANK_BARS, TRUE_RANGES, feature_spec, is_built_in

# The share of its weight that a smoothed value may have on bars beyond its reach. The float32 table
# rounds at 6e-8 of a value, so bars beyond the reach change nothing there unless they move sixty
# times as much as those within it.
LEFT_OVER = 1e-9
MACD_SLOW = 26  # the longer span of `macd`
RANKED = "vol_percentile"  # its ranks reach back far beyond the bars that it needs at least
OF_DATE = ("vwap", "price_to_vwap")  # read their trade date from its first bar on


def smoothed_bars(alpha: float) -> int:
    """The number k of newest values that hold all but `LEFT_OVER` of the weight of an exponential
    smoothing.

    From y[t] = y[t-1] + alpha (x[t] - y[t-1]) it follows that x[t-j] has the weight alpha (1 -
    alpha)^j. The values of age k and more, the start of the series among them, have together (1 -
    alpha)^k, which is at most `LEFT_OVER` from k = log(LEFT_OVER) / log(1 - alpha) on. Wilder's
    smoothing over N bars has alpha = 1/N, so k is about 20.7 N; an EMA has alpha = 2/(N + 1), so k
    is about 10.4 N. alpha: in (0, 1].
    """
    return 1 if alpha == 1 else math.ceil(math.log(LEFT_OVER) / math.log1p(-alpha))


def reach_bars(name: str) -> int:
    """The number of bars, its own one included, that a feature's value depends on.

    Of a feature that starts with its trade date (`OF_DATE`) only its own bar is counted; of a
    user's own feature the declared warm-up. Raises ConfigError for an unknown name.
    """
    spec = feature_spec(name)
    if not is_built_in(name):
        return spec.warm_up
    kind = name.partition("_")[0] if spec.period else ""
    if kind in (
        "rsi",
        "atr",
    ):  # Wilder's; each of the smoothed values reads the close of the bar before it too
        return smoothed_bars(1 / spec.period) + 1
    if kind == "ema":
        return smoothed_bars(2 / (spec.period + 1))
    if name == "macd":
        return smoothed_bars(2 / (MACD_SLOW + 1))
    return TRUE_RANGES + RANK_BARS if name == RANKED else spec.warm_up


def reaches_date(name: str) -> bool:
    """Whether a feature reads its trade date from the first bar on. A user's own one is not
    asked.
    """
    return name in OF_DATE and is_built_in(name)
