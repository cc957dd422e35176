"""The outputs of a training run: its rows and checkpoints.

Also the signals and the time limit that stop it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtrade import interrupt
from jaxtrade.errors import InterruptedRunError, JaxtradeError, PreemptedError, StorageError
from jaxtrade.storage import checkpoint
from jaxtrade.storage.sinks import Episodes, MetricSink
from jaxtrade.training.hooks import Change
from jaxtrade.training.multiprocess import agree, from_main, is_main
from jaxtrade.types import PyTree


def write_checkpoint(
    directory: Path, update: int, state: PyTree, metadata: Mapping[str, Any], keep: int
) -> None:
    """Write a checkpoint by `checkpoint.save`, in process 0 alone.

    Raises StorageError, which says what could not be saved and what to do.
    """
    if not is_main():
        return
    try:
        checkpoint.save(directory, update, state, metadata, keep)
    except OSError as error:
        raise StorageError(
            f"{directory}: the checkpoint of update {update} could not be written: {error}; "
            "free some space or choose another run folder (--run-dir), then resume"
        ) from error


@dataclass(frozen=True)
class RunIO:
    """The outputs of a run.

    sinks: receive rows and messages.
    checkpoint_dir: folder of whole-state checkpoints; None: nothing is saved.
    metadata: JSON values for every checkpoint.
    keep_checkpoints: number of the newest checkpoints that are kept.
    """

    sinks: Sequence[MetricSink] = ()
    checkpoint_dir: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    keep_checkpoints: int = 1

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for sink in self.sinks:
            sink.write(rows)

    def episodes(self, ended: Sequence[Episodes]) -> None:
        """Hand the episodes that ended in a chunk, by update, to all sinks.

        Raises StorageError.
        """
        for sink in self.sinks:
            sink.episodes(ended)

    def message(self, text: str) -> None:
        for sink in self.sinks:
            sink.message(text)

    def phase(self, name: str, about: str = "", now: Callable[[], str] = str) -> None:
        """Show what the run does now, on all sinks."""
        for sink in self.sinks:
            sink.phase(name, about, 0, now)

    def rewind(self, update: int, steps: int) -> None:
        """Drop the rows after `update` from all sinks.

        steps: environment steps at `update`.
        """
        for sink in self.sinks:
            sink.rewind(update, steps)

    def save(self, state: PyTree, update: int, steps: int, memories: Mapping[str, Any]) -> None:
        """Write a checkpoint, if there is a folder. Raises StorageError.

        memories: memory of each hook, by name.
        """
        if self.checkpoint_dir is None:
            return
        metadata = (
            dict(self.metadata) | {"steps": steps} | ({"hooks": memories} if memories else {})
        )
        write_checkpoint(self.checkpoint_dir, update, state, metadata, self.keep_checkpoints)

    def newest(self) -> Path | None:
        """Return the path of the last saved checkpoint, or None."""
        saved = checkpoint.list_checkpoints(self.checkpoint_dir) if self.checkpoint_dir else []
        return saved[-1][1] if saved else None

    def make_interrupted_error(self, received: signal.Signals, update: int) -> JaxtradeError:
        """Make the error of a run that a signal has stopped after `update`."""
        how = interrupt.read_hint()
        if self.checkpoint_dir is not None:
            how = f"saved in {self.checkpoint_dir}" + (how and f"; {how}")
        error = InterruptedRunError if received == signal.SIGINT else PreemptedError
        return error(
            f"{received.name}: stopped after update {update}; "
            f"{how or 'nothing was saved (no directory)'}"
        )


# SIGINT and SIGTERM: the handler records the signal, and the run ends at its next chunk border.
#
# Several processes of a run stop at the same border, if any of them has received a signal
# (`at_border`).
#
# Of a command, Ctrl-C waits only a moment for the border (`interrupt.GRACE_S`), and a second one
# does not wait. In other programs the first Ctrl-C waits for the border, and the second one raises
# KeyboardInterrupt.

# A limit on a run's time: the hook that ends it between two chunks (`control.wall_clock`).


class WallClock:
    """Ends a run after the first chunk that passes a limit. A finished run is not ended.

    seconds: the limit, from when this hook is made: compilation counts.
    total_updates: length of the run.
    now: the clock, in seconds.
    reason: why the run was ended; None if it was not.

    Of several processes, the clock of process 0 decides for all.
    """

    def __init__(
        self, seconds: float, total_updates: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds, self.total, self._now, self._begun = seconds, total_updates, now, now()
        self.reason: str | None = None

    def __call__(self, state: PyTree, update: int) -> Change:
        del state
        passed = from_main(lambda: self._now() - self._begun)
        if passed < self.seconds or update >= self.total:
            return Change()
        self.reason = (
            f"control.wall_clock: stopped after update {update} of {self.total}, {passed:,.1f} s after the "
            f"start (limit {self.seconds:,.1f} s)"
        )
        return Change(stop=True)


class Signals:
    """A signal handler. received: the signal that asked the run to stop, or None."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._borders = True

    @property
    def idle(self) -> bool:
        """Whether there is nothing new to save.

        If so, a command ends at once after SIGTERM (`interrupt`).
        """
        return not self._borders

    @contextmanager
    def no_border(self) -> Iterator[None]:
        """Let Ctrl-C inside this block raise KeyboardInterrupt.

        There is nothing new to save, so nothing to wait for.
        """
        self._borders = False
        try:
            yield
        finally:
            self._borders = True

    def __call__(self, number: int, frame: Any) -> None:
        del frame
        if number == signal.SIGINT:
            if not interrupt.is_first_interrupt():
                return  # the command is ending already
            second = self.received == signal.SIGINT  # never in a command
            if second or not self._borders:
                raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if not interrupt.is_installed():
            # `print` is not safe in a signal handler: it may interrupt another write to the same
            # buffer.
            again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
            os.write(
                2, f"{self.received.name}: stopping at the end of this chunk{again}\n".encode()
            )

    def at_border(self) -> signal.Signals | None:
        """Return the signal that asked the run to stop, the same in all of its processes.

        None if no process received one. Every process must call it at every border. A signal that
        comes later counts at the next border.
        """
        number = agree(int(self.received or 0))
        return signal.Signals(number) if number else None


def signal_stops_run(received: signal.Signals, finished: bool) -> bool:
    """Return whether a signal stops the run at this border.

    A run that has trained to its end goes on to its evaluation, unless the signal ends a command:
    that may come back, and then only evaluates.

    finished: nothing is left to train.
    """
    return not finished or interrupt.ends(received)


@contextmanager
def catch_signals() -> Iterator[Signals]:
    # SIGINT and SIGTERM go to `signals` inside the context. The former handlers are restored after
    # it.
    signals = Signals()
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only the main thread may set handlers
        yield signals
        return
    # A shell makes the commands that it starts in the background ignore SIGINT; that is left as it
    # is.
    before = {
        number: signal.signal(number, signals)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
