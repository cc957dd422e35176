"""Faults of an endpoint through the whole host side: real sockets, client, service, cache and
ledger.

The single parts have their own tests (docs/advisor_faults.md has the table); here each fault meets
all of them at once, and what must hold after every fault is checked: no advice, nothing lost or
counted twice, caps kept, a short stop, no thread left, no key anywhere.
"""

from __future__ import annotations

import ast
import json
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import jaxtrade.advisor
from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.host.journal import Journal, read_journal
from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.sources import Live, Replayed
from jaxtrade.advisor.host.types import Advice
from jaxtrade.config.service import ServiceOptions
from tests.advisor import servers
from tests.advisor.asking import SOON
from tests.advisor.balance import imbalance
from tests.advisor.bridge_parts import HEADER, bytes_of
from tests.advisor.servers import (
    GOOD,
    FaultServer,
    advises,
    completion,
    cut,
    drip,
    hang,
    head,
    reply,
    reset,
    says,
)
from tests.advisor.service_parts import CANARY, good, question, until
from tests.advisor.test_desk import Office

pytest.importorskip("httpx")

BODY = completion(json.dumps(GOOD))
OK_HEAD = head(200, {"Content-Length": str(len(BODY))})
MOST_CALLS = 12


class Running(NamedTuple):
    """A service on a server, and the lines it printed."""

    service: AdviceService
    messages: list[str]
    folder: Path
    before: set[threading.Thread]

    @property
    def counts(self):
        found = self.service.statistics()
        assert imbalance(found) == 0
        return found

    def threads(self):
        """Its threads that live."""
        return [
            thread.name
            for thread in threading.enumerate()
            if thread.name.startswith("advisor") and thread not in self.before
        ]


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_KEY", CANARY)
    made: list[AdviceService] = []

    def new(url, **options):
        before, reported = set(threading.enumerate()), list[str]()
        chosen = {
            "workers": 4,
            "deadline_s": 0.3,
            "retry_base_s": 0.01,
            "retry_cap_s": 0.02,
            "max_calls": MOST_CALLS,
            "cache": str(tmp_path / "cache.sqlite"),
            "ledger": str(tmp_path / "ledger.sqlite"),
            **options,
        }
        backend = OpenAIBackend(OpenAIOptions(url, "m", key_env="LLM_KEY"))
        made.append(AdviceService(backend, ServiceOptions(**chosen), tell=reported.append))
        return Running(made[-1], reported, tmp_path, before)

    yield new
    for service in made:
        service.stop()


def stop(running):
    """What holds after every fault."""
    began = time.monotonic()
    running.service.stop()
    assert time.monotonic() - began < SOON
    assert until(lambda: not running.threads(), SOON)
    assert running.counts["in_flight"] == 0
    assert len(running.messages) <= 3
    assert all(line.isprintable() and len(line) < 500 for line in running.messages)
    assert "CANARY" not in repr(running.messages) + repr(running.counts)
    assert [path for path in running.folder.iterdir() if b"CANARY" in path.read_bytes()] == []


def echoes_the_key(wire):
    text = wire.request.headers["authorization"]
    reply(400, json.dumps({"error": {"message": f"bad request {text}"}}))(wire)


FAULTS: dict[str, servers.Step] = {
    "1 answers after the deadline": servers.after(2.0, advises()),
    "2 hangs": hang(),
    "3 drips its body": drip(BODY, 0.05, first=OK_HEAD),
    "4 hangs after its head": hang(OK_HEAD),
    "7 resets in the body": reset(OK_HEAD + BODY[:40]),
    "8 ends in the body": cut(OK_HEAD + BODY[:40]),
    "8 unfolds": servers.bomb(5_000_000),
    "9 is too large": servers.flood(20_000_000),
    "9 is nested": reply(200, b"[" * 100_000),
    "10 asks to wait a day": reply(429, b"", {"Retry-After": "86400"}),
    "11 fails": reply(500),
    "12 prompt too long": reply(400, b'{"error": {"code": "context_length_exceeded"}}'),
    "12 no money": reply(402),
    "12 echoes the key": echoes_the_key,
    "13 HTML": reply(200, "<html>Sign in</html>"),
    "13 no content": says(None),
    "14 cut off": says(json.dumps(GOOD)[:-4]),
    "14 prose": says("Buy! " + json.dumps(GOOD)),
    "15 a confidence of 653.3": advises(confidence=653.3),
    "16 BUY": advises(direction="BUY"),
    "17 another version": advises(v=2),
    "19 another request's id": reply(200, BODY, {"X-Request-Id": "jaxtrade-" + "0" * 16}),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_absence(step, start):
    with FaultServer(step) as server:
        running = start(server.url)
        for _ in range(3):  # chunks
            running.service.submit([(question(bar), 1.0) for bar in range(6)])
            assert until(
                lambda: running.counts["asked"] > 0 and running.counts["in_flight"] == 0, SOON
            )
        assert running.service.take(100) == []
        stop(running)
        assert running.service.take(100) == []
        assert 0 < len(server.requests) <= MOST_CALLS
        assert running.counts["done"] == 0


# Of each way to fail one; the test above has all of them, one by one.
TELLING = ("1 answers after the deadline", "8 ends in the body", "12 no money", "14 prose")


@pytest.mark.slow
@pytest.mark.parametrize("step", [FAULTS[name] for name in TELLING], ids=TELLING)
def test_what_arrives_between_faults_is_what_the_journal_replays(step, start, tmp_path):
    """Every second bar meets the fault. What both transports hand to the compiled program is the
    bridge's deltas, and those of a replay are the same at every update."""
    T, M = 8, 4

    def every_second(wire):
        bar = int(wire.request.body["messages"][0]["content"].split(":")[0].removeprefix("bar "))
        (step if bar % 2 else advises(confidence=round(bar / 10, 1)))(wire)

    with FaultServer(every_second) as server:
        running = start(server.url, workers=1, max_calls=100)
        journal = Journal.create(tmp_path / "journal.jsonl", HEADER)
        source = Live(running.service, question)
        bridge = Bridge(source, T, M, journal, tell=running.messages.append)
        shown, got, end = [], {}, time.monotonic() + 1.5
        while len(got) < T // 2 and (0 not in got or time.monotonic() < end):
            bars = np.array([bar for bar in range(T) if bar not in got], np.int32)
            bridge.wanted(bars, (T - bars).astype(np.float32))
            delta = bridge.delta(len(shown))
            shown.append(bytes_of(delta))
            got |= dict(zip(delta.bars.tolist(), delta.rows[:, 3].tolist(), strict=True))
            got.pop(T, None)  # the padding
            time.sleep(0.01)
        bridge.stop()
        stop(running)
    assert 0 in got  # the most wanted
    assert got == {bar: np.float32(bar / 10) for bar in got if bar % 2 == 0}
    assert bridge.statistics()["contained"] == {}
    replay = Bridge(Replayed(read_journal(tmp_path / "journal.jsonl")), T, M)
    assert [bytes_of(replay.delta(update)) for update in range(len(shown))] == shown


def came(running, bars):
    """The answers about the first bars, asked for until all have come."""
    got: list[tuple[int, Advice]] = []

    def all_came():
        running.service.submit([(question(bar), 1.0) for bar in range(bars)])
        got.extend(running.service.take(10))
        return len(got) == bars

    assert until(all_came, 20)
    return got


TRANSIENT = ("7 resets in the body", "11 fails", "13 HTML", "19 another request's id", "2 hangs")


@pytest.mark.parametrize("step", [FAULTS[name] for name in TRANSIENT], ids=TRANSIENT)
def test_after_a_passing_fault_there_is_one_answer(step, start):
    """No question is answered twice, and none is paid for twice."""
    with FaultServer(step, advises()) as server:
        running = start(server.url, workers=1, failed_for_s=0.0, deadline_s=0.8)
        got = came(running, 1)
        stop(running)
        assert [bar for bar, _ in got + running.service.take(10)] == [0]
        assert len(server.requests) == 2


def test_5_a_server_that_comes_up_in_the_middle_of_the_run(start):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    running = start(url, breaker_open_s=0.2, failed_for_s=0.0, max_calls=None)
    running.service.submit([(question(bar), 1.0) for bar in range(6)])
    assert until(lambda: running.counts["breaker"] == "open", SOON)
    assert running.service.take(10) == []
    with FaultServer(advises(), port=port):
        came(running, 6)
    gone, back = running.messages
    assert "next try in 0.2 s" in gone
    assert back.endswith("answers again")
    stop(running)


def test_1_latencies_of_a_heavy_tail_are_counted_where_they_belong():
    office = Office(pool=8)
    office.want(*range(8))
    for latency in (0.0005, 0.02, 0.02, 0.02, 0.02, 0.02, 3.0, 150.0):
        office.desk.finished(office.pool.result(good(), 0, latency))
    found = office.counts["latency"]
    counts = found["counts"]
    assert (sum(counts), counts[0], counts[-1]) == (8, 1, 1)  # up to 1 ms, above 100 s
    assert (found["longest_s"], found["p99_s"]) == (150.0, 150.0)
    assert found["total_s"] == pytest.approx(153.1005)
    assert found["p50_s"] == pytest.approx(10**-1.6)  # the bucket of 20 ms ends at 25 ms


def test_26_no_module_of_the_advisor_reads_a_clock_that_can_be_set():
    """Time steps, leap seconds and a wrong date change nothing: durations come from monotonic
    clocks alone.
    """
    settable = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime"}
    paths = sorted(Path(jaxtrade.advisor.__file__).parent.rglob("*.py"))
    assert len(paths) > 20
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("time", "datetime", "date")
            ):
                assert node.func.attr not in settable, f"{path.name}, line {node.lineno}"


def test_26_a_day_that_passes_at_once_loses_nothing():
    """A machine that slept: what was under way is given up or comes late, pauses are over, and
    asking goes on, one at a time: the one that was given up halved what runs at once.
    """
    office = Office(pool=2)
    office.want(1, 2, 3, 4)
    office.pool.hang()  # the pool gives up what is past its deadline
    office.turn(86_400.0)
    assert office.counts["stuck"] == 1
    for bar in (2, 3, 4):  # bar 2's is a day late
        assert office.asked() == [bar]
        office.answer(good())
    assert [bar for bar, _ in office.ready] == [2, 3, 4]
    assert [office.counts[name] for name in ("done", "failed", "queued")] == [3, 1, 0]
