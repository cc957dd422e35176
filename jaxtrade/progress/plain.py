"""Progress as plain lines, for files, pipes, and terminals that can show no panel. There are no
escape codes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from jaxtrade.progress.screen import LastingStream, Now, Screen, duration
from jaxtrade.storage.sinks import Columns, Names, panel_line, progress_line
from jaxtrade.text import printable

if TYPE_CHECKING:
    from jaxtrade.types import Row
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtrade.types import Row


# Which chunks of a long run get a line of progress, where lines cannot replace each other (files,
# notebooks).

MOST_LINES = 100  # chunks of a run with a line; `metrics.jsonl` and `run.log` keep all of them


def worth_a_line(rows: Sequence[Row], most: int = MOST_LINES) -> bool:
    """Whether the chunk of these rows is one of at most `most` chunks, evenly spread over the run,
    or its last one.

    rows: those of one chunk, with `update` and `total_updates`.
    """
    last, total = rows[-1]["update"], rows[-1]["total_updates"]
    before = rows[0]["update"] - 1
    return last >= total or last * most // total > before * most // total


HEARTBEAT = 10.0  # seconds without a line after which a line says what is being done
STEP = 2.0  # seconds without a line after which the next step of a phase is named


class Plain(Screen):
    """One line at the start of each phase, two per chunk of training, and one after ten seconds
    without a line.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        names: Names | None = None,
        columns: Columns = (),
        heartbeat: float = HEARTBEAT,
    ) -> None:
        """stream: default: standard error as it is now. heartbeat: seconds."""
        super().__init__()
        self.describe(names or {}, columns)
        self._stream = LastingStream(sys.stderr if stream is None else stream)
        self._heartbeat, self._said = heartbeat, time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def phase(self, name: str, about: str = "", total: int = 0, now: Now = str) -> None:
        count = len(self.phases)
        super().phase(name, about, total, now)
        if len(self.phases) > count:
            self.message(f"{name}: {about}" if about else name)
        if (
            self._thread is None
        ):  # not before a phase begins: a screen that is never used starts no thread
            self._thread = threading.Thread(
                target=self._beat, name="jaxtrade-progress", daemon=True
            )
            self._thread.start()

    def chapter(self, name: str) -> None:
        super().chapter(name)
        self.message(name)

    def step(self, what: str) -> None:
        super().step(what)
        last = self.phases[-1]
        if time.monotonic() - self._said >= STEP:  # quick steps need no line each
            self.message(
                f"{last.name}: {f'{last.done + 1}/{last.total} ' if last.total else ''}{what}"
            )

    def write(self, rows: Sequence[Row]) -> None:
        if not worth_a_line(rows):
            return
        self.message(progress_line(rows, self.columns))
        if line := panel_line(rows, self.names):
            self.message(line)

    def message(self, text: str) -> None:
        self._said = time.monotonic()
        self._stream.write(printable(text) + "\n")
        self._stream.flush()

    def close(self) -> None:
        super().close()
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._closed.wait(max(0.01, self._said + self._heartbeat - time.monotonic())):
            last = next(reversed(self.phases), None)
            if last and time.monotonic() - self._said >= self._heartbeat and last.ended is None:
                doing = last.doing
                self.message(
                    f"{last.name}: {duration(last.seconds)}{f' ({doing})' if doing else ''}"
                )
