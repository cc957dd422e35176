"""The service and the client of chat completions together, over real sockets and files."""

from __future__ import annotations

import json
import time

import pytest

from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.types import Advice
from tests.advisor import servers
from tests.advisor.asking import SOON, question
from tests.advisor.servers import GOOD, FaultServer, advises, completion, head

pytest.importorskip("httpx")
ServiceOptions = pytest.importorskip("jaxtrade.config.service").ServiceOptions
AdviceService = pytest.importorskip("jaxtrade.advisor.host.service").AdviceService

CANARY = "sk-CANARY-0123456789"


def questions(n):
    return [(question(bar)._replace(prompt=f"{question().prompt}{bar}"), 1.0) for bar in range(n)]


def wait_for(done, seconds=10.0):
    patience = time.monotonic() + seconds
    while not done() and time.monotonic() < patience:
        time.sleep(0.02)
    return done()


def test_answers_arrive_and_are_paid_once(tmp_path):
    options = ServiceOptions(
        workers=4, cache=str(tmp_path / "a.sqlite"), ledger=str(tmp_path / "l.sqlite")
    )
    with FaultServer(advises()) as server:
        for _ in range(2):
            service = AdviceService(OpenAIBackend(OpenAIOptions(server.url, "m")), options)
            service.submit(questions(20))
            got: list[tuple[int, Advice]] = []

            def all_came(service=service, got=got):
                got.extend(service.take(100))
                return len(got) == 20

            assert wait_for(all_came)
            assert sorted(bar for bar, _ in got) == list(range(20))
            service.stop()
        assert len(server.requests) == 20


def test_the_canary_is_in_no_file(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("KEY", CANARY)
    caplog.set_level("DEBUG")
    said: list[str] = []

    def echo(status):
        def run(wire):
            text = wire.request.headers["authorization"]
            body = completion(
                json.dumps({**GOOD, "reason": text}) if status == 200 else text, model=text
            )
            wire.send(head(status, {"Content-Length": str(len(body)), "Retry-After": "0"}) + body)

        return run

    options = ServiceOptions(
        workers=1, cache=str(tmp_path / "a.sqlite"), ledger=str(tmp_path / "l.sqlite")
    )
    with FaultServer(
        echo(200), echo(500), servers.says(f"no advice {CANARY}"), echo(200), echo(401)
    ) as server:
        service = AdviceService(
            OpenAIBackend(OpenAIOptions(server.url, "m", key_env="KEY")), options, tell=said.append
        )
        service.submit(questions(8))
        assert wait_for(lambda: any("401" in line for line in said))
        service.stop()
    assert server.requests[0].headers["authorization"].endswith(CANARY)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if b"CANARY" in path.read_bytes()] == []
    assert "CANARY" not in caplog.text + repr(said) + repr(service.statistics())


@pytest.mark.parametrize(
    "step",
    [
        servers.hang(),
        servers.drip(b"x" * 999, 0.05, head(200, {"Content-Length": "999"})),
    ],
    ids=range(2),
)
def test_a_hung_server_stops_in_time(step):
    with FaultServer(step) as server:
        service = AdviceService(
            OpenAIBackend(OpenAIOptions(server.url, "m")), ServiceOptions(workers=4)
        )
        service.submit(questions(20))
        assert wait_for(lambda: len(server.requests) == 4)
        began = time.monotonic()
        service.stop()
        assert time.monotonic() - began < SOON
        assert service.take(10) == []
