"""RL-Trainer's chart patterns over one feature window. Prices are in ticks; each result is
float64[n].

Thresholds are whole thousandths or hundredths of integer prices, so every comparison is exact.
Until its look-back is full, a pattern is 0; `columns.compute_feature` replaces those values by NaN.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.features.rolling import highest, lowest, sample_std, shifted, sum_of_last

SWING, LEVEL = 5, 20  # look-back in bars, for swings and for levels
SEEN = 0.7  # the value of RL-Trainer's double top and double bottom where they find one
QUIET = (
    0.02  # the market is quiet if the closes' standard deviation is below this share of their mean
)


def _beyond(value: np.ndarray, level: np.ndarray) -> np.ndarray:
    """1 where the value is more than 0.1 % above the level, -1 where it is more than 0.1 % below,
    else 0.
    """
    return (1000 * value > 1001 * level).astype(np.float64) - (1000 * value < 999 * level)


def higher_high(high: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the high compared with the highest high of the 5 bars before (see `_beyond`)."""
    return _beyond(high, shifted(highest(high, SWING), 1))


def lower_low(low: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the low compared with the lowest low of the 5 bars before. 1 means lower."""
    return 0.0 - _beyond(low, shifted(lowest(low, SWING), 1))


def higher_low(low: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the lowest low of the last 5 bars compared with that of the 5 bars before them. 1
    means higher.
    """
    bottom = lowest(low, SWING)
    return _beyond(bottom, shifted(bottom, SWING))


def lower_high(high: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the highest high of the last 5 bars compared with that of the 5 bars before them.
    1 means lower.
    """
    top = highest(high, SWING)
    return 0.0 - _beyond(top, shifted(top, SWING))


def _quiet(close: np.ndarray) -> np.ndarray:
    """bool[n]: whether the standard deviation (divisor n - 1) of the last 20 closes is below 2 % of
    their mean.
    """
    return sample_std(close, LEVEL) / (sum_of_last(close, LEVEL) / LEVEL) < QUIET


def double_top(high: np.ndarray, close: np.ndarray) -> np.ndarray:
    """0.7 where the highest high of 20 quiet bars is more than 1 % below that of the 20 bars before
    them, else 0.
    """
    top = highest(high, LEVEL)
    return SEEN * ((100 * top < 99 * shifted(top, LEVEL)) & _quiet(close))


def double_bottom(low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """0.7 where the lowest low of 20 quiet bars is more than 1 % above that of the 20 bars before
    them, else 0.
    """
    bottom = lowest(low, LEVEL)
    return SEEN * ((100 * bottom > 101 * shifted(bottom, LEVEL)) & _quiet(close))


def breakout(high: np.ndarray, close: np.ndarray) -> np.ndarray:
    """1 where the close is more than 0.2 % above the highest high of the 20 bars before, else 0."""
    return (1000 * close > 1002 * shifted(highest(high, LEVEL), 1)).astype(np.float64)


def breakdown(low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """1 where the close is more than 0.2 % below the lowest low of the 20 bars before, else 0."""
    return (1000 * close < 998 * shifted(lowest(low, LEVEL), 1)).astype(np.float64)
