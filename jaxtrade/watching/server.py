"""The server of the live page: GET alone, on the loopback interface alone, answers from a table of
routes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

# Who may read the page: this machine's browser, with the token that the command printed.
#
# The server listens on the loopback interface alone. That does not keep other web pages out: a
# page in the same browser can send requests to it, and by DNS rebinding (a name of the attacker's
# that suddenly means 127.0.0.1) even read the answers, as CVE-2025-14279 of MLflow showed. So the
# Host header must name the loopback interface, and every request needs the token, which no other
# page knows.

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
# Nothing but the files of this server, no inline code, no frames.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A random token of 256 bits, fit for a URL."""
    return secrets.token_urlsafe(32)


def host_is_loopback(header: str | None) -> bool:
    """Whether a Host header names the loopback interface, with any port (a tunnel's other end may
    have another).
    """
    if header is None:
        return False
    name, colon, port = header.rpartition(":") if not header.endswith("]") else (header, "", "")
    if not colon:
        name, port = header, ""
    return name.lower() in LOOPBACK and (not colon or (port.isascii() and port.isdigit()))


def token_fits(given: str | None, token: str) -> bool:
    """Whether a token is the right one. The time that this takes says nothing about where they
    differ.
    """
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def cookie_name(token: str) -> str:
    """The name of the cookie that holds a token. A browser keeps one cookie of a name for all ports
    of a host, so each server needs a name of its own. Nobody can work the token out from it."""
    return f"jaxtrade_watch_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def cookie_token(header: str | None, name: str) -> str | None:
    """The token in a Cookie header; None if there is none. name: of the cookie."""
    try:
        found = SimpleCookie(header or "").get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def set_cookie(token: str) -> str:
    """The value of a Set-Cookie header. No script can read it, and no other site can have it
    sent.
    """
    return f"{cookie_name(token)}={token}; HttpOnly; SameSite=Strict; Path=/"


HOST = "127.0.0.1"  # there is no flag for it: from another machine, come through ssh
TOKEN = "token"
SMALL = 1400  # bytes that fit in one packet, which compression does not make faster
MOST_CONNECTIONS = 400
SPARE_FILES = 40  # that the process may need beside its connections


class Answer(NamedTuple):
    """What a route answers. content: its bytes. kind: its media type."""

    content: bytes
    kind: str


Query = Mapping[str, str]
Route = Callable[[Query], Answer | None]  # None: there is no such thing


def as_json(document: Any) -> Answer:
    """A document of plain data as an answer. Raises ValueError for a number that is not finite."""
    return Answer(
        json.dumps(document, allow_nan=False, separators=(",", ":")).encode(), "application/json"
    )


def most_connections() -> int:
    """How many connections may be open at once, by the process's limit of open files."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        MOST_CONNECTIONS
        if limit == resource.RLIM_INFINITY
        else max(4, min(MOST_CONNECTIONS, limit - SPARE_FILES))
    )


class Server(ThreadingHTTPServer):
    """Serves `routes` (by path) to whoever has the token. port 0: a free one.

    Where `most_connections` are open, a new one takes the place of the one that has waited longest
    for a request.
    """

    daemon_threads = True
    request_queue_size = 256  # connections that the system holds until they are accepted

    def __init__(self, routes: Mapping[str, Route], token: str, port: int = 0) -> None:
        self.routes, self.token = routes, token
        self._most, self._lock = most_connections(), threading.Lock()
        self._open = set[socket.socket]()
        self._waiting = dict[socket.socket, None]()  # in the order in which they began to wait
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._waiting), None) if len(self._open) >= self._most else None
            full = len(self._open) >= self._most and oldest is None
            if oldest is not None:
                self._forget(oldest)
            if not full:
                self._open.add(request)
        if oldest is not None:
            with suppress(OSError):  # it may have gone by itself
                oldest.shutdown(socket.SHUT_RDWR)  # its thread then reads the end, and closes it
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._forget(request)
        super().shutdown_request(request)

    def waits(self, connection: socket.socket, waiting: bool) -> None:
        """Note that a connection waits for a request, or has one."""
        with self._lock:
            self._waiting.pop(connection, None)
            if waiting and connection in self._open:
                self._waiting[connection] = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that its other side has closed, or that was silent for too
        long.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _forget(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.server_address[1]

    @property
    def address(self) -> str:
        """The address to open: with the token, which the browser then keeps as a cookie."""
        return f"http://{HOST}:{self.port}/?{urlencode({TOKEN: self.token})}"


class _Handler(BaseHTTPRequestHandler):
    """One request. Anything but GET and HEAD is refused; a path is looked up in the table and never
    on the disk.
    """

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "jaxtrade", ""
    timeout = 30  # seconds that a connection may be silent

    def handle_one_request(self) -> None:
        self.server.waits(self.connection, True)
        super().handle_one_request()

    def parse_request(self) -> bool:
        found = (
            super().parse_request()
        )  # reads the rest of the headers: until then the connection waits
        self.server.waits(self.connection, False)
        return found

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if not host_is_loopback(self.headers.get("Host")):
            return self._plain(HTTPStatus.FORBIDDEN, "this page is for this machine alone")
        try:
            target = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        except ValueError:
            return self._plain(HTTPStatus.BAD_REQUEST, "not understood")
        token = self.server.token
        if TOKEN in query and target.path == "/" and token_fits(query[TOKEN], token):
            return self._send(
                HTTPStatus.SEE_OTHER,
                Answer(b"", "text/plain"),
                {"Location": "/", "Set-Cookie": set_cookie(token)},
            )
        if not token_fits(cookie_token(self.headers.get("Cookie"), cookie_name(token)), token):
            return self._plain(
                HTTPStatus.FORBIDDEN, "open the address that jaxtrade watch has printed"
            )
        route = self.server.routes.get(target.path)
        found = None if route is None else route(query)
        if found is None:
            return self._plain(HTTPStatus.NOT_FOUND, "there is no such page")
        return self._send(HTTPStatus.OK, found, {})

    def _plain(self, status: HTTPStatus, text: str) -> None:
        self._send(status, Answer(f"{text}\n".encode(), "text/plain; charset=utf-8"), {})

    def _send(self, status: HTTPStatus, answer: Answer, headers: Mapping[str, str]) -> None:
        content = answer.content
        asked = getattr(self, "headers", None)  # absent if the request itself could not be read
        packed = (
            len(content) > SMALL
            and asked is not None
            and "gzip" in asked.get("Accept-Encoding", "")
        )
        if packed:
            content = gzip.compress(content, compresslevel=1, mtime=0)
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(content)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not understood, or has another method: 405 for the latter."""
        del message, explain
        known = code == HTTPStatus.NOT_IMPLEMENTED
        self.close_connection = True
        self._plain(HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus(code), "not understood")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal shows the address."""
