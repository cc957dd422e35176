"""The figures of a run that trains, as thinned curves, kept up to date from its metrics file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.storage.sinks import EACH
from jaxtrade.watching.tail import Tail
from jaxtrade.watching.thinning import POINTS, Curve

NOT_CURVES = ("update", "total_updates", "steps", "seconds", "eta_seconds")
FILE = "metrics.jsonl"


class Metrics:
    """The curves of one run. `poll` reads what is new.

    version: changes whenever a curve has changed. last: the newest row. A figure of several agents is a curve of their
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
    def share_read(self) -> float:
        """Share of the file that has been read, 0 to 1."""
        return self._tail.position / self._tail.size if self._tail.size else 1.0

    def poll(self) -> bool:
        """Read the next piece of the file. Returns whether there was any."""
        rows = self._tail.read()
        if self._tail.generation != self._generation:  # a rollback has undone rows: all of them are read again
            self._generation = self._tail.generation
            self.curves, self.last, self.rows = {}, {}, 0
        if not rows:
            return False
        found: dict[str, list[tuple[float, float, float, float]]] = {}
        for row in rows:
            for name, values in _figures(row):
                found.setdefault(name, []).append((float(row.get("update", 0)), *values))
        for name, values in found.items():
            self.curves.setdefault(name, Curve(self._points)).add(values)
        self.last, self.rows = rows[-1], self.rows + len(rows)
        return True


def _figures(row: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """(name, (mean, lowest, highest)) of each figure of a row. An entry of a list by name is `figure.ENTRY`."""
    for name, value in row.items():
        if name in NOT_CURVES or name.endswith(EACH):
            continue
        each = row.get(name + EACH)
        if isinstance(value, dict):
            for entry, own in value.items():
                if isinstance(own, int | float):
                    yield f"{name}.{entry}", _band(own, [agent.get(entry) for agent in each] if each else None)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, _band(value, each if isinstance(each, list) else None)


def _band(mean: float, each: list[Any] | None) -> tuple[float, float, float]:
    known = [value for value in each or () if isinstance(value, int | float) and math.isfinite(value)]
    return (float(mean), min(known), max(known)) if known else (float(mean), float(mean), float(mean))
