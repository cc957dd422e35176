"""The service and the client of chat completions together, over real sockets and files."""

import json

import pytest

from jaxtrade.advisor.host.openai import OpenAIBackend
from tests.advisor import servers
from tests.advisor.servers import GOOD, FaultServer, advises, completion, reply
from tests.advisor.service_parts import CANARY, until

pytest.importorskip("httpx")


@pytest.fixture
def start(run, tmp_path):
    files = {name: str(tmp_path / f"{name}.sqlite") for name in ("cache", "ledger")}

    def new(url, workers):
        return run(
            OpenAIBackend(base_url=url, model="m", key_env="LLM_KEY"), workers=workers, **files
        )

    return new


def test_answers_arrive_and_are_paid_once(start):
    with FaultServer(advises()) as server:
        for _ in range(2):
            running = start(server.url, 4)
            running.want(*range(20))
            assert running.settled()
            assert sorted(bar for bar, _ in running.service.take(100)) == list(range(20))
            running.stop()
        assert len(server.requests) == 20


def test_the_canary_is_in_no_file(start, tmp_path, caplog):
    caplog.set_level("DEBUG")

    def echo(status):
        text = f"Bearer {CANARY}"
        answer = json.dumps({**GOOD, "reason": text}) if status == 200 else text
        return reply(status, completion(answer, model=text), {"Retry-After": "0"})

    script = (echo(200), echo(500), servers.says(f"no advice {CANARY}"), echo(200), echo(401))
    with FaultServer(*script) as server:
        running = start(server.url, 1)
        running.want(*range(8))
        assert until(lambda: any("401" in line for line in running.lines))
        running.stop()
        assert server.requests[0].headers["authorization"].endswith(CANARY)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert b"CANARY" not in b"".join(files)
    assert "CANARY" not in caplog.text + repr(running.lines) + repr(running.counts)
