"""A line chart in one line of text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as bars from the lowest to the highest, at most `width` of them.

    More values than `width` are averaged in `width` groups of equal size, up to one. A value that
    is not finite is a space. Values that are all equal are in the middle.
    """
    if not values or width < 1:
        return ""
    count = min(len(values), width)
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [_mean(values[a:b]) for a, b in itertools.pairwise(edges)]
    known = [value for value in means if math.isfinite(value)]
    if not known:
        return " " * count
    low, span = min(known), max(known) - min(known)
    if not span:
        return "".join(BARS[len(BARS) // 2] if math.isfinite(value) else " " for value in means)
    return "".join(
        BARS[round((value - low) / span * (len(BARS) - 1))] if math.isfinite(value) else " "
        for value in means
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
