"""The server of one local model, in this process: what it serves, refuses and gives up."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrade.advisor.serve import server as serving
from jaxtrade.advisor.serve.api import MAX_BODY, Ask, RequestError, read_request
from jaxtrade.advisor.serve.model import load
from jaxtrade.advisor.serve.process import LoadError
from jaxtrade.advisor.serve.server import Server
from tests.advisor.servers import GOOD
from tests.advisor.stub_model import Stub

TOKEN = "token-CANARY-0123456789"
BODY = {"model": "stub", "messages": [{"role": "user", "content": "what now"}], "max_tokens": 9}


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Stub]]:
    stub = Stub(mode=getattr(request, "param", "good"))
    server = Server(stub, TOKEN)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server, stub
    server.shutdown()
    server.server_close()
    thread.join(5)


def call(server: Server, method: str = "POST", path: str = "/v1/chat/completions", body: Any = BODY,
         token: str = TOKEN, **headers: str) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data if method == "POST" else None,
                       {"Authorization": f"Bearer {token}", **headers})
    response = connection.getresponse()
    found = response.status, json.loads(response.read()), response.headers
    connection.close()
    return found


def test_a_completion(served: tuple[Server, Stub]) -> None:
    server, stub = served
    status, value, headers = call(server, **{"X-Request-Id": "jaxtrade-12"})
    assert status == 200
    assert value == {"id": "chatcmpl-1", "object": "chat.completion", "model": "stub", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": json.dumps(GOOD)}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14}}
    assert headers["X-Request-Id"] == "jaxtrade-12"
    assert stub.asks == [Ask((("user", "what now"),), 9, 0.0, None)]
    assert call(server, body={**BODY, "max_tokens": 1})[1]["choices"][0]["finish_reason"] == "length"


def test_models_and_health(served: tuple[Server, Stub]) -> None:
    server, _ = served
    assert call(server, "GET", "/v1/models")[1]["data"][0]["id"] == "stub"
    assert call(server, "GET", "/health")[:2] == (200, {"status": "ok", "model": "stub"})
    assert call(server, "GET", "/v1/chat/completions")[0] == call(server, "POST", "/v1/models")[0] == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_without_the_token(served: tuple[Server, Stub], method: str) -> None:
    server, stub = served
    for token in ("", "wrong", TOKEN + "x", "é"):
        for path in ("/health", "/v1/models", "/v1/chat/completions"):
            status, value, _ = call(server, method, path, token=token.encode().decode("latin-1"))
            assert status == 401
            assert "CANARY" not in json.dumps(value)
    assert stub.asks == []


def test_it_does_not_begin_without_a_token() -> None:
    with pytest.raises(ValueError, match="without a token"):
        Server(Stub(), "")


@pytest.mark.parametrize(("change", "status", "words"), [
    ({"model": "other"}, 404, "this server runs stub"),
    ({"model": None}, 404, "this server runs stub"),
    ({"messages": []}, 400, "expected 1 to 16"),
    ({"messages": "what now"}, 400, "expected 1 to 16"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "each has a role"),
    ({"messages": [{"role": "user", "content": None}]}, 400, "each has a role"),
    ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, 400, "each has a role"),
    ({"max_tokens": 0}, 400, "1 to 4096"),
    ({"max_tokens": True}, 400, "1 to 4096"),
    ({"max_tokens": 1e9}, 400, "1 to 4096"),
    ({"max_completion_tokens": 5}, 400, "expected one"),
    ({"temperature": 2.5}, 400, "expected 0 to 2"),
    ({"temperature": "0"}, 400, "expected 0 to 2"),
    ({"seed": -1}, 400, "seed"),
    ({"stream": True}, 400, "one whole answer"),
    ({"n": 2}, 400, "one whole answer"),
    ({"response_format": {"type": "json_object"}}, 400, "'response_format': not offered"),
    ({"tools": []}, 400, "'tools': not offered"),
])
def test_requests_that_are_not_served(change: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        read_request(json.dumps({**BODY, **change}).encode(), "stub")
    assert caught.value.status == status


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"model": NaN}', b"[" * 10_000,
                                  b'{"model":"stub","model":"stub"}'])
def test_bodies_that_are_no_request(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(body, "stub")
    assert caught.value.status == 400


def test_a_body_past_its_bound_is_not_read(served: tuple[Server, Stub]) -> None:
    server, stub = served
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", str(MAX_BODY + 1))
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.headers["Connection"]) == (413, "close")
    connection.close()
    assert call(server, body=b" " * MAX_BODY)[0] == 400
    assert call(server, **{"Content-Length": "-1"})[0] == 411
    assert stub.asks == []


@pytest.mark.parametrize("served", ["raises"], indirect=True)
def test_a_model_that_raises_is_a_500_without_the_prompt(served: tuple[Server, Stub]) -> None:
    server, _ = served
    status, value, _ = call(server)
    assert (status, value["error"]["message"]) == (500, "the model raised RuntimeError")
    assert call(server)[0] == 500


@pytest.mark.parametrize("served", ["slow"], indirect=True)
def test_nobody_writes_for_a_client_that_has_gone(served: tuple[Server, Stub]) -> None:
    """Neither the request that is under way nor those that wait for their turn."""
    server, stub = served
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(4)]
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", json.dumps(BODY), {"Authorization": f"Bearer {TOKEN}"})
    patience = time.monotonic() + 5
    while not stub.asks and time.monotonic() < patience:
        time.sleep(0.01)
    for connection in connections:
        connection.close()
    began = time.monotonic()
    assert call(server, body={**BODY, "messages": [{"role": "user", "content": "quick"}]})[0] == 200
    assert time.monotonic() - began < 2
    assert stub.abandoned == 1
    assert [ask.messages[0][1] for ask in stub.asks] == ["what now", "quick"]


@pytest.mark.parametrize("served", ["slow"], indirect=True)
def test_one_too_many_is_told_at_once(served: tuple[Server, Stub], monkeypatch: pytest.MonkeyPatch) -> None:
    server, stub = served
    monkeypatch.setattr(server, "_places", threading.BoundedSemaphore(1))
    first = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    first.request("POST", "/v1/chat/completions", json.dumps(BODY), {"Authorization": f"Bearer {TOKEN}"})
    patience = time.monotonic() + 5
    while not stub.asks and time.monotonic() < patience:
        time.sleep(0.01)
    assert call(server)[0] == 503
    first.close()


def test_it_ends_where_its_parent_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(Stub(), TOKEN)
    server.service_actions()
    monkeypatch.setattr(serving.os, "getppid", lambda: 1_000_000)
    with pytest.raises(SystemExit):
        server.service_actions()
    server.server_close()


# --- loading, without the libraries ----------------------------------------------------------------------------------


def fake_torch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Libraries whose models cannot be loaded."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    torch = types.SimpleNamespace(set_num_threads=lambda _: None, cuda=types.SimpleNamespace(is_available=lambda: True))
    quiet = types.SimpleNamespace(set_verbosity_error=lambda: None, disable_progress_bar=lambda: None)
    maker = types.SimpleNamespace(from_pretrained=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(
        utils=types.SimpleNamespace(logging=quiet), AutoTokenizer=maker,
        AutoModelForCausalLM=types.SimpleNamespace(from_pretrained=fails)))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # so that it is put back


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadError, match=r"no model there \(no config.json\)"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(LoadError, match="pickle can run code"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(LoadError, match=r"needs torch: pip install 'jaxtrade\[transformers\]'"):
        load(tmp_path)


@pytest.mark.parametrize(("error", "words"), [
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), "out of memory on cuda (1.5 GB of weights)"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
     "out of memory on cuda"),
    (MemoryError(), "out of memory on cuda"),
    (RuntimeError("size mismatch in a layer\nand more"), "cannot be loaded on cuda: RuntimeError: size mismatch in"),
    (OSError("no tokenizer.json"), "cannot be loaded on cuda: OSError: no tokenizer.json"),
])
def test_why_it_cannot_be_loaded_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1_500_000_000)  # sparse
    fake_torch(monkeypatch, error)
    with pytest.raises(LoadError) as caught:
        load(tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_process_says_why_it_cannot_serve(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-m", "jaxtrade.advisor.serve", str(tmp_path), "--threads", "2"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             cwd=Path(__file__).parents[2], env={**os.environ, "JAXTRADE_SERVE_TOKEN": TOKEN})
    assert child.wait(60) == 2  # its standard input stays open
    said, complained = child.communicate()
    assert json.loads(said) == {"fault": f"{tmp_path}: no model there (no config.json)"}
    assert "CANARY" not in said + complained
