"""Decides which rows become visible at each update of a run. Each decision is made once and written
to the journal.

A run's advice is therefore a function of the update, and the journal stores that function. A
rollback does not change
it: a repeated update sees the same rows again, and new rows appear only after the last decided
    update. A replay needs
only the journal and goes through the same rollbacks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxtrade.advisor.host.journal import Journal, JournalDelta, JournalPosition, Recorded
from jaxtrade.advisor.host.sources import AdviceRow, AdviceSource
from jaxtrade.errors import JournalError


class Handed(NamedTuple):
    """Rows that became visible together at `update`. bars: int32[n]. rows: float32[n, 6]."""

    update: int
    bars: np.ndarray
    rows: np.ndarray


class Visible:
    """The history of visible rows and the run's place in it. Not thread-safe: one thread at a time.

    place: number of deltas in the table. until: the last update whose rows are decided. silent: why
        no new rows become
    visible any more, or "". taken: rows received from the source. handed: those of them that became
    visible.
    """

    def __init__(
        self,
        source: AdviceSource,
        most: int,
        journal: Journal | None,
        history: Recorded | None,
        tell: Callable[[str], None],
    ) -> None:
        recorded = history.deltas if history else ()
        if journal is not None and journal.position.deltas != len(recorded):
            raise ValueError(
                f"a journal with {journal.position.deltas} deltas and a history of {len(recorded)}"
            )
        self._source, self._most, self._journal, self._tell = source, most, journal, tell
        self._history = [
            Handed(delta.update, np.array(delta.bars, np.int32), np.array(delta.rows, np.float32))
            for delta in recorded
        ]
        self._digests = (
            list(history.digests) if history else [journal.position.sha256 if journal else ""]
        )
        self.place = len(self._history)
        self.until = self._history[-1].update if self._history else -1
        self.silent = ""
        self.closed = False
        self.taken = self.handed = 0

    @property
    def deltas(self) -> int:
        """All deltas of this run, including those that a rollback removed from the table."""
        return len(self._history)

    @property
    def position(self) -> JournalPosition:
        """The place in the journal that matches the table."""
        return JournalPosition(self.place, self._digests[self.place])

    # --- forward -----------------------------------------------------------------------------------------------------

    def at(self, update: int) -> tuple[Handed, int] | None:
        """The rows that become visible at `update` and their version, or None. A second call
        returns the same.

        Raises JournalError where the run skipped an earlier update at which rows of its journal, or
        of the replayed one, became visible.
        """
        index = bisect_left(self._history, update, key=_update)
        if (
            index > self.place
        ):  # a delta before `update` was never returned, so the table would lack its rows
            missed = self._history[self.place].update
            raise JournalError(
                f"advisor: delta {self.place + 1} of this run's journal became visible at update "
                f"{missed}, which was left out: update {update} is asked for; keep train.chunk_updates "
                "and advisor.transport"
            )
        if update > self.until:  # not decided yet: decide it now, for good
            self.until = update
            if not self._fresh(update):
                return None
        if index == len(self._history) or self._history[index].update != update:
            return None
        self.place = index + 1
        return self._history[index], index + 1

    def again(self, bars: np.ndarray) -> np.ndarray:
        """bool[...]: whether a row of each bar is already decided and will become visible again
        after a rollback.

        Such bars need not be requested again.
        """
        if self.place == len(self._history):
            return np.zeros(bars.shape, bool)
        return np.isin(
            bars, np.concatenate([handed.bars for handed in self._history[self.place :]])
        )

    def silence(self, why: str) -> None:
        """Give no new rows for the rest of the run. The first reason is reported, later ones are
        ignored.
        """
        if not self.silent:
            self.silent = why
            self._tell(f"{why}; no more advice is given in this run")

    def _fresh(self, update: int) -> bool:
        """Take new rows and add them to the journal and the history. Returns whether there were
        any.
        """
        if self.silent or self.closed:
            return False
        rows = self._source.take(update, self.place, self._most)
        if not rows:
            return False
        self.taken += len(rows)
        packed = np.frombuffer(b"".join([row.packed for row in rows]), np.float32)
        handed = Handed(
            update, np.array([row.bar for row in rows], np.int32), packed.reshape(len(rows), -1)
        )
        if (digest := self._record(update, rows)) is None:
            return False  # rows that are not recorded must not become visible
        self._digests.append(digest)
        self._history.append(handed)
        self.handed += len(rows)
        return True

    def _record(self, update: int, rows: list[AdviceRow]) -> str | None:
        """Write a line of the journal and return its digest: "" without a journal, None where the
        write fails.
        """
        if self._journal is None:
            return ""
        try:
            return self._journal.append_texts(
                update,
                len(self._history) + 1,
                [row.bar for row in rows],
                [row.text for row in rows],
            ).sha256
        except OSError as error:
            self._lose_journal("written", error)
            return None

    # --- checkpoints, rollback and the end ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Save the journal to disk. If that fails, no new rows become visible."""
        if self._journal is not None and not self.closed:
            try:
                self._journal.sync()
            except OSError as error:
                self._lose_journal("saved to disk", error)

    def go_back(self, position: JournalPosition, until: int) -> None:
        """Return to the place of a checkpoint. `until` never decreases: what is decided stays
        decided.

        Raises JournalError where the history does not contain that place.
        """
        if position.deltas > len(self._history):
            raise JournalError(
                f"the advice journal holds {len(self._history)} deltas, and the checkpoint was written "
                f"after {position.deltas}: it was cut, or is not there; restore the run's journal"
            )
        if self._digests[position.deltas] != position.sha256:
            raise JournalError(
                f"the advice journal: line {position.deltas + 1} (delta {position.deltas}) is not the "
                "one that the checkpoint was written after; restore the run's journal"
            )
        self.place, self.until = position.deltas, max(self.until, until)

    def close(self) -> None:
        """End the journal."""
        self.closed = True
        if self._journal is not None:
            try:
                self._journal.close()
            except OSError as error:
                self._lose_journal("ended", error)

    def _lose_journal(self, what: str, error: OSError) -> None:
        """Abandon the journal and give no new rows: rows that are not recorded must not become
        visible.
        """
        if self._journal is not None:
            self._journal.abandon()
            self._journal = None
        self.silence(
            f"advisor: the journal could not be {what} ({error.strerror or type(error).__name__})"
        )


def fit(deltas: Sequence[JournalDelta], bars: int, rows: int, width: int) -> None:
    """Check that recorded rows fit a table of shape [`bars`, `width`] that receives at most `rows`
    rows at a time.

    Raises JournalError where they do not.
    """
    for number, delta in enumerate(deltas, 1):
        if len(delta.bars) > rows:
            raise JournalError(
                f"advice journal, delta {number}: {len(delta.bars)} rows, and this run takes "
                f"advisor.rows = {rows} at most; set it to that of the recording"
            )
        if not 0 <= min(delta.bars) <= max(delta.bars) < bars:
            raise JournalError(
                f"advice journal, delta {number}: bars {min(delta.bars)} to {max(delta.bars)}, and the "
                f"market has {bars}; the recording is of other data"
            )
        if len(delta.rows[0]) != width:
            raise JournalError(
                f"advice journal, delta {number}: rows of {len(delta.rows[0])} numbers, expected "
                f"{width}"
            )


def _update(handed: Handed) -> int:
    return handed.update
