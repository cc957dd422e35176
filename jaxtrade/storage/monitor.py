"""`monitor.csv`: one row for each training episode, in the format of Stable-Baselines3's `Monitor`.

Line 1 is `#` and a JSON object with `t_start` (seconds since 1970) and `env_id`, ended by LF. A CSV
table follows, as
`csv.DictWriter` writes it (CRLF). `stable_baselines3.common.monitor.load_results` reads the file. A run has one such
file, because `load_results` adds up all that it finds in a folder.

The file only grows at its end, by whole lines, in the order of the updates. To drop rows it is cut,
which needs no
space: a full disk, a kill and a rollback all leave a file that can be read.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from jaxtrade.errors import DataError, StorageError
from jaxtrade.storage.sinks import Episodes, MetricSink

MONITOR = "monitor.csv"  # in the run folder
ROWS, LOST = (
    "monitor/rows",
    "monitor/lost",
)  # metrics: the rows of an update's episodes; episodes without a row
COLUMNS = (
    "r",
    "l",
    "drawdown",
    "turnover",
    "sharpe_ratio",
    "max_drawdown",
)  # of a row on the device; then a symbol
FIELDS = ("r", "l", "t", *COLUMNS[2:], "symbol", "agent", "update")
LENGTH = COLUMNS.index("l")
EOL = b"\r\n"


def ended_episodes(rows: np.ndarray | None, done: int, agents: int) -> list[Episodes]:
    """Return the episodes of a chunk, by update.

    Args:
        rows: float32[updates, ..., R, 7], metric ROWS of a chunk, with the axes of the agents; a
            row of length 0 is unused. None: the learner reports no episodes.
        done: updates before the chunk.
        agents: their number.
    """
    if rows is None:
        return []
    found = []
    for i, each in enumerate(rows.reshape(len(rows), agents, *rows.shape[-2:])):
        agent, place = np.nonzero(each[..., LENGTH] > 0)
        found.append(Episodes(done + i + 1, each[agent, place], agent))
    return found


def text_of(ended: Sequence[Episodes], symbols: Sequence[str], seconds: float) -> str:
    """Format the CSV lines of episodes. Numbers have 7 digits; an undefined one is empty.

    seconds: since `t_start`.
    """
    lines, t = io.StringIO(newline=""), round(seconds, 6)
    table = csv.writer(lines)  # the dialect of `DictWriter`, without a dictionary for each row
    for update, rows, agents in ended:
        for (r, length, *rest, symbol), agent in zip(rows.tolist(), agents.tolist(), strict=True):
            table.writerow(
                [
                    f"{r:.7g}",
                    int(length),
                    t,
                    *("" if x != x else f"{x:.7g}" for x in rest),
                    symbols[int(symbol)],
                    agent,
                    update,
                ]
            )
    return lines.getvalue()


def _first_lines(start: float, env_id: str) -> str:
    header = io.StringIO(newline="")
    csv.DictWriter(header, FIELDS).writeheader()
    return f"#{json.dumps({'t_start': start, 'env_id': env_id})}\n{header.getvalue()}"


class FileEnd(NamedTuple):
    """Where a monitor file ends.

    start: `t_start` of a monitor file.
    size: bytes up to the end of the last row that stays.
    """

    start: float
    size: int


def place_after(path: Path, update: int) -> FileEnd | None:
    """Find where a file ends after the rows of update `update`, without a torn last line.

    Returns None if the file is missing, or its first two lines are torn. Raises DataError for a
    damaged line before that place.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        first, names = file.readline(), file.readline()
        if not names.endswith(EOL):
            return None
        start, size = _start(path, first, names), file.tell()
        for number, line in enumerate(file, start=3):
            if not line.endswith(EOL):
                break  # a killed process may have torn the last line
            cells = line.rstrip(EOL).split(b",")
            if len(cells) != len(FIELDS) or not cells[-1].isdigit():
                raise DataError(
                    f"{path}: line {number} is damaged: {line[:60]!r}; expected {len(FIELDS)} columns with "
                    "the update last; restore the file, or delete it: the run then begins another"
                )
            if int(cells[-1]) > update:
                break
            size += len(line)
    return FileEnd(start, size)


def _start(path: Path, first: bytes, names: bytes) -> float:
    try:
        start = json.loads(first.removeprefix(b"#"))["t_start"]
        if names.rstrip(EOL).decode().split(",") == list(FIELDS):
            return float(start)
    except (ValueError, KeyError, TypeError):
        pass  # the message below is the same for all of them
    raise DataError(
        f"{path}: its first two lines are {first[:60]!r} and {names[:60]!r}; expected '#' with t_start as "
        f"JSON, then {','.join(FIELDS)}; restore the file, or delete it: the run then begins another"
    )


def _open(path: Path, mode: str) -> IO[bytes]:
    return path.open(mode, buffering=0)  # type: ignore[return-value]  # what is not written must not wait in memory


class MonitorSink(MetricSink):
    """Writes `monitor.csv`. Rows and messages of the run are ignored; only episodes count."""

    def __init__(
        self,
        path: Path | str,
        env_id: str,
        symbols: Sequence[str],
        resume_update: int | None = None,
        clock: Callable[[], float] = time.time,
        opened: Callable[[Path, str], IO[bytes]] = _open,
    ) -> None:
        """Begin a file, or continue one after `resume_update`.

        Later rows are cut off: the resumed run writes them again.

        Args:
            env_id: the market and the task, for the first line.
            symbols: names by number.
            clock: seconds since 1970.
            opened: opens the file.

        Raises:
            DataError: the file that is to be continued is damaged.
            StorageError: nothing can be written.
        """
        self._path, self._symbols, self._clock = Path(path), tuple(symbols), clock
        found = None if resume_update is None else place_after(self._path, resume_update)
        self._file = opened(self._path, "r+b" if found else "wb")
        self._start, self._size = found or (self._clock(), 0)
        self._truncate()
        if not found:
            self._append(_first_lines(self._start, env_id).encode())

    def episodes(self, ended: Sequence[Episodes]) -> None:
        """Write the rows of a chunk; their `t` is the chunk's end.

        Raises StorageError if the disk is full: the file then ends with the rows of the
        chunk before.
        """
        self._append(text_of(ended, self._symbols, self._clock() - self._start).encode())

    def rewind(self, update: int, steps: int) -> None:
        """Drop the rows after `update`.

        Raises DataError if the file was damaged or removed meanwhile.
        """
        del steps
        found = place_after(self._path, update)
        if not found:
            raise DataError(
                f"{self._path}: gone, or without its first lines, while the run wrote to it; resume the "
                "run: it begins another"
            )
        self._size = found.size
        self._truncate()

    def close(self) -> None:
        """Close the file. Nothing is written afterwards."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        """Write whole lines at the end, or nothing."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._truncate()
            raise StorageError(
                f"{self._path}: the episodes of the last chunk could not be written: {error}; free some "
                "space, then resume (or switch the file off with monitor.csv=false)"
            ) from error
        self._size += len(data)

    def _truncate(self) -> None:
        self._file.truncate(self._size)
        self._file.seek(self._size)
