"""The host side of both transports (callback and exchange).

It takes the demand and returns rows that become visible.

Everything that runs in the training loop is NumPy. A JAX operation inside a host callback can wait
for the thread that runs the callback, and so hang. Arrays that were returned are never written
again, because a device may still read them in place.

Which rows become visible at each update of a run is decided once and written to the journal. A
run's advice is therefore a function of the update, and the journal stores that function. A rollback
does not change it: a repeated update sees the same rows again, and new rows appear only after the
last decided update. A replay needs only the journal and goes through the same rollbacks.

The callback transport: one host callback per update. The only module that imports `io_callback`.

These rules, found by measurement, keep a callback from hanging or breaking a run:
- arguments and results take at most 64 KiB together;
- the callback uses NumPy only, never waits and never raises;
- all traces share one callable;
- it runs on one device and never under `vmap`, which would call it once per environment.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxtrade.advisor.host.journal import (
    Journal,
    JournalDelta,
    JournalPosition,
    LoadedJournal,
    check_position,
)
from jaxtrade.advisor.host.service import AdviceSource
from jaxtrade.advisor.host.types import LOGGED, ContainedFaults, Histogram
from jaxtrade.advisor.table import WIDTH, Delta
from jaxtrade.errors import ConfigError, JournalError
from jaxtrade.text import Log
from jaxtrade.training.hooks import Change
from jaxtrade.types import Array


class RowBatch(NamedTuple):
    """Rows that became visible together at `update`.

    bars: int32[n].
    rows: float32[n, 6].
    """

    update: int
    bars: np.ndarray
    rows: np.ndarray


class VisibleRows:
    """The history of visible rows and the run's place in it. Not thread-safe: one thread at a time.

    place: number of deltas in the table.
    until: the last update whose rows are decided.
    silent: why no new rows become visible any more, or "".
    taken: rows received from the source.
    handed: those of them that became visible.
    """

    def __init__(
        self,
        source: AdviceSource,
        most: int,
        journal: Journal | None,
        history: LoadedJournal | None,
        log: Log,
    ) -> None:
        recorded = history.deltas if history else ()
        if journal and journal.position.deltas != len(recorded):
            raise ValueError(
                f"a journal with {journal.position.deltas} deltas and a history of {len(recorded)}"
            )
        self._source, self._most, self._journal, self._log = source, most, journal, log
        self._history = [
            RowBatch(delta.update, np.array(delta.bars, np.int32), np.array(delta.rows, np.float32))
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

    def at(self, update: int) -> tuple[RowBatch, int] | None:
        """Return the rows that become visible at `update` and their version, or None.

        A second call returns the same.

        Raises JournalError where the run skipped an earlier update at which rows of its journal, or
        of the replayed one, became visible.
        """
        index = bisect_left(self._history, update, key=attrgetter("update"))
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
            self._take(update)
        if index == len(self._history) or self._history[index].update != update:
            return None
        self.place = index + 1
        return self._history[index], index + 1

    def again(self, bars: np.ndarray) -> np.ndarray:
        """Return whether a row of each bar is already decided (bool[...]).

        It then becomes visible again after a rollback.

        Such bars need not be requested again.
        """
        to_come = [np.zeros(0, np.int64), *(each.bars for each in self._history[self.place :])]
        return np.isin(bars, np.concatenate(to_come))

    def silence(self, why: str) -> None:
        """Give no new rows for the rest of the run.

        The first reason is reported, later ones are ignored.
        """
        if not self.silent:
            self.silent = why
            self._log(f"{why}; no more advice is given in this run")

    def _take(self, update: int) -> None:
        """Take new rows, if there are any, and add them to the journal and the history."""
        if self.silent or self.closed:
            return
        if not (rows := self._source.take(self.place, self._most)):
            return
        self.taken += len(rows)
        bars, digest = [row.bar for row in rows], ""
        with self._recording("written") as journal:
            if journal:
                texts = [row.text for row in rows]
                digest = journal.append(update, self.deltas + 1, bars, texts).sha256
        if self.silent:
            return
        packed = np.frombuffer(b"".join(row.packed for row in rows), np.float32)
        self._digests.append(digest)
        self._history.append(
            RowBatch(update, np.array(bars, np.int32), packed.reshape(len(rows), -1))
        )
        self.handed += len(rows)

    # --- checkpoints, rollback and the end ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Save the journal to disk. If that fails, no new rows become visible."""
        with self._recording("saved to disk") as journal:
            if journal and not self.closed:
                journal.sync()

    def go_back(self, position: JournalPosition, until: int) -> None:
        """Return to the place of a checkpoint.

        `until` never decreases: what is decided stays decided.

        Raises JournalError where the history does not contain that place.
        """
        check_position("the advice journal", self._digests, position, "the checkpoint")
        self.place, self.until = position.deltas, max(self.until, until)

    def close(self) -> None:
        """End the journal."""
        self.closed = True
        with self._recording("ended") as journal:
            if journal:
                journal.close()

    @contextmanager
    def _recording(self, done: str) -> Iterator[Journal | None]:
        """Yield the journal, if there is one.

        Where it fails, it is abandoned, and no new rows are given: rows that are not recorded must
        not become visible.

        Args:
            done: what is done with it.
        """
        try:
            yield self._journal
        except OSError as error:
            if self._journal:
                self._journal.abandon()
            self._journal = None
            why = error.strerror or type(error).__name__
            self.silence(f"advisor: the journal could not be {done} ({why})")


def fit(deltas: Sequence[JournalDelta], bars: int, rows: int) -> None:
    """Check that recorded rows fit a table of T = `bars` bars.

    The table receives at most `rows` rows at a time.

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
        if len(delta.rows[0]) != WIDTH:
            raise JournalError(
                f"advice journal, delta {number}: rows of {len(delta.rows[0])} numbers, expected "
                f"{WIDTH}"
            )


_EDGES = tuple(1e-6 * 10.0 ** (step / 10) for step in range(71))  # 1 us .. 10 s
_LOCK_S = 0.1


class Bridge:
    """The advisor's interface for the training loop. `delta` and `wanted` neither wait nor raise.

    It is also a `training.hooks.StatefulHook`.

    Args:
        source: provides the rows.
        bars: T of the table.
        rows: M, the most rows in a delta.
        journal: records every delta before it is returned; None records nothing.
        history: the deltas that a resumed journal already holds (`Journal.resume`), or those of the
            run that is replayed; `recall` then sets the run's place in it.
        log: receives one line per problem.

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
        history: LoadedJournal | None = None,
        log: Log = LOGGED,
    ) -> None:
        self.bars, self.rows = bars, rows
        if history:
            fit(history.deltas, bars, rows)
        self._source = source
        self._faults = ContainedFaults(log)
        self._visible = VisibleRows(source, rows, journal, history, self._faults.log)
        self._handing = threading.Lock()
        self._error: JournalError | None = None
        self._stopped = False
        self._exchanges = 0
        self._first = math.inf  # the lowest update that this process was asked for
        self._stall = {"delta": Histogram(_EDGES), "wanted": Histogram(_EDGES)}

    @property
    def version(self) -> int:
        """The table's version: the number of deltas in it."""
        return self._visible.place

    # --- in the training loop ----------------------------------------------------------------------------------------

    def delta(self, update: int) -> Delta:
        """Return the rows that become visible at `update`, in fresh NumPy arrays.

        These are int32[M], float32[M, 6], int32[]. Unused entries are padded with bar T.
        """
        began = time.perf_counter()
        handed = None
        try:
            update = int(update)
            with self._handing:
                self._exchanges += 1
                self._first = min(self._first, update)
                handed = self._visible.at(update)
        except JournalError as error:
            self._error = self._error or error
            self._visible.silence(str(error))
        except Exception as error:
            self._faults.contain("delta", error)
        found = self._pad(handed)
        self._stall["delta"].add(time.perf_counter() - began)
        return found

    def request(self, bars: Any, weights: Any) -> None:
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

    def answer(
        self, update: object, bars: object, weights: object
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pass on the demand, and return the rows that become visible.

        This is the host function that the compiled program calls. On any failure it returns an
        empty delta.

        The methods of one bridge are equal, so a new trace does not compile a new program.
        """
        try:
            self.request(bars, weights)
            delta = self.delta(int(np.array(update)))
            return np.asarray(delta.bars), np.asarray(delta.rows), np.asarray(delta.version)
        except BaseException as error:  # the caller is compiled code, which cannot handle one
            self._faults.contain("callback", error)
            return _no_rows(self.bars, self.rows)

    def wait_for_answers(self) -> None:
        """Wait at the end of a run for callbacks in progress.

        Never raises: exceptions are counted and reported.
        """
        try:
            jax.effects_barrier()
        except Exception as error:
            self._faults.contain("effects_barrier", error)

    def __call__(self, state: object, update: int) -> Change:
        """Between chunks, where raising is safe: raise the error that made a replay fail.

        Nothing is changed.

        Raises JournalError where this run differs from the recorded one.
        """
        if self._error:
            raise self._error
        return Change()

    def _want(self, bars: np.ndarray, weights: np.ndarray) -> None:
        chosen = (
            (weights > 0)
            & np.isfinite(weights)
            & (bars >= 0)
            & (bars < self.bars)
            & ~self._visible.again(bars)
        )
        self._source.want(list(zip(bars[chosen].tolist(), weights[chosen].tolist(), strict=True)))

    def _pad(self, found: tuple[RowBatch, int] | None) -> Delta:
        bars, rows, version = _no_rows(self.bars, self.rows)
        if found:
            handed, number = found
            bars[: len(handed.bars)] = handed.bars
            rows[: len(handed.rows)] = handed.rows
            version[...] = number
        return Delta(bars, rows, version)

    # --- between chunks ----------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, Any]:
        """Return the advisor's part of a checkpoint, as JSON values.

        Saves the journal to disk first.

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
        """Return to the place of a checkpoint, given the result of `memory`.

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
        """Return the source's statistics (see `Live.statistics`) and those of the bridge.

        Returns:
            exchanges: calls of `delta`.
            deltas: deltas in the history.
            rows_handed_out: rows that became visible.
            rows_lost: rows taken from the source but not recorded.
            stall_ms: time that the loop spent in each call.
            contained: contained exceptions by kind.
            silent: why there is no more advice, or "".
            queries_per_update: the requests sent per update, for a live source.
        """
        found, visible = self._source.statistics(), self._visible
        stall: dict[str, Any] = {}
        for name, times in self._stall.items():
            seconds = times.snapshot()
            stall[name] = {"calls": sum(times.counts)} | {
                key: seconds[f"{key}_s"] and 1e3 * seconds[f"{key}_s"]
                for key in ("p50", "p99", "longest", "total")
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
        if "asked" in found and self._exchanges:
            own["queries_per_update"] = found["asked"] / (visible.until + 1 - self._first)
        return found | own

    def stop(self) -> None:
        """Stop the source and end the journal.

        Takes at most 3 s, whatever hangs. A second call does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        self._source.stop()
        if not self._handing.acquire(timeout=_LOCK_S):
            self._faults.log(
                "advisor: an exchange hangs (a disk that does not answer?); the journal stays without "
                "its end"
            )
            return
        try:
            self._visible.close()
        finally:
            self._handing.release()


def _no_rows(bars: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays of a delta of `rows` rows that are padding for a table of `bars` bars."""
    return np.full(rows, bars, np.int32), np.zeros((rows, WIDTH), np.float32), np.array(0, np.int32)


MOST_BYTES = (
    64 * 1024
)  # from 100 KiB on, XLA copies arguments on the same threads that wait in the callback


def exchange(bridge: Bridge) -> Callable[[Array, Array, Array], Delta]:
    """Build a function for compiled programs that returns the delta of `update`.

    Its arguments are update int32[], bars int32[K] and weights float32[K].

    Raises ConfigError at trace time where arguments and results exceed 64 KiB, or under `vmap`.
    """
    shapes = (
        jax.ShapeDtypeStruct((bridge.rows,), jnp.int32),
        jax.ShapeDtypeStruct((bridge.rows, WIDTH), jnp.float32),
        jax.ShapeDtypeStruct((), jnp.int32),
    )

    @jax.custom_batching.custom_vmap
    def ask(update: Array, bars: Array, weights: Array) -> Delta:
        size = sum(value.size * value.dtype.itemsize for value in (update, bars, weights, *shapes))
        if size > MOST_BYTES:
            raise ConfigError(
                f"advisor.rows = {bridge.rows} and advisor.demand = {bars.size}: {size:,} bytes in a "
                f"callback, at most {MOST_BYTES:,}; lower them, or set advisor.transport: exchange"
            )
        return Delta(*io_callback(bridge.answer, shapes, update, bars, weights, ordered=False))

    @ask.def_vmap
    def _(size: int, batched: object, *arguments: object) -> tuple[Delta, Delta]:
        raise ConfigError(
            f"advisor.transport: callback: {size} agents or environments at once would call it {size} "
            "times; set advisor.transport: exchange"
        )

    return ask
