"""Who looks at `jaxtrade watch`, for `watch`: the real server as a child, viewers that ask what its
page asks, and the page itself in Chromium.

A viewer is a thread that speaks HTTP as jaxtrade/web/watch.js does: the list of runs, the chosen
run, and the new part of its curves, of all figures; then a second's pause. It draws nothing.
"""

from __future__ import annotations

import gzip
import http.client
import json
import math
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from jaxtrade.watching.guard import cookie_name

from . import watch_run
from .browser import Browser
from .watch_run import Chunk

POLL = 1.0  # seconds between two questions, as in watch.js
STATUS = Path("/proc")
# In the page: what it has drawn, and when. The second frame comes after the first one was painted.
RECORD = """
const before = window.showCurves;
window.seen = [];
window.showCurves = (answer) => {
  before(answer);
  const end = answer.last.update;
  requestAnimationFrame(() => requestAnimationFrame(() => window.seen.push([end, Date.now() / 1000])));
};
"""
PAINTED = "const mark = performance.getEntriesByName('painted')[0]; return mark ? mark.startTime / 1000 : 0"


class Seen(NamedTuple):
    """Curves that a viewer has: up to which update, when (seconds, epoch), and the share of the
    file that was read.
    """

    update: int
    time: float
    share: float


class Served:
    """`jaxtrade watch` as a process. address: what it printed, with its token."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
        found = urlsplit(address)
        self.place, self.token = found.netloc, parse_qs(found.query)["token"][0]

    def cpu_seconds(self) -> float:
        """Spent by the server so far."""
        import psutil

        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def peak_bytes(self) -> int | None:
        """The greatest resident memory of the server; None where the system does not keep it (no
        /proc).
        """
        status = STATUS / str(self.process.pid) / "status"
        lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
        return next(
            (1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None
        )


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """`jaxtrade watch` of the runs below a folder, a new process. Raises RuntimeError if it does
    not start.
    """
    with watch_run.started(["watch", str(folder)], folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if len(said) != 2 or said[0] != "open":
            raise RuntimeError(
                f"jaxtrade watch printed {' '.join(said)!r}; expected 'open ADDRESS'"
            )
        yield Served(process, said[1])


class Viewer:
    """A viewer of one run, in a thread. `seen` grows with every answer that brings curves."""

    def __init__(self, server: Served, run: str) -> None:
        self.seen: list[Seen] = []
        self.error: Exception | None = None
        self._server, self._run = server, run
        self._known: dict[str, tuple[int, int]] = {}  # width, entries
        self._version = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="viewer", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether it has had the curves of all rows that there were."""
        return bool(self.seen) and self.seen[-1].share >= 1

    def close(self) -> None:
        """Look no more. Raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _look(self) -> None:
        connection = http.client.HTTPConnection(self._server.place, timeout=60)
        try:
            while not self._stop.is_set():
                self._tick(connection)
                self._stop.wait(POLL)
        except Exception as error:  # `close` raises it in the thread that waits for this one
            self.error = error
        finally:
            connection.close()

    def _tick(self, connection: http.client.HTTPConnection) -> None:
        name = quote(self._run)
        self._ask(connection, "/api/runs")
        run = self._ask(connection, f"/api/run?run={name}")
        if run["version"] == self._version:
            return
        asked = ",".join(
            "{}:{}:{}".format(each, *self._known.get(each, (0, 0))) for each in run["names"]
        )
        answer = self._ask(connection, f"/api/curves?run={name}&curves={quote(asked)}")
        for figure, part in answer["curves"].items():
            self._known[figure] = (part["width"], part["start"] + len(part["update"]))
        self._version = answer["version"] if len(answer["curves"]) == len(answer["names"]) else ""
        if answer["curves"]:
            self.seen.append(Seen(answer["last"]["update"], time.time(), answer["share_read"]))

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> Any:
        connection.request(
            "GET",
            path,
            headers={
                "Cookie": f"{cookie_name(self._server.token)}={self._server.token}",
                "Accept-Encoding": "gzip",
            },
        )
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.reason}")
        packed = answer.getheader("Content-Encoding") == "gzip"
        return json.loads(gzip.decompress(content) if packed else content)


@contextmanager
def viewers(server: Served, run: str, count: int) -> Iterator[list[Viewer]]:
    """That many viewers of a run; each has the curves of all its rows."""
    found = [Viewer(server, run) for _ in range(count)]
    try:
        watch_run.until(lambda: all(each.complete or each.error for each in found), server.process)
        yield found
    finally:
        for each in found:
            each.close()


def open_page(browser: Browser, server: Served) -> float:
    """Open the page: seconds from the start of the navigation until it has drawn its first
    curves.
    """
    browser.ask("url", {"url": "about:blank"})
    browser.ask("url", {"url": server.address})
    return browser.wait(PAINTED)


def drawn(browser: Browser) -> list[Seen]:
    """What the page has drawn since `RECORD` was run in it."""
    return [Seen(int(update), at, 1.0) for update, at in browser.run("return window.seen")]


def delays(chunks: Sequence[Chunk], seen: Sequence[Seen]) -> list[float]:
    """Seconds from when each chunk was in the file until a viewer had it. Only chunks that came
    after the viewer had the curves of all rows (`long_file` measures how long these take), and not
    those after its last answer."""
    found, begin = [], next((each.time for each in seen if each.share >= 1), math.inf)
    for chunk in chunks:
        when = next((each.time for each in seen if each.update >= chunk.update), None)
        if when is not None and chunk.time > begin:
            found.append(when - chunk.time)
    return found
