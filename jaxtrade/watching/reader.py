"""Keep the curves of the runs that somebody looks at up to date, in one thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.watching.metrics import Metrics

PAUSE = 0.5  # seconds between two looks at files that have nothing new
FORGET = 60.0  # seconds without a reader after which a run's curves are dropped


class _Watched:
    def __init__(self, metrics: Metrics) -> None:
        self.metrics, self.asked, self.lock = metrics, time.monotonic(), threading.Lock()


class Reader:
    """Reads the metrics of the runs that are asked for. `close` ends its thread."""

    def __init__(self) -> None:
        self._runs: dict[Path, _Watched] = {}
        self._guard, self._stop, self._wake = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read, name="jaxtrade-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def curves(self, run: Path, asked: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """The state of a run's curves, and those that are asked for.

        asked: name -> (width, number of entries) that the reader has, as in `Curve.shown`. A file
            that is long is read
        piece by piece: `share_read` says how much of it the answer holds.
        """
        watched = self._watched(run)
        with watched.lock:
            metrics = watched.metrics
            metrics.poll()  # at once: a page that has to wait for the thread would see a chunk later
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
                    name: metrics.curves[name].shown(*known)
                    for name, known in asked.items()
                    if name in metrics.curves
                },
            }

    def _watched(self, run: Path) -> _Watched:
        with self._guard:
            if run not in self._runs:
                self._runs[run] = _Watched(Metrics(run))
                self._wake.set()
            self._runs[run].asked = time.monotonic()
            return self._runs[run]

    def _read(self) -> None:
        while not self._stop.is_set():
            news = [self._poll(run) for run in self._current()]
            if not any(news):
                self._wake.wait(PAUSE)
                self._wake.clear()

    def _current(self) -> Sequence[Path]:
        """The runs to read; those that nobody has asked about for long are forgotten."""
        with self._guard:
            now = time.monotonic()
            for run in [run for run, each in self._runs.items() if now - each.asked > FORGET]:
                del self._runs[run]
            return list(self._runs)

    def _poll(self, run: Path) -> bool:
        with self._guard:
            watched = self._runs.get(run)
        if watched is None:
            return False
        with watched.lock:
            return watched.metrics.poll()
