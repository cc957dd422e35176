"""Faults of an endpoint through the whole host side: real sockets, client, service, cache and
ledger.

The single parts have their own tests (faults.yaml lists the faults and their tests); here each
fault meets all of them at once, and what must hold after every fault is checked: no advice, nothing
lost or counted twice, caps kept, a short stop, no thread left, no key anywhere.
"""

import ast
import json
import socket
import threading
from pathlib import Path

import pytest

import jaxtrade.advisor
from jaxtrade.advisor.host.openai import OpenAIBackend
from tests.advisor import servers
from tests.advisor.asking import SOON
from tests.advisor.servers import (
    BODY,
    GOOD,
    OK_HEAD,
    FaultServer,
    advises,
    cut,
    drip,
    hang,
    reply,
    reset,
    says,
)
from tests.advisor.service_parts import good, until
from tests.advisor.test_desk import Office

pytest.importorskip("httpx")

MOST_CALLS = 12


@pytest.fixture
def start(run, tmp_path):
    """A service on a server, with its files in a folder of their own."""

    def new(url, **options):
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
        return run(OpenAIBackend(base_url=url, model="m", key_env="LLM_KEY"), **chosen)

    return new


def advisors():
    """Its threads that live."""
    return [each for each in threading.enumerate() if each.name.startswith("advisor")]


@pytest.fixture
def stop(tmp_path):
    """Stops a service and checks what holds after every fault."""
    before = set(advisors())

    def check(running):
        running.stop()
        assert until(lambda: before.issuperset(advisors()), SOON)
        assert running.counts["in_flight"] == 0
        assert len(running.lines) <= 3
        assert all(line.isprintable() and len(line) < 500 for line in running.lines)
        assert "CANARY" not in repr(running.lines) + repr(running.counts)
        assert [path for path in tmp_path.iterdir() if b"CANARY" in path.read_bytes()] == []

    return check


def echoes_the_key(wire):
    text = wire.request.headers["authorization"]
    reply(400, json.dumps({"error": {"message": f"bad request {text}"}}))(wire)


FAULTS = {
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
    "14 prose": says("Buy! " + json.dumps(GOOD)),
    "15 a confidence of 653.3": advises(confidence=653.3),
    "19 another request's id": reply(200, BODY, {"X-Request-Id": "jaxtrade-" + "0" * 16}),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_absence(step, start, stop):
    with FaultServer(step) as server:
        running = start(server.url)
        for _ in range(3):  # chunks
            running.want(*range(6))
            assert until(
                lambda: running.counts["asked"] > 0 and running.counts["in_flight"] == 0, SOON
            )
        assert running.service.take(100) == []
        stop(running)
        assert running.service.take(100) == []
        assert 0 < len(server.requests) <= MOST_CALLS
        assert running.counts["done"] == 0


def came(running, bars):
    """The answers about the first bars, asked for until all have come."""
    got = []

    def all_came():
        running.want(*range(bars))
        got.extend(running.service.take(10))
        return len(got) == bars

    assert until(all_came, 20)
    return got


TRANSIENT = ("7 resets in the body", "11 fails", "13 HTML", "19 another request's id", "2 hangs")


@pytest.mark.parametrize("step", [FAULTS[name] for name in TRANSIENT], ids=TRANSIENT)
def test_after_a_passing_fault_there_is_one_answer(step, start, stop):
    """No question is answered twice, and none is paid for twice."""
    with FaultServer(step, advises()) as server:
        running = start(server.url, workers=1, failed_for_s=0.0, deadline_s=0.8)
        got = came(running, 1)
        stop(running)
        assert [bar for bar, _ in got + running.service.take(10)] == [0]
        assert len(server.requests) == 2


def test_5_a_server_that_comes_up_in_the_middle_of_the_run(start, stop):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    running = start(url, breaker_open_s=0.2, failed_for_s=0.0, max_calls=None)
    running.want(*range(6))
    assert until(lambda: running.counts["breaker"] == "open", SOON)
    assert running.service.take(10) == []
    with FaultServer(advises(), port=port):
        came(running, 6)
    gone, back = running.lines
    assert "next try in 0.2 s" in gone
    assert back.endswith("answers again")
    stop(running)


def test_1_latencies_of_a_heavy_tail_are_counted_where_they_belong():
    office = Office(pool=8)
    office.want(*range(8))
    for latency in (0.0005, 0.02, 0.02, 0.02, 0.02, 0.02, 3.0, 150.0):
        office.desk.handle_result(office.pool.result(good(), 0, latency))
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
    assert len(paths) > 15
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
