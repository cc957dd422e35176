"""Prices that were 32-bit floats once, as Yahoo sends them."""

from __future__ import annotations

import numpy as np

TICK_NOISE = 1e-4  # ticks: rounding noise of a scaled price, far below any real off-tick price
LARGEST = float(np.finfo(np.float32).max)
MOST = 0.25  # ticks: with half a spacing of 32-bit floats below it, one tick alone can be meant


def allowed_noise(points: np.ndarray, tick: float) -> np.ndarray | float:
    """How far each price may lie from its tick, in ticks: float64[n], or one number for all.

    points: float64[n], NaN where a cell was not a number. If every price is exactly a 32-bit float,
        each was rounded to
    one, so it may lie half a spacing of 32-bit floats from its tick. That is allowed as long as the
    nearest tick is the only one that it can have been.
    """
    read = np.nan_to_num(points, nan=1.0)
    single = np.clip(read, -LARGEST, LARGEST).astype(np.float32)
    if (read != single).any():
        return TICK_NOISE
    half = np.spacing(np.abs(single)).astype(np.float64) / 2 / tick
    return np.where(half < MOST, np.maximum(half * (1 + TICK_NOISE), TICK_NOISE), TICK_NOISE)
