"""Read a growing file of JSON lines piece by piece."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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
        """The next rows, at most about `PIECE` bytes of them; empty if there are none, no file, or
        none that may be read (`fault`).

        A line that is no JSON object is passed over: a process that was killed while it wrote
        leaves half a line, and the run that goes on writes the next one after it.
        """
        self.fault = None
        try:
            with self._path.open("rb") as file:
                return self._parsed(file)
        except FileNotFoundError:
            return []
        except PermissionError as error:
            self.fault = f"{self._path.name}: {error.strerror or error}"
            return []

    def _parsed(self, file: Any) -> list[dict[str, Any]]:
        found = os.fstat(file.fileno())
        same = self._file == (found.st_dev, found.st_ino) and found.st_size >= self._position
        if not same:
            self.generation += self._file is not None
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
