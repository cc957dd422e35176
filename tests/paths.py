"""Random price sequences inside given bars, and their first-passage paths in plain Python.

Shared by the tests of the environment and of the oracle; shares no code with `jaxtrade.data.intrabar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

POINTS = 8


class RowPath(NamedTuple):
    """What is known of one bar, in offsets from its open: see `jaxtrade.types.IntrabarPath`."""

    points: tuple[int, ...]
    fall: int
    fall_from: int
    rise: int
    rise_from: int
    ambiguous: bool


def reduce_prices(prices: Sequence[int]) -> RowPath:
    """Turning points and largest retraces of prices traded one after the other, the first of them the open."""
    opened = prices[0]
    top = bottom = 0
    turns: list[tuple[str, int]] = []
    fall = rise = (0, 0)
    for price in prices[1:]:
        offset = price - opened
        if offset > top or offset < bottom:
            side = "high" if offset > top else "low"
            if turns and turns[-1][0] == side:
                turns.pop()
            turns.append((side, offset))
            top, bottom = max(top, offset), min(bottom, offset)
        if top - offset > fall[0]:
            fall = (top - offset, top)
        if offset - bottom > rise[0]:
            rise = (offset - bottom, bottom)
    points = [offset for _, offset in turns] or [0]
    padded = (points + points[-1:] * POINTS)[:POINTS]
    return RowPath(tuple(padded), *fall, *rise, len(points) > POINTS)


def random_path(rng: np.random.Generator, open_: int, high: int, low: int, close: int) -> RowPath:
    """A path that touches high and low somewhere on the way and ends at the close; one in ten is ambiguous."""
    inner = rng.integers(low, high + 1, int(rng.integers(0, 12))).tolist()
    for extreme in (high, low):
        inner.insert(int(rng.integers(0, len(inner) + 1)), extreme)
    path = reduce_prices([open_, *inner, close])
    return path._replace(ambiguous=path.ambiguous or bool(rng.random() < 0.1))


def random_paths(seed: int, *prices: Sequence[int]) -> tuple[RowPath, ...]:
    """One path per bar of open, high, low and close columns."""
    rng = np.random.default_rng(seed)
    return tuple(random_path(rng, *(int(x) for x in row)) for row in zip(*prices, strict=True))


def mirrored(paths: Sequence[RowPath]) -> tuple[RowPath, ...]:
    """The same paths upside down."""
    return tuple(RowPath(tuple(-x for x in p.points), p.rise, -p.rise_from, p.fall, -p.fall_from, p.ambiguous)
                 for p in paths)
