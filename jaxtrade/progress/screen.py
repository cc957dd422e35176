"""`Screen`: where a command shows its phases, rows and messages.

This one shows nothing; `Plain` and `panel.PhasePanel` do.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from jaxtrade import interrupt
from jaxtrade.formatting import duration
from jaxtrade.storage.sinks import UNNAMED, Columns, MetricSink, Names, panel_line, progress_line
from jaxtrade.text import FORECAST, printable

if TYPE_CHECKING:
    from jaxtrade.types import Row


# The terminal under the panel: whether it can show one, a stream that may close, and how to leave
# it usable.

LEAST_COLUMNS, LEAST_ROWS = 60, 16  # smaller terminals get plain lines
DUMB = ("dumb", "unknown")
_shown_on: list[int] = []  # file descriptors of the terminals that show a panel now


def can_show_panel(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a panel can be drawn on a stream.

    It takes a terminal of at least 60 columns and 16 rows, UTF-8, not dumb. NO_COLOR (any value but
    the empty one) asks for plain lines.
    """
    if environ.get("NO_COLOR") or environ.get("TERM", "").lower() in DUMB or not stream.isatty():
        return False
    if "utf" not in (stream.encoding or "").lower():
        return False
    columns, rows = size(stream, environ)
    return columns >= LEAST_COLUMNS and rows >= LEAST_ROWS


def size(stream: TextIO, environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return (columns, rows) of a terminal.

    COLUMNS and LINES override it; 80 x 24 if it does not know its size.
    """
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # no descriptor, or not a terminal
        found = shutil.get_terminal_size()
    given = [environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, rows = (
        int(text) if text.isdigit() else known for text, known in zip(given, found, strict=True)
    )
    return columns or 80, rows or 24


class LastingStream:
    """A text stream that loses what is written after its reader has gone, instead of ending a run.

    A terminal that closes, or a pipe whose reader ends, must not stop hours of training.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.gone = stream, False

    def write(self, text: str) -> int:
        """Write, unless the reader has gone. Returns the number of characters of `text`."""
        if not self.gone:
            try:
                self._stream.write(text)
            except (OSError, ValueError):  # ValueError: the file has been closed
                self.gone = True
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader has gone."""
        if not self.gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self.gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def panel_opened(descriptor: int) -> None:
    """Note that a terminal shows a panel.

    Ctrl-C then restores it, also where it ends the process at once.
    """
    interrupt.before_line(restore)
    _shown_on.append(descriptor)


def panel_closed(descriptor: int) -> None:
    """Note that a terminal's panel has ended."""
    if descriptor in _shown_on:
        _shown_on.remove(descriptor)


def restore() -> None:
    """Leave the terminal usable for the next line: below the panel, plain colours, cursor on.

    For code that ends the process at once (`os._exit`). It takes no lock, imports nothing and may
    be called from a signal handler or another thread, any number of times. It does nothing without
    a panel.
    """
    for descriptor in tuple(_shown_on):
        panel_closed(descriptor)
        try:
            os.write(descriptor, b"\x1b[0m\x1b[?25h\n")
        except OSError:  # the terminal has gone: there is nothing to restore
            continue


Now = Callable[[], str]  # what is done at this moment; called from another thread


@dataclass
class ShownPhase:
    """A phase of a command.

    name: a verb ("compiling").
    about: on what.
    total: number of its steps, 0 if unknown.
    done: steps that have ended.
    step: the step that is being done.
    begun, ended: seconds of the monotonic clock; ended is None while it lasts.
    """

    name: str
    about: str = ""
    total: int = 0
    now: Now = str
    begun: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: int = 0
    step: str = ""

    @property
    def lasts(self) -> bool:
        """Whether it has not ended."""
        return self.ended is None

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return (self.ended or time.monotonic()) - self.begun

    @property
    def doing(self) -> str:
        """What it does at this moment, or what it is about."""
        return self.now() or self.step or self.about


class Screen(MetricSink):
    """Receives what a command does.

    A phase lasts until the next one begins, or until the screen is closed. Use a screen as a
    context manager.
    """

    live = False  # whether it shows rows as a picture that moves, and not as lines

    def __init__(self) -> None:
        self.phases: list[ShownPhase] = []
        self.names: Names = UNNAMED
        self.columns: Columns = ()
        self.endings: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if kind:
            self.end_with_error()
        self.close()

    def describe(self, names: Names, columns: Columns) -> None:
        """Set how rows are shown: names of the entries of lists, and the learner's own columns."""
        self.names, self.columns = names, columns

    def phase(self, name: str, about: str = "", total: int = 0, now: Now = str) -> None:
        """Begin a phase.

        A phase of the same name as the last one only changes its description.

        Args:
            name: a verb, such as "loading".
            about: on what.
            total: number of its steps, 0 if unknown.
            now: what is being done at this moment, "" for nothing special; called from
                another thread.
        """
        if self.phases and self.phases[-1].name == name:
            last = self.phases[-1]
            last.about, last.total, last.now = about or last.about, total or last.total, now
            return
        self._end_last()
        self.phases.append(ShownPhase(name, about, total, now))

    def step(self, what: str) -> None:
        """Begin the next step of the phase."""
        if self.phases:
            last = self.phases[-1]
            last.done += bool(last.step)
            last.step = what

    def chapter(self, name: str) -> None:
        """Begin another run of the same command: what follows are its phases."""
        del name
        self._end_last()
        self.phases = []

    def at_end(self, lines: Iterable[str]) -> None:
        """Set what is shown below the command's result. Later lines replace earlier ones."""
        self.endings = list(lines)

    def end_with_error(self) -> None:
        """Note that the command ends with an error."""

    def close(self) -> None:
        """Finish. Nothing is shown afterwards."""
        self._end_last()

    def _end_last(self) -> None:
        if self.phases and self.phases[-1].lasts:
            last = self.phases[-1]
            last.ended, last.now = time.monotonic(), str
            last.done = last.total or last.done


class Warnings(Screen):
    """Shows nothing but warnings, and how long the program compiles (`--quiet`)."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__()
        self._log = log

    def message(self, text: str) -> None:
        if text.startswith(("warning:", "WARNING:", FORECAST)):
            self._log(text)

    def at_end(self, lines: Iterable[str]) -> None:
        """Show nothing below the result."""
        del lines


# Progress as plain lines, for files, pipes, and terminals that can show no panel. There are no
# escape codes.

# Which chunks of a long run get a line of progress, where lines cannot replace each other (files,
# notebooks).

MOST_LINES = 100  # chunks of a run with a line; `metrics.jsonl` and `run.log` keep all of them


def worth_a_line(rows: Sequence[Row]) -> bool:
    """Return whether the chunk of these rows deserves a line.

    It does if it is one of at most `MOST_LINES` chunks, evenly spread over the run, or its
    last one.

    rows: those of one chunk, with `update` and `total_updates`.
    """
    last, total = rows[-1]["update"], rows[-1]["total_updates"]
    before = rows[0]["update"] - 1
    return last >= total or last * MOST_LINES // total > before * MOST_LINES // total


HEARTBEAT = 10.0  # seconds without a line after which a line says what is being done
STEP = 2.0  # seconds without a line after which the next step of a phase is named


class Plain(Screen):
    """One line at the start of each phase, two per chunk of training.

    Also one after ten seconds without a line.
    """

    def __init__(self, stream: TextIO | None = None, heartbeat: float = HEARTBEAT) -> None:
        """stream: default: standard error as it is now. heartbeat: seconds."""
        super().__init__()
        self._stream = LastingStream(stream or sys.stderr)
        self._heartbeat, self._said = heartbeat, time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def phase(self, name: str, about: str = "", total: int = 0, now: Now = str) -> None:
        count = len(self.phases)
        super().phase(name, about, total, now)
        if len(self.phases) > count:
            self.message(f"{name}: {about}" if about else name)
        if not self._thread:  # a screen that is never used starts no thread
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
        if self._thread:
            self._thread.join()

    def _beat(self) -> None:
        while not self._closed.wait(max(0.01, self._said + self._heartbeat - time.monotonic())):
            last = next(reversed(self.phases), None)
            if last and time.monotonic() - self._said >= self._heartbeat and last.lasts:
                doing = last.doing
                self.message(
                    f"{last.name}: {duration(last.seconds)}{f' ({doing})' if doing else ''}"
                )
