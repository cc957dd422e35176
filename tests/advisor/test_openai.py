"""The client of chat completions over real sockets: every fault of one request ends as a failure,
in time.
"""

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions, request_body
from jaxtrade.advisor.host.types import ADVICE_SCHEMA, Failure
from tests.advisor.asking import SOON, ask, question
from tests.advisor.servers import (
    BODY,
    GOOD,
    OK_HEAD,
    FaultServer,
    advises,
    after,
    bomb,
    completion,
    cut,
    drip,
    flood,
    hang,
    head,
    reply,
    reset,
    says,
)
from tests.advisor.service_parts import until

pytest.importorskip("httpx")

CANARY = "sk-CANARY-0123456789"
SHORT = 0.25  # seconds that a hopeless request gets


def client(url, **options):
    return OpenAIBackend(base_url=url, model="tiny", **options)


def once(*script, seconds=5.0, **options):
    """One answer of a new server."""
    with FaultServer(*script) as server:
        backend = client(server.url, **options)
        answer = ask(backend, seconds)
        backend.close()
        return answer


def is_failure(answer, failure, retryable):
    return (answer.advice, answer.failure, answer.retryable) == (None, failure, retryable)


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_one_request():
    with FaultServer(advises()) as server:
        answer = ask(client(server.url))
        (request,) = server.requests
    assert (answer.advice.horizon, answer.status, answer.model) == (30, 200, "tiny-1")
    assert (answer.prompt_tokens, answer.completion_tokens) == (321, 45)
    assert request.path == "/v1/chat/completions"
    assert "authorization" not in request.headers
    assert request.headers["x-request-id"].startswith("jaxtrade-")
    assert request.headers["accept-encoding"] == "identity"
    assert request.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": question().prompt}],
        "max_tokens": 200,
        "stream": False,
        "temperature": 0.0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "advice", "strict": True, "schema": ADVICE_SCHEMA},
        },
    }


def test_options_shape_the_request():
    def asked(**options):
        chosen = OpenAIOptions(base_url="http://127.0.0.1/v1", model="m", **options)
        return request_body(chosen, "p", chosen.structured)

    limit = {"max_tokens": 9, "tokens_key": "max_completion_tokens"}
    assert asked(structured="json_object", temperature=None, seed=3, **limit) == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        "max_completion_tokens": 9,
        "stream": False,
        "seed": 3,
        "response_format": {"type": "json_object"},
    }
    for unbound in ({"structured": "none"}, {"answer": "pipe"}):
        assert "response_format" not in asked(**unbound)


def test_identity_tells_what_distinguishes_answers(monkeypatch):
    """A key changes no answer."""
    monkeypatch.setenv("KEY", CANARY)
    url = "http://127.0.0.1:1/v1"
    identity = client(url).identity()
    assert {"kind": "openai", "base_url": url, "temperature": "0.0"}.items() <= identity.items()
    assert client(url + "/", key_env="KEY").identity() == identity
    for name, value in {"temperature": 0.5, "seed": 1, "max_tokens": 7, "answer": "pipe"}.items():
        assert client(url, **{name: value}).identity() != identity
    assert client("http://127.0.0.1:2/v1").identity() != identity


# --- faults, by the rows of the table --------------------------------------------------------------------------------


def test_1_latency_is_measured_and_slow_is_no_fault():
    answer = once(after(0.3, advises()))
    assert answer.advice is not None
    assert answer.latency >= 0.3


@pytest.mark.parametrize(
    "step",
    [
        hang(),  # 2
        drip(OK_HEAD + BODY, 0.05),  # 3, 4: in the head
        drip(BODY, 0.05, first=OK_HEAD),  # 3: in the body; each piece in time
        drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 0.01),  # informational answers for ever
        drip(b"5\r\nxxxxx\r\n" * 50, 0.05, head(200, {"Transfer-Encoding": "chunked"})),
        hang(b"HTTP/1.1 200 OK\r\nContent-Type: app"),  # 4
        hang(OK_HEAD + BODY[:50]),
    ],
)
def test_2_3_4_the_total_deadline_holds(step):
    answer = once(step, seconds=SHORT)
    assert is_failure(answer, Failure.TIMEOUT, True)
    assert answer.latency >= 0.9 * SHORT


@pytest.mark.parametrize("seconds", [0.0, -5.0, 1e-4])
def test_a_deadline_that_is_over(seconds):
    began = time.monotonic()
    assert is_failure(once(advises(), seconds=seconds), Failure.TIMEOUT, True)
    assert time.monotonic() - began < SOON


def test_5_refused_then_up_again():
    with FaultServer(advises()) as server:
        backend = client(server.url)
        assert ask(backend).advice is not None
    for _ in range(2):
        assert is_failure(ask(backend), Failure.CONNECTION, True)
    with FaultServer(advises(), port=server.port):
        assert ask(backend).advice is not None
    backend.close()


@pytest.fixture
def hangs(monkeypatch):
    """A resolver that answers nothing before the test ends."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    yield
    release.set()


@pytest.mark.parametrize(
    ("code", "retryable"), [(socket.EAI_AGAIN, True), (socket.EAI_NONAME, False)]
)
def test_6_names_that_do_not_resolve(code, retryable, monkeypatch):
    def fails(*_, **__):
        raise socket.gaierror(code, "name service says no")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", fails)
        answer = ask(client("https://api.example.invalid/v1"), 1.0)
    assert is_failure(answer, Failure.CONNECTION, retryable)
    assert "api.example.invalid" in answer.detail


def test_a_fault_of_ours_is_reported_and_not_raised(monkeypatch):
    answer = ask(
        client(f"https://{'a' * 70}.example/v1"), 1.0
    )  # no name server can be asked about such a label
    assert is_failure(answer, Failure.CONNECTION, False)
    backend = client("http://127.0.0.1/v1")
    monkeypatch.setattr(backend, "_answer", lambda *_: [][0])
    assert "IndexError" in ask(backend).detail


@pytest.mark.usefixtures("hangs")
def test_6_a_resolver_that_hangs():
    backend = client("https://api.example.invalid/v1")
    before = threading.active_count()
    for _ in range(6):
        assert is_failure(ask(backend, 0.08), Failure.TIMEOUT, True)
    assert threading.active_count() - before <= 4  # lookups do not pile up


def resolves(monkeypatch, *addresses):
    """Let every name have these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_6_a_name_that_only_seems_to_be_this_machine(monkeypatch):
    resolves(monkeypatch, ("192.0.2.1", 9))
    answer = ask(client("http://localhost:9/v1"), 1.0)
    assert is_failure(answer, Failure.CONNECTION, False)
    assert "not this machine" in answer.detail


def test_an_address_that_refuses_is_not_the_last_word(monkeypatch):
    with FaultServer(advises()) as server:
        resolves(monkeypatch, ("127.0.0.2", server.port), ("127.0.0.1", server.port))
        assert ask(client(server.url.replace("127.0.0.1", "localhost")), 2.0).advice is not None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for the name localhost with its key, made on the spot."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    public = path.with_suffix(".crt")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = f"-keyout {path} -out {public}"
    command = f"openssl {words} {names} {files}".split()
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    path.write_text(path.read_text() + public.read_text())
    return path


@pytest.fixture
def server_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_6_tls(certificate, server_tls):
    """Nothing is sent to whom we cannot be sure of: unknown to the system, or of another name."""
    trusted = certificate.with_suffix(".crt")
    with FaultServer(advises(), hang(), tls=server_tls) as server:
        backend = client(server.url, ca_file=trusted)
        assert ask(backend).advice is not None
        assert is_failure(ask(backend, SHORT), Failure.TIMEOUT, True)
        backend.close()
        other = server.url.replace("localhost", "127.0.0.1")
        for doubtful in (client(server.url), client(other, ca_file=trusted)):
            assert is_failure(ask(doubtful), Failure.CONNECTION, False)
        assert len(server.requests) == 2


def test_6_no_tls_where_tls_is_due():
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def refuse():
            sock, _ = plain.accept()
            sock.sendall(head(400, {"Content-Length": "0"}))
            sock.recv(4096)
            sock.close()

        threading.Thread(target=refuse, daemon=True).start()
        answer = ask(client(f"https://127.0.0.1:{plain.getsockname()[1]}/v1"), 2.0)
        assert is_failure(answer, Failure.CONNECTION, False)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a handshake that never comes
        answer = ask(client(f"https://127.0.0.1:{silent.getsockname()[1]}/v1"), SHORT)
        assert is_failure(answer, Failure.TIMEOUT, True)


@pytest.mark.parametrize(
    "step",
    [
        reset(),  # 7
        reset(OK_HEAD + BODY[:40]),
        cut(b"HTTP/1.1 200"),  # 8
        cut(OK_HEAD + BODY[:40]),
        cut(head(200, {"Transfer-Encoding": "chunked"}) + b"zz\r\n" + BODY),
        cut(b"SSH-2.0-OpenSSH_9.6\r\n"),
        cut(head(200, {"Content-Length": "12, 13"}) + BODY),
        cut(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000 + b"\r\n\r\n"),
    ],
)
def test_7_8_broken_transfers(step):
    with FaultServer(step, advises()) as server:
        backend = client(server.url)
        answer, following = ask(backend), ask(backend)
        backend.close()
    assert is_failure(answer, Failure.CONNECTION, True)
    assert answer.detail
    assert following.advice is not None  # the next attempt is not harmed


def test_7_a_reset_after_the_whole_body_loses_nothing():
    assert once(reset(OK_HEAD + BODY)).advice is not None


def test_8_a_gzip_bomb_is_not_unfolded():
    began = time.perf_counter()
    answer = once(bomb(5_000_000))
    assert is_failure(answer, Failure.HTTP, False)
    assert "gzip" in answer.detail
    assert time.perf_counter() - began < SOON


@pytest.mark.parametrize(
    "step",
    [
        reply(200, b"x", {"Content-Length": str(20_000_000)}),
        flood(20_000_000),
        reply(500, b" " * 300_000),
    ],
)
def test_9_bodies_past_the_cap(step):
    began = time.monotonic()
    assert is_failure(once(step), Failure.TOO_LARGE, False)
    assert time.monotonic() - began < SOON


def test_10_waiting_is_reported_and_not_done():
    began = time.monotonic()
    answer = once(reply(429, b"{}", {"Retry-After": "86400"}))
    assert time.monotonic() - began < SOON
    assert is_failure(answer, Failure.HTTP, True)
    assert (answer.status, answer.retry_after) == (429, 86400.0)


def test_11_a_burst_is_one_attempt_each():
    burst = (500, 502, 503, 504, 529)
    with FaultServer(*map(reply, burst), advises()) as server:
        backend = client(server.url)
        *failed, last = [ask(backend) for _ in range(6)]
        backend.close()
        assert len(server.requests) == 6  # none was repeated here
    assert [answer.status for answer in failed] == [*burst]
    assert all(is_failure(answer, Failure.HTTP, True) for answer in failed)
    assert last.advice is not None


def test_19_the_answer_to_another_request_is_refused_and_its_connection_left():
    other = "jaxtrade-" + "0" * 16
    wrong = (reply(200, BODY, {"X-Request-Id": other}), says(json.dumps(GOOD), id=other))
    with FaultServer(*wrong, advises()) as server:
        backend = client(server.url)
        for _ in range(2):
            assert is_failure(ask(backend), Failure.CONNECTION, True)
        assert ask(backend).advice is not None
        assert server.connections == 3
        backend.close()


def test_19_late_bytes_are_not_the_next_answer():
    stale = completion(json.dumps({**GOOD, "direction": "short"}))

    def twice(wire):
        wire.send(OK_HEAD + BODY)
        wire.wait(0.03)
        wire.send(head(200, {"Content-Length": str(len(stale))}) + stale)

    with FaultServer(twice, advises()) as server:
        backend = client(server.url)
        first = ask(backend)
        time.sleep(0.1)
        assert ask(backend).advice == first.advice is not None
        backend.close()


# --- stopping --------------------------------------------------------------------------------------------------------


def check_close(backend, is_under_way):
    """Four requests in flight are over at once when the backend is closed, and so is every later
    one.
    """
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, backend, 20.0) for _ in range(4)]
        assert until(is_under_way, 5)
        began = time.monotonic()
        backend.close()
        assert all(is_failure(each.result(SOON), Failure.STOPPED, False) for each in answers)
        assert time.monotonic() - began < SOON
    assert is_failure(ask(backend), Failure.STOPPED, False)
    backend.close()  # twice is once


@pytest.mark.parametrize(
    "step",
    [hang(), drip(BODY, 0.05, first=OK_HEAD)],
)
def test_close_cuts_what_is_in_flight(step):
    with FaultServer(step) as server:
        check_close(client(server.url), lambda: len(server.requests) == 4)


def test_close_cuts_tls(certificate, server_tls):
    with FaultServer(hang(OK_HEAD), tls=server_tls) as server:
        check_close(
            client(server.url, ca_file=certificate.with_suffix(".crt")),
            lambda: len(server.requests) == 4,
        )


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_close_cuts_connecting_and_handshakes(scheme):
    """Nobody accepts: some connections wait for the kernel's other side, some for a handshake or an
    answer.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        backend = client(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/v1")
        check_close(backend, lambda: len(backend._client._calls) == 4)


@pytest.mark.usefixtures("hangs")
def test_close_during_a_look_up():
    backend = client("https://api.example.invalid/v1")
    threading.Timer(0.2, backend.close).start()
    began = time.monotonic()
    assert is_failure(ask(backend, 20.0), Failure.STOPPED, False)
    assert time.monotonic() - began < SOON


@pytest.mark.slow
def test_nothing_is_left_behind():
    """Sockets and threads of a hundred broken requests are gone when they are over."""
    fds = Path("/proc/self/fd")
    if not fds.is_dir():
        pytest.skip("no /proc to count descriptors in")
    with FaultServer(advises(), reset(), reply(500), cut(OK_HEAD)) as server:
        backend = client(server.url)
        assert ask(backend).advice is not None
        before = len(list(fds.iterdir())) + 1, threading.active_count()
        assert all(ask(backend, 20.0).failure is not Failure.TIMEOUT for _ in range(100))
        backend.close()
        assert until(lambda: threading.active_count() <= before[1], 2)
        assert len(list(fds.iterdir())) <= before[0]
