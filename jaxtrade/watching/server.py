"""The server of the live page.

It serves GET alone, on the loopback interface alone, and answers from a table of routes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import unescape
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from jaxtrade.errors import JaxtradeError
from jaxtrade.formatting import money
from jaxtrade.runs.inventory import MANIFEST, RunEntry, entries_in, sort_entries
from jaxtrade.text import pairs
from jaxtrade.watching.metrics import Reader
from jaxtrade.watching.result import read_result, stamp_result

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
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """Make a random token of 256 bits, fit for a URL."""
    return secrets.token_urlsafe(32)


def host_is_loopback(header: str | None) -> bool:
    """Return whether a Host header names the loopback interface.

    Any port will do: a tunnel's other end may have another.
    """
    if not header:
        return False
    name, colon, port = header.rpartition(":") if not header.endswith("]") else (header, "", "")
    if not colon:
        name, port = header, ""
    return name.lower() in LOOPBACK and (not colon or (port.isascii() and port.isdigit()))


def token_fits(given: str, token: str) -> bool:
    """Return whether a token is the right one.

    The time that this takes says nothing about where they differ.
    """
    return secrets.compare_digest(given.encode(), token.encode())


def cookie_name(token: str) -> str:
    """Return the name of the cookie that holds a token.

    A browser keeps one cookie of a name for all ports of a host, so each server needs a name of its
    own. Nobody can work the token out from it.
    """
    return f"jaxtrade_watch_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def cookie_token(header: str | None, name: str) -> str:
    """Find the token in a Cookie header; "" if there is none. name: of the cookie."""
    try:
        found = SimpleCookie(header or "").get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def set_cookie(token: str) -> str:
    """Return the value of a Set-Cookie header.

    No script can read it, and no other site can have it sent.
    """
    return f"{cookie_name(token)}={token}; HttpOnly; SameSite=Strict; Path=/"


HOST = "127.0.0.1"  # there is no flag for it: from another machine, come through ssh
TOKEN = "token"
SMALL = 1400  # bytes that fit in one packet, which compression does not make faster
MOST_CONNECTIONS = 400
SPARE_FILES = 40  # that the process may need beside its connections


class HttpAnswer(NamedTuple):
    """What a route answers.

    content: its bytes. kind: its media type. policy: what the page may load.
    """

    content: bytes
    kind: str
    policy: str = POLICY


Query = Mapping[str, str]
Route = Callable[[Query], HttpAnswer | None]  # None: there is no such thing
ReportMaker = Callable[[Path, str], str]  # of a run's folder and a symbol, "" for a run of one


def as_json(document: Any) -> HttpAnswer:
    """Serialise plain data as an answer. Raises ValueError for a number that is not finite."""
    return HttpAnswer(
        json.dumps(document, allow_nan=False, separators=(",", ":")).encode(), "application/json"
    )


def most_connections() -> int:
    """Return how many connections may be open at once, by the process's limit of open files."""
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


class WatchServer(ThreadingHTTPServer):
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
            full = len(self._open) >= self._most and not oldest
            if oldest:
                self._forget(oldest)
            if not full:
                self._open.add(request)
        if oldest:
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
        """Ignore a connection that its other side has closed, or that was silent for too long."""
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
    """One request.

    Anything but GET and HEAD is refused; a path is looked up in the table and never on the disk.
    """

    server: WatchServer
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
                HttpAnswer(b"", "text/plain"),
                {"Location": "/", "Set-Cookie": set_cookie(token)},
            )
        if not token_fits(cookie_token(self.headers.get("Cookie"), cookie_name(token)), token):
            return self._plain(
                HTTPStatus.FORBIDDEN, "open the address that jaxtrade watch has printed"
            )
        route = self.server.routes.get(target.path)
        found = route(query) if route else None
        if not found:
            return self._plain(HTTPStatus.NOT_FOUND, "there is no such page")
        return self._send(HTTPStatus.OK, found, {})

    def _plain(self, status: HTTPStatus, text: str) -> None:
        self._send(status, HttpAnswer(f"{text}\n".encode(), "text/plain; charset=utf-8"), {})

    def _send(self, status: HTTPStatus, answer: HttpAnswer, headers: Mapping[str, str]) -> None:
        content = answer.content
        asked = getattr(self, "headers", None)  # absent if the request itself could not be read
        packed = len(content) > SMALL and asked and "gzip" in asked.get("Accept-Encoding", "")
        if packed:
            content = gzip.compress(content, compresslevel=1, mtime=0)
        self.send_response(status)
        policy = {"Content-Security-Policy": answer.policy}
        for name, value in {**HEADERS, **policy, **headers}.items():
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
        """Log nothing: the terminal shows the address."""


# The routes of the live page: its files, and what it asks about the runs below a folder.

# What the page says about a run besides its curves: state, progress, warnings, the last lines of
# its log.

LOG, VALIDATION = "run.log", "validation/latest.json"
LOG_LINES, LOG_BYTES = 12, 1 << 16
MOST_WARNINGS = 20


def about(entry: RunEntry) -> str:
    """Describe a run in one line: market, task, learner. Empty if nothing of it is known."""
    parts = [
        entry.market,
        entry.task and f"task {entry.task}",
        entry.learner and f"learner {entry.learner}",
    ]
    return ", ".join(part for part in parts if part)


def log_tail(folder: Path) -> list[str]:
    """Read the last lines of the run's log, without half a line."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - LOG_BYTES, 0))
            whole = file.read().rpartition(b"\n")[0]
    except OSError:
        return []
    return whole.decode("utf-8", "replace").split("\n")


def warnings_in(lines: list[str]) -> list[str]:
    """Select the warnings among lines of a log, word for word, each of them once, newest last."""
    found = [
        line.partition(" ")[2]
        for line in lines
        if line.partition(" ")[2].lower().startswith("warning")
    ]
    return list(dict.fromkeys(found))[-MOST_WARNINGS:]


def latest_validation(folder: Path) -> dict[str, Any] | None:
    """Read the last validation session that the run has written; None if there is none."""
    try:
        found = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def validation_stamp(folder: Path) -> int | None:
    """Return a number that changes whenever the run writes another validation session.

    None if there is none.
    """
    try:
        return (folder / VALIDATION).stat().st_mtime_ns // 1000
    except OSError:
        return None


def progress_of(last: Mapping[str, Any]) -> tuple[str, float]:
    """Return ("update 20 of 500", share done) of the newest row of the metrics.

    It is ("none yet", 0) without one.
    """
    update, total = last.get("update"), last.get("total_updates")
    if not isinstance(update, int | float):
        return "none yet", 0.0
    if not isinstance(total, int | float) or total <= 0:
        return f"{update:,.0f}", 0.0
    return f"{update:,.0f} of {total:,.0f}", min(update / total, 1.0)


# Ending -> media type; path -> file below jaxtrade/web.
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = pairs(
    """
    /  watch.html
    /icon.svg  icon.svg
    /watch.js  watch.js
    /curves.js  curves.js
    /session.js  session.js
    /labels.js  labels.js
    /result.js  result.js
    /theme.js  theme.js
    /chart.js  chart.js
    /ohlc.js  ohlc.js
    /theme.css  theme.css
    /page.css  page.css
    /watch.css  watch.css
    /uplot.js  vendor/uplot/uPlot.iife.min.js
    /uplot.css  vendor/uplot/uPlot.min.css
    """
)
MOST_RUNS = 200  # in the list of the page, youngest first, beside the one that it shows
MOST_CURVES = 200
MOST_DIGITS = 9  # of a number in a request
FRESH = 1.0  # seconds for which a list of runs is not read again, however many pages ask


class Inventory:
    """The runs below a folder, read anew at most once in `FRESH` seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._found: dict[str, tuple[RunEntry, Path]] = {}
        self._read = -FRESH

    def runs(self) -> dict[str, tuple[RunEntry, Path]]:
        """Return name -> (entry, folder), youngest first. Empty if the folder is gone."""
        with self._lock:
            if time.monotonic() - self._read >= FRESH:
                entries = (
                    sort_entries(entries_in(self._folder), "age") if self._folder.is_dir() else []
                )
                single = (self._folder / MANIFEST).is_file()
                self._found = {
                    each.name: (each, self._folder if single else self._folder / each.name)
                    for each in entries
                }
                self._found |= paper_sessions(self._found)
                self._read = time.monotonic()
            return self._found


PAPER = {"running": "running", "ended": "done", "killed": "stopped"}  # state -> that of a run


def paper_sessions(
    runs: Mapping[str, tuple[RunEntry, Path]],
) -> dict[str, tuple[RunEntry, Path]]:
    """Return the sessions of paper trading in some runs, as entries; without those unreadable.

    Their line has position, equity and the newest bar.
    """
    found = {}
    for run, (_, folder) in runs.items():
        for path in sorted(folder.glob("paper/*/status.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                status, name = json.loads(path.read_text()), f"{run}/paper/{path.parent.name}"
                line = (
                    f"{status['symbol']} on paper: position {status['position']:+d}, equity "
                    f"{money(status['equity'])}, bar of {status['time']}"
                )
                age = max(0.0, time.time() - path.stat().st_mtime)
                entry = RunEntry(name, PAPER[status["state"]], market=line, age=age)
                found[name] = entry, path.parent
    return found


def answer_report(html: str) -> HttpAnswer:
    """Return a report as an answer. Its own policy holds: the hashes of the scripts in it."""
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    if found is None:
        raise ValueError("the report says no policy")
    policy = f"{unescape(found[1])}; frame-ancestors 'none'"
    return HttpAnswer(html.encode(), KINDS[".html"], policy)


def routes(
    folder: Path, reader: Reader, make_report: ReportMaker | None = None
) -> dict[str, Route]:
    """Return what the server answers for the runs below `folder`.

    make_report: makes the page of a finished run; raises JaxtradeError where it has none.
    """
    inventory = Inventory(folder)

    def choose_run(query: Query) -> tuple[RunEntry, Path] | None:
        """Find the run that a request names.

        It is one of those that were found, so that no request names a path.
        """
        return inventory.runs().get(query.get("run", ""))

    def runs(query: Query) -> HttpAnswer:
        """List the youngest runs, and the one that the page shows (`run`), however old it is."""
        found = inventory.runs()
        names = dict.fromkeys([*islice(found, MOST_RUNS), *({query.get("run", "")} & found.keys())])
        return as_json(
            {
                "count": len(found),
                "runs": [
                    {
                        "name": name,
                        "state": found[name][0].status,
                        "line": about(found[name][0]),
                    }
                    for name in names
                ],
            }
        )

    def run(query: Query) -> HttpAnswer | None:
        found = choose_run(query)
        return as_json(_run(*found, reader)) if found else None

    def curves(query: Query) -> HttpAnswer | None:
        found, asked = choose_run(query), _parse_curves(query.get("curves", ""))
        return as_json(reader.curves(found[1], asked)) if found and asked is not None else None

    def validation(query: Query) -> HttpAnswer | None:
        found = choose_run(query)
        latest = latest_validation(found[1]) if found else None
        return as_json(latest) if latest else None

    def result(query: Query) -> HttpAnswer | None:
        found = choose_run(query)
        document = read_result(found[1]) if found else None
        return as_json(document) if document else None

    def report(query: Query) -> HttpAnswer | None:
        found = choose_run(query)
        if not found or make_report is None:
            return None
        try:
            return answer_report(make_report(found[1], query.get("symbol", "")))
        except JaxtradeError as error:
            return HttpAnswer(f"{error}\n".encode(), "text/plain; charset=utf-8")

    return {
        **{path: _file(name) for path, name in FILES.items()},
        "/api/runs": runs,
        "/api/run": run,
        "/api/curves": curves,
        "/api/validation": validation,
        "/api/result": result,
        "/report": report,
    }


def _file(name: str) -> Route:
    answer = HttpAnswer(
        resources.files("jaxtrade.web").joinpath(*name.split("/")).read_bytes(),
        KINDS[Path(name).suffix],
    )
    return lambda query: answer


def _run(entry: RunEntry, folder: Path, reader: Reader) -> dict[str, Any]:
    """Return everything about a run but its curves."""
    curves = reader.curves(folder, {})
    last, lines = curves["last"], log_tail(folder)
    progress, share = progress_of(last)
    more = (
        [["read so far", f"{100 * curves['share_read']:.0f} % of the metrics"]]
        if curves["share_read"] < 1
        else []
    )
    more += [["cannot be read", curves["fault"]]] if curves["fault"] else []
    return {
        "name": entry.name,
        "about": about(entry),
        "state": entry.status,
        "fault": entry.fault,
        "age": entry.age,
        "progress": progress,
        "share": share,
        "eta": last["eta_seconds"] if entry.status == "running" else None,
        "speed": last["steps_per_second"],
        "more": more,
        "warnings": warnings_in(lines),
        "log": lines[-LOG_LINES:],
        "validation": validation_stamp(folder),
        "result": stamp_result(folder) if entry.status == "done" else None,
        "names": curves["names"],
        "version": curves["version"],
    }


def _parse_curves(text: str) -> dict[str, tuple[int, int]] | None:
    """Parse `name:width:known,...` of the curves that a page has and wants.

    None if it is not that.
    """
    found = {}
    for part in text.split(",") if text else ():
        name, *numbers = part.rsplit(":", 2)
        if len(numbers) != 2 or not all(
            number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
            for number in numbers
        ):
            return None
        found[name] = (int(numbers[0]), int(numbers[1]))
    return found if len(found) <= MOST_CURVES else None
