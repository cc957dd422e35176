"""What is visible at each update of a run: decided once, recorded first, and the same whenever it is asked for again.

So a run's advice is a function of the update, and its journal is that function. A rollback changes nothing in it: the
update is shown the same rows, and new ones come only after the last update that was asked for. A replay needs nothing
else, and goes through the same rollbacks.
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
    """Rows that became visible together: update, int32[n] bars, float32[n, 6] rows."""

    update: int
    bars: np.ndarray
    rows: np.ndarray


class Visible:
    """For one thread at a time.

    place: deltas that the table holds. until: the last update for which it is decided. silent: why nothing new becomes
    visible any more. taken, handed: rows that a source gave, and those of them that became visible.
    """

    def __init__(self, source: AdviceSource, most: int, journal: Journal | None, history: Recorded | None,
                 tell: Callable[[str], None]) -> None:
        recorded = history.deltas if history else ()
        if journal is not None and journal.position.deltas != len(recorded):
            raise ValueError(f"a journal with {journal.position.deltas} deltas and a history of {len(recorded)}")
        self._source, self._most, self._journal, self._tell = source, most, journal, tell
        self._history = [Handed(delta.update, np.array(delta.bars, np.int32), np.array(delta.rows, np.float32))
                         for delta in recorded]
        self._digests = list(history.digests) if history else [journal.position.sha256 if journal else ""]
        self.place = len(self._history)
        self.until = self._history[-1].update if self._history else -1
        self.silent = ""
        self.closed = False
        self.taken = self.handed = 0

    @property
    def deltas(self) -> int:
        """All of this run, those that a rollback has taken out of the table too."""
        return len(self._history)

    @property
    def position(self) -> JournalPosition:
        """In the journal, of what the table holds."""
        return JournalPosition(self.place, self._digests[self.place])

    # --- forward -----------------------------------------------------------------------------------------------------

    def at(self, update: int) -> tuple[Handed, int] | None:
        """What becomes visible at `update`, and its version; None: nothing. Asked twice, it is the same.

        Raises JournalError where earlier rows have been left out: those of the journal, or of a replayed one.
        """
        index = bisect_left(self._history, update, key=_update)
        if index > self.place:
            missed = self._history[self.place].update
            raise JournalError(f"advisor: delta {self.place + 1} of this run's journal became visible at update "
                               f"{missed}, which was left out: update {update} is asked for; keep train.chunk_updates "
                               "and advisor.transport")
        if update > self.until:
            self.until = update
            if not self._fresh(update):
                return None
        if index == len(self._history) or self._history[index].update != update:
            return None
        self.place = index + 1
        return self._history[index], index + 1

    def again(self, bars: np.ndarray) -> np.ndarray:
        """bool[...]: those of `bars` whose rows are decided and will be seen (again)."""
        if self.place == len(self._history):
            return np.zeros(bars.shape, bool)
        return np.isin(bars, np.concatenate([handed.bars for handed in self._history[self.place:]]))

    def silence(self, why: str) -> None:
        """Nothing new becomes visible in this run any more; told once."""
        if not self.silent:
            self.silent = why
            self._tell(f"{why}; no more advice is given in this run")

    def _fresh(self, update: int) -> bool:
        """Whether rows became visible that are now in the journal and in the history."""
        if self.silent or self.closed:
            return False
        rows = self._source.take(update, self.place, self._most)
        if not rows:
            return False
        self.taken += len(rows)
        packed = np.frombuffer(b"".join([row.packed for row in rows]), np.float32)
        handed = Handed(update, np.array([row.bar for row in rows], np.int32), packed.reshape(len(rows), -1))
        if (digest := self._record(update, rows)) is None:
            return False
        self._digests.append(digest)
        self._history.append(handed)
        self.handed += len(rows)
        return True

    def _record(self, update: int, rows: list[AdviceRow]) -> str | None:
        """The digest of a new line of the journal; None where it cannot be written."""
        if self._journal is None:
            return ""
        try:
            return self._journal.append_texts(update, len(self._history) + 1, [row.bar for row in rows],
                                              [row.text for row in rows]).sha256
        except OSError as error:
            self._lose_journal("written", error)
            return None

    # --- at a checkpoint, back, and the end --------------------------------------------------------------------------

    def sync(self) -> None:
        """The disk has the journal up to here; else nothing new becomes visible."""
        if self._journal is not None and not self.closed:
            try:
                self._journal.sync()
            except OSError as error:
                self._lose_journal("saved to disk", error)

    def go_back(self, position: JournalPosition, until: int) -> None:
        """To what the table of a checkpoint holds. Raises JournalError where the history does not hold that place."""
        if position.deltas > len(self._history):
            raise JournalError(f"the advice journal holds {len(self._history)} deltas, and the checkpoint was written "
                               f"after {position.deltas}: it was cut, or is not there; restore the run's journal")
        if self._digests[position.deltas] != position.sha256:
            raise JournalError(f"the advice journal: line {position.deltas + 1} (delta {position.deltas}) is not the "
                               "one that the checkpoint was written after; restore the run's journal")
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
        """Without a record nothing may become visible."""
        if self._journal is not None:
            self._journal.abandon()
            self._journal = None
        self.silence(f"advisor: the journal could not be {what} ({error.strerror or type(error).__name__})")


def fit(deltas: Sequence[JournalDelta], bars: int, rows: int, width: int) -> None:
    """Raise JournalError where recorded rows do not fit a table [`bars`, `width`] that gets `rows` at once."""
    for number, delta in enumerate(deltas, 1):
        if len(delta.bars) > rows:
            raise JournalError(f"advice journal, delta {number}: {len(delta.bars)} rows, and this run takes "
                               f"advisor.rows = {rows} at most; set it to that of the recording")
        if not 0 <= min(delta.bars) <= max(delta.bars) < bars:
            raise JournalError(f"advice journal, delta {number}: bars {min(delta.bars)} to {max(delta.bars)}, and the "
                               f"market has {bars}; the recording is of other data")
        if len(delta.rows[0]) != width:
            raise JournalError(f"advice journal, delta {number}: rows of {len(delta.rows[0])} numbers, expected "
                               f"{width}")


def _update(handed: Handed) -> int:
    return handed.update
