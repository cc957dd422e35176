"""Rolling figures of a series: each value from its last n values only, NaN while there are fewer."""

from __future__ import annotations

import numpy as np


def cumulative_sum(values: np.ndarray, n: int) -> np.ndarray:
    """Sum of the last n values, same dtype; over fewer of them in the first n-1 places (callers blank those).

    By differences of a running total: exact for integers; floats may keep a residue (see `sum_of_last`).
    """
    total = np.cumsum(values)
    out = total.copy()
    out[n:] -= total[:-n]
    return out


def sum_of_last(values: np.ndarray, n: int) -> np.ndarray:
    """Sum of the last n values, float64[T], added term by term: n zeros sum to exactly 0, and a NaN is forgotten."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        count = len(values) - n + 1
        out[n - 1:] = sum(np.asarray(values[k: k + count], np.float64) for k in range(n))
    return out


def shifted(values: np.ndarray, n: int) -> np.ndarray:
    """Each value as it was n bars before, float64[T]."""
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
    """Standard deviation (n - 1 in the divisor) of the last n integers, float64[T]; sums are exact."""
    out = np.full(len(values), np.nan)
    if len(values) >= n:
        x = np.asarray(values, np.int64) - values[0]
        total, squares = cumulative_sum(x, n), cumulative_sum(x * x, n)
        out[n - 1:] = np.sqrt((n * squares - total * total)[n - 1:] / (n * (n - 1)))
    return out


def percent_rank(values: np.ndarray, n: int, least: int) -> np.ndarray:
    """Rank of each value among the last n (ties share the mean rank) over their count, in (0, 1], float64[T].

    NaN while fewer than `least` values exist: the window expands from there to n.
    """
    import pandas as pd  # here, because only this feature needs it and it is slow to load

    return pd.Series(values).rolling(n, min_periods=least).rank(pct=True).to_numpy(np.float64)
