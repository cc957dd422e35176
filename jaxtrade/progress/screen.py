"""`Screen`: where a command shows its phases, rows and messages. This one shows nothing; `plain`
and `panel` do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from jaxtrade.storage.sinks import UNNAMED, Columns, Names

if TYPE_CHECKING:
    from jaxtrade.types import Row

Now = Callable[[], str]  # what is done at this moment; called from another thread


def duration(seconds: float) -> str:
    """`4.2 s` below a minute, else `1:05` or `1:01:05`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@dataclass
class ShownPhase:
    """A phase of a command.

    name: a verb ("compiling"). about: on what. total: number of its steps, 0 if unknown. done:
        steps that have ended.
    step: the step that is being done. begun, ended: seconds of the monotonic clock; ended is None
        while it lasts.
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
    def seconds(self) -> float:
        """How long it has lasted."""
        return (time.monotonic() if self.ended is None else self.ended) - self.begun

    @property
    def doing(self) -> str:
        """What it does at this moment, or what it is about."""
        return self.now() or self.step or self.about


class Screen:
    """Receives what a command does. It is a `MetricSink` too, so that a training loop can write to
    it.

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
        if kind is not None:
            self.failed()
        self.close()

    def describe(self, names: Names, columns: Columns) -> None:
        """How rows are shown: names of the entries of lists, and the learner's own columns."""
        self.names, self.columns = names, columns

    def phase(self, name: str, about: str = "", total: int = 0, now: Now = str) -> None:
        """Begin a phase. A phase of the same name as the last one only changes its description.

        Args:
            name: a verb, such as "loading". about: on what. total: number of its steps, 0 if
                unknown.
            now: what is being done at this moment, "" for nothing special; called from another
                thread.
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
        """What is to be shown below the command's result. Later lines replace earlier ones."""
        self.endings = list(lines)

    def write(self, rows: Sequence[Row]) -> None:
        """Receive the rows of a chunk of training."""
        del rows

    def message(self, text: str) -> None:
        """Receive one line about the run."""
        del text

    def failed(self) -> None:
        """The command ends with an error."""

    def close(self) -> None:
        """Finish. Nothing is shown afterwards."""
        self._end_last()

    def _end_last(self) -> None:
        if self.phases and self.phases[-1].ended is None:
            last = self.phases[-1]
            last.ended, last.now = time.monotonic(), str
            last.done = last.total or last.done


class Warnings(Screen):
    """Shows nothing but warnings (`--quiet`)."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def message(self, text: str) -> None:
        if text.startswith("warning:"):
            self._tell(text)

    def at_end(self, lines: Iterable[str]) -> None:
        """Nothing is shown below the result."""
        del lines
