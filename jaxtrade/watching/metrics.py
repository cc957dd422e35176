"""The figures of a run that trains, as thinned curves, kept up to date from its metrics file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jaxtrade.storage.sinks import EACH
from jaxtrade.watching.tail import Tail
from jaxtrade.watching.thinning import POINTS, Curve, Point

NOT_CURVES = ("update", "total_updates", "steps", "seconds", "eta_seconds")
FILE = "metrics.jsonl"


class Metrics:
    """The curves of one run. `poll` reads what is new.

    version: changes whenever a curve has changed. last: the newest row. A figure of several agents
        is a curve of their
    mean, with the lowest and the highest agent as its band.
    """

    def __init__(self, folder: Path, points: int = POINTS) -> None:
        self._tail, self._points = Tail(folder / FILE), points
        self._generation = 0
        self.curves: dict[str, Curve] = {}
        self.last: dict[str, Any] = {}
        self.rows = 0

    @property
    def version(self) -> str:
        """Text that differs after every change."""
        return f"{self._tail.generation}-{self._tail.position}"

    @property
    def fault(self) -> str | None:
        """Why the file could not be read the last time; None if it could."""
        return self._tail.fault

    @property
    def share_read(self) -> float:
        """Share of the file that has been read, 0 to 1."""
        return self._tail.position / self._tail.size if self._tail.size else 1.0

    def poll(self) -> bool:
        """Read the next piece of the file. Returns whether there was any."""
        rows = self._tail.read()
        if (
            self._tail.generation != self._generation
        ):  # a rollback has undone rows: all of them are read again
            self._generation = self._tail.generation
            self.curves, self.last, self.rows = {}, {}, 0
        if not rows:
            return False
        for name, points in _columns(rows):
            if points:
                self.curves.setdefault(name, Curve(self._points)).add(points)
        self.last, self.rows = rows[-1], self.rows + len(rows)
        return True


# Rows are turned into columns first: a file of 100 MB has millions of values, and Python handles
# lists fast.
def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Point]]]:
    """(name, its points) of each figure. An entry of a list by name is `figure.ENTRY`."""
    names = dict.fromkeys(chain.from_iterable(rows))
    updates = [float(row.get("update", 0)) for row in rows]
    for name in names:
        if name in NOT_CURVES or name.endswith(EACH):
            continue
        column = [row.get(name) for row in rows]
        each = [row.get(name + EACH) for row in rows] if name + EACH in names else None
        yield name, _points(updates, column, each)
        entries = dict.fromkeys(
            chain.from_iterable(value for value in column if isinstance(value, dict))
        )
        for entry in entries:
            own = [_entry(value, entry) for value in column]
            agents = each and [
                [_entry(agent, entry) for agent in row] if isinstance(row, list) else None
                for row in each
            ]
            yield f"{name}.{entry}", _points(updates, own, agents)


def _entry(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _points(
    updates: Sequence[float], means: Sequence[Any], each: Sequence[Any] | None
) -> list[Point]:
    """The points of the rows that have a number. each: of every row the agents' values."""
    if each is None:
        return [
            (update, mean, mean, mean)
            for update, mean in zip(updates, means, strict=True)
            if _is_number(mean)
        ]
    return [
        (update, mean, *_band(mean, agents))
        for update, mean, agents in zip(updates, means, each, strict=True)
        if _is_number(mean)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _band(mean: float, each: Any) -> tuple[float, float]:
    """The lowest and the highest agent of those that have a finite value; the mean if there is
    none.
    """
    if not isinstance(each, list):
        return mean, mean
    if None in each or not math.isfinite(sum(each)):
        each = [value for value in each if value is not None and math.isfinite(value)]
    return (min(each), max(each)) if each else (mean, mean)
