"""Who may read the page: this machine's browser, with the token that the command printed.

The server listens on the loopback interface alone. That does not keep other web pages out: a page
in the same browser can send requests to it, and by DNS rebinding (a name of the attacker's that
suddenly means 127.0.0.1) even read the answers, as CVE-2025-14279 of MLflow showed. So the Host
header must name the loopback interface, and every request needs the token, which no other page
knows.
"""

from __future__ import annotations

import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie

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
