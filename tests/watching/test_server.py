"""What the server of the live page answers, and to whom."""

import gzip
import http.client
import json
import queue
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxtrade.watching import server as watching
from jaxtrade.watching.server import HttpAnswer, WatchServer, as_json
from tests.messages import missing, refused


@pytest.fixture
def server():
    def page(query):
        return HttpAnswer(
            b"<!doctype html>" + query.get("x", "").encode(), "text/html; charset=utf-8"
        )

    found = WatchServer(
        {
            "/": page,
            "/api/long": lambda query: as_json(list(range(5000))),
            "/api/none": lambda query: None,
        },
        "right-token",
    )
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def ask(
    server,
    path="/",
    method="GET",
    host=None,
    token="right-token",
    headers=None,
):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    sent = {"Host": f"127.0.0.1:{server.port}" if host is None else host} | (headers or {})
    if token is not None:
        sent["Cookie"] = f"other=1; {watching.cookie_name('right-token')}={token}"
    connection.request(method, path, headers=sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_it_listens_on_the_loopback_interface_alone(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example:80", 403),
        ("", 403),
        ("127.0.0.1", 200),
        ("localhost:9", 200),
        ("LOCALHOST:1234", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("127.0.0.1:x", 403),
        ("localhost@evil.example", 403),
        ("127.0.0.1:80:80", 403),
    ],
)
def test_another_host_is_refused(server, host, status):
    assert ask(server, host=host)[0].status == status


@pytest.mark.parametrize(
    "token", [None, "", "wrong", "right-token2", "é".encode().decode("latin-1")]
)
def test_without_the_token_nothing_is_shown(server, token):
    for path in ("/", "/api/long", "/none"):
        answer, content = ask(server, path, token=token)
        assert answer.status == 403
        assert b"jaxtrade watch" in content


def test_the_printed_address_sets_a_cookie_that_no_script_reads(server):
    answer, _ = ask(server, f"/?{server.address.partition('?')[2]}", token=None)
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie") or ""
    assert not missing(
        cookie,
        f"{watching.cookie_name('right-token')}=right-token;",
        "HttpOnly;",
        "SameSite=Strict;",
    )
    assert ask(server, "/?token=wrong", token=None)[0].status == 403
    assert ask(server, "/api/long?token=right-token", token=None)[0].status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused(server, method):
    assert ask(server, method=method)[0].status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "/..",
        "/%2e%2e/x",
        "/api",
        "/api/",
        "//etc/passwd",
        "/api/none",
        "/watching/server.py",
        "/.//",
    ],
)
def test_paths_are_looked_up_in_a_table(server, path):
    assert ask(server, path)[0].status == 404


def test_what_no_browser_sends_is_answered_too(server, capfd):
    assert ask(server, "http://[")[0].status == 400
    assert ask(server, "/?x=" + "9" * 5_000)[0].status == 200
    for sent in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /api/long",
        b"\x16\x03\x01\x02\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as early:
            early.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # close by a reset
            early.sendall(sent)
    assert ask(server)[0].status == 200
    assert capfd.readouterr().err == ""


def test_idle_connections_give_way(monkeypatch):
    """Where all of them are taken, a new one is served, and the one that waited longest is
    closed.
    """
    monkeypatch.setattr(watching, "most_connections", lambda: 4)
    server = WatchServer({"/": lambda query: HttpAnswer(b"here", "text/plain")}, "right-token")
    noted, begun = server.waits, queue.SimpleQueue()

    def waits(connection, waiting):
        noted(connection, waiting)
        if waiting:
            begun.put(connection)

    monkeypatch.setattr(server, "waits", waits)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        idle = []
        for _ in range(12):
            idle.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            begun.get(timeout=20)  # its thread waits: until then it cannot give way
        idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")  # and then nothing: it waits as well
        for _ in range(8):
            assert ask(server)[1] == b"here"
        assert [each.recv(1) for each in idle[:9]] == [b""] * 9  # closed
        for each in idle:
            each.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_connections_leave_files_for_the_rest(monkeypatch):
    import resource

    for soft, most in (
        (64, 24),
        (16, 4),
        (100_000, watching.MOST_CONNECTIONS),
        (resource.RLIM_INFINITY, watching.MOST_CONNECTIONS),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert watching.most_connections() == most


def test_two_hundred_viewers_at_once(server):
    def view(_):
        return ask(server, "/api/long")[0].status

    with ThreadPoolExecutor(200) as viewers:
        assert set(viewers.map(view, range(200))) == {200}


def test_every_answer_carries_the_policy(server):
    for path, token in (("/", "right-token"), ("/none", "right-token"), ("/", None)):
        answer, _ = ask(server, path, token=token)
        policy = (answer.getheader("Content-Security-Policy") or "").split("; ")
        assert policy[:2] == ["default-src 'none'", "script-src 'self'"]
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Cache-Control") == "no-store"
        assert "unsafe" not in (answer.getheader("Content-Security-Policy") or "")


def test_head_and_compression(server):
    answer, content = ask(server, method="HEAD")
    assert (answer.status, content, answer.getheader("Content-Length")) == (200, b"", "15")
    answer, content = ask(server, "/api/long", headers={"Accept-Encoding": "gzip"})
    assert answer.getheader("Content-Encoding") == "gzip"
    assert json.loads(gzip.decompress(content)) == list(range(5000))
    assert json.loads(ask(server, "/api/long")[1]) == list(range(5000))


def test_the_cookies_of_two_servers_of_one_host_differ():
    """A browser sends the cookies of all ports of a host: the second server must not overwrite the
    first one's.
    """
    cookies = [watching.set_cookie(token).partition(";")[0] for token in ("one", "two")]
    names = [each.partition("=")[0] for each in cookies]
    assert names[0] != names[1]
    for token in ("one", "two"):
        assert watching.cookie_token("; ".join(cookies), watching.cookie_name(token)) == token
        assert token not in watching.cookie_name(token)


def test_tokens_are_long_and_differ():
    tokens = {watching.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43  # 256 bits in base64


def test_a_number_that_is_not_finite_is_no_answer():
    with refused("JSON", kind=ValueError):
        as_json({"loss": float("nan")})
