"""The metrics of a run that trains, as thinned curves.

Whoever asks for them reads what is new in the run's metrics file.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from jaxtrade.storage.sinks import EACH

# Curves with a bounded number of points, which keep the highest and the lowest value of what they
# leave out.

POINTS = 2000  # the most points of a curve
Point = tuple[float, float, float, float]  # update, mean, lowest, highest


class Curve:
    """The values of one metric by update, thinned to at most `points` entries, 2 or more.

    An entry stands for `width` neighbouring updates: the first update, the mean, the lowest and the
    highest value of them. Where there would be more than `points` entries, neighbours are joined
    and `width` doubles, so memory does not grow with the run. Values that are not finite are
    left out.
    """

    def __init__(self, points: int = POINTS) -> None:
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
        """Open an entry for a further update.

        The last one is opened again where joining has left it with an odd number.
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

    def to_lists(self, width: int = 0, known: int = 0) -> dict[str, Any]:
        """Return the curve as lists of equal length, from entry `start` on.

        The lists are update, mean, low, high. A reader that has `known` entries of the same `width`
        gets those from its last one on, which may have grown; any other reader gets all.
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
    """Round a value to six significant digits: more than a screen shows."""
    return float(f"{value:.6g}")


# Read a growing file of JSON lines piece by piece.

PIECE = (
    1 << 20
)  # bytes that one call of `Tail.read` parses at most, so that a large file blocks nobody for long


class Tail:
    """The rows of a file of JSON lines, from its start, each of them once.

    A run may replace its file by a shorter one (after a rollback), or have written half a line. In
    the first case the rows begin again, and `generation` is one higher. A half line is read when it
    is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None  # device and inode of the file that was read
        self._position = 0
        self.size = 0
        self.generation = 0
        self.fault: str | None = (
            None  # why the file could not be read the last time; None if it could, or is absent
        )

    @property
    def position(self) -> int:
        """Bytes that have been read."""
        return self._position

    def read(self) -> list[dict[str, Any]]:
        """Read the next rows, at most about `PIECE` bytes of them.

        Empty if there are none, no file, or none that may be read (`fault`). A line that is no JSON
        object is passed over: a process that was killed while it wrote leaves half a line, and the
        run that goes on writes the next one after it.
        """
        self.fault = None
        try:
            with self._path.open("rb") as file:
                return self._parse_rows(file)
        except FileNotFoundError:
            return []
        except PermissionError as error:
            self.fault = f"{self._path.name}: {error.strerror or error}"
            return []

    def _parse_rows(self, file: Any) -> list[dict[str, Any]]:
        found = os.fstat(file.fileno())
        same = self._file == (found.st_dev, found.st_ino) and found.st_size >= self._position
        if not same:
            self.generation += bool(self._file)
            self._file, self._position = (found.st_dev, found.st_ino), 0
        self.size = found.st_size
        file.seek(self._position)
        piece = file.read(PIECE)
        if len(piece) == PIECE and b"\n" not in piece:
            piece += file.readline()
        whole, newline, _ = piece.rpartition(b"\n")
        if not newline:
            return []
        self._position += len(whole) + 1
        return [row for line in whole.split(b"\n") if (row := _row(line)) is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


NOT_CURVES = ("update", "total_updates", "steps", "seconds", "eta_seconds")
FILE = "metrics.jsonl"


class Metrics:
    """The curves of one run. `poll` reads what is new.

    version: changes whenever a curve has changed.
    last: the newest row. A metric of several agents is a curve of their mean, with the lowest and
        the highest agent as its band.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder / FILE)
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
                self.curves.setdefault(name, Curve()).add(points)
        self.last, self.rows = rows[-1], self.rows + len(rows)
        return True


# Rows are turned into columns first: a file of 100 MB has millions of values, and Python handles
# lists fast.
def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Point]]]:
    """Yield (name, its points) of each metric. An entry of a list by name is `metric.ENTRY`."""
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
    """Return the points of the rows that have a number. each: of every row the agents' values."""
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
    """Return the lowest and the highest agent of those that have a finite value.

    It is the mean if there is none.
    """
    if not isinstance(each, list):
        return mean, mean
    if None in each or not math.isfinite(sum(each)):
        each = [value for value in each if value is not None and math.isfinite(value)]
    return (min(each), max(each)) if each else (mean, mean)


LONGEST = 0.25  # seconds that one answer reads on; a page asks again every second
MOST_READ = 16  # runs whose curves are kept, those that were asked for last


class Reader:
    """Reads the metrics of the runs that are asked for."""

    def __init__(self) -> None:
        self._metrics, self._lock = lru_cache(MOST_READ)(Metrics), threading.Lock()

    def curves(self, run: Path, asked: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """Return the state of a run's curves, and those that are asked for.

        A file that is long is read piece by piece: `share_read` says how much of it the
        answer holds.

        asked: name -> (width, number of entries) that the reader has, as in `Curve.to_lists`.
        """
        with self._lock:
            metrics, until = self._metrics(run), time.monotonic() + LONGEST
            while metrics.poll() and time.monotonic() < until:
                pass
            return {
                "version": metrics.version,
                "share_read": metrics.share_read,
                "names": sorted(metrics.curves),
                "rows": metrics.rows,
                "fault": metrics.fault,
                "generation": metrics.version.partition("-")[0],
                "last": {
                    name: metrics.last.get(name)
                    for name in (
                        "update",
                        "total_updates",
                        "steps",
                        "seconds",
                        "eta_seconds",
                        "steps_per_second",
                    )
                },
                "curves": {
                    name: metrics.curves[name].to_lists(*known)
                    for name, known in asked.items()
                    if name in metrics.curves
                },
            }
