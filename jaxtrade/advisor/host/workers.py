"""Worker threads, each of which sends one question at a time. They make no decisions.

One other thread, the pool's owner, gives them jobs, receives their results and replaces workers
that are stuck or dead. They are daemon threads instead of a standard thread pool, because that pool waits at exit
for threads that hang.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from jaxtrade.advisor.host.types import Answer, Failure, Question


class Job(NamedTuple):
    """A question for a worker. deadline: clock time by which the backend must return."""

    number: int
    question: Question
    deadline: float


class Finished(NamedTuple):
    """A worker's result.

    latency: in seconds. fault: the class name of an exception, or "". died: whether it ended its
    thread, as SystemExit does.
    """

    job: Job
    answer: Answer
    latency: float
    fault: str = ""
    died: bool = False


class WorkerPool:
    """A pool of `size` workers.

    A worker that is `grace` seconds past its job's deadline is given up and replaced. A worker that
    dies is also replaced. After `size` replacements there are no more, and the pool is `short`: a
    backend that always hangs must not leak threads.

    answer: called in many threads. post: receives every Finished, including late ones of workers
        that were given up.
    """

    def __init__(
        self,
        answer: Callable[[Question, float], Answer],
        size: int,
        grace: float,
        clock: Callable[[], float],
        post: Callable[[Finished], None],
    ) -> None:
        self._answer, self._grace, self._clock, self._post = answer, grace, clock, post
        self._size, self._gone, self._stopping = size, 0, False
        self._busy: dict[int, Job] = {}
        self._given_up: set[int] = set()  # numbers of jobs
        self._threads: list[threading.Thread] = []
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for _ in range(size):
            self._hire()

    def _hire(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"advisor-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _replace(self) -> None:
        self._gone += 1
        if self._gone <= self._size and not self._stopping:
            self._hire()

    @property
    def _workers(self) -> int:
        return min(self._size, 2 * self._size - self._gone)

    @property
    def short(self) -> bool:
        """Whether a worker is gone and no replacement was left."""
        return self._workers < self._size and not self._stopping

    @property
    def free(self) -> int:
        """The number of questions that may be asked beside those under way."""
        return self._workers - len(self._busy)

    @property
    def threads(self) -> int:
        """The number of live threads, including those of workers that were given up."""
        return sum(thread.is_alive() for thread in self._threads)

    def start(self, job: Job) -> None:
        """Give `job` to a free worker. Needs `free` > 0."""
        self._busy[job.number] = job
        self._inbox.put(job)

    def returned(self, finished: Finished) -> bool:
        """Note a result. Returns False where it is late, that is, its job was given up."""
        self._given_up.discard(finished.job.number)
        if self._busy.pop(finished.job.number, None) is None:
            return False
        if finished.died:
            self._replace()
        return True

    def lost(self, now: float) -> list[Job]:
        """Give up the workers that are stuck, and replace them. Returns their jobs."""
        found = [job for job in self._busy.values() if now > job.deadline + self._grace]
        for job in found:
            del self._busy[job.number]
            self._given_up.add(job.number)
            self._replace()
        return found

    def stop(self) -> None:
        """Let all workers end after their current job. No worker is replaced any more."""
        self._stopping = True
        for _ in self._threads:
            self._inbox.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for all threads, at most `seconds` in total. Returns whether all have ended."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return self.threads == 0

    def _work(self) -> None:
        while (job := self._inbox.get()) is not None:
            finished, lost = self._ask(job), job.number in self._given_up
            self._post(finished)
            if finished.died or lost:
                return

    def _ask(self, job: Job) -> Finished:
        began = self._clock()
        try:
            answer = self._answer(job.question, job.deadline)
            if not isinstance(answer, Answer):
                raise TypeError
            return Finished(job, answer, self._clock() - began)
        except BaseException as error:
            name = type(error).__name__  # not its text, which might contain a secret
            answer = Answer(None, Failure.RAISED, f"the backend raised {name}")
            died = not isinstance(error, Exception)  # SystemExit and similar: its state is unknown
            return Finished(job, answer, self._clock() - began, name, died)
