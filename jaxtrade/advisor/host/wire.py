"""One HTTP/1.1 request and response over one socket, within a total deadline and a cap on the body.

h11 handles the protocol; this module handles the socket. HTTP client libraries limit the time of
each read, so a server that sends one byte at a time never times out. Here every socket call gets
the time left until the total deadline. Compressed content is refused unread: we ask for none, and
so no body can expand in memory.

Needs the extra `advisor`. Imports no JAX.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

import h11

from jaxtrade.advisor.host.types import Failure

_PIECE = 65536  # bytes per read


class TransportError(Exception):
    """There is no complete response. Says why, and whether a retry may help. Its text contains no
    request header.
    """

    def __init__(self, failure: Failure, detail: str, retryable: bool, status: int = 0) -> None:
        super().__init__(detail)
        self.failure, self.retryable, self.status = failure, retryable, status


class Reply(NamedTuple):
    """A complete response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Limits(NamedTuple):
    """Limits of a request. deadline: of `time.monotonic`. cap: most bytes of the body."""

    deadline: float
    cap: int

    def left(self) -> float:
        """Seconds until the deadline. Raises TimeoutError where it has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def exchange(
    sock: socket.socket, request: h11.Request, body: bytes, limits: Limits
) -> tuple[Reply, bool]:
    """Send one request and read its response. Also returns whether the connection can be reused.

    Raises TransportError, OSError (TimeoutError at the deadline) and h11.ProtocolError.
    """
    state = h11.Connection(h11.CLIENT)
    out = b"".join(
        state.send(event) or b"" for event in (request, h11.Data(data=body), h11.EndOfMessage())
    )
    unsent: OSError | None = None
    try:
        _send(sock, out, limits)
    except TimeoutError:
        raise
    except OSError as error:
        unsent = error  # a server that refuses early may have sent its reason, so still read the response
    status, headers, pieces, size = 0, {}, [], 0
    while True:
        event = state.next_event()
        if event is h11.NEED_DATA:
            sock.settimeout(limits.left())
            try:
                state.receive_data(sock.recv(_PIECE))
            except OSError as error:
                raise unsent or error from None
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
            }
            _check_head(status, headers, limits.cap)
        elif isinstance(event, h11.Data):
            pieces.append(bytes(event.data))
            size += len(event.data)
            if size > limits.cap:
                raise TransportError(
                    Failure.TOO_LARGE, f"more than {limits.cap} bytes", False, status
                )
        elif isinstance(event, h11.EndOfMessage):
            whole = (
                state.our_state is h11.DONE
                and state.their_state is h11.DONE
                and not state.trailing_data[0]
            )
            return Reply(status, headers, b"".join(pieces)), whole
        elif not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
            raise OSError("the server spoke something else than HTTP")


def _send(sock: socket.socket, data: bytes, limits: Limits) -> None:
    view = memoryview(data)
    while view:
        sock.settimeout(limits.left())
        view = view[sock.send(view) :]


def _check_head(status: int, headers: dict[str, str], cap: int) -> None:
    coding = headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise TransportError(
            Failure.HTTP, f"content came as {coding[:20]!r}, asked for none", False, status
        )
    if int(headers.get("content-length", "0")) > cap:  # h11 has checked that it holds digits only
        raise TransportError(Failure.TOO_LARGE, f"announced more than {cap} bytes", False, status)


def classified(error: OSError | h11.ProtocolError, host: str) -> TransportError:
    """Convert an exception of sockets, TLS or HTTP to a failure. Messages name the host and nothing
    that was sent.
    """
    if isinstance(error, TimeoutError):
        return TransportError(Failure.TIMEOUT, f"{host} did not answer by the deadline", True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return TransportError(
            Failure.CONNECTION, f"certificate of {host}: {error.verify_message}", False
        )
    if isinstance(error, ssl.SSLError):
        cut = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        return TransportError(
            Failure.CONNECTION, f"TLS with {host}: {error.reason or 'broken off'}", cut
        )
    if isinstance(error, socket.gaierror):
        return TransportError(
            Failure.CONNECTION, f"name {host}: {error.strerror}", error.errno == socket.EAI_AGAIN
        )
    if isinstance(error, h11.LocalProtocolError):
        return TransportError(Failure.CONNECTION, f"the request to {host} cannot be sent", False)
    if isinstance(error, h11.ProtocolError):
        return TransportError(Failure.CONNECTION, f"{host} broke off or is not HTTP: {error}", True)
    return TransportError(Failure.CONNECTION, f"{host}: {error.strerror or error}", True)
