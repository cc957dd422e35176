"""`status.json` in a run's folder: what the run does now, and in which process.

`jaxtrade runs` reads it.

The file is small and replaced as a whole at every chunk and phase, by the run's main process alone.
A run goes on if it cannot be written. Loads no heavy library.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrade.errors import DataError
from jaxtrade.storage import digests
from jaxtrade.storage.sinks import MetricSink
from jaxtrade.text import Log

if TYPE_CHECKING:
    from jaxtrade.types import Row

STATUS = "status.json"
FORMAT = 1
STAMP = "%Y-%m-%dT%H:%M:%SZ"
# Seconds without a sign of life after which a run counts as stalled. Compiling, loading and
# evaluating give none.
QUIET, QUIET_TRAINING = 1_800.0, 120.0
CHUNKS = 10  # chunks of training that may take as long as all of them before, until the run counts as stalled


class RunStatus(NamedTuple):
    """The content of `status.json`.

    pid, host: the process.
    began: its own start, as its system counts it, so that another process with its number is not
        taken for it; "" where the system does not say.
    phase: what it does, such as "training"; "ended" after the last word.
    fault: what ended it; None if nothing did.
    update, total_updates, steps: how far training is; None before its first chunk.
    chunk_seconds: time between the last two chunks.
    utc: when this was written.
    task, learner, market: what is trained.
    """

    pid: int
    host: str
    began: str
    phase: str
    utc: str
    fault: str | None = None
    update: int | None = None
    total_updates: int | None = None
    steps: int | None = None
    chunk_seconds: float | None = None
    task: str | None = None
    learner: str | None = None
    market: str | None = None


class StatusSink(MetricSink):
    """Writes `status.json`. A sink of the run: it takes rows and phases.

    A failed write is logged once, and the next chunk tries again. Nothing here raises.
    """

    def __init__(self, folder: Path, log: Log, about: Mapping[str, str]) -> None:
        """Prepare to write the status.

        log: receives the line about a file that cannot be written.
        about: `task`, `learner` and `market`.
        """
        self._path, self._log, self._told = folder / STATUS, log, False
        self._last: float | None = None
        now = f"{datetime.now(UTC):{STAMP}}"
        self._status = RunStatus(
            os.getpid(), platform.node(), began_of(os.getpid()), "loading", now
        )._replace(**about)
        self._write()

    def write(self, rows: Sequence[Row]) -> None:
        """Record that a chunk has ended."""
        row: Mapping[str, Any] = rows[-1]
        now = time.monotonic()
        self._status = self._status._replace(
            phase="training",
            update=int(row["update"]),
            total_updates=int(row["total_updates"]),
            steps=int(row["steps"]),
            chunk_seconds=None if self._last is None else round(now - self._last, 3),
        )
        self._last = now
        self._write()

    def phase(
        self, name: str, about: str = "", total: int = 0, now: Callable[[], str] = str
    ) -> None:
        """Record that the run begins a phase."""
        del about, total, now
        self._status = self._status._replace(phase=name)
        self._write()

    def note_failure(self, error: BaseException) -> None:
        """Note the error by which the run ends, for the file when it closes."""
        text = str(error).strip().splitlines()
        self._status = self._status._replace(
            fault=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        )

    def close(self) -> None:
        """Record that the run has ended."""
        self.phase("ended")
        with suppress(OSError):
            digests.seal(self._path.parent, [STATUS])

    def _write(self) -> None:
        self._status = self._status._replace(utc=f"{datetime.now(UTC):{STAMP}}")
        try:
            digests.forget(self._path)
            document = {"format": FORMAT, **self._status._asdict()}
            digests.write_whole(self._path, json.dumps(document) + "\n")
        except OSError as error:
            if not self._told:
                self._told = True
                self._log(
                    f"note: {self._path} cannot be written ({error.strerror}); the run goes on, and 'jaxtrade "
                    "runs' shows an older state of it"
                )


def read_status(folder: Path) -> RunStatus | None:
    """Read the status of the run in `folder`; None if it has none, as runs of earlier versions.

    Raises DataError where the file is damaged.
    """
    path = folder / STATUS
    try:
        found = json.loads(digests.read_checked(path))
        status = RunStatus(**{name: found[name] for name in RunStatus._fields})
        age_of(status)
        return status
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); the run writes it anew, or delete it"
        ) from None


def age_of(status: RunStatus) -> float:
    """Return the seconds since a status was written, by this machine's clock.

    Raises ValueError for a time that is none.
    """
    written = datetime.strptime(status.utc, STAMP).replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - written).total_seconds())


def is_quiet(status: RunStatus) -> bool:
    """Return whether the run has given no sign of life for so long that it counts as stalled."""
    longest = QUIET
    if status.phase == "training":
        longest = max(QUIET_TRAINING, CHUNKS * (status.chunk_seconds or 0.0))
    return age_of(status) > longest


def is_alive(status: RunStatus) -> bool | None:
    """Return whether the process of a status runs on this machine.

    None: this cannot be known, as for another machine.
    """
    if (
        status.host != platform.node() or os.name == "nt"
    ):  # on Windows signal 0 would end the process
        return None
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return status.began == began_of(status.pid)


def began_of(pid: int) -> str:
    """Return when a process began, in the system's own count.

    On Linux these are clock ticks since the machine started. Returns "" elsewhere, and for a
    process that has ended and whose parent has not asked for it yet.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()  # the name in brackets may contain spaces
    return "" if state == "Z" else rest[18]
