"""The robust scale of a series of bars: how far it usually moves in a bar and in a day."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxtrade.data.read.bars import Bars

SAMPLE = 1 << 17  # rows of a sample: its median is known to half a percent
NORMAL = 1.4826  # the standard deviation of a normal variable, over its median absolute deviation


class Scale(NamedTuple):
    """bar: usual size of a move from close to close that is not zero, as a share of the price. day:
    of the moves of as many bars as a trade date usually has, if they were independent."""

    bar: float
    day: float


def sampled(count: int) -> np.ndarray:
    """Up to SAMPLE row numbers at equal steps, int64. The step shares no factor with 60, so that it
    does not always hit the same minutes."""
    step = max(1, count // SAMPLE)
    while math.gcd(step, 60) != 1:
        step += 1
    return np.arange(0, count, step)


def scale_of(bars: Bars, starts: np.ndarray) -> Scale | None:
    """The scale of one-sided bars; None if no price changes. starts: the first row of each trade
    date.

    The median ignores up to half of the moves, so bad prints and splits do not enter. Moves of zero
    are left out: in a thin market most moves are zero, and the median would be, too.
    """
    rows = sampled(len(bars) - 1)
    close = bars.close[rows].astype(np.float64)
    moves = np.abs(bars.close[rows + 1] / close - 1.0)
    moves = moves[moves > 0]
    if not len(moves):
        return None
    bar = NORMAL * float(np.median(moves))
    return Scale(bar, bar * math.sqrt(float(np.median(np.diff(np.append(starts, len(bars)))))))
