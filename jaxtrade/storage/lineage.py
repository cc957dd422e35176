"""`lineage.jsonl` in a run's folder: who went on from whom in population-based training, one JSON
object per event.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.storage.sinks import JsonlSink, read_rows

if TYPE_CHECKING:
    from jaxtrade.types import Row

LINEAGE = "lineage.jsonl"


class LineageSink:
    """Appends events. Those after the update to which a run goes back are dropped, as rows of
    metrics are.

    It is a sink of the run, so that a rollback reaches it, but it takes neither metrics nor
    messages.
    """

    def __init__(self, folder: Path, resume_update: int | None = None) -> None:
        """resume_update: events up to this update, of an earlier process, are kept; None: begin a
        new file.
        """
        self._path = folder / LINEAGE
        self._file = JsonlSink(self._path, resume_update, every_update=False)

    def record(self, row: dict[str, Any]) -> None:
        """Append an event. A row of the same kind about the same update is there already if a
        finished run is opened again; it is not repeated."""
        if not any(
            (old["update"], old["event"]) == (row["update"], row["event"])
            for old in read_rows(self._path)
        ):
            self._file.write([row])

    def write(self, rows: Sequence[Row]) -> None:
        del rows

    def rewind(self, update: int, steps: int) -> None:
        self._file.rewind(update, steps)

    def message(self, text: str) -> None:
        del text

    def close(self) -> None:
        self._file.close()
