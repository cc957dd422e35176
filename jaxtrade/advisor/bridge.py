"""The host's end of both transports: takes a demand, gives the rows that become visible.

What runs in the training loop is NumPy: a JAX operation inside a host callback can wait for the very thread that runs
it. Arrays that were handed out are never touched again, as a device may still read them in place.
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
from jaxtrade.advisor.host.sources import AdviceSource, Replayed, Tell
from jaxtrade.advisor.host.statistics import Histogram
from jaxtrade.advisor.table import COLUMNS, Delta
from jaxtrade.advisor.visible import Handed, Visible, fit
from jaxtrade.errors import JournalError

_EDGES = tuple(1e-6 * 10.0 ** (step / 10) for step in range(71))  # 1 us .. 10 s
_LOCK_S = 0.1


class Bridge:
    """What the training loop talks to. `delta` and `wanted` neither wait nor raise.

    Args:
        source: gives the rows. bars: T of the table. rows: M, how many a delta holds at most.
        journal: gets every delta before it is handed out; None: nothing is recorded.
        history: what a journal that goes on holds already (`Journal.resume`); `recall` then says where the run is.
        tell: gets one line per trouble; by default the logger `jaxtrade.advisor`.
    Raises:
        JournalError: recorded rows do not fit a table of this size.
    """

    name = "advice"

    def __init__(self, source: AdviceSource, bars: int, rows: int, journal: Journal | None = None,
                 history: Recorded | None = None, tell: Tell | None = None) -> None:
        self.bars, self.rows = bars, rows
        for recorded in (history, source if isinstance(source, Replayed) else None):
            fit(recorded.deltas if recorded else (), bars, rows, len(COLUMNS))
        self._source = source
        self._faults = ContainedFaults(tell or logging.getLogger("jaxtrade.advisor").warning)
        self._visible = Visible(source, rows, journal, history, self._faults.tell)
        self._handing = threading.Lock()
        self._error: JournalError | None = None
        self._stopped = False
        self._exchanges, self._first = 0, None  # the first update that this process was asked for
        self._stall = {"delta": Histogram(_EDGES), "wanted": Histogram(_EDGES)}

    @property
    def version(self) -> int:
        """Of the table: deltas in it."""
        return self._visible.place

    # --- in the loop -------------------------------------------------------------------------------------------------

    def delta(self, update: int) -> Delta:
        """What becomes visible at `update`: NumPy int32[M], float32[M, 6], int32[], fresh ones. Padding is bar T."""
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
        """Rows are wanted of bars int32[K] whose weight float32[K] is above 0. The arrays' values must be there: those
        of a device are waited for."""
        began = time.perf_counter()
        try:
            self._want(np.array(bars), np.array(weights))
        except Exception as error:
            self._faults.contain("wanted", error)
        self._stall["wanted"].add(time.perf_counter() - began)

    def contain(self, where: str, error: BaseException) -> None:
        """Count an exception that goes no further, and tell its kind once."""
        self._faults.contain(where, error)

    def check(self) -> None:
        """Raise what made a replay fail; for chunk borders, where raising is safe.

        Raises JournalError where this run is not the recorded one.
        """
        if self._error is not None:
            raise self._error

    def _at(self, update: int) -> tuple[Handed, int] | None:
        self._exchanges += 1
        self._first = update if self._first is None else min(self._first, update)
        return self._visible.at(update)

    def _want(self, bars: np.ndarray, weights: np.ndarray) -> None:
        chosen = (weights > 0) & np.isfinite(weights) & (bars >= 0) & (bars < self.bars) & ~self._visible.again(bars)
        self._source.want(list(zip(bars[chosen].tolist(), weights[chosen].tolist(), strict=True)))

    def _padded(self, found: tuple[Handed, int] | None) -> Delta:
        bars = np.full(self.rows, self.bars, np.int32)
        rows = np.zeros((self.rows, len(COLUMNS)), np.float32)
        if found is None:
            return Delta(bars, rows, np.array(0, np.int32))
        handed, version = found
        bars[:len(handed.bars)] = handed.bars
        rows[:len(handed.rows)] = handed.rows
        return Delta(bars, rows, np.array(version, np.int32))

    # --- between chunks ----------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, Any]:
        """For a checkpoint, JSON values: where in the journal the run is, up to which update it is decided what is
        visible, and the bars in flight. The disk has the journal up to there."""
        self._visible.sync()
        return {**self._visible.position._asdict(), "version": self.version, "until": self._visible.until,
                "in_flight": [[bar, weight] for bar, weight in self._source.in_flight()]}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go back to where the run was. What became visible later will again, at the same updates; what was in flight
        is wanted again.

        Raises JournalError where the history does not hold that place.
        """
        self._visible.go_back(JournalPosition(memory["deltas"], memory["sha256"]), memory["until"])
        wants = memory["in_flight"]
        self._want(np.array([bar for bar, _ in wants], np.int64), np.array([weight for _, weight in wants]))

    def statistics(self) -> dict[str, Any]:
        """The source's (see `Live.statistics`), and: exchanges; rows_handed_out; rows_lost, taken but not recorded;
        stall_ms, of the loop by call; contained faults by kind; silent, why there is no more advice."""
        found, visible = self._source.statistics(), self._visible
        stall = {name: {"calls": sum(times.counts), "p50": _ms(times.quantile(0.5)), "p99": _ms(times.quantile(0.99)),
                        "longest": _ms(times.longest), "total": _ms(times.total)}
                 for name, times in self._stall.items()}
        own: dict[str, Any] = {
            "exchanges": self._exchanges, "deltas": visible.deltas, "rows_handed_out": visible.handed,
            "rows_lost": visible.taken - visible.handed, "stall_ms": stall, "silent": visible.silent,
            "contained": {**found.get("contained", {}), **self._faults.counts()}}
        if "asked" in found and self._first is not None:
            own["queries_per_update"] = found["asked"] / (visible.until + 1 - self._first)
        return found | own

    def stop(self) -> None:
        """Stop the source and end the journal. At most 3 s whatever hangs; a second time is of no effect."""
        if self._stopped:
            return
        self._stopped = True
        self._source.stop()
        if not self._handing.acquire(timeout=_LOCK_S):
            self._faults.tell("advisor: an exchange hangs (a disk that does not answer?); the journal stays without "
                              "its end")
            return
        try:
            self._visible.close()
        finally:
            self._handing.release()


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
