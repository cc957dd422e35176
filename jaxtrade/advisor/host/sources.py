"""Where the rows that a run is shown come from: a live service, an earlier run's journal, or nobody."""

from __future__ import annotations

import logging
import queue
import struct
import threading
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from jaxtrade.advisor.host.faults import ContainedFaults
from jaxtrade.advisor.host.journal import JournalDelta, Recorded, row_text
from jaxtrade.advisor.host.types import Advice, Question
from jaxtrade.errors import JaxtradeError, JournalError

Tell = Callable[[str], None]
Wants = Sequence[tuple[int, float]]  # bars and weights > 0

_ROW = f"{len(Advice._fields)}f"
_POLL_S = 0.02  # between looks for answers
_BATCH = 16  # answers made ready in one go, a tenth of a millisecond in which the interpreter is held
# After each question and each batch: the training thread would otherwise wait for the interpreter, 5 ms at a time.
_PAUSE_S = 1e-4
_MOST_WAITING = 64  # demands that may wait for the thread that asks
_MOST_OPEN = 1024  # bars remembered as asked about
_MOST_QUESTIONS = 4096  # kept, as bars are wanted again and again until they are answered
_JOIN_S = 0.3  # of a stop, for both threads


class AdviceRow(NamedTuple):
    """A row of the table. packed: its float32 values in `Advice`'s order, in the machine's bytes; text:
    `journal.row_text` of them."""

    bar: int
    packed: bytes
    text: str

    @classmethod
    def of(cls, bar: int, values: Sequence[float]) -> AdviceRow:
        """Raises struct.error, OverflowError or ValueError where there is a value that is no finite float32."""
        packed = struct.pack(_ROW, *values)
        return cls(bar, packed, row_text(struct.unpack(_ROW, packed)))

    @property
    def values(self) -> tuple[float, ...]:
        return struct.unpack(_ROW, self.packed)


class AdviceSource(Protocol):
    """Gives rows. No method waits."""

    def take(self, update: int, deltas: int, most: int) -> list[AdviceRow]:
        """At most `most` rows of distinct bars that become visible at `update`, after so many deltas."""
        ...

    def want(self, wants: Wants) -> None:
        """Rows are wanted; called once per exchange, also with none."""
        ...

    def in_flight(self) -> list[tuple[int, float]]:
        """Bars that were wanted and have no row yet, with their weights; the latest ones where there are many."""
        ...

    def statistics(self) -> dict[str, Any]: ...

    def stop(self) -> None:
        """At most 3 s; a second time is of no effect."""
        ...


class Service(Protocol):
    """What a `Live` source needs of `service.AdviceService`."""

    def submit(self, wanted: Sequence[tuple[Question, float]]) -> None: ...

    def take(self, most: int) -> list[tuple[int, Advice]]: ...

    def statistics(self) -> dict[str, Any]: ...

    def stop(self) -> None: ...


class Nobody:
    """No rows, ever."""

    def take(self, update: int, deltas: int, most: int) -> list[AdviceRow]:
        return []

    def want(self, wants: Wants) -> None:
        return None

    def in_flight(self) -> list[tuple[int, float]]:
        return []

    def statistics(self) -> dict[str, Any]:
        return {}

    def stop(self) -> None:
        return None


class Replayed(Nobody):
    """An earlier run's rows, at the updates at which that run saw them."""

    def __init__(self, recorded: Recorded) -> None:
        self._deltas = recorded.deltas

    @property
    def deltas(self) -> tuple[JournalDelta, ...]:
        return self._deltas

    def take(self, update: int, deltas: int, most: int) -> list[AdviceRow]:
        """Raises JournalError where earlier rows were never taken, or too many: this run is not that one."""
        index = bisect_left(self._deltas, update, key=_update)
        if index != deltas:
            seen = self._deltas[min(index, deltas)]
            raise JournalError(f"advisor replay: delta {min(index, deltas) + 1} became visible at update {seen.update},"
                               f" and update {update} is asked for after {deltas} deltas: this run has other updates "
                               "than the recording; keep its train.chunk_updates, advisor.transport and seed")
        if index == len(self._deltas) or self._deltas[index].update != update:
            return []
        delta = self._deltas[index]
        return [AdviceRow.of(bar, row) for bar, row in zip(delta.bars, delta.rows, strict=True)]

    def statistics(self) -> dict[str, Any]:
        return {"recorded_deltas": len(self._deltas)}


class Live:
    """Rows of a service's answers.

    Two threads stand between it and the training thread: one makes questions of bars (tens of microseconds each) and
    submits them, one makes rows of answers. What the training thread calls only moves a few rows between queues.

    question_of: the question about a bar. A bar for which it raises is told and never asked about again.
    ahead: rows made ready before they are taken, at most; other answers stay with the service.
    """

    def __init__(self, service: Service, question_of: Callable[[int], Question], tell: Tell | None = None,
                 ahead: int = 1024) -> None:
        self._service, self._question_of, self._ahead = service, question_of, ahead
        self._faults = ContainedFaults(tell or logging.getLogger("jaxtrade.advisor").warning)
        self._mailbox: queue.SimpleQueue[Wants | None] = queue.SimpleQueue()
        self._ready: deque[AdviceRow] = deque()
        self._open: OrderedDict[int, float] = OrderedDict()  # the training thread's
        self._questions: OrderedDict[int, Question] = OrderedDict()  # the asker's
        self._unaskable: set[int] = set()  # the asker's too
        self._missed = self._refused = 0
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=run, name=f"advisor-{name}", daemon=True)
                         for name, run in (("asker", self._ask), ("taker", self._collect))]
        for thread in self._threads:
            thread.start()

    # --- for the training thread -------------------------------------------------------------------------------------

    def take(self, update: int, deltas: int, most: int) -> list[AdviceRow]:
        """Two answers about one bar do not come together: the later one stays."""
        del update, deltas
        found: dict[int, AdviceRow] = {}
        again: list[AdviceRow] = []
        for _ in range(len(self._ready)):
            if len(found) == most:
                break
            row = self._ready.popleft()
            if row.bar in found:
                again.append(row)
            else:
                found[row.bar] = row
                self._open.pop(row.bar, None)
        self._ready.extendleft(reversed(again))
        return list(found.values())

    def want(self, wants: Wants) -> None:
        """Those that find the asker far behind are missed and counted; they will be wanted again."""
        if self._stopping.is_set() or self._mailbox.qsize() >= _MOST_WAITING:
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
        """The service's, and: rows_waiting, rows_refused (no float32), wants_missed, bars_unaskable, contained."""
        return self._service.statistics() | {
            "rows_waiting": len(self._ready), "rows_refused": self._refused, "wants_missed": self._missed,
            "bars_unaskable": len(self._unaskable), "contained": self._faults.counts()}

    def stop(self) -> None:
        """The service's stop; a thread that hangs in what it was given is left behind."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._mailbox.put(None)
        self._service.stop()
        until = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self._faults.trouble(thread.name, f"advisor: the thread {thread.name} hangs and is left behind")

    # --- the asker's thread ------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        # a stop leaves unasked what still waits: the demands of many updates may
        while (wants := self._mailbox.get()) is not None and not self._stopping.is_set():
            try:
                asked = []
                for bar, weight in wants:
                    if self._stopping.is_set():
                        return
                    if (question := self._question(bar)) is not None:
                        asked.append((question, weight))
                    time.sleep(_PAUSE_S)
                self._service.submit(asked)
            except BaseException as error:  # whatever it is, the next demand may go through
                self._faults.contain("asking", error)

    def _question(self, bar: int) -> Question | None:
        """None where it cannot be made, for good."""
        if bar in self._unaskable:
            return None
        if (question := self._questions.get(bar)) is None and (question := self._made(bar)) is not None:
            self._questions[bar] = question
            if len(self._questions) > _MOST_QUESTIONS:
                self._questions.popitem(last=False)
        return question

    def _made(self, bar: int) -> Question | None:
        try:
            question = self._question_of(bar)
            if question.bar == bar:
                return question
            self._faults.trouble("question", f"advisor: the question about bar {bar} is about bar {question.bar}; "
                                 "such bars are not asked about")
        except JaxtradeError as error:
            self._faults.trouble(f"question {type(error).__name__}",
                                 f"advisor: no question about bar {bar}: {error}; such bars are not asked about")
        except Exception as error:
            self._faults.contain("question", error)
        self._unaskable.add(bar)
        return None

    # --- the taker's thread ------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        while not self._stopping.wait(_POLL_S):
            try:
                while found := self._service.take(min(_BATCH, self._ahead - len(self._ready))):
                    for bar, advice in found:
                        self._prepare(bar, advice)
                    time.sleep(_PAUSE_S)
            except BaseException as error:  # whatever it is, the next answers may come through
                self._faults.contain("taking", error)

    def _prepare(self, bar: int, advice: Advice) -> None:
        try:
            row = AdviceRow.of(bar, advice)
        except (struct.error, OverflowError, TypeError, ValueError):
            self._refused += 1
            self._faults.trouble("row", f"advisor: an answer about bar {bar} has a number that is no finite float32; "
                                 "such answers are left out")
        else:
            self._ready.append(row)


def _update(delta: JournalDelta) -> int:
    return delta.update
