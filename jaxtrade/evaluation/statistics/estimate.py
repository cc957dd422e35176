"""A figure with its interval, or the reason why there is none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.statistics.intervals import MIN_DAYS

# Fewer seeds have no interval. `compare` needs fewer (`MIN_SEEDS`): it takes means, and an
# interquartile mean of three or four seeds is hardly different from their median.
LEAST_SEEDS = 5


class IntervalEstimate(NamedTuple):
    """A figure and its interval, both ends included, in the unit of the figure.

    value: None where the figure is undefined. low, high: None where there is no such end. why: the
        reason where any of
    the three is None, else None.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str | None


def undefined(why: str) -> IntervalEstimate:
    """No figure, and why."""
    return IntervalEstimate(None, None, None, why)


def too_few(days: int, *seeds: int) -> str | None:
    """Why there is no interval of so many days and seeds, or None where there is one."""
    if days < MIN_DAYS:
        return f"an interval needs {MIN_DAYS} days, there are {days}"
    if seeds and min(seeds) < LEAST_SEEDS:
        return f"an interval needs {LEAST_SEEDS} seeds, there are {min(seeds)}"
    return None


def finite(values: np.ndarray, shape: str, dimensions: int) -> np.ndarray:
    """`values` as float64. Raises ValueError where they have not so many dimensions, are empty, or
    are not finite.
    """
    checked = np.asarray(values, np.float64)
    if checked.ndim != dimensions or not checked.size:
        raise ValueError(f"expected figures of shape {shape}, got {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError(f"figures of shape {shape} hold a value that is not finite")
    return checked
