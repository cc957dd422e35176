"""HTTP on loopback around a model: `/v1/chat/completions`, `/v1/models`, `/health`, all of them behind the token.

One request is written at a time; the others wait in their connections' threads. A request whose client has gone is not
begun, and not continued.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import select
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jaxtrade.advisor.serve.api import MAX_BODY, Model, RequestError, completion, failure, models, read_request

MOST_AT_ONCE = 64  # requests, the one that is written and those that wait
_IDLE_S = 60.0  # that a silent connection is kept
_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


class Server(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1; `serve_forever` serves, and raises SystemExit once the parent is gone."""

    daemon_threads = True
    request_queue_size = MOST_AT_ONCE

    def __init__(self, model: Model, token: str) -> None:
        """Raises ValueError without a token: nobody else on this machine may ask."""
        if not token:
            raise ValueError("a server without a token")
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self._token = f"Bearer {token}".encode()
        self._parent = os.getppid()
        self._writing = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._answers = 0

    @property
    def port(self) -> int:
        return self.server_address[1]

    def service_actions(self) -> None:
        if os.getppid() != self._parent:
            raise SystemExit(0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke; nobody is there to be told."""

    def may(self, authorization: str) -> bool:
        return hmac.compare_digest(authorization.encode("utf-8", "replace"), self._token)

    def write(self, body: bytes, sock: socket.socket) -> Mapping[str, Any]:
        """The answer to one request. Raises RequestError."""
        ask = read_request(body, self.model.name)
        if not self._places.acquire(blocking=False):
            raise RequestError(503, "busy", f"{MOST_AT_ONCE} requests wait already")
        try:
            with self._writing:
                if gone(sock):
                    raise ConnectionAbortedError
                text = self.model.write(ask, lambda: not gone(sock))
                self._answers += 1
                return completion(text, self.model.name, self._answers)
        finally:
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    wbufsize = MAX_BODY  # head and body go out together
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        if not self._let_in():
            return
        if self.path == "/v1/models":
            self._send(200, models(self.server.model.name))
        elif self.path == "/health":
            self._send(200, {"status": "ok", "model": self.server.model.name})
        else:
            self._send(404, failure("not_found", "no such path"))

    def do_POST(self) -> None:
        if not self._let_in():
            return
        try:
            if self.path != "/v1/chat/completions":
                raise RequestError(404, "not_found", "no such path")
            self._send(200, self.server.write(self._body(), self.connection))
        except RequestError as error:
            self._send(error.status, failure(error.code, str(error)))
        except OSError:
            raise  # the client has gone
        except Exception as error:  # the model failed; its text might quote the prompt
            self._send(500, failure("model_failed", f"the model raised {type(error).__name__}"))

    def _let_in(self) -> bool:
        if self.server.may(self.headers.get("Authorization", "")):
            return True
        self._send(401, failure("invalid_api_key", "wrong token"), close=True)  # its body is not read
        return False

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,12}", length) or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise RequestError(411, "no_length", "a Content-Length is needed")
        if int(length) > MAX_BODY:
            self.close_connection = True
            raise RequestError(413, "too_large", f"more than {MAX_BODY} bytes")
        return self.rfile.read(int(length))

    def _send(self, status: int, value: Mapping[str, Any], close: bool = False) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if _REQUEST_ID.fullmatch(request_id := self.headers.get("X-Request-Id", "")):
            self.send_header("X-Request-Id", request_id)
        if close or self.close_connection:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: no request is anybody's business."""


def gone(sock: socket.socket) -> bool:
    """Whether the other end was closed; what it may have sent stays unread."""
    try:
        ready, _, _ = select.select([sock], [], [], 0)
        return bool(ready) and sock.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True
