"""Rolling statistics of a series. Each result uses the last n values only and is NaN while there
are fewer.
"""

from __future__ import annotations

import numpy as np


def cumulative_sum(values: np.ndarray, n: int) -> np.ndarray:
    """Sum of the last n values, in the dtype of `values`. The first n-1 sums have fewer terms;
    callers blank them.

    It is a difference of running totals, which is exact for integers. With floats a rounding
    residue may remain; use
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
        out[n - 1 :] = sum(np.asarray(values[k : k + count], np.float64) for k in range(n))
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
        out[n - 1 :] = np.lib.stride_tricks.sliding_window_view(values, n).max(-1)
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
        out[n - 1 :] = np.sqrt((n * squares - total * total)[n - 1 :] / (n * (n - 1)))
    return out


def percent_rank(values: np.ndarray, n: int, least: int) -> np.ndarray:
    """Rank of each value among the last n, divided by their count: float64[T] in (0, 1]. Ties share
    the mean rank.

    NaN while there are fewer than `least` values. From there the look-back grows to n.
    """
    import pandas as pd  # imported here because it is slow to load and only this feature needs it

    return pd.Series(values).rolling(n, min_periods=least).rank(pct=True).to_numpy(np.float64)


# --- exponential smoothing -------------------------------------------------------------------------------------------

LANES = 1024  # parts of a long series that are smoothed side by side
MEMORY = (
    64  # steps of 1/alpha after which a wrong start has almost always vanished from all 53 bits
)


def smooth(values: np.ndarray, alpha: float, seed: float) -> np.ndarray:
    """Exponential smoothing, float64[n]: y[i] = y[i-1] + alpha * (values[i] - y[i-1]), with y[-1] =
    seed.

    Every y is rounded as the formula says, bit for bit. Step after step in Python takes half a
    second for ten years of minutes. So a long series is cut into lanes that are smoothed side by
    side. Each lane but the first begins some steps early from a wrong start, which rounding soon
    makes vanish. Where the lane's y does not equal the last y of the lane before it, the lane is
    computed again from that one.
    """
    values = np.asarray(values, np.float64)
    early = int(MEMORY / alpha)
    lanes = min(LANES, len(values) // (2 * early + 1))
    if lanes < 2:
        return _smooth_in_order(values, alpha, seed)
    size = len(values) // lanes
    y = np.concatenate([[seed], values[size - early - 1 : (lanes - 1) * size - early : size]])
    for j in range(size - early, size):  # the first lane has its true start, and no steps before it
        y[1:] += alpha * (values[j : j + (lanes - 1) * size : size][: lanes - 1] - y[1:])
    starts = y.copy()
    out = np.empty((size, lanes))
    rows = np.ascontiguousarray(values[: lanes * size].reshape(lanes, size).T)
    for j in range(size):
        y += alpha * (rows[j] - y)
        out[j] = y
    parts = np.ascontiguousarray(out.T)
    for lane in range(1, lanes):
        if starts[lane] != parts[lane - 1, -1]:
            own = values[lane * size : (lane + 1) * size]
            parts[lane] = _smooth_in_order(own, alpha, parts[lane - 1, -1])
    rest = _smooth_in_order(values[lanes * size :], alpha, parts[-1, -1])
    return np.concatenate([parts.ravel(), rest])


def _smooth_in_order(values: np.ndarray, alpha: float, seed: float) -> np.ndarray:
    out = np.empty(len(values))
    y = float(seed)
    for i, x in enumerate(values.tolist()):
        y += alpha * (x - y)
        out[i] = y
    return out
