"""The service and the client of chat completions together, over real sockets and files."""

from __future__ import annotations

import json

import pytest

from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.config.service import ServiceOptions
from tests.advisor import servers
from tests.advisor.asking import question
from tests.advisor.servers import GOOD, FaultServer, advises, completion, reply
from tests.advisor.service_parts import CANARY, until

pytest.importorskip("httpx")


def questions(n):
    return [(question(bar)._replace(prompt=f"{question().prompt}{bar}"), 1.0) for bar in range(n)]


def options(folder, **more):
    files = {name: str(folder / f"{name}.sqlite") for name in ("cache", "ledger")}
    return ServiceOptions(**files, **more)


def test_answers_arrive_and_are_paid_once(tmp_path):
    with FaultServer(advises()) as server:
        for _ in range(2):
            backend = OpenAIBackend(OpenAIOptions(server.url, "m"))
            service, got = AdviceService(backend, options(tmp_path, workers=4)), []
            service.submit(questions(20))
            assert until(lambda s=service, got=got: got.extend(s.take(100)) or len(got) == 20, 10)
            assert sorted(bar for bar, _ in got) == list(range(20))
            service.stop()
        assert len(server.requests) == 20


def test_the_canary_is_in_no_file(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("KEY", CANARY)
    caplog.set_level("DEBUG")
    said: list[str] = []

    def echo(status):
        text = f"Bearer {CANARY}"
        answer = json.dumps({**GOOD, "reason": text}) if status == 200 else text
        return reply(status, completion(answer, model=text), {"Retry-After": "0"})

    script = (echo(200), echo(500), servers.says(f"no advice {CANARY}"), echo(200), echo(401))
    with FaultServer(*script) as server:
        backend = OpenAIBackend(OpenAIOptions(server.url, "m", key_env="KEY"))
        service = AdviceService(backend, options(tmp_path, workers=1), tell=said.append)
        service.submit(questions(8))
        assert until(lambda: any("401" in line for line in said), 10)
        service.stop()
        assert server.requests[0].headers["authorization"].endswith(CANARY)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert b"CANARY" not in b"".join(files)
    assert "CANARY" not in caplog.text + repr(said) + repr(service.statistics())
