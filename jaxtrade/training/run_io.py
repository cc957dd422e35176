"""Output of a training run: its metric sinks and its checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtrade import interrupt
from jaxtrade.errors import InterruptedRunError, JaxtradeError, PreemptedError, StorageError
from jaxtrade.storage import checkpoint
from jaxtrade.storage.monitor import Episodes, EpisodeSink
from jaxtrade.storage.sinks import MetricSink, Phased, Rewinding
from jaxtrade.training.together import is_main
from jaxtrade.types import PyTree


def write_checkpoint(
    directory: Path, update: int, state: PyTree, metadata: Mapping[str, Any], keep: int
) -> None:
    """`checkpoint.save`, in process 0 alone. Raises StorageError, which says what could not be
    saved and what to do.
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

    sinks: receive rows and messages. checkpoint_dir: folder of whole-state checkpoints; None:
        nothing is saved.
    metadata: JSON values for every checkpoint. keep_checkpoints: number of the newest checkpoints
        that are kept.
    """

    sinks: Sequence[MetricSink] = ()
    checkpoint_dir: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    keep_checkpoints: int = 1

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for sink in self.sinks:
            sink.write(rows)

    def episodes(self, ended: Sequence[Episodes]) -> None:
        """Hand the episodes that ended in a chunk, by update, to all sinks that take them. Raises
        StorageError.
        """
        for sink in self.sinks:
            if isinstance(sink, EpisodeSink):
                sink.episodes(ended)

    def message(self, text: str) -> None:
        for sink in self.sinks:
            sink.message(text)

    def phase(self, name: str, about: str = "", now: Callable[[], str] = str) -> None:
        """Tell all sinks that show phases what the run does now."""
        for sink in self.sinks:
            if isinstance(sink, Phased):
                sink.phase(name, about, 0, now)

    def rewind(self, update: int, steps: int) -> None:
        """Drop the rows after `update` from all sinks that can rewind. steps: environment steps at
        `update`.
        """
        for sink in self.sinks:
            if isinstance(sink, Rewinding):
                sink.rewind(update, steps)

    def save(self, state: PyTree, update: int, steps: int, memories: Mapping[str, Any]) -> None:
        """Write a checkpoint, if there is a folder. memories: memory of each hook, by name. Raises
        StorageError.
        """
        if self.checkpoint_dir is None:
            return
        metadata = (
            dict(self.metadata) | {"steps": steps} | ({"hooks": memories} if memories else {})
        )
        write_checkpoint(self.checkpoint_dir, update, state, metadata, self.keep_checkpoints)

    def newest(self) -> Path | None:
        """Path of the last saved checkpoint, or None."""
        saved = checkpoint.list_checkpoints(self.checkpoint_dir) if self.checkpoint_dir else []
        return saved[-1][1] if saved else None

    def interrupted(self, received: signal.Signals, update: int) -> JaxtradeError:
        """The error of a run that a signal has stopped after `update`."""
        how = interrupt.hinted()
        if self.checkpoint_dir is not None:
            how = f"saved in {self.checkpoint_dir}" + (how and f"; {how}")
        error = InterruptedRunError if received == signal.SIGINT else PreemptedError
        return error(
            f"{received.name}: stopped after update {update}; "
            f"{how or 'nothing was saved (no directory)'}"
        )
