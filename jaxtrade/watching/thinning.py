"""Curves with a bounded number of points, which keep the highest and the lowest value of what they
leave out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

POINTS = 2000  # the most points of a curve
Point = tuple[float, float, float, float]  # update, mean, lowest, highest


class Curve:
    """The values of one figure by update, thinned to at most `points` entries.

    An entry stands for `width` neighbouring updates: the first update, the mean, the lowest and the
    highest value of them. Where there would be more than `points` entries, neighbours are joined
    and `width` doubles, so memory does not grow with the run. Values that are not finite are left
    out.
    """

    def __init__(self, points: int = POINTS) -> None:
        if points < 2:
            raise ValueError(f"a curve needs at least 2 points, got {points}")
        self._points = points
        self._width = 1
        self._entries: list[
            list[float]
        ] = []  # first update, number of values, sum, lowest, highest
        self._open = 0  # updates in the last entry

    def add(self, points: Iterable[Point]) -> None:
        """Add the points of further updates, in order."""
        for update, mean, low, high in points:
            if not math.isfinite(mean):
                continue
            if not self._entries or self._open == self._width:
                self._make_room(update, low, high)
            last = self._entries[-1]
            last[1] += 1
            last[2] += mean
            if low < last[3]:
                last[3] = low
            if high > last[4]:
                last[4] = high
            self._open += 1

    def _make_room(self, update: float, low: float, high: float) -> None:
        """Open an entry for a further update, or the last one again, where joining has left it with
        an odd number.
        """
        if len(self._entries) >= self._points:
            self._join()
            if self._open < self._width:
                return
        self._entries.append([update, 0, 0.0, low, high])
        self._open = 0

    def _join(self) -> None:
        """Join neighbours in pairs. An odd one stays open for further updates."""
        pairs = [self._entries[i : i + 2] for i in range(0, len(self._entries), 2)]
        self._open = sum(int(each[1]) for each in pairs[-1])
        self._entries = [
            [
                pair[0][0],
                sum(e[1] for e in pair),
                sum(e[2] for e in pair),
                min(e[3] for e in pair),
                max(e[4] for e in pair),
            ]
            for pair in pairs
        ]
        self._width *= 2

    def shown(self, width: int = 0, known: int = 0) -> dict[str, Any]:
        """The curve as lists of equal length: update, mean, low, high, from entry `start` on.

        A reader that has `known` entries of the same `width` gets those from its last one on, which
        may have grown; any other reader gets all.
        """
        start = max(known - 1, 0) if width == self._width and known <= len(self._entries) else 0
        entries = self._entries[start:]
        return {
            "width": self._width,
            "start": start,
            "update": [each[0] for each in entries],
            "mean": [short(each[2] / each[1]) for each in entries],
            "low": [short(each[3]) for each in entries],
            "high": [short(each[4]) for each in entries],
        }


def short(value: float) -> float:
    """The value with six significant digits: more than a screen shows."""
    return float(f"{value:.6g}")
