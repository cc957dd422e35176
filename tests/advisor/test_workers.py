"""Worker threads: stuck, dead, late, stopped."""

from __future__ import annotations

import threading
import time

import pytest

from jaxtrade.advisor.host.desk import Finished, Job, WorkerPool
from jaxtrade.advisor.host.types import Failure
from tests.advisor.asking import SOON
from tests.advisor.service_parts import CANARY, good, question, until


class Bench:
    """A pool of 2, what it posted, and a gate that holds its backend."""

    def __init__(self, answer=None, size=2):
        self.gate = threading.Event()
        self.holding = threading.Semaphore(0)
        self.posted: list[Finished] = []
        self.pool = WorkerPool(answer or self.held, size, 0.05, time.monotonic, self.posted.append)

    def held(self, asked, deadline):
        self.holding.release()
        self.gate.wait(30)
        return good(model=f"{asked.bar}")

    def start(self, number, deadline=60.0):
        job = Job(number, question(number), time.monotonic() + deadline)
        self.pool.start(job)
        return job


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.gate.set()
    bench.pool.stop()
    assert bench.pool.join(5)


def test_answers_come_back_with_their_own_question_and_latency(bench):
    jobs = [bench.start(number) for number in (1, 2)]
    assert bench.pool.free == 0
    assert all(bench.holding.acquire(timeout=30) for _ in jobs)
    time.sleep(0.03)
    bench.gate.set()
    assert until(lambda: len(bench.posted) == 2)
    bench.posted.sort(key=lambda finished: finished.job.number)
    assert [(finished.job, finished.answer.model) for finished in bench.posted] == [
        (jobs[0], "1"),
        (jobs[1], "2"),
    ]
    assert all(0.03 <= finished.latency < 5 for finished in bench.posted)
    assert all(bench.pool.returned(finished) for finished in bench.posted)
    assert bench.pool.free == 2


def test_a_stuck_worker_is_given_up_after_the_grace_and_replaced(bench):
    job = bench.start(1, deadline=0.0)
    now = time.monotonic()
    assert bench.pool.lost(job.deadline + 0.05) == []
    assert bench.pool.lost(now + 0.06) == [job]
    assert (bench.pool.free, bench.pool.threads, bench.pool.short) == (2, 3, False)
    bench.gate.set()  # it comes back after all: late, and its thread ends
    assert until(lambda: bool(bench.posted))
    assert bench.pool.returned(bench.posted[0]) is False
    assert until(lambda: bench.pool.threads == 2)


def test_replacements_end_after_as_many_as_there_are_workers(bench):
    """Threads stay bounded (I4) when the backend hangs for ever."""
    for number in range(3):
        assert not bench.pool.short
        job = bench.start(number, deadline=0.0)
        assert bench.pool.lost(job.deadline + 1) == [job]
    assert (bench.pool.free, bench.pool.threads) == (1, 4)
    assert bench.pool.short


def test_an_exception_is_contained_and_holds_no_secret():
    def raises(asked, deadline):
        raise RuntimeError(f"wrong key {CANARY}")

    bench = Bench(raises)
    bench.start(1)
    assert until(lambda: bool(bench.posted))
    finished = bench.posted[0]
    assert (finished.answer.advice, finished.answer.failure) == (None, Failure.RAISED)
    assert (finished.fault, finished.died) == ("RuntimeError", False)
    assert CANARY not in repr(finished)
    assert bench.pool.returned(finished)
    bench.start(2)  # the thread lives on
    assert until(lambda: len(bench.posted) == 2)
    bench.pool.stop()
    assert bench.pool.join(5)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_dead_worker_is_replaced(error):
    def dies(asked, deadline):
        raise error

    bench = Bench(dies)
    for number in range(3):
        bench.start(number)
        assert until(lambda: len(bench.posted) == 1)
        finished = bench.posted.pop()
        assert (finished.fault, finished.died) == (error.__name__, True)
        assert bench.pool.returned(finished)
        assert bench.pool.short is (number == 2)
    bench.pool.stop()
    assert bench.pool.join(5)


def test_what_is_no_answer_is_contained():
    bench = Bench(lambda asked, deadline: None)  # type: ignore[arg-type,return-value]
    bench.start(1)
    assert until(lambda: bool(bench.posted))
    assert bench.posted[0].fault == "TypeError"
    bench.pool.stop()
    assert bench.pool.join(5)


def test_stop_ends_idle_threads_at_once_and_replaces_none(bench):
    bench.pool.stop()
    began = time.monotonic()
    assert bench.pool.join(5)
    assert time.monotonic() - began < SOON
    assert bench.pool.lost(time.monotonic()) == []
    assert (bench.pool.threads, bench.pool.short) == (0, False)


def test_join_does_not_wait_longer_than_reported(bench):
    bench.start(1)
    bench.pool.stop()
    began = time.monotonic()
    assert bench.pool.join(0.1) is False
    assert time.monotonic() - began < SOON


def test_threads_are_daemons(bench):
    bench.start(1)
    assert [thread.daemon for thread in bench.pool._threads] == [True, True]
