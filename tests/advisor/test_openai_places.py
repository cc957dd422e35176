"""Where requests go, and where the key goes."""

import json
import math
from pathlib import Path

import pytest

from jaxtrade.advisor.host.openai import check_url
from jaxtrade.advisor.host.types import Failure
from jaxtrade.errors import ConfigError
from tests.advisor import servers
from tests.advisor.asking import ask
from tests.advisor.servers import FaultServer, advises, completion, head, reply
from tests.advisor.test_openai import CANARY, client, is_failure, once

# --- where requests go, and the key ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 307])
def test_redirects_are_not_followed(status):
    with FaultServer(advises()) as other:
        answer = once(reply(status, b"", {"Location": other.url + "/chat/completions"}))
        assert is_failure(answer, Failure.HTTP, False)
        assert "redirect" in answer.detail
        assert other.connections == 0


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with FaultServer(reply(403)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert once(advises()).advice is not None
        assert proxy.connections == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1/v1", "expected http"),
        ("http:///v1", "expected http"),
        ("http://127.0.0.1:99999/v1", "not a URL"),
        ("http://192.168.1.5:8080/v1", "at 192.168.1.5: plain http"),
        ("http://127.0.0.1.evil.com/v1", "plain http"),
        ("http://localhost.evil.com/v1", "plain http"),
        (f"https://user:{CANARY}@example.com/v1", "at example.com: holds"),
        (f"https://example.com/v1?key={CANARY}", "at example.com: holds"),
        (f"https://example.com/v1#{CANARY}", "holds"),
        ("https://example.com/v1/chat/completions", "without"),
        ("https://example.com/a b", "unusual"),
    ],
)
def test_urls_that_are_not_asked(url, words):
    with pytest.raises(ConfigError) as caught:
        client(url)
    assert words in str(caught.value)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/v1",
        "http://localhost/v1",
        "http://[::1]:8080",
        "http://127.9.9.9",
        "https://api.example.com/v1",
    ],
)
def test_urls_that_are(url):
    assert check_url(url + "/").geturl() == url


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"structured": "grammar"}, "expected 'json_schema'"),
        ({"temperature": math.nan}, "temperature"),
        ({"max_bytes": 10}, "max_bytes"),
        ({"ca_file": Path("/absent.pem")}, "ca_file"),
        ({"key_env": "NO_SUCH_KEY"}, "variable NO_SUCH_KEY"),
    ],
)
def test_settings_that_cannot_be(options, words):
    with pytest.raises(ConfigError, match=words):
        client("https://127.0.0.1/v1", **options)


def test_an_absent_library_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "jaxtrade.advisor.host.http", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[advisor\]'"):
        client("http://127.0.0.1/v1")


def test_the_key_goes_into_one_header_and_nowhere_else(monkeypatch, caplog):
    """A server that echoes all it got: in its error, its headers, its answer, its model's name, or
    its protocol.
    """
    monkeypatch.setenv("KEY", CANARY)
    caplog.set_level("DEBUG")

    def echo(status):
        error = {"error": {"message": f"Bearer {CANARY}"}} if status != 200 else {}
        body = completion(json.dumps({"got": CANARY}), model=CANARY, **error)
        return reply(status, body, {"Location": CANARY, "Retry-After": CANARY})

    script = [
        *(echo(status) for status in (200, 302, 400, 401, 429, 500)),
        servers.cut(f"HTTP/1.1 {CANARY}\r\n".encode()),
        servers.cut(head(200, {"Content-Encoding": CANARY})),
        servers.says(f"```{CANARY}```"),
        advises(direction=CANARY),
    ]
    with FaultServer(*script) as server:
        backend = client(server.url, key_env="KEY")
        answers = [ask(backend) for _ in script]
        backend.close()
    for request in server.requests:
        assert request.headers["authorization"] == f"Bearer {CANARY}"
        assert CANARY not in json.dumps(request.body)
    assert all(answer.failure for answer in answers)
    shown = [*map(repr, answers), repr(backend), str(backend), backend.name, caplog.text]
    assert "CANARY" not in "".join(shown) + json.dumps(dict(backend.identity()))
    assert any("[key]" in answer.raw for answer in answers)
    with FaultServer(advises(reason=f"as {CANARY} says")) as server:
        backend = client(server.url, key_env="KEY")
        answer = ask(backend)
        backend.close()
    assert (answer.reason, CANARY in answer.raw) == ("as [key] says", False)
