"""Hand-made parts for tests of the advice service: a clock, questions, answers, backends and a pool
without threads.
"""

import threading
import time
from collections import Counter

from jaxtrade.advisor.host.desk import Finished
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Advice, Answer, Failure, Question
from jaxtrade.config.service import ServiceOptions
from tests.advisor.asking import SOON
from tests.advisor.balance import imbalance

CANARY = "sk-CANARY-0123456789"
ADVICE = Advice(hold=0.1, buy=1.5, sell=-0.5, confidence=0.8, risk=0.25, horizon=30)


class HandClock:
    """Time that passes when reported to."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def question(bar, version="v1"):
    return Question(
        bar, "NQ", "2024-03-01T10:00:00-05:00", {"adx": 31.5}, f"bar {bar}: ADX 31.5", version
    )


def good(prompt_tokens=40, completion_tokens=20, **more):
    return Answer(
        ADVICE,
        raw='{"v": 1}',
        model="tiny",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )._replace(**more)


def bad(failure, **more):
    raw = "HOLD | 0.0" if failure in (Failure.PARSE, Failure.SCHEMA) else ""
    return Answer(None, failure, detail=f"no {failure.value}", raw=raw)._replace(**more)


class HandPool:
    """A WorkerPool whose work is done by hand: `jobs` are under way."""

    def __init__(self, size=4):
        self.size, self.jobs = size, []
        self.gone = []
        self.short = False
        self.threads = size

    @property
    def busy(self):
        return len(self.jobs) + len(self.gone)

    @property
    def free(self):
        return self.size - len(self.jobs)

    def start(self, job):
        assert self.free > 0
        self.jobs.append(job)

    def note_result(self, finished):
        return not finished.job.given_up

    def replace_stuck(self, now):
        found, self.gone = self.gone, []
        return found

    # --- for the test ------------------------------------------------------------------------------------------------

    def result(self, answer, index=0, latency=0.5):
        """What the worker of the job at `index` reports."""
        return Finished(self.jobs.pop(index), answer, latency)

    def hang(self, index=0):
        """The job at `index` is given up."""
        job = self.jobs.pop(index)
        job.given_up = True
        self.gone.append(job)
        return job


class ScriptedBackend:
    """Answers by `script(question, deadline, attempt)`, attempt counting from 1 per bar; a callable
    result is called in the worker's thread (to sleep, to hang, to raise). `paid`: successes by
    bar."""

    name = "scripted"

    def __init__(self, script=lambda *_: good()):
        self._script = script
        self._lock = threading.Lock()
        self.asked = Counter()
        self.paid = Counter()
        self.calls = 0
        self.tokens = 0
        self.most_at_once = self._at_once = 0
        self.closed = threading.Event()

    def count_anew(self):
        """Begin to count `most_at_once` anew: from how many are under way now, which is
        returned.
        """
        with self._lock:
            self.most_at_once = self._at_once
            return self._at_once

    def identity(self):
        return {"kind": "scripted", "model": "tiny", "schema": "s1"}

    def answer(self, question, deadline):
        with self._lock:
            self.calls += 1
            self.asked[question.bar] += 1
            attempt = self.asked[question.bar]
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            found = self._script(question, deadline, attempt)
            answer = found if isinstance(found, Answer) else found()
        finally:
            with self._lock:
                self._at_once -= 1
        with self._lock:
            if isinstance(answer, Answer):
                self.paid[question.bar] += answer.advice is not None
                self.tokens += answer.prompt_tokens + answer.completion_tokens
        return answer

    def close(self):
        self.closed.set()


class Running:
    """A service, its backend and the lines it printed."""

    def __init__(self, backend, clock=time.monotonic, **options):
        self.backend, self.clock, self.lines = backend, clock, []
        self.service = AdviceService(backend, ServiceOptions(**options), clock, self.lines.append)

    def want(self, *bars):
        self.service.submit([(question(bar), 0.5) for bar in bars])

    @property
    def counts(self):
        found = self.service.statistics()
        assert imbalance(found) == 0
        return found

    def settled(self):
        return until(lambda: self.counts["queued"] == self.counts["in_flight"] == 0, SOON)

    def asked(self, requests):
        """Whether so many requests are made and answered, and no more."""
        return until(
            lambda: self.counts["asked"] == requests and self.counts["in_flight"] == 0, SOON
        )

    def stop(self):
        began = time.monotonic()
        self.service.stop()
        assert time.monotonic() - began < SOON


def until(condition, seconds=30.0):
    """Wait for `condition`, in real time; False where it did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
