"""The sink of an experiment tracker. The tracker is a process of its own (`storage.trackers`),
which gets every row.

Nothing of the run waits for it: messages go into a queue, and a thread writes them to the process.
If the tracker fails, hangs or falls too far behind, the run says so once and goes on without it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.storage.sinks import NO_FIGURES, UNNAMED, Names, by_name, grouped, scalars_of
from jaxtrade.storage.trackers import AXIS, END, Header, environment
from jaxtrade.text import WARNING, Tell

if TYPE_CHECKING:
    from jaxtrade.types import Row

LOG = "tracker.log"  # in the run's folder: what the tracker printed
PATIENCE = 20.0  # seconds that a finished run waits for its tracker
ROOM = 1_000  # messages that may wait
PACKAGE = Path(__file__).resolve().parents[2]


class TrackerSink:
    """Sends rows and figures to a tracker.

    The names of the metrics are those of TensorBoard's tags. A number that is not finite is left
    out.
    """

    def __init__(
        self, header: Header, tell: Tell, names: Names = UNNAMED, patience: float = PATIENCE
    ) -> None:
        """Start the tracker's process. tell: receives one line if the tracker fails. patience:
        seconds to wait for it at the end. Raises OSError if its log file cannot be written."""
        self._kind, self._folder, self._tell, self._names = (
            header.kind,
            Path(header.folder),
            tell,
            names,
        )
        self._patience, self._update, self._lost = patience, 0, False
        self._waiting: queue.Queue[str | None] = queue.Queue(ROOM)
        env = environment(header.kind, header.online, os.environ)
        env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), *filter(None, [env.get("PYTHONPATH")])])
        with (self._folder / LOG).open("ab") as log:
            # A session of its own: Ctrl-C stops the run, and the tracker still stores what it has.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jaxtrade.storage.trackers"],
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                encoding="utf-8",
                start_new_session=True,
            )
        self._feeder = threading.Thread(target=self._feed, name="jaxtrade-tracker", daemon=True)
        self._feeder.start()
        self._put(header._asdict())

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            named = {
                grouped(name): value
                for name, value in by_name(row, self._names).items()
                if name not in NO_FIGURES and name != AXIS
            }
            self._update = int(row["update"])
            self._send(dict(scalars_of("", named)) | {"steps": float(row["steps"])})

    def rewind(self, update: int, steps: int) -> None:
        """Tell the tracker that the run went back: it keeps the figures that this undid."""
        self._update = update
        self._put(
            {
                AXIS: update,
                "values": {"event/back_to_update": float(update)},
                "event": f"the run went back to update {update} ({steps:,} steps); later figures replace those of "
                "the same updates",
            }
        )

    def figures(self, values: Mapping[str, float], steps: int) -> None:
        """Send numbers by name, as of the last update."""
        self._send(dict(scalars_of("", values)) | {"steps": float(steps)})

    def message(self, text: str) -> None:
        del text

    def close(self) -> None:
        """Wait for the tracker, at most `patience` seconds."""
        for last in (END, None):
            self._put(last)
        if not self._lost:
            self._finish()

    def _send(self, values: Mapping[str, float]) -> None:
        self._put({AXIS: self._update, "values": dict(values)})

    def _put(self, message: Mapping[str, Any] | None) -> None:
        """Queue a message, unless the tracker is lost. None: no more will come."""
        if self._lost:
            return
        if self._process.poll() not in (None, 0):
            self._give_up(f"failed ({self._last_line()})")
            return
        try:
            self._waiting.put_nowait(
                None if message is None else json.dumps(message, allow_nan=False) + "\n"
            )
        except queue.Full:
            self._give_up(f"is {ROOM:,} messages behind")

    def _feed(self) -> None:
        """The thread: write what waits to the process."""
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                for line in iter(self._waiting.get, None):
                    pipe.write(line)
                    pipe.flush()
        except (
            OSError,
            ValueError,
        ):  # the process has ended; `_put` and `_finish` see its exit code
            return

    def _finish(self) -> None:
        until = time.monotonic() + self._patience
        self._feeder.join(self._patience)
        try:
            code = self._process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self._give_up(f"did not finish within {self._patience:g} s")
            return
        if code:
            self._give_up(f"failed ({self._last_line()})")

    def _give_up(self, why: str) -> None:
        """Go on without the tracker, and say so."""
        self._lost = True
        self._process.kill()
        self._process.wait()
        self._tell(
            f"{WARNING}train.tracker={self._kind}: the tracker {why}; the run goes on without it, and "
            f"metrics.jsonl has every figure; what it printed is in {self._folder / LOG}"
        )

    def _last_line(self) -> str:
        lines = (self._folder / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
        return next(
            (line.strip() for line in reversed(lines) if line.strip()),
            f"exit code {self._process.returncode}, and it printed nothing",
        )
