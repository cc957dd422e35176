"""The old system's chart patterns over one feature window, prices in ticks, float64[n] of a few values each.

Thresholds are whole thousandths or hundredths of integer prices, so every comparison is exact. Before a full look-back
a pattern is 0 (`features.compute_feature` blanks those bars).
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.features.rolling import highest, lowest, sample_std, shifted, sum_of_last

SWING, LEVEL = 5, 20  # bars of an extreme: of the swings, and of the levels
SEEN = 0.7  # what the old double top and bottom say where they see one
QUIET = 0.02  # below it, the deviation of closes as a share of their mean


def _beyond(value: np.ndarray, level: np.ndarray) -> np.ndarray:
    """1 where the value is more than 0.1 % above the level, -1 where as much below it, else 0."""
    return (1000 * value > 1001 * level).astype(np.float64) - (1000 * value < 999 * level)


def higher_high(high: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the high against the highest of the 5 bars before."""
    return _beyond(high, shifted(highest(high, SWING), 1))


def lower_low(low: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the low against the lowest of the 5 bars before, 1 where it is lower."""
    return 0.0 - _beyond(low, shifted(lowest(low, SWING), 1))


def higher_low(low: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the lowest low of the last 5 bars against that of the 5 before them."""
    bottom = lowest(low, SWING)
    return _beyond(bottom, shifted(bottom, SWING))


def lower_high(high: np.ndarray) -> np.ndarray:
    """1, -1 or 0: the highest high of the last 5 bars against that of the 5 before them, 1 where it is lower."""
    top = highest(high, SWING)
    return 0.0 - _beyond(top, shifted(top, SWING))


def _quiet(close: np.ndarray) -> np.ndarray:
    """bool[n]: the standard deviation (n - 1) of the last 20 closes is below 2 % of their mean."""
    return sample_std(close, LEVEL) / (sum_of_last(close, LEVEL) / LEVEL) < QUIET


def double_top(high: np.ndarray, close: np.ndarray) -> np.ndarray:
    """0.7 where the highest high of 20 quiet bars is more than 1 % below that of the 20 before them, else 0."""
    top = highest(high, LEVEL)
    return SEEN * ((100 * top < 99 * shifted(top, LEVEL)) & _quiet(close))


def double_bottom(low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """0.7 where the lowest low of 20 quiet bars is more than 1 % above that of the 20 before them, else 0."""
    bottom = lowest(low, LEVEL)
    return SEEN * ((100 * bottom > 101 * shifted(bottom, LEVEL)) & _quiet(close))


def breakout(high: np.ndarray, close: np.ndarray) -> np.ndarray:
    """1 where the close is more than 0.2 % above the highest high of the 20 bars before, else 0."""
    return (1000 * close > 1002 * shifted(highest(high, LEVEL), 1)).astype(np.float64)


def breakdown(low: np.ndarray, close: np.ndarray) -> np.ndarray:
    """1 where the close is more than 0.2 % below the lowest low of the 20 bars before, else 0."""
    return (1000 * close < 998 * shifted(lowest(low, LEVEL), 1)).astype(np.float64)
