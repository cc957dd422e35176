"""The desk: decides which question to send, when, and what to do with the answer.

Its state belongs to one thread.

A question is looked up in the cache, waits in the queue, passes the gates and is sent. After that
it is done, failed, poisoned, or back in the queue for a retry. Nothing here blocks: a question that
waits for a retry occupies no worker.

The queue knows which questions are waiting, in flight and closed. Each key has at most one request
at a time. Submitting the same question again raises its priority. The queue's size is bounded, so a
slow server cannot fill the memory.

Worker threads, each of which sends one question at a time. They make no decisions.

One other thread, the pool's owner, gives them jobs, receives their results and replaces workers
that are stuck or dead. They are daemon threads instead of a standard thread pool, because that pool
waits at exit for threads that hang.
"""

from __future__ import annotations

import bisect
import math
import queue
import random
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from jaxtrade.advisor.host.ledger import AdviceCache, Ledger
from jaxtrade.advisor.host.policy import Booking, Gates, ServiceUse
from jaxtrade.advisor.host.replies import (
    MOST_FALLBACKS,
    check_answer,
    one_line,
    problem,
    verdict_of,
)
from jaxtrade.advisor.host.types import (
    Advice,
    Answer,
    Backend,
    ContainedFaults,
    Failure,
    Question,
    ServiceCounts,
)
from jaxtrade.config.service import ServiceOptions


class QuestionKey(NamedTuple):
    """Identifies a question within a run.

    The bar and the prompt's version determine the whole prompt.
    """

    bar: int
    prompt_version: str


@dataclass(slots=True, eq=False)
class Entry:
    """A question that is waiting or in flight.

    serial: number of its first submission.
    chunk: when it was last submitted.
    attempts: requests sent.
    not_before: earliest clock time of a retry.
    delay: seconds that it waited before its last retry.
    looked_up: whether the cache was searched without success.
    cache_key: see `AdviceCache.key`.
    """

    key: QuestionKey
    question: Question
    priority: float
    serial: int
    chunk: int
    attempts: int = 0
    not_before: float = -math.inf
    delay: float = 0.0
    looked_up: bool = False
    cache_key: str = ""

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: the higher, the sooner it is sent.

        Among equal priorities the older question comes first.
        """
        return (self.priority, -self.serial)


@dataclass(eq=False)
class InFlight:
    """A question in flight, with a worker.

    booking: what it may cost.
    deadline: clock time by which the backend must return.
    given_up: whether the pool's owner waits for it no longer.
    """

    entry: Entry
    booking: Booking
    deadline: float
    given_up: bool = False


class Finished(NamedTuple):
    """A worker's result.

    latency: in seconds.
    fault: the class name of an exception, or "".
    died: whether it ended its thread, as SystemExit does.
    """

    job: InFlight
    answer: Answer
    latency: float
    fault: str = ""
    died: bool = False


def left_behind(threads: Sequence[threading.Thread], seconds: float) -> list[str]:
    """Wait for threads, at most `seconds` in total, and name those that still run."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]


@dataclass(eq=False)
class WorkerPool:
    """A pool of `size` workers.

    A worker that is `grace` seconds past its job's deadline is given up and replaced. A worker that
    dies is also replaced. After `size` replacements there are no more, and the pool is `short`: a
    backend that always hangs must not leak threads.

    answer: called in many threads.
    post: receives every Finished, including late ones of workers that were given up.
    """

    answer: Callable[[Question, float], Answer]
    size: int
    grace: float
    clock: Callable[[], float]
    post: Callable[[Finished], None]

    def __post_init__(self) -> None:
        self._gone, self._stopping = 0, False
        self._busy: set[InFlight] = set()
        self._threads: list[threading.Thread] = []
        self._inbox: queue.SimpleQueue[InFlight | None] = queue.SimpleQueue()
        for _ in range(self.size):
            self._hire()

    def _hire(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"advisor-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _replace(self) -> None:
        self._gone += 1
        if self._gone <= self.size and not self._stopping:
            self._hire()

    @property
    def _workers(self) -> int:
        return min(self.size, 2 * self.size - self._gone)

    @property
    def short(self) -> bool:
        """Whether a worker is gone and no replacement was left."""
        return self._workers < self.size and not self._stopping

    @property
    def busy(self) -> int:
        """The number of questions that workers hold."""
        return len(self._busy)

    @property
    def free(self) -> int:
        """The number of questions that may be asked beside those."""
        return self._workers - self.busy

    @property
    def threads(self) -> int:
        """The number of live threads, including those of workers that were given up."""
        return sum(thread.is_alive() for thread in self._threads)

    def start(self, job: InFlight) -> None:
        """Give `job` to a free worker. Needs `free` > 0."""
        self._busy.add(job)
        self._inbox.put(job)

    def note_result(self, finished: Finished) -> bool:
        """Note a result.

        Returns False where it is late, that is, its job was given up.
        """
        if finished.job.given_up:
            return False
        self._busy.remove(finished.job)
        if finished.died:
            self._replace()
        return True

    def replace_stuck(self, now: float) -> list[InFlight]:
        """Give up the workers that are stuck, replace them, and return their jobs."""
        found = [job for job in self._busy if now > job.deadline + self.grace]
        for job in found:
            job.given_up = True
            self._busy.remove(job)
            self._replace()
        return found

    def stop(self) -> None:
        """Let all workers end after their current job. No worker is replaced any more."""
        self._stopping = True
        for _ in self._threads:
            self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for all threads, at most `seconds` in total."""
        left_behind(self._threads, seconds)

    def _work(self) -> None:
        while job := self._inbox.get():
            finished, lost = self._ask(job), job.given_up
            self.post(finished)
            if finished.died or lost:
                return

    def _ask(self, job: InFlight) -> Finished:
        began, fault, died = self.clock(), "", False
        try:
            answer = self.answer(job.entry.question, job.deadline)
            if not isinstance(answer, Answer):
                raise TypeError
        except BaseException as error:
            fault = type(error).__name__  # not its text, which might contain a secret
            died = not isinstance(error, Exception)  # SystemExit and similar: its state is unknown
            answer = Answer(None, Failure.RAISED, f"the backend raised {fault}")
        return Finished(job, answer, self.clock() - began, fault, died)


_RANK = attrgetter("rank")


@dataclass(eq=False)
class QuestionQueue:
    """Holds at most `capacity` waiting questions.

    A question expires `ttl` chunks after it was last submitted.
    """

    capacity: int
    ttl: int
    counts: ServiceCounts

    def __post_init__(self) -> None:
        self._chunk = self._serial = 0
        self.unseen = 0  # waiting questions that have not been looked up in the cache yet
        # In the order of `chunk`, so that `tick` finds the oldest first.
        self._waiting: dict[QuestionKey, Entry] = {}
        self._ranked: list[Entry] = []  # the same by rank, so that the last is sent first
        self._flying: dict[QuestionKey, Entry] = {}
        # How it ended, and the time from which it may be sent again.
        self._settled: dict[QuestionKey, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """The number of questions that have been sent and not answered."""
        return len(self._flying)

    def state(self, key: QuestionKey) -> str:
        """Return where the question `key` stands.

        It is `absent` (never submitted, or dropped because the queue was full), `queued`, `in
        flight`, or the count of `ServiceCounts` that it ended in. Failed and dropped (after a
        while) and expired questions may be sent again, all others never again in this run.
        """
        if key in self._waiting:
            return "queued"
        if key in self._flying:
            return "in flight"
        return self._settled.get(key, ("absent", 0.0))[0]

    # --- submissions -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Count one chunk.

        Questions not submitted again for `ttl` chunks expire.
        """
        self._chunk += 1
        while self._waiting:
            entry = next(iter(self._waiting.values()))
            if entry.chunk > self._chunk - self.ttl:
                break
            self._leave(entry)
            self._settled[entry.key] = ("expired", -math.inf)
            self.counts.expired += 1

    def submit(self, question: Question, priority: float, now: float) -> None:
        """Request an answer.

        Questions of higher `priority` are sent first; one that is not finite is dropped.
        """
        self.counts.submitted += 1
        key = QuestionKey(question.bar, question.prompt_version)
        if not math.isfinite(priority):
            self.counts.dropped += 1
        elif entry := self._waiting.get(key):
            self.counts.deduped += 1
            self._leave(entry)
            entry.priority, entry.chunk = max(entry.priority, priority), self._chunk
            self._join(entry)
        elif entry := self._flying.get(key):  # where it is sent again, with this priority
            self.counts.deduped += 1
            entry.priority = max(entry.priority, priority)
        elif key in self._settled and now < self._settled[key][1]:
            self.counts.deduped += 1
        else:
            self._settled.pop(key, None)
            self._serial += 1
            self._join(Entry(key, question, priority, self._serial, self._chunk))
            self._make_room()

    def _make_room(self) -> None:
        if len(self._waiting) > self.capacity:
            self._leave(self._ranked[0])
            self.counts.dropped += 1

    def _join(self, entry: Entry) -> None:
        self._waiting[entry.key] = entry
        self.unseen += not entry.looked_up
        bisect.insort(self._ranked, entry, key=_RANK)

    def _leave(self, entry: Entry) -> None:
        del self._waiting[entry.key]
        self.unseen -= not entry.looked_up
        del self._ranked[bisect.bisect_left(self._ranked, entry.rank, key=_RANK)]

    # --- choosing what to send ----------------------------------------------------------------------------------------

    def to_look_up(self, most: int) -> list[Entry]:
        """Return at most `most` questions that have not been looked up in the cache.

        Those of the highest priority come first.
        """
        unseen = (e for e in reversed(self._ranked) if not e.looked_up)
        return list(islice(unseen, min(most, self.unseen)))

    def looked_up(self, entry: Entry) -> None:
        """Note that the cache does not have the answer."""
        self.unseen -= not entry.looked_up
        entry.looked_up = True

    def next(self, now: float) -> Entry | None:
        """Return the question of the highest priority that may be sent now, or None."""
        found = (e for e in reversed(self._ranked) if e.looked_up and e.not_before <= now)
        return next(found, None)

    # --- state changes -----------------------------------------------------------------------------------------------

    def start(self, entry: Entry) -> None:
        """Move a waiting question into flight."""
        self._leave(entry)
        entry.attempts += 1
        self._flying[entry.key] = entry

    def requeue(self, entry: Entry, not_before: float) -> None:
        """Put a question in flight back into the queue for a retry.

        Its time to expiry starts again.
        """
        del self._flying[entry.key]
        entry.not_before, entry.chunk = not_before, self._chunk
        self._join(entry)
        self._make_room()

    def close_question(self, entry: Entry, count: str, until: float = math.inf) -> None:
        """Close a question, waiting or in flight. It is not sent again before `until`.

        Args:
            count: the count of `ServiceCounts` that it is added to.
        """
        if not self._flying.pop(entry.key, None):
            self._leave(entry)
        self._settled[entry.key] = (count, until)
        setattr(self.counts, count, getattr(self.counts, count) + 1)

    def forgive(self, key: QuestionKey) -> None:
        """Let a failed question be submitted again at once, because its answer is now cached."""
        if self.state(key) in ("failed", "dropped"):
            del self._settled[key]


_LOOK_UPS = 256  # cache look-ups in one turn
_FLUSH_AGAIN_S = 1.0  # before the next flush, where another process holds the cache's file


@dataclass(eq=False)
class Desk:
    """The rules of the service, separate from its threads so that tests can call them directly.

    ready: receives every answer once, as (bar, advice).
    faults: counts contained exceptions, and logs one line per problem.
    use: what the answers are for.
    """

    backend: Backend
    options: ServiceOptions
    clock: Callable[[], float]
    cache: AdviceCache
    ledger: Ledger
    pool: WorkerPool
    ready: deque[tuple[int, Advice]]
    faults: ContainedFaults
    use: ServiceUse

    def __post_init__(self) -> None:
        options, backend = self.options, self.backend
        self._identity = dict(backend.identity())
        self.counts = ServiceCounts()
        self.queue = QuestionQueue(options.queue_size, options.ttl_chunks, self.counts)
        self.gates = Gates(
            options, self.ledger, self.counts, backend, self.faults.log, self.clock(), self.use
        )
        self._rng = random.Random(options.seed)
        self._flush_at = -math.inf
        self._repeated: dict[QuestionKey, Counter[str]] = defaultdict(Counter)

    # --- messages ----------------------------------------------------------------------------------------------------

    def queue_questions(self, batch: Sequence[tuple[Question, float]]) -> None:
        """Queue one chunk's questions with their priorities.

        An empty batch still counts as a chunk.
        """
        now = self.clock()
        self.queue.tick()
        for question, priority in batch:
            self.queue.submit(question, priority, now)

    def handle_result(self, finished: Finished) -> None:
        """Handle a worker's result."""
        now = self.clock()
        answer = check_answer(finished.answer)
        if finished.fault:
            line = f"advisor: the backend raised {finished.fault}; contained"
            self.faults.trouble(finished.fault, line)
        job = finished.job
        if not self.pool.note_result(finished):  # the job was already settled as lost
            self._late(job, answer)
            return
        self.counts.died += finished.died
        for latency in [part.latency for part in answer.parts] or [finished.latency]:
            self.counts.latency.add(latency)
        self.gates.account(job.booking, answer)
        answer = self.gates.of_one_model(answer)
        self.gates.learn(job.booking, answer, now)
        self._close_question(job.entry, answer, now)

    # --- a turn ------------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Take one turn: close lost requests, write answers, look up questions, send requests.

        Returns whether another turn would find more to look up at once. Answers are written before
        new requests are sent, so a killed process loses at most one answer per worker.
        """
        now = self.clock()
        self._give_up(now)
        if now >= self._flush_at:
            self._flush_at = -math.inf if self.cache.flush() else now + _FLUSH_AGAIN_S
        if self.gates.stopping:
            return False
        more = self._look_up()
        while self._ask_next(now):
            pass
        return more

    def _space(self) -> int:
        """Return how many more answers may wait to be taken, after all requests in flight."""
        return self.options.ready_rows - len(self.ready) - self.pool.busy

    def _give_up(self, now: float) -> None:
        """Close the requests of stuck workers.

        Refuse all others where too few workers are left.

        These questions are not sent again in this run: the first request may still be open, and
        would be paid twice.
        """
        for job in self.pool.replace_stuck(now):
            self.counts.stuck += 1
            answer = Answer(None, Failure.TIMEOUT, "no return at the deadline")
            self.gates.learn(job.booking, answer, now)
            self.queue.close_question(job.entry, "failed")
        if self.pool.short:
            self.gates.refuse(
                f"workers hang or end, and all {self.options.workers} replacements are used", now
            )

    def _look_up(self) -> bool:
        """Look up waiting questions in the cache and return whether there are more to look up."""
        for entry in self.queue.to_look_up(min(_LOOK_UPS, max(0, self._space()))):
            entry.cache_key = self.cache.key(self._identity, entry.question)
            if not self._answer_from_cache(entry):
                self.queue.looked_up(entry)
        return self.queue.unseen > 0 and self._space() > 0

    def _answer_from_cache(self, entry: Entry) -> bool:
        """Close a waiting question from the cache and return whether the cache had its answer."""
        cached = self.cache.get(entry.cache_key)
        if cached and cached.advice:
            if problem(cached.advice):
                return False  # an edited or old file: send the question again
            self.queue.close_question(entry, "cache_hit")
            self.ready.append((entry.key.bar, cached.advice))
            return True
        if cached and cached.failure:
            # Failures of earlier runs count like this run's.
            faults, fault = self._repeated[entry.key], cached.failure.value
            faults[fault] = max(faults[fault], cached.attempts)
            if cached.attempts >= self.options.poison_after:
                self.queue.close_question(entry, "poisoned")
                self.counts.negatives += 1
                return True
        return False

    def _ask_next(self, now: float) -> bool:
        """Send the most wanted question to a worker.

        Returns False where no request may start now.
        """
        busy = self.pool.busy
        if self._space() <= 0 or self.pool.free <= 0 or not self.gates.are_open(now, busy):
            return False
        if not (entry := self.queue.next(now)):
            return False
        if self._answer_from_cache(
            entry
        ):  # another process or a late worker has answered it since the look-up
            return True
        booking = self.gates.book(entry.question.prompt, entry.attempts == 0, now, busy)
        if booking:
            self.queue.start(entry)
            self.pool.start(InFlight(entry, booking, now + booking.calls * self.options.deadline_s))
        return bool(booking)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _close_question(self, entry: Entry, answer: Answer, now: float) -> None:
        """Close a question with its answer: done, poisoned, queued for a retry, or failed.

        No advice is invented.
        """
        self.cache.put(entry.cache_key, entry.question, answer)
        if answer.advice:
            self._repeated.pop(entry.key, None)
            self.queue.close_question(entry, "done")
            self.ready.append((entry.key.bar, answer.advice))
        elif answer.failure is Failure.STOPPED:
            self.queue.close_question(entry, "dropped", now + self.options.failed_for_s)
        elif (
            answer.failure is Failure.UNSUPPORTED
            and entry.attempts <= MOST_FALLBACKS
            and not self.gates.stopping
        ):
            self._again(entry, now)
        elif self._is_poison(entry.key, verdict_of(answer).fault):
            self.queue.close_question(entry, "poisoned")
        elif not self.gates.stopping and self.gates.may_retry(answer, entry.attempts):
            # Decorrelated jitter (Brooker 2015) of the wait before the last attempt.
            base = self.options.retry_base_s
            wait = self._rng.uniform(base, max(base, 3 * entry.delay))
            entry.delay = min(self.options.retry_cap_s, wait)
            self._again(entry, now + max(entry.delay, answer.retry_after))
        else:
            until = now + max(self.options.failed_for_s, answer.retry_after)
            self.queue.close_question(entry, "failed", until)

    def _again(self, entry: Entry, not_before: float) -> None:
        self.counts.retried += 1
        self.queue.requeue(entry, not_before)

    def _is_poison(self, key: QuestionKey, fault: str) -> bool:
        if not fault:
            return False
        faults = self._repeated[key]
        faults[fault] += 1
        return faults[fault] >= self.options.poison_after

    def _late(self, job: InFlight, answer: Answer) -> None:
        """Handle the answer of a worker that was given up.

        It is paid for, so the cache keeps it.
        """
        self.gates.account(job.booking, answer)
        if self.gates.of_one_model(answer).advice:
            self.counts.late += 1
            self.cache.put(job.entry.cache_key, job.entry.question, answer)
            self.queue.forgive(job.entry.key)

    def snapshot(self) -> dict[str, Any]:
        """Return all counts, as JSON values."""
        breaker = self.gates.breaker
        return self.counts.snapshot(
            len(self.queue),
            self.queue.in_flight,
            mode="stopped" if self.gates.stopping else one_line(self.gates.mode),
            unseen=self.queue.unseen,
            faults=self.faults.counts(),
            cost=self.gates.cost,
            unusable_state=self.gates.unusable.state,
            unusable_pauses=self.gates.unusable.openings,
            breaker=breaker.state,
            breaker_openings=breaker.openings,
            breaker_open_s=breaker.open_seconds(self.clock()),
            concurrency=self.gates.concurrency.limit,
            threads=self.pool.threads,
            cache_degraded=self.cache.degraded,
        )
