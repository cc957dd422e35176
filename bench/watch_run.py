"""A run that really trains, for `watch`: its process, and when each chunk's rows came into its
metrics file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jaxtrade
from jaxtrade import interrupt

from .harness import Sample

METRICS = "metrics.jsonl"
LOOK = 0.01  # seconds between two looks at the file; they set no figure, which come from the file's own times
TAIL = 1 << 16  # bytes at the end of the file that hold a whole row
LIMIT = 600.0  # seconds after which a run that writes nothing counts as broken
STEPS = 2_000_000_000  # more than the bench waits for
Settings = Mapping[str, Any]


class Chunk(NamedTuple):
    """The last row of a chunk: its update, environment steps so far, and when it was in the file
    (seconds, epoch).
    """

    update: int
    steps: int
    time: float


def environment() -> dict[str, str]:
    """Of this process, with this package first in the search path of a child."""
    root = str(Path(jaxtrade.__file__).resolve().parent.parent)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def started(words: Sequence[str], folder: Path, **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    """`python -m jaxtrade WORDS` in a folder. It is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "jaxtrade", *words],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **pipes,
    )
    with interrupt.child(process):
        yield process


def last_chunk(path: Path, chunk_updates: int) -> Chunk | None:
    """The newest chunk that is whole in a metrics file; None before the first, and while its rows
    are being written.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(found.st_size - TAIL, 0))
            lines = file.read(found.st_size - file.tell()).split(b"\n")
    except FileNotFoundError:
        return None
    if len(lines) < 2:
        return None
    row = json.loads(lines[-2])
    whole = not lines[-1] and row["update"] % chunk_updates == 0
    return Chunk(row["update"], row["steps"], found.st_mtime_ns / 1e9) if whole else None


class Training:
    """A run beside which other things are measured. `chunks` grows while it trains."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, chunk_updates: int) -> None:
        self.folder, self._process, self._chunk_updates = folder, process, chunk_updates
        self.chunks: list[Chunk] = []
        self._news, self._stop = threading.Condition(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="metrics file", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look at the file no more."""
        self._stop.set()
        self._thread.join()

    def after(self, count: int) -> Chunk:
        """The `count`-th chunk from now on. Raises RuntimeError if the run ends, or writes nothing
        for long.
        """
        with self._news:
            wanted = len(self.chunks) + count
            while len(self.chunks) < wanted:
                if not self._news.wait(LIMIT) or self._process.poll() is not None:
                    raise RuntimeError(
                        f"the run in {self.folder} ended, or wrote nothing for {LIMIT:.0f} s"
                    )
            return self.chunks[wanted - 1]

    def turn(self, chunks: int) -> Sample:
        """What the next `chunks` whole chunks take: by the file's times, and CPU seconds of the
        run's process.
        """
        import psutil

        def spent() -> float:
            times = psutil.Process(self._process.pid).cpu_times()
            return times.user + times.system

        begin, before = self.after(1), spent()
        return Sample(self.after(chunks).time - begin.time, spent() - before)

    def _follow(self) -> None:
        size, path = -1, self.folder / METRICS
        while not self._stop.wait(LOOK):
            if self._process.poll() is not None:
                with self._news:
                    self._news.notify_all()
                return
            now = path.stat().st_size if path.exists() else -1
            if now == size:
                continue
            found, size = (
                last_chunk(path, self._chunk_updates),
                now,
            )  # rows that came meanwhile: looked at again
            if found is not None and (not self.chunks or found.update > self.chunks[-1].update):
                with self._news:
                    self.chunks.append(found)
                    self._news.notify_all()


@contextmanager
def training(folder: Path, settings: Settings, chunk_updates: int) -> Iterator[Training]:
    """`jaxtrade train quickstart` in `folder`/live with some keys set, until the block ends. It has
    written a chunk.
    """
    keys = {**settings, "train.chunk_updates": chunk_updates, "train.total_timesteps": STEPS}
    words = [
        "train",
        "quickstart",
        "--non-interactive",
        "--run-dir",
        "live",
        *(word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")),
    ]
    folder.mkdir(parents=True)
    with started(words, folder, stdout=subprocess.DEVNULL) as process:
        found = Training(process, folder / "live", chunk_updates)
        try:
            found.after(1)
            yield found
        finally:
            found.close()


def lengthened(rows: Sequence[Mapping[str, Any]], path: Path, size: int) -> int:
    """Write rows of a run again and again, with updates that go on, until the file has `size` bytes
    -> its rows.
    """
    update, written = 0, 0
    with path.open("w", encoding="ascii") as file:
        while written < size:
            row = {**rows[update % len(rows)], "update": update + 1}
            written += file.write(json.dumps(row) + "\n")
            update += 1
    return update


def until(found: Callable[[], bool], process: subprocess.Popen[str], pause: float = LOOK) -> None:
    """Wait until something holds. Raises RuntimeError if the process ends before, or after `LIMIT`
    seconds.
    """
    limit = time.monotonic() + LIMIT
    while not found():
        if process.poll() is not None or time.monotonic() > limit:
            raise RuntimeError(
                f"process {process.pid} ended, or what was waited for did not come in {LIMIT:.0f} s"
            )
        time.sleep(pause)
