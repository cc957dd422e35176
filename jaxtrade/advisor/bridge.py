"""The host side of both transports (callback and exchange): it takes the demand and returns rows
that become visible.

Everything that runs in the training loop is NumPy. A JAX operation inside a host callback can wait
for the thread that runs the callback, and so hang. Arrays that were returned are never written
again, because a device may still read them in place.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrade.advisor.host.faults import ContainedFaults
from jaxtrade.advisor.host.journal import Journal, JournalPosition, Recorded
from jaxtrade.advisor.host.sources import AdviceSource, Replayed
from jaxtrade.advisor.host.statistics import Histogram
from jaxtrade.advisor.table import COLUMNS, Delta
from jaxtrade.advisor.visible import Handed, Visible, fit
from jaxtrade.errors import JournalError
from jaxtrade.text import Tell

_EDGES = tuple(1e-6 * 10.0 ** (step / 10) for step in range(71))  # 1 us .. 10 s
_LOCK_S = 0.1


class Bridge:
    """The advisor's interface for the training loop. `delta` and `wanted` neither wait nor raise.

    Args:
        source: provides the rows. bars: T of the table. rows: M, the most rows in a delta.
        journal: records every delta before it is returned; None records nothing.
        history: the deltas that a resumed journal already holds (`Journal.resume`); `recall` then
            sets the run's place in it.
        tell: receives one line per problem; by default the logger `jaxtrade.advisor`.
    Raises:
        JournalError: recorded rows do not fit a table of this size.
    """

    name = "advice"

    def __init__(
        self,
        source: AdviceSource,
        bars: int,
        rows: int,
        journal: Journal | None = None,
        history: Recorded | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.bars, self.rows = bars, rows
        for recorded in (history, source if isinstance(source, Replayed) else None):
            fit(recorded.deltas if recorded else (), bars, rows, len(COLUMNS))
        self._source = source
        self._faults = ContainedFaults(tell or logging.getLogger("jaxtrade.advisor").warning)
        self._visible = Visible(source, rows, journal, history, self._faults.tell)
        self._handing = threading.Lock()
        self._error: JournalError | None = None
        self._stopped = False
        self._exchanges, self._first = (
            0,
            None,
        )  # first: the lowest update that this process was asked for
        self._stall = {"delta": Histogram(_EDGES), "wanted": Histogram(_EDGES)}

    @property
    def version(self) -> int:
        """The table's version: the number of deltas in it."""
        return self._visible.place

    # --- in the training loop ----------------------------------------------------------------------------------------

    def delta(self, update: int) -> Delta:
        """The rows that become visible at `update`, in fresh NumPy arrays: int32[M], float32[M, 6],
        int32[].

        Unused entries are padded with bar T.
        """
        began = time.perf_counter()
        handed = None
        try:
            with self._handing:
                handed = self._at(int(update))
        except JournalError as error:
            self._error = self._error or error
            self._visible.silence(str(error))
        except Exception as error:
            self._faults.contain("delta", error)
        found = self._padded(handed)
        self._stall["delta"].add(time.perf_counter() - began)
        return found

    def wanted(self, bars: Any, weights: Any) -> None:
        """Request rows for the bars, int32[K], whose weight, float32[K], is above 0.

        The values must already be computed; reading an array that a device still computes would
        wait for it.
        """
        began = time.perf_counter()
        try:
            self._want(np.array(bars), np.array(weights))
        except Exception as error:
            self._faults.contain("wanted", error)
        self._stall["wanted"].add(time.perf_counter() - began)

    def contain(self, where: str, error: BaseException) -> None:
        """Count an exception that must not propagate, and report each kind once."""
        self._faults.contain(where, error)

    def check(self) -> None:
        """Raise the error that made a replay fail. Call it between chunks, where raising is safe.

        Raises JournalError where this run differs from the recorded one.
        """
        if self._error is not None:
            raise self._error

    def _at(self, update: int) -> tuple[Handed, int] | None:
        self._exchanges += 1
        self._first = update if self._first is None else min(self._first, update)
        return self._visible.at(update)

    def _want(self, bars: np.ndarray, weights: np.ndarray) -> None:
        chosen = (
            (weights > 0)
            & np.isfinite(weights)
            & (bars >= 0)
            & (bars < self.bars)
            & ~self._visible.again(bars)
        )
        self._source.want(list(zip(bars[chosen].tolist(), weights[chosen].tolist(), strict=True)))

    def _padded(self, found: tuple[Handed, int] | None) -> Delta:
        bars = np.full(self.rows, self.bars, np.int32)
        rows = np.zeros((self.rows, len(COLUMNS)), np.float32)
        if found is None:
            return Delta(bars, rows, np.array(0, np.int32))
        handed, version = found
        bars[: len(handed.bars)] = handed.bars
        rows[: len(handed.rows)] = handed.rows
        return Delta(bars, rows, np.array(version, np.int32))

    # --- between chunks ----------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, Any]:
        """The advisor's part of a checkpoint, as JSON values. Saves the journal to disk first.

        It holds the run's place in the journal, the last update whose visible rows are decided, and
        the bars in flight.
        """
        self._visible.sync()
        return {
            **self._visible.position._asdict(),
            "version": self.version,
            "until": self._visible.until,
            "in_flight": [[bar, weight] for bar, weight in self._source.in_flight()],
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Return to the place of a checkpoint, given what `memory` returned.

        Rows that became visible later will become visible again, at the same updates. Bars that
        were in flight are requested again.

        Raises JournalError where the history does not contain that place.
        """
        self._visible.go_back(JournalPosition(memory["deltas"], memory["sha256"]), memory["until"])
        wants = memory["in_flight"]
        self._want(
            np.array([bar for bar, _ in wants], np.int64), np.array([weight for _, weight in wants])
        )

    def statistics(self) -> dict[str, Any]:
        """The source's statistics (see `Live.statistics`) and those of the bridge.

        exchanges: calls of `delta`. deltas: deltas in the history. rows_handed_out: rows that
            became visible.
        rows_lost: rows taken from the source but not recorded. stall_ms: time that the loop spent
            in each call.
        contained: contained exceptions by kind. silent: why there is no more advice, or "".
            queries_per_update: the
        requests sent per update, for a live source.
        """
        found, visible = self._source.statistics(), self._visible
        stall = {
            name: {
                "calls": sum(times.counts),
                "p50": _ms(times.quantile(0.5)),
                "p99": _ms(times.quantile(0.99)),
                "longest": _ms(times.longest),
                "total": _ms(times.total),
            }
            for name, times in self._stall.items()
        }
        own: dict[str, Any] = {
            "exchanges": self._exchanges,
            "deltas": visible.deltas,
            "rows_handed_out": visible.handed,
            "rows_lost": visible.taken - visible.handed,
            "stall_ms": stall,
            "silent": visible.silent,
            "contained": {**found.get("contained", {}), **self._faults.counts()},
        }
        if "asked" in found and self._first is not None:
            own["queries_per_update"] = found["asked"] / (visible.until + 1 - self._first)
        return found | own

    def stop(self) -> None:
        """Stop the source and end the journal. Takes at most 3 s, whatever hangs. A second call
        does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        self._source.stop()
        if not self._handing.acquire(timeout=_LOCK_S):
            self._faults.tell(
                "advisor: an exchange hangs (a disk that does not answer?); the journal stays without "
                "its end"
            )
            return
        try:
            self._visible.close()
        finally:
            self._handing.release()


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
