"""An HTTP server on loopback that misbehaves by script: one step per request, the last one again
and again.

Steps write to the bare socket, so that nothing between them and the client repairs what they break.
Nothing is random: a burst is a longer script.
"""

import gzip
import json
import socket
import struct
import threading
import time
from typing import Any, NamedTuple

LONGEST = 20.0  # seconds that a hanging step holds on without being stopped
GOOD = {
    "v": 1,
    "direction": "long",
    "confidence": 0.7,
    "risk": 0.2,
    "horizon_bars": 30,
    "reason": "trend",
}


class Request(NamedTuple):
    """A request as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


class Wire:
    """A connection as a step sees it."""

    def __init__(self, sock, request, stop):
        self.sock, self.request, self.stop = sock, request, stop

    def send(self, data):
        self.sock.sendall(data)

    def wait(self, seconds):
        """Sleep, or raise where the server is closed meanwhile."""
        if self.stop.wait(seconds):
            raise ConnectionAbortedError("server closed")

    def reset(self):
        """Close with a reset instead of an end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionResetError


def head(status, headers):
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def reply(status=200, body=b"", headers=None):
    """A whole and honest response; `headers` may override its length."""
    data = body.encode() if isinstance(body, str) else body
    sent = {"Content-Length": str(len(data)), "Content-Type": "application/json", **(headers or {})}
    return lambda wire: wire.send(head(status, sent) + data)


def completion(content, finish="stop", message=None, **fields):
    """The body of a chat completion whose message has `content`."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": content, **(message or {})},
    }
    usage = {"prompt_tokens": 321, "completion_tokens": 45, "total_tokens": 366}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "tiny-1",
            "choices": [choice],
            "usage": usage,
            **fields,
        }
    ).encode()


BODY = completion(json.dumps(GOOD))
OK_HEAD = head(200, {"Content-Type": "application/json", "Content-Length": str(len(BODY))})


def says(content, **more):
    """200 with a completion."""
    return reply(200, completion(content, **more))


def advises(**changes):
    """200 with good advice, some of it changed."""
    return says(json.dumps({**GOOD, **changes}))


def after(seconds, step):
    """A step that starts late."""

    def run(wire):
        wire.wait(seconds)
        step(wire)

    return run


def hang(first=b""):
    """Some bytes, then nothing for ever."""

    def run(wire):
        wire.send(first)
        wire.wait(LONGEST)

    return run


def drip(data, seconds, first=b""):
    """Some bytes at once, then one byte every so often."""

    def run(wire):
        wire.send(first)
        for i in range(len(data)):
            wire.wait(seconds)
            wire.send(data[i : i + 1])

    return run


def cut(data=b""):
    """Some bytes, then the end of the connection."""

    def run(wire):
        wire.send(data)
        raise ConnectionAbortedError

    return run


def reset(data=b""):
    """Some bytes, then a reset."""

    def run(wire):
        wire.send(data)
        time.sleep(0.05 if data else 0)  # a reset overtakes bytes that are still on their way
        wire.reset()

    return run


def flood(size):
    """200 with a body of unknown length and `size` bytes."""

    def run(wire):
        wire.send(head(200, {"Content-Type": "application/json", "Connection": "close"}))
        for _ in range(size // 65536):
            wire.send(b" " * 65536)
        raise ConnectionAbortedError

    return run


def bomb(size):
    """200 with a small gzip body that unfolds to `size` bytes."""
    return reply(200, gzip.compress(b" " * size), {"Content-Encoding": "gzip"})


class FaultServer:
    """`with FaultServer(step, step, ...) as server:`; `server.url` ends in /v1."""

    def __init__(self, *script, tls=None, port=0):
        self._script, self._tls = script, tls
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._socks = set()
        self.requests = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.url = (
            f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}/v1"
        )
        self._thread = threading.Thread(target=self._accept, name="fault-server", daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._socks:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was first
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _accept(self):
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(
                target=self._serve, args=(sock,), name="fault-connection", daemon=True
            ).start()

    def _serve(self, sock):
        try:
            if self._tls:
                sock = self._tls.wrap_socket(sock, server_side=True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._socks.add(sock)
            reader = sock.makefile("rb")
            while (request := _read(reader)) is not None:
                with self._lock:
                    step = self._script[min(len(self.requests), len(self._script) - 1)]
                    self.requests.append(request)
                step(Wire(sock, request, self._stop))
        except OSError:
            pass  # the end of this connection, by script or by the client
        finally:
            with self._lock:
                self._socks.discard(sock)
            sock.close()


def _read(reader):
    """The next request of a connection; None at its end."""
    line = reader.readline()
    if not line:
        return None
    headers = {}
    while header := reader.readline().decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Request(line.split()[1].decode(), headers, json.loads(body) if body else None)
