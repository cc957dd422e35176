"""Worker threads, each of which sends one question at a time. They make no decisions.

One other thread, the pool's owner, gives them jobs, receives their results and replaces workers
that are stuck or dead. They are daemon threads instead of a standard thread pool, because that pool
waits at exit for threads that hang.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from jaxtrade.advisor.host.types import Answer, Clock, Failure, Question


class Job(NamedTuple):
    """A question for a worker. deadline: clock time by which the backend must return."""

    number: int
    question: Question
    deadline: float


class Finished(NamedTuple):
    """A worker's result.

    worker: the worker's number. latency: in seconds. fault: the class name of an exception, or "".
        died: whether the
    worker's thread ends after this result.
    """

    worker: int
    job: Job
    answer: Answer
    latency: float
    fault: str = ""
    died: bool = False


class Lost(NamedTuple):
    """A job whose worker is stuck, or died without a result."""

    job: Job
    died: bool


class _Worker:
    """A thread and its current job."""

    def __init__(self, number: int, work: Callable[[_Worker], None]) -> None:
        self.number = number
        self.job: Job | None = None
        self.written_off = False
        self.inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(
            target=work, args=(self,), name=f"advisor-{number}", daemon=True
        )
        self.thread.start()


class WorkerPool:
    """A pool of `size` workers.

    A worker that is `grace` seconds past its job's deadline is written off and replaced. A worker
    that dies is also replaced. After `size` replacements there are no more, and the pool is
    `short`.

    answer: called in many threads. post: receives every Finished, including late ones of
        written-off workers.
    """

    def __init__(
        self,
        answer: Callable[[Question, float], Answer],
        size: int,
        grace: float,
        clock: Clock,
        post: Callable[[Finished], None],
    ) -> None:
        self._answer, self._grace, self._clock, self._post = answer, grace, clock, post
        self._size = size
        self._started = 0
        self._stopping = False
        self._workers: dict[int, _Worker] = {}
        self._written_off: dict[int, _Worker] = {}
        for _ in range(size):
            self._hire()

    def _hire(self) -> None:
        self._started += 1
        self._workers[self._started] = _Worker(self._started, self._work)

    def _replace(self, worker: _Worker) -> None:
        del self._workers[worker.number]
        if (
            self._started < 2 * self._size and not self._stopping
        ):  # a backend that always hangs must not leak threads
            self._hire()

    @property
    def short(self) -> bool:
        """Whether a worker is gone and no replacement was left."""
        return len(self._workers) < self._size and not self._stopping

    @property
    def busy(self) -> int:
        """The number of workers that hold a question."""
        return sum(worker.job is not None for worker in self._workers.values())

    @property
    def free(self) -> int:
        """The number of workers that wait for a question."""
        return len(self._workers) - self.busy

    @property
    def threads(self) -> int:
        """The number of live threads, including written-off ones."""
        return sum(
            worker.thread.is_alive()
            for worker in (*self._workers.values(), *self._written_off.values())
        )

    def start(self, job: Job) -> None:
        """Give `job` to a free worker. Needs `free` > 0."""
        worker = next(worker for worker in self._workers.values() if worker.job is None)
        worker.job = job
        worker.inbox.put(job)

    def returned(self, finished: Finished) -> bool:
        """Note a result. Returns False where it is late, that is, its job was already reported as
        lost.
        """
        self._written_off.pop(finished.worker, None)
        worker = self._workers.get(finished.worker)
        if worker is None:
            return False
        worker.job = None
        if finished.died:
            self._replace(worker)
        return True

    def lost(self, now: float) -> list[Lost]:
        """The jobs of workers that are stuck or died without a result. Replaces these workers."""
        found = []
        for worker in list(self._workers.values()):
            dead = not worker.thread.is_alive()
            stuck = worker.job is not None and now > worker.job.deadline + self._grace
            if stuck or (dead and not (self._stopping and worker.job is None)):
                if worker.job is not None:
                    found.append(Lost(worker.job, dead))
                if not dead:
                    worker.written_off = True
                    self._written_off[worker.number] = worker
                self._replace(worker)
        return found

    def stop(self) -> None:
        """Let all workers end after their current job. No worker is replaced any more."""
        self._stopping = True
        for worker in (*self._workers.values(), *self._written_off.values()):
            worker.inbox.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for all threads, at most `seconds` in total. Returns whether all have ended."""
        until = time.monotonic() + seconds
        for worker in (*self._workers.values(), *self._written_off.values()):
            worker.thread.join(max(0.0, until - time.monotonic()))
        return self.threads == 0

    # --- in the workers' threads -------------------------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while (job := worker.inbox.get()) is not None:
            finished = self._ask(worker.number, job)
            self._post(finished)
            if finished.died or worker.written_off:
                return

    def _ask(self, number: int, job: Job) -> Finished:
        def raised(error: BaseException, died: bool) -> Finished:
            name = type(error).__name__  # not its text, which might contain a secret
            answer = Answer(None, Failure.RAISED, f"the backend raised {name}")
            return Finished(number, job, answer, self._clock.monotonic() - began, name, died)

        began = self._clock.monotonic()
        try:
            answer = self._answer(job.question, job.deadline)
            if not isinstance(answer, Answer):
                raise TypeError
        except Exception as error:
            return raised(error, died=False)
        except (
            BaseException
        ) as error:  # SystemExit and similar: end the thread, whose state is unknown
            return raised(error, died=True)
        return Finished(number, job, answer, self._clock.monotonic() - began)
