"""The desk: decides which question to send, when, and what to do with the answer. Its state belongs
to one thread.

A question is looked up in the cache, waits in the queue, passes the gates and is sent. After that
it is done, failed, poisoned, or back in the queue for a retry. Nothing here blocks: a question that
waits for a retry occupies no worker.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtrade.advisor.host.cache import AdviceCache, Cached
from jaxtrade.advisor.host.forms import MOST_FALLBACKS
from jaxtrade.advisor.host.gates import TRAINING, Booking, Gates, Use, asked_wait
from jaxtrade.advisor.host.ledger import Ledger
from jaxtrade.advisor.host.limits import jittered
from jaxtrade.advisor.host.queue import Entry, Key, QuestionQueue
from jaxtrade.advisor.host.samples import calls_of
from jaxtrade.advisor.host.statistics import Statistics
from jaxtrade.advisor.host.types import Advice, Answer, Backend, Clock, Failure, Question
from jaxtrade.advisor.host.verdict import checked, one_line, problem, verdict_of
from jaxtrade.advisor.host.workers import Finished, Job, WorkerPool
from jaxtrade.config.service import ServiceOptions

_LOOK_UPS = 256  # cache look-ups in one turn
_FLUSH_AGAIN_S = 1.0  # before the next flush, where another process holds the cache's file


class _Flight(NamedTuple):
    """A request in flight."""

    entry: Entry
    booking: Booking


class Outlet(NamedTuple):
    """Where the desk's results go.

    deliver: receives every answer once. room: returns how many more answers it can receive. tell:
        receives one line per
    problem. use: what the answers are for.
    """

    deliver: Callable[[int, Advice], None]
    room: Callable[[], int]
    tell: Callable[[str], None]
    use: Use = TRAINING


class Desk:
    """The rules of the service, separate from its threads so that tests can call them directly."""

    def __init__(
        self,
        backend: Backend,
        options: ServiceOptions,
        clock: Clock,
        cache: AdviceCache,
        ledger: Ledger,
        pool: WorkerPool,
        outlet: Outlet,
    ) -> None:
        self._options, self._clock, self._cache, self._pool, self._outlet = (
            options,
            clock,
            cache,
            pool,
            outlet,
        )
        self._identity = dict(backend.identity())
        self.counts = Statistics()
        self.queue = QuestionQueue(options.queue_size, options.ttl_chunks, self.counts)
        self.gates = Gates(
            options, ledger, self.counts, backend, outlet.tell, clock.monotonic(), outlet.use
        )
        self._rng = random.Random(options.seed)
        self._flush_at = -math.inf
        self._flights: dict[int, _Flight] = {}  # by job number
        self._abandoned: dict[
            int, _Flight
        ] = {}  # flights of workers that are stuck or dead, by job number
        self._faults: dict[Key, Counter[str]] = {}
        self._jobs = 0
        self._calls = calls_of(backend)

    @property
    def stopping(self) -> bool:
        """Whether the run ends: no more requests are sent."""
        return self.gates.stopping

    @stopping.setter
    def stopping(self, value: bool) -> None:
        self.gates.stopping = value

    @property
    def in_flight(self) -> int:
        """The number of questions that workers hold."""
        return len(self._flights)

    # --- messages ----------------------------------------------------------------------------------------------------

    def wanted(self, batch: Sequence[tuple[Question, float]]) -> None:
        """Queue one chunk's questions with their priorities. An empty batch still counts as a
        chunk.
        """
        now = self._clock.monotonic()
        self.queue.tick()
        for question, priority in batch:
            self.queue.submit(question, priority, now)

    def finished(self, finished: Finished) -> None:
        """Handle a worker's result."""
        now = self._clock.monotonic()
        answer = checked(finished.answer)
        if finished.fault:
            self.contained(
                finished.fault, f"advisor: the backend raised {finished.fault}; contained"
            )
        flight = self._flights.pop(finished.job.number, None)
        if (
            not self._pool.returned(finished) or flight is None
        ):  # the job was already settled as lost
            self._late(finished.job, answer)
            return
        self.counts.died += finished.died
        for latency in [part.latency for part in answer.parts] or [finished.latency]:
            self.counts.latency.add(latency)
        self.gates.account(flight.booking, answer)
        answer = self.gates.of_one_model(answer)
        self.gates.learn(flight.booking, answer, now)
        self._settle(flight.entry, answer, now)
        self._check_pool(now)

    def contained(self, name: str, line: str) -> int:
        """Count a contained exception and report the first of its kind. Returns the count of that
        kind.
        """
        self.counts.faults[name] += 1
        if self.counts.faults[name] == 1:
            self._outlet.tell(line)
        return self.counts.faults[name]

    # --- a turn ------------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """One turn: settle lost requests, write answers, look up questions, send requests.

        Returns whether another turn would find more to look up at once. Answers are written before
        new requests are sent, so a killed process loses at most one answer per worker.
        """
        now = self._clock.monotonic()
        self._give_up(now)
        if now >= self._flush_at:
            self._flush_at = -math.inf if self._cache.flush() else now + _FLUSH_AGAIN_S
        if self.stopping:
            return False
        more = self._look_up()
        while self._ask_next(now):
            pass
        return more

    def _space(self) -> int:
        """How many more answers the outlet can take, after all requests in flight."""
        return self._outlet.room() - len(self._flights)

    def _give_up(self, now: float) -> None:
        """Settle the requests of stuck and dead workers.

        These questions are not sent again in this run: the first request may still be open, and
        would be paid twice.
        """
        for job, died in self._pool.lost(now):
            flight = self._flights.pop(job.number)
            self._abandoned[job.number] = flight
            self.counts.died += died
            self.counts.stuck += not died
            answer = (
                Answer(None, Failure.RAISED, "its worker ended")
                if died
                else Answer(None, Failure.TIMEOUT, "no return at the deadline")
            )
            self.gates.learn(flight.booking, answer, now)
            self.queue.failed(flight.entry, math.inf)
        self._check_pool(now)

    def _check_pool(self, now: float) -> None:
        if self._pool.short:
            self.gates.refuse(
                f"workers hang or end, and all {self._options.workers} replacements are used", now
            )

    def _look_up(self) -> bool:
        """Look up waiting questions in the cache. Returns whether there are more to look up."""
        for entry in self.queue.to_look_up(min(_LOOK_UPS, max(0, self._space()))):
            entry.cache_key = self._cache.key(self._identity, entry.question)
            if not self._known(entry):
                self.queue.looked_up(entry)
        return bool(self.queue.to_look_up(1)) and self._space() > 0

    def _known(self, entry: Entry) -> bool:
        """Settle a waiting question from the cache. Returns whether the cache settled it."""
        cached = self._cache.get(entry.cache_key)
        if cached is None:
            return False
        if cached.advice is None:
            return self._known_to_fail(entry, cached)
        if problem(cached.advice):  # an edited or old file: send the question again
            return False
        self.queue.hit(entry)
        self._outlet.deliver(entry.key.bar, cached.advice)
        return True

    def _known_to_fail(self, entry: Entry, cached: Cached) -> bool:
        """Settle a waiting question whose cached failures poison it. Failures of earlier runs count
        like this run's.
        """
        if cached.failure is None:
            return False
        faults = self._faults.setdefault(entry.key, Counter())
        faults[cached.failure.value] = max(faults[cached.failure.value], cached.attempts)
        if cached.attempts < self._options.poison_after:
            return False
        self.queue.poisoned(entry)
        self.counts.negatives += 1
        return True

    def _ask_next(self, now: float) -> bool:
        """Send the most wanted question to a worker. Returns False where no request may start
        now.
        """
        if (
            self._space() <= 0
            or self._pool.free <= 0
            or not self.gates.are_open(now, len(self._flights))
        ):
            return False
        if (entry := self.queue.next(now)) is None:
            return False
        if self._known(entry):  # another process or a late worker has answered it since the look-up
            return True
        booking = self.gates.book(
            entry.question.prompt, entry.attempts == 0, now, len(self._flights)
        )
        if booking is None:
            return False
        self.queue.start(entry)
        self._jobs += 1
        self._flights[self._jobs] = _Flight(entry, booking)
        self._pool.start(
            Job(self._jobs, entry.question, now + self._calls * self._options.deadline_s)
        )
        return True

    # --- answers -----------------------------------------------------------------------------------------------------

    def _settle(self, entry: Entry, answer: Answer, now: float) -> None:
        """Settle a question with its answer: done, poisoned, queued for a retry, or failed. No
        advice is invented.
        """
        self._cache.put(entry.cache_key, entry.question, answer._replace(parts=()))
        if answer.advice is not None:
            self._faults.pop(entry.key, None)
            self.queue.done(entry)
            self._outlet.deliver(entry.key.bar, answer.advice)
        elif answer.failure is Failure.STOPPED:
            self.queue.cancelled(entry, now + self._options.failed_for_s)
        elif (
            answer.failure is Failure.UNSUPPORTED
            and entry.attempts <= MOST_FALLBACKS
            and not self.stopping
        ):
            self.counts.retried += 1
            self.queue.again(entry, now)
        elif self._is_poison(entry.key, verdict_of(answer).fault):
            self.queue.poisoned(entry)
        elif not self.stopping and self.gates.may_retry(answer, entry.attempts):
            entry.delay = jittered(
                entry.delay, self._options.retry_base_s, self._options.retry_cap_s, self._rng
            )
            self.counts.retried += 1
            self.queue.again(entry, now + max(entry.delay, asked_wait(answer)))
        else:
            self.queue.failed(entry, now + max(self._options.failed_for_s, asked_wait(answer)))

    def _is_poison(self, key: Key, fault: str) -> bool:
        if not fault:
            return False
        faults = self._faults.setdefault(key, Counter())
        faults[fault] += 1
        return faults[fault] >= self._options.poison_after

    def _late(self, job: Job, answer: Answer) -> None:
        """Handle the answer of a worker that was given up. It is paid for, so the cache keeps
        it.
        """
        if (flight := self._abandoned.pop(job.number, None)) is None:
            return
        self.gates.account(flight.booking, answer)
        if self.gates.of_one_model(answer).advice is not None:
            self.counts.late += 1
            self._cache.put(
                flight.entry.cache_key, flight.entry.question, answer._replace(parts=())
            )
            self.queue.forgive(flight.entry.key)

    def snapshot(self) -> dict[str, Any]:
        """All counts, as JSON values."""
        breaker = self.gates.breaker
        return self.counts.snapshot(
            len(self.queue),
            self.queue.in_flight,
            mode="stopped" if self.stopping else one_line(self.gates.mode),
            unseen=self.queue.unseen,
            cost=self.gates.cost,
            unusable_state=self.gates.unusable.state,
            unusable_pauses=self.gates.unusable.pauses,
            breaker=breaker.state,
            breaker_openings=breaker.openings,
            breaker_open_s=breaker.open_seconds(self._clock.monotonic()),
            concurrency=self.gates.concurrency.limit,
            threads=self._pool.threads,
            cache_degraded=self._cache.degraded,
        )
