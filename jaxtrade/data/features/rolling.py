"""Rolling statistics of a series. Each result uses the last n values only and is NaN while there are fewer."""

from __future__ import annotations

import numpy as np


def cumulative_sum(values: np.ndarray, n: int) -> np.ndarray:
    """Sum of the last n values, in the dtype of `values`. The first n-1 sums have fewer terms; callers blank them.

    It is a difference of running totals, which is exact for integers. With floats a rounding residue may remain; use
    `sum_of_last` for those.
    """
    total = np.cumsum(values)
    out = total.copy()
    out[n:] -= total[:-n]
    return out


def sum_of_last(values: np.ndarray, n: int) -> np.ndarray:
    """Sum of the last n values, float64[T], added term by term.

    So n zeros sum to exactly 0, and a NaN has no effect once it leaves the last n values.
    """
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        count = len(values) - n + 1
        out[n - 1:] = sum(np.asarray(values[k: k + count], np.float64) for k in range(n))
    return out


def shifted(values: np.ndarray, n: int) -> np.ndarray:
    """The value n bars before each bar, float64[T]."""
    out = np.full(len(values), np.nan)
    out[n:] = values[:-n]
    return out


def highest(values: np.ndarray, n: int) -> np.ndarray:
    """Largest of the last n values, float64[T]."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        out[n - 1:] = np.lib.stride_tricks.sliding_window_view(values, n).max(-1)
    return out


def lowest(values: np.ndarray, n: int) -> np.ndarray:
    """Smallest of the last n values, float64[T]."""
    return -highest(-np.asarray(values), n)


def sample_std(values: np.ndarray, n: int) -> np.ndarray:
    """Standard deviation (divisor n - 1) of the last n integers, float64[T]. The sums are exact."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        x = np.asarray(values, np.int64) - values[0]
        total, squares = cumulative_sum(x, n), cumulative_sum(x * x, n)
        out[n - 1:] = np.sqrt((n * squares - total * total)[n - 1:] / (n * (n - 1)))
    return out


def percent_rank(values: np.ndarray, n: int, least: int) -> np.ndarray:
    """Rank of each value among the last n, divided by their count: float64[T] in (0, 1]. Ties share the mean rank.

    NaN while there are fewer than `least` values. From there the look-back grows to n.
    """
    import pandas as pd  # imported here because it is slow to load and only this feature needs it

    return pd.Series(values).rolling(n, min_periods=least).rank(pct=True).to_numpy(np.float64)
