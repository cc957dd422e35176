"""HTTP requests to one server, each within a total deadline and a cap on the body.

httpx limits the time of each read, so a server that sends one byte at a time would never time out.
A request therefore runs in an event loop of its own, in the thread that makes it, where the
deadline or a stop cancels it wherever it is: in a name look-up, a handshake, the head or the body.
Each request has its own connection: what a server sends after a response must not become the answer
to the next request, and httpx cannot tell it apart. Compressed content is refused unread: we ask
for none, and so no body can expand in memory. Redirects are not followed, proxy variables are
ignored.

Needs the extra `advisor`. Imports no JAX.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult

import httpx

from jaxtrade.advisor.host.types import FailedError, Failure

# At DEBUG, httpcore logs what a server sends, and a server may send the key back.
logging.getLogger("httpcore").setLevel(logging.INFO)

_LOOPBACK = ("127.", "::1")
_LOOKUPS = threading.BoundedSemaphore(4)  # name look-ups at a time, of all clients
_PAUSE = 0.05  # seconds between tries to begin a look-up


class HttpResponse(NamedTuple):
    """A complete response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Sends requests to paths below one base URL.

    Many threads may use it; `close` ends the calls in all of them.
    """

    def __init__(self, base: SplitResult, context: ssl.SSLContext | None) -> None:
        """context: for https; None means plain http, which is allowed to this machine only."""
        self._base, self._local = base, context is None
        # Without TLS, a context that trusts nobody is the cheapest one. It is not used.
        self._context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._lock = threading.Lock()
        self._stopped = False
        self._calls: dict[asyncio.Task[HttpResponse], _Loop] = {}  # under way

    def send(
        self,
        path: str,
        headers: dict[str, str],
        deadline: float,
        cap: int,
        body: bytes = b"",
    ) -> HttpResponse:
        """Send one POST, or one GET without a body, and return the response.

        Raises FailedError.

        Args:
            deadline: of `time.monotonic`.
            cap: most bytes of the response's body.
        """
        request = httpx.Request(
            "POST" if body else "GET",
            self._base.geturl() + path,
            headers={"Connection": "close", **headers},
            content=body,
        )
        try:
            with asyncio.Runner(loop_factory=lambda: _Loop(self._local)) as runner:
                return runner.run(self._within(request, deadline, cap))
        except asyncio.CancelledError:
            raise FailedError(Failure.STOPPED, "closed", False) from None
        except (httpx.TransportError, OSError) as error:
            raise _classify(error, self._base.hostname or "") from None

    async def _within(self, request: httpx.Request, deadline: float, cap: int) -> HttpResponse:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        assert isinstance(loop, _Loop)
        with self._lock:
            if self._stopped:
                raise asyncio.CancelledError
            self._calls[task] = loop
        try:
            async with asyncio.timeout_at(deadline):
                return await self._exchange(request, cap)
        finally:
            with self._lock:
                del self._calls[task]

    async def _exchange(self, request: httpx.Request, cap: int) -> HttpResponse:
        async with httpx.AsyncHTTPTransport(verify=self._context, trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            status, found = response.status_code, dict(response.headers)
            coding = found.get("content-encoding", "identity")
            if coding.lower() != "identity":
                detail = f"content came as {coding[:20]!r}, asked for none"
                raise FailedError(Failure.HTTP, detail, False, status)
            body = bytearray()
            # h11 has checked that the announced length holds digits only.
            if int(found.get("content-length", "0")) > cap:
                detail = f"announced more than {cap} bytes"
                raise FailedError(Failure.TOO_LARGE, detail, False, status)
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > cap:
                    raise FailedError(Failure.TOO_LARGE, f"more than {cap} bytes", False, status)
            return HttpResponse(status, found, bytes(body))

    def close(self) -> None:
        """End every call.

        These and all later ones fail at once with Failure.STOPPED.
        """
        with self._lock:
            self._stopped = True
            for task, loop in self._calls.items():
                loop.call_soon_threadsafe(task.cancel)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that looks up names in daemon threads.

    The system's resolver has no deadline, and the end of a process waits for the loop's own
    threads.

    local: whether only addresses of this machine may be found.
    """

    def __init__(self, local: bool) -> None:
        super().__init__()
        self._local = local

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any) -> None:
            if not found.done():
                found.set_result(result)

        def look() -> None:
            try:
                result: Any = socket.getaddrinfo(host, port, **options)
            except Exception as error:
                result = error  # raised below
            finally:
                _LOOKUPS.release()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.call_soon_threadsafe(settle, result)

        while not _LOOKUPS.acquire(blocking=False):
            await asyncio.sleep(_PAUSE)
        threading.Thread(target=look, name="advisor-lookup", daemon=True).start()
        if isinstance(addresses := await found, Exception):
            raise addresses
        if self._local and not all(item[4][0].startswith(_LOOPBACK) for item in addresses):
            raise FailedError(
                Failure.CONNECTION, f"{host} is not this machine: no plain http", False
            )
        return addresses


def _classify(error: Exception, host: str) -> FailedError:
    """Convert an exception of sockets, TLS or HTTP to a failure.

    Messages name the host and nothing that was sent.
    """
    if isinstance(error, TimeoutError):
        return FailedError(Failure.TIMEOUT, f"{host} did not answer by the deadline", True)
    if isinstance(error, httpx.LocalProtocolError):
        return FailedError(Failure.CONNECTION, f"the request to {host} cannot be sent", False)
    detail, retryable = f"{host} broke off or is not HTTP: {error}", True
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            detail, retryable = f"certificate of {host}: {cause.verify_message}", False
        elif isinstance(cause, ssl.SSLError):
            detail, retryable = f"TLS with {host}: {cause.reason or 'broken off'}", False
        elif isinstance(cause, socket.gaierror):
            detail, retryable = f"name {host}: {cause.strerror}", cause.errno == socket.EAI_AGAIN
        elif isinstance(cause, OSError):
            detail = f"{host}: {cause.strerror or cause}"
        cause = cause.__cause__ or cause.__context__
    return FailedError(Failure.CONNECTION, detail, retryable)
