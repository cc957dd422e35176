"""Thousands of submissions to a backend that is slow, fails, hangs, raises and dies by a seeded
script.
"""

import random
import threading
import time
from collections import Counter

import pytest

from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Failure
from jaxtrade.config.service import ServiceOptions
from tests.advisor.asking import SOON
from tests.advisor.balance import imbalance
from tests.advisor.service_parts import ScriptedBackend, bad, good, question

WORKERS, QUEUE, READY = 6, 200, 300
_KINDS = {
    "good": 40,
    "slow": 15,
    "schema": 10,
    "parse": 5,
    "500": 8,
    "429": 3,
    "timeout": 4,
    "reset": 5,
    "400": 3,
    "raises": 3,
    "null": 2,
    "late": 1,
    "hang": 1,
    "dies": 1,
}


class Chaos:
    """The script: what happens at an attempt follows from the seed, the bar and the attempt. At
    most two hangs and two deaths, so that replacements last."""

    def __init__(self, seed):
        self.seed, self.gate = seed, threading.Event()
        self.kinds = Counter()
        self._lock = threading.Lock()

    def __call__(self, asked, deadline, attempt):
        rng = random.Random(f"{self.seed} {asked.bar} {attempt}")
        (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
        with self._lock:
            if kind in ("hang", "dies") and self.kinds[kind] >= 2:
                kind = "good"
            self.kinds[kind] += 1
        match kind:
            case "slow":
                return lambda: self.after(0.01 * rng.random(), good())
            case "late":
                return lambda: self.after(max(0.0, deadline - time.monotonic()), good())
            case "hang":
                return lambda: self.hang()
            case "dies" | "raises":
                return lambda: self.throw(SystemExit if kind == "dies" else OSError)
            case "null":
                return lambda: None  # type: ignore[return-value]
            case "500" | "429" | "400":
                return bad(
                    Failure.HTTP,
                    status=int(kind),
                    retryable=kind != "400",
                    retry_after=0.01 if kind == "429" else 0.0,
                )
            case "schema" | "parse" | "timeout":
                return bad(Failure(kind), retryable=True, prompt_tokens=30, completion_tokens=5)
            case "reset":
                return bad(Failure.CONNECTION, retryable=True)
            case _:
                return good()

    def after(self, seconds, answer):
        time.sleep(seconds)
        return answer

    def hang(self):
        self.gate.wait(120)
        return bad(Failure.STOPPED)

    def throw(self, error):
        raise error("of the script")


def stress(seed, chunks, bars, backend, options):
    """One run; the invariants are asserted all along. Returns its last statistics, and what it
    handed out.
    """
    rng, taken, reported = random.Random(seed), [], []
    others, hanging = threading.active_count(), backend.count_anew()  # of a run before
    service = AdviceService(backend, options, log=reported.append)
    for _ in range(chunks):
        service.submit(
            [(question(rng.randrange(bars)), rng.random()) for _ in range(rng.randrange(65))]
        )
        taken += [bar for bar, _ in service.take(rng.randrange(100))]
        counts = service.statistics()
        assert imbalance(counts) == 0  # I7
        assert counts["ready"] <= READY
        assert len(service._desk.queue) <= QUEUE + 1  # one more while it makes room
        assert service._sent - service._received <= 4 * QUEUE  # in the mailbox
        assert counts["in_flight"] <= WORKERS
        assert threading.active_count() - others <= 2 * WORKERS + 2  # I4
        time.sleep(0.002 * rng.random())
    began = time.monotonic()
    service.stop()
    assert time.monotonic() - began < SOON  # I5
    taken += [bar for bar, _ in service.take(10**9)]
    counts = service.statistics()
    assert imbalance(counts) == 0
    assert len(taken) == len(set(taken)) == counts["done"] + counts["cache_hit"]
    assert backend.most_at_once <= hanging + WORKERS + counts["stuck"]
    assert len(reported) <= 6  # trouble is reported, not repeated
    return counts | {"taken": set(taken), "reported": reported}


def options_of(folder, **more):
    return ServiceOptions(
        workers=WORKERS,
        queue_size=QUEUE,
        ready_rows=READY,
        ttl_chunks=30,
        deadline_s=0.1,
        grace_s=0.1,
        retry_base_s=0.001,
        retry_cap_s=0.01,
        failed_for_s=0.02,
        breaker_open_s=0.02,
        breaker_longest_s=0.05,
        cache=str(folder / "cache"),
        ledger=str(folder / "ledger"),
        **more,
    )


def two_runs(seed, chunks, bars, folder):
    """A run, and another with the same files: nothing is paid for twice, no cap is passed by both
    together.
    """
    chaos = Chaos(seed)
    backend = ScriptedBackend(chaos)
    max_calls, max_tokens = bars // 2, 45 * bars
    options = options_of(folder, max_calls=max_calls, max_tokens=max_tokens)
    first = stress(seed, chunks, bars, backend, options)
    chaos.gate.set()
    second = stress(seed + 1, chunks, bars, backend, options)
    assert backend.calls <= max_calls  # I9
    assert backend.tokens <= max_tokens
    assert max(backend.paid.values()) == 1  # I11, over both runs
    paid = {bar for bar, count in backend.paid.items() if count}
    assert first["taken"] <= paid
    assert second["taken"] <= paid
    assert first["submitted"] > 20 * chunks
    return chaos


@pytest.mark.slow
def test_a_backend_that_does_everything_wrong(tmp_path):
    chaos = two_runs(1, 250, 1500, tmp_path)
    assert len(chaos.kinds) >= 12  # the script has been through nearly all of it


def test_a_budget_is_spent_to_the_last_call_and_not_beyond(tmp_path):
    backend = ScriptedBackend(lambda *_: good())
    for seed in range(3):
        counts = stress(seed, 200, 800, backend, options_of(tmp_path, max_calls=300))
    assert backend.calls == 300
    assert max(backend.paid.values()) == 1
    assert counts["mode"] == "stopped"
    assert any("300 of advisor.service" in line for line in counts["reported"])
