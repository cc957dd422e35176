"""The advice service, and the sources of the rows that a run sees.

The training loop submits questions to the service and takes answers from it; neither call waits.

One thread, the desk's, makes all decisions and writes all files. Worker threads send the requests.
The training thread only puts a message into a mailbox and pops answers from a queue, so a slow
disk, a hung server or a dead thread cannot block it.
"""

from __future__ import annotations

import atexit
import math
import os
import queue
import struct
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from jaxtrade.advisor.host.desk import Desk, Finished, WorkerPool, left_behind
from jaxtrade.advisor.host.journal import row_text
from jaxtrade.advisor.host.ledger import AdviceCache, Caps, Ledger
from jaxtrade.advisor.host.policy import TRAINING, ServiceUse
from jaxtrade.advisor.host.types import (
    LOGGED,
    Advice,
    Backend,
    ContainedFaults,
    Histogram,
    Question,
)
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import JaxtradeError
from jaxtrade.text import Log

_BUSY_POLL_S, _IDLE_POLL_S = 0.05, 0.25
_BACKLOG = 4  # questions that may wait for the desk, in multiples of its queue's size
_MOST_WAITING = 1024  # messages that may wait for the desk, empty submissions included
_MESSAGES = 256  # messages handled in one turn
_MOST_FAULTS = 10  # contained exceptions of one kind, after which nothing more is asked
_DRAIN_S, _CLOSE_S, _JOIN_S = (
    1.0,
    0.5,
    2.6,
)  # time limits of `stop`: answers in flight, closing the backend, in total

_Batch = tuple[tuple[Question, float], ...]


class AdviceService:
    """Sends submitted questions to `backend` until `stop`.

    `stop` also runs when the interpreter exits.

    `log` receives one line per problem, from another thread. `use`: what the answers are for.

    Raises StorageError where the ledger cannot be read: without it, spending could not be counted
    against the caps.
    """

    def __init__(
        self,
        backend: Backend,
        options: ServiceOptions,
        clock: Callable[[], float] = time.monotonic,
        log: Log = LOGGED,
        use: ServiceUse = TRAINING,
    ) -> None:
        self._backend, self.options = backend, options
        self._faults = ContainedFaults(log)
        self._ledger = Ledger(options.ledger, Caps.of(options))
        self._mailbox: queue.SimpleQueue[_Batch | Finished | None] = queue.SimpleQueue()
        self._ready: deque[tuple[int, Advice]] = deque()
        self._counting = threading.Lock()  # among threads that submit; the desk never holds it
        self._sent = self._turned_away = self._received = 0
        self._stopping = threading.Event()
        self._pid = os.getpid()
        self._pool = WorkerPool(
            backend.answer, options.workers, options.grace_s, clock, self._mailbox.put
        )
        self._cache = AdviceCache(options.cache, self._faults.log)
        self._desk = Desk(
            backend,
            options,
            clock,
            self._cache,
            self._ledger,
            self._pool,
            self._ready,
            self._faults,
            use,
        )
        self._published: dict[str, Any] = {}
        self._publish()
        self._closing, self._close_fault = threading.Event(), ""
        # Start this thread now: Python cannot start a thread while the interpreter shuts down.
        self._closer = threading.Thread(target=self._close, name="advisor-close", daemon=True)
        self._thread = threading.Thread(target=self._run, name="advisor-desk", daemon=True)
        self._closer.start()
        self._thread.start()
        atexit.register(self.stop)

    # --- for the training thread -------------------------------------------------------------------------------------

    def submit(self, wanted: Iterable[tuple[Question, float]]) -> None:
        """Request answers. `wanted` holds questions with their priorities.

        Call it once per chunk, even with no questions: questions expire after a number of chunks.
        """
        batch = tuple(wanted)
        with self._counting:
            backlog = self._sent - self._received
            # With an empty backlog a batch of any size is accepted; otherwise a large one could
            # never be submitted.
            too_much = backlog and backlog + len(batch) > _BACKLOG * self.options.queue_size
            if self._stopping.is_set() or too_much or self._mailbox.qsize() > _MOST_WAITING:
                self._turned_away += len(batch)
                return
            self._sent += len(batch)
        self._mailbox.put(batch)

    def take(self, most: int) -> list[tuple[int, Advice]]:
        """Return at most `most` new answers as (bar, advice).

        Each is returned once; the rest stay in the queue.
        """
        taken = []
        with suppress(IndexError):  # raised when the queue is empty
            while len(taken) < most:
                taken.append(self._ready.popleft())
        return taken

    def statistics(self) -> dict[str, Any]:
        """Return counts as of the desk's last turn, plus what has been submitted since.

        Every submission is counted in exactly one place: deduped, cache_hit, queued, in_flight,
        done, failed, expired, dropped or poisoned.
        """
        found = dict(self._published)
        received = found.pop("received")
        with self._counting:
            extra, away = self._sent - received, self._turned_away
        return found | {
            "submitted": found["submitted"] + extra + away,
            "queued": found["queued"] + extra,
            "unseen": found["unseen"] + extra,
            "dropped": found["dropped"] + away,
            "ready": len(self._ready),
        }

    def stop(self) -> None:
        """Send no more requests, wait one second for requests in flight, write and close.

        Takes at most 3 s.
        """
        if os.getpid() != self._pid:
            return  # a forked child process has none of the threads
        atexit.unregister(self.stop)
        if not self._stopping.is_set():
            self._stopping.set()
            self._mailbox.put(None)
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self._faults.log(
                "advisor: its thread hangs (a disk that does not answer?) and is left behind"
            )

    def __enter__(self) -> AdviceService:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the desk's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._cache.open()
            more = False
            while not self._stopping.is_set():
                waits = len(self._desk.queue) or self._pool.busy
                more = self._turn(0.0 if more else _BUSY_POLL_S if waits else _IDLE_POLL_S)
            self._desk.gates.stopping = True
            self._wind_down()
        except (
            BaseException
        ) as error:  # SystemExit and similar: report it and send no more requests
            self._contain(error)
        finally:
            self._closing.set()
            self._cache.close()
            self._ledger.close()
            self._publish()

    def _turn(self, timeout: float) -> bool:
        """Handle the waiting messages, then let the desk act.

        Returns whether there is more to do at once.

        An exception here is a bug. It is contained, counted and reported. After `_MOST_FAULTS` of
        one kind, no more requests are sent.
        """
        more = False
        try:
            with suppress(queue.Empty):
                self._handle(self._mailbox.get(timeout=timeout))
                for _ in range(_MESSAGES - 1):
                    self._handle(self._mailbox.get_nowait())
            more = self._desk.turn()
        except Exception as error:
            self._contain(error)
        self._publish()
        return more

    def _handle(self, message: _Batch | Finished | None) -> None:
        if isinstance(message, Finished):
            self._desk.handle_result(message)
        elif message is not None:
            self._received += len(message)
            self._desk.queue_questions(message)

    def _contain(self, error: BaseException) -> None:
        name, count = type(error).__name__, self._faults.contain("desk", error)
        if count >= _MOST_FAULTS or not isinstance(error, Exception):
            self._desk.gates.ask_no_more(f"{name} in the advisor's own thread, {count} times")

    def _publish(self) -> None:
        self._published = self._desk.snapshot() | {
            "received": self._received,
            "unreported": self._faults.unreported,
        }

    def _wind_down(self) -> None:
        """Wait for requests in flight, then close the backend, which should end the rest.

        It uses real seconds, not the injected clock, because it waits for real threads.
        """
        self._pool.stop()
        self._turns(_DRAIN_S)
        until = time.monotonic() + _CLOSE_S
        self._closing.set()
        self._turns(_CLOSE_S)
        self._closer.join(max(0.0, until - time.monotonic()))
        if self._close_fault:
            self._faults.trouble(
                f"close {self._close_fault}",
                f"advisor: closing the backend raised {self._close_fault}; contained",
            )
        self._pool.join(max(0.0, until - time.monotonic()))

    def _turns(self, seconds: float) -> None:
        """Run turns until no request is in flight, for at most `seconds`."""
        until = time.monotonic() + seconds
        self._turn(0.0)
        while self._pool.busy and (left := until - time.monotonic()) > 0:
            self._turn(left)

    def _close(self) -> None:
        self._closing.wait()
        try:
            self._backend.close()
        except Exception as error:
            self._close_fault = type(
                error
            ).__name__  # the desk's thread counts it: only that thread writes counts


# Sources of the rows that a run sees: a live service, a panel of several, or none.

Wants = Sequence[tuple[int, float]]  # bars and weights > 0

_ROW = f"{len(Advice._fields)}f"
_POLL_S = 0.02  # between checks for new answers
_BATCH = 16  # answers converted to rows at a time; this holds the interpreter lock for about 0.1 ms
_BUILD_S = (
    1e-4  # questions are built for about as long at a time; one that shows many bars takes longer
)
# A pause after these releases the interpreter lock. Otherwise the training thread would wait for
# it, 5 ms at a time.
_PAUSE_S = 1e-4
_MOST_DEMANDS = 64  # demands that may wait for the asker's thread
_MOST_OPEN = 1024  # bars remembered as in flight
_MOST_QUESTIONS = (
    4096  # questions kept, because the same bar is wanted again and again until its answer arrives
)
_END_S = 0.3  # time limit of `stop` for joining both threads


class AdviceRow(NamedTuple):
    """A row of the table.

    packed: its float32 values in the order of `Advice`, in native byte order.
    text: `journal.row_text` of the values.
    """

    bar: int
    packed: bytes
    text: str

    @classmethod
    def of(cls, bar: int, values: Sequence[float]) -> AdviceRow:
        """Build a row of `values`, rounded to float32.

        Raises struct.error, OverflowError or ValueError where a value is not a finite float32.
        """
        packed = struct.pack(_ROW, *values)
        return cls(bar, packed, row_text(struct.unpack(_ROW, packed)))

    @property
    def values(self) -> tuple[float, ...]:
        return struct.unpack(_ROW, self.packed)


class AdviceSource:
    """Provides rows. No method waits. This one has none."""

    def take(self, deltas: int, most: int) -> list[AdviceRow]:
        """Return at most `most` rows, of distinct bars, that become visible now.

        Args:
            deltas: deltas taken so far.
        """
        return []

    def want(self, wants: Wants) -> None:
        """Request rows. Called once per exchange, even with no bars."""

    def in_flight(self) -> list[tuple[int, float]]:
        """Return requested bars without a row yet, with their weights.

        Where there are many, only the latest ones.
        """
        return []

    def statistics(self) -> dict[str, Any]:
        """Return counts for reports, by name."""
        return {}

    def stop(self) -> None:
        """Stop within 3 s. A second call does nothing."""


@dataclass(eq=False)
class Live(AdviceSource):
    """Rows made from the answers of a service.

    Two threads work between the service and the training thread. One builds questions from bars
    (less than a millisecond each) and submits them. The other converts answers to rows. The methods
    that the training thread calls only move a few rows between queues.

    question_of: returns the question about a bar. If it raises, the bar is reported and never asked
        about again.
    ahead: the most rows to prepare before they are taken; further answers stay in the service.
    heard: receives each answer that becomes a row, in the taker's thread.
    """

    service: AdviceService
    question_of: Callable[[int], Question]
    log: Log = LOGGED
    ahead: int = 1024
    heard: Callable[[int, Advice], None] = lambda bar, advice: None

    def __post_init__(self) -> None:
        self._faults = ContainedFaults(self.log)
        self._mailbox: queue.SimpleQueue[Wants | None] = queue.SimpleQueue()
        self._ready: deque[AdviceRow] = deque()
        self._open: OrderedDict[int, float] = OrderedDict()  # used by the training thread only
        self._question = lru_cache(_MOST_QUESTIONS)(self._new_question)  # in the asker's thread
        self._unaskable: set[int] = set()  # written by the asker's thread only
        self._missed = self._refused = 0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"advisor-{name}", daemon=True)
            for name, run in (("asker", self._ask), ("taker", self._collect))
        ]
        for thread in self._threads:
            thread.start()

    # --- for the training thread -------------------------------------------------------------------------------------

    def take(self, deltas: int, most: int) -> list[AdviceRow]:
        """Return prepared rows.

        A delta holds each bar once, so a second row about a bar stays for a later call.
        """
        del deltas
        found: dict[int, AdviceRow] = {}
        again: list[AdviceRow] = []
        while self._ready and len(found) < most:
            row = self._ready.popleft()
            if row.bar in found:
                again.append(row)
            else:
                found[row.bar] = row
                self._open.pop(row.bar, None)
        self._ready.extendleft(reversed(again))
        return list(found.values())

    def want(self, wants: Wants) -> None:
        """Request rows.

        If the asker is far behind, the request is dropped and counted: it will be repeated anyway.
        """
        if self._stopping.is_set() or self._mailbox.qsize() >= _MOST_DEMANDS:
            self._missed += len(wants)
            return
        for bar, weight in wants:
            self._open[bar] = weight
            self._open.move_to_end(bar)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        self._mailbox.put(wants)

    def in_flight(self) -> list[tuple[int, float]]:
        return list(self._open.items())

    def statistics(self) -> dict[str, Any]:
        """Return the service's statistics and counts of rows.

        The counts are rows_waiting, rows_refused (a value is not a finite float32), wants_missed,
        bars_unaskable, contained (exceptions by kind).
        """
        return self.service.statistics() | {
            "rows_waiting": len(self._ready),
            "rows_refused": self._refused,
            "wants_missed": self._missed,
            "bars_unaskable": len(self._unaskable),
            "contained": self._faults.counts(),
        }

    def stop(self) -> None:
        """Stop the service and both threads.

        A thread that hangs in `question_of` or the service is left behind.
        """
        if not self._stopping.is_set():
            self._stopping.set()
            self._mailbox.put(None)
        self.service.stop()
        for name in left_behind(self._threads, _END_S):
            self._faults.trouble(name, f"advisor: the thread {name} hangs and is left behind")

    # --- the asker's thread ------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        # On a stop the waiting demands are dropped. There may be many of them.
        while (wants := self._mailbox.get()) is not None and not self._stopping.is_set():
            try:
                asked, began = [], time.perf_counter()
                for bar, weight in wants:
                    if self._stopping.is_set():
                        return
                    if question := self._question(bar):
                        asked.append((question, weight))
                    if time.perf_counter() - began >= _BUILD_S:
                        time.sleep(_PAUSE_S)
                        began = time.perf_counter()
                self.service.submit(asked)
            except BaseException as error:  # contain anything: the next demand may succeed
                self._faults.contain("asking", error)

    def _new_question(self, bar: int) -> Question | None:
        """Return the question about a bar; None where it cannot be built.

        Such a bar is not tried again.
        """
        if bar in self._unaskable:
            return None
        try:
            question = self.question_of(bar)
            if question.bar == bar:
                return question
            self._faults.trouble(
                "question",
                f"advisor: the question about bar {bar} is about bar {question.bar}; "
                "such bars are not asked about",
            )
        except JaxtradeError as error:
            self._faults.trouble(
                f"question {type(error).__name__}",
                f"advisor: no question about bar {bar}: {error}; such bars are not asked about",
            )
        except Exception as error:
            self._faults.contain("question", error)
        self._unaskable.add(bar)
        return None

    # --- the taker's thread ------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        while not self._stopping.wait(_POLL_S):
            try:
                while found := self.service.take(min(_BATCH, self.ahead - len(self._ready))):
                    for bar, advice in found:
                        self._prepare(bar, advice)
                    time.sleep(_PAUSE_S)
            except BaseException as error:  # contain anything: the next answers may be fine
                self._faults.contain("taking", error)

    def _prepare(self, bar: int, advice: Advice) -> None:
        try:
            row = AdviceRow.of(bar, advice)
        except (struct.error, OverflowError, TypeError, ValueError):
            self._refused += 1
            self._faults.trouble(
                "row",
                f"advisor: an answer about bar {bar} has a number that is no finite float32; "
                "such answers are left out",
            )
        else:
            self._ready.append(row)
            self.heard(bar, advice)


class PanelSource(AdviceSource):
    """The rows of A members over T bars.

    A row of member i about bar b is given out as row i T + b of the table.

    members: their sources.
    names: what reports call them.
    bars: T.
    recorded: rows of the table that an earlier process of the run has got; a member is not asked
        again about their bars.
    """

    def __init__(
        self,
        members: Sequence[AdviceSource],
        names: Sequence[str],
        bars: int,
        recorded: Sequence[int],
    ) -> None:
        self._members, self._names, self._bars = tuple(members), tuple(names), bars
        self._answered: list[set[int]] = [
            {row % bars for row in recorded if row // bars == i} for i in range(len(members))
        ]

    def take(self, deltas: int, most: int) -> list[AdviceRow]:
        """Return at most `most` rows.

        Each member gets an equal share of them; what one leaves, the next may use.
        """
        found: list[AdviceRow] = []
        number = len(self._members)
        # The order changes with every delta, so that no member's rows always come last.
        for turn, i in enumerate((deltas + step) % number for step in range(number)):
            share = math.ceil((most - len(found)) / (number - turn))
            rows = self._members[i].take(deltas, share)
            self._answered[i].update(row.bar for row in rows)
            found += [row._replace(bar=row.bar + i * self._bars) for row in rows]
        return found

    def want(self, wants: Wants) -> None:
        """Request rows from every member that has not answered.

        A bar is wanted until all of them have.
        """
        for member, answered in zip(self._members, self._answered, strict=True):
            member.want([(bar, weight) for bar, weight in wants if bar not in answered])

    def in_flight(self) -> list[tuple[int, float]]:
        """Return bars that some member has not answered yet, with their weights."""
        return list(
            {bar: weight for member in self._members for bar, weight in member.in_flight()}.items()
        )

    def statistics(self) -> dict[str, Any]:
        """Return the members' statistics put together, and each one's own under `members`."""
        each = [member.statistics() for member in self._members]
        named = [{"kind": name, **found} for name, found in zip(self._names, each, strict=True)]
        return {**merge_counts(each), "members": named}

    def stop(self) -> None:
        for member in self._members:
            member.stop()


def merge_counts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge statistics of several services into one.

    Counts are added, histograms too, and words that differ are listed.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if name in part]
        if name == "latency":
            columns = zip(*(each["counts"] for each in values), strict=True)
            found[name] = Histogram(
                counts=[sum(column) for column in columns],
                total=sum(each["total_s"] for each in values),
                longest=max(each["longest_s"] for each in values),
            ).snapshot()
        elif all(isinstance(value, Mapping) for value in values):
            found[name] = dict(sum((Counter(value) for value in values), Counter()))
        elif all(isinstance(value, str) for value in values):
            found[name] = "; ".join(dict.fromkeys(values))
        elif None in values:
            found[name] = None  # a cost that one member does not know is unknown
        else:
            found[name] = sum(values)
    return found
