"""An HTTP client of one server, over persistent connections, from many threads.

A connection is kept only if no bytes followed the response, and reused only if nothing arrived
since. Otherwise a second response on it would be read as the answer to the next request. The client
follows no redirects and ignores proxy variables. Needs the extra `advisor`. Imports no JAX.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult

import h11

from jaxtrade.advisor.host.types import Failure
from jaxtrade.advisor.host.wire import Limits, Reply, TransportError, classified, exchange

MAX_IDLE = 64  # connections kept
_IDLE_SECONDS = (
    30.0  # an idle connection is kept this long; servers close theirs after a similar time
)
_MAX_LOOKUPS = 4  # name look-ups at a time
_SLICE = 0.1  # seconds between checks of the stop flag during a look-up
_LOOPBACK = ("127.", "::1")

Lookup = Callable[..., list[Any]]
T = TypeVar("T")


class Client:
    """Sends requests to paths below one base URL. Many threads may use it; `close` ends the calls
    in all of them.
    """

    def __init__(
        self, base: SplitResult, context: ssl.SSLContext | None, lookup: Lookup = socket.getaddrinfo
    ) -> None:
        """context: for https; None means plain http, which is allowed to this machine only."""
        self._base, self._context = base, context
        self._port = base.port or (443 if context else 80)
        self._host = base.hostname or ""
        self._names = _Names(lookup)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._idle: list[tuple[socket.socket, float]] = []

    def post(
        self,
        path: str,
        headers: dict[str, str],
        body: bytes,
        limits: Limits,
        read: Callable[[Reply], T],
    ) -> T:
        """Send one POST and return `read(reply)`.

        Raises TransportError, and any exception of `read`. In both cases the connection is closed.
        """
        return self._call("POST", path, headers, body, limits, read)

    def get(
        self, path: str, headers: dict[str, str], limits: Limits, read: Callable[[Reply], T]
    ) -> T:
        """Send one GET and return `read(reply)`. Raises as `post`."""
        return self._call("GET", path, headers, b"", limits, read)

    def _call(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        limits: Limits,
        read: Callable[[Reply], T],
    ) -> T:
        sock = None
        try:
            sock = self._connection(limits)
            reply, whole = exchange(sock, self._request(method, path, headers, body), body, limits)
            result = read(reply)
            if whole:
                self._keep(sock)
                sock = None
            return result
        except (OSError, h11.ProtocolError) as error:
            if self._stopped.is_set():
                raise TransportError(Failure.STOPPED, "closed", False) from None
            raise classified(error, self._host) from None
        finally:
            if sock is not None:
                self._drop(sock)

    def close(self) -> None:
        """Cut every connection. Calls in other threads end at once with Failure.STOPPED."""
        with self._lock:
            self._stopped.set()
            for sock in self._open:
                try:
                    socket.socket.shutdown(
                        sock, socket.SHUT_RDWR
                    )  # unlike close, this wakes a thread that waits
                except OSError:
                    continue  # not connected yet or already closed: no thread waits on it
            idle, self._idle = self._idle, []
        for sock, _ in idle:
            self._drop(sock)

    def _request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> h11.Request:
        fixed = {"Host": self._base.netloc} | (
            {"Content-Length": str(len(body))} if method == "POST" else {}
        )
        return h11.Request(
            method=method, target=self._base.path + path, headers=list({**fixed, **headers}.items())
        )

    def _connection(self, limits: Limits) -> socket.socket:
        """An idle connection on which nothing has arrived, or a new one."""
        limits.left()
        while True:
            with self._lock:
                if self._stopped.is_set():
                    raise OSError("closed")
                sock, since = self._idle.pop() if self._idle else (None, 0.0)
            if sock is None:
                return self._connect(limits)
            if time.monotonic() - since < _IDLE_SECONDS and not _readable(sock):
                return sock
            self._drop(sock)

    def _connect(self, limits: Limits) -> socket.socket:
        """A connection to the first address that accepts. Each address gets an equal share of the
        time left.
        """
        addresses = self._names.find(self._host, self._port, limits, self._stopped)
        if self._context is None and not all(
            item[4][0].startswith(_LOOPBACK) for item in addresses
        ):
            raise TransportError(
                Failure.CONNECTION, f"{self._host} is not this machine: no plain http", False
            )
        for last, (family, kind, protocol, _, address) in zip(
            range(len(addresses) - 1, -1, -1), addresses, strict=True
        ):
            sock = self._track(socket.socket(family, kind, protocol))
            try:
                sock.settimeout(limits.left() / (last + 1))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self._secured(sock, limits) if self._context else sock
            except OSError as error:
                self._drop(sock)
                if not last or isinstance(error, ssl.SSLError):
                    raise
        raise OSError("the name has no address")

    def _secured(self, sock: socket.socket, limits: Limits) -> socket.socket:
        assert self._context is not None
        wrapped = self._context.wrap_socket(
            sock, server_hostname=self._host, do_handshake_on_connect=False
        )
        self._drop(sock)  # `wrapped` has taken over the connection
        self._track(wrapped)
        try:
            wrapped.settimeout(limits.left())  # applies to the whole handshake
            wrapped.do_handshake()
        except OSError:
            self._drop(wrapped)
            raise
        return wrapped

    def _track(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            if not self._stopped.is_set():
                self._open.add(sock)
                return sock
        sock.close()
        raise OSError("closed")

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:
            if not self._stopped.is_set() and len(self._idle) < MAX_IDLE:
                self._idle.append((sock, time.monotonic()))
                return
        self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.discard(sock)
        sock.close()


class _Names:
    """Looks up host names in separate threads, because the system's resolver has no deadline."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._free = threading.BoundedSemaphore(_MAX_LOOKUPS)

    def find(self, host: str, port: int, limits: Limits, stopped: threading.Event) -> list[Any]:
        """The result of getaddrinfo. Raises its exceptions, TimeoutError at the deadline, and
        OSError after a stop.
        """
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def look() -> None:
            try:
                found.put(self._lookup(host, port, type=socket.SOCK_STREAM))
            except Exception as error:
                found.put(error)  # re-raised below, in the caller's thread
            finally:
                self._free.release()

        if not self._free.acquire(timeout=limits.left()):
            raise TimeoutError
        threading.Thread(target=look, name="advisor-lookup", daemon=True).start()
        while not stopped.is_set():
            try:
                result = found.get(timeout=min(limits.left(), _SLICE))
            except queue.Empty:
                continue
            if isinstance(result, Exception):
                raise result
            return result
        raise OSError("closed")


def _readable(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read: its end, or bytes without a request.

    Such a connection must not be reused.
    """
    sock.settimeout(0)
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.recv(1)  # the TLS layer consumes session tickets, so they do not count as data
        else:
            sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True
