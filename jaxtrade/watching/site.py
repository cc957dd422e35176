"""The routes of the live page: its files, and what it asks about the runs below a folder."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from jaxtrade.runs.inventory import MANIFEST, RunEntry, entries_in, ordered
from jaxtrade.watching.metrics import Reader
from jaxtrade.watching.server import Answer, Query, Route, as_json

# What the page says about a run besides its curves: state, progress, warnings, the last lines of
# its log.

LOG, VALIDATION = "run.log", "validation/latest.json"
LOG_LINES, LOG_BYTES = 12, 1 << 16
MOST_WARNINGS = 20


def about(entry: RunEntry) -> str:
    """One line: market, task, learner. Empty if nothing of it is known."""
    parts = [
        entry.market,
        entry.task and f"task {entry.task}",
        entry.learner and f"learner {entry.learner}",
    ]
    return ", ".join(part for part in parts if part)


def log_tail(folder: Path) -> list[str]:
    """The last lines of the run's log, without half a line."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - LOG_BYTES, 0))
            whole = file.read().rpartition(b"\n")[0]
    except OSError:
        return []
    return whole.decode("utf-8", "replace").split("\n")


def warnings_in(lines: list[str]) -> list[str]:
    """The warnings among lines of a log, word for word, each of them once, newest last."""
    found = [
        line.partition(" ")[2]
        for line in lines
        if line.partition(" ")[2].lower().startswith("warning")
    ]
    return list(dict.fromkeys(found))[-MOST_WARNINGS:]


def latest_validation(folder: Path) -> dict[str, Any] | None:
    """The last validation session that the run has written; None if there is none."""
    try:
        found = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def validation_stamp(folder: Path) -> int | None:
    """A number that changes whenever the run writes another validation session; None if there is
    none.
    """
    try:
        return (folder / VALIDATION).stat().st_mtime_ns // 1000
    except OSError:
        return None


def progress_of(last: Mapping[str, Any]) -> tuple[str, float]:
    """("update 20 of 500", share done) of the newest row of the metrics; ("none yet", 0) without
    one.
    """
    update, total = last.get("update"), last.get("total_updates")
    if not isinstance(update, int | float):
        return "none yet", 0.0
    if not isinstance(total, int | float) or total <= 0:
        return f"{update:,.0f}", 0.0
    return f"{update:,.0f} of {total:,.0f}", min(update / total, 1.0)


JS, CSS, HTML = (
    "text/javascript; charset=utf-8",
    "text/css; charset=utf-8",
    "text/html; charset=utf-8",
)
UPLOT = "vendor/uplot/"
FILES = {  # path -> file below jaxtrade/web, media type
    "/": ("watch.html", HTML),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/watch.js": ("watch.js", JS),
    "/curves.js": ("curves.js", JS),
    "/session.js": ("session.js", JS),
    "/theme.js": ("theme.js", JS),
    "/chart.js": ("chart.js", JS),
    "/ohlc.js": ("ohlc.js", JS),
    "/theme.css": ("theme.css", CSS),
    "/page.css": ("page.css", CSS),
    "/watch.css": ("watch.css", CSS),
    "/uplot.js": (UPLOT + "uPlot.iife.min.js", JS),
    "/uplot.css": (UPLOT + "uPlot.min.css", CSS),
}
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
        """Name -> (entry, folder), youngest first. Empty if the folder is gone."""
        with self._lock:
            if time.monotonic() - self._read >= FRESH:
                entries = ordered(entries_in(self._folder), "age") if self._folder.is_dir() else []
                single = (self._folder / MANIFEST).is_file()
                self._found = {
                    each.name: (each, self._folder if single else self._folder / each.name)
                    for each in entries
                }
                self._read = time.monotonic()
            return self._found


def routes(folder: Path, reader: Reader) -> dict[str, Route]:
    """What the server answers for the runs below `folder`."""
    inventory = Inventory(folder)

    def chosen(query: Query) -> tuple[RunEntry, Path] | None:
        """The run that a request names: one of those that were found, so that no request names a
        path.
        """
        return inventory.runs().get(query.get("run", ""))

    def runs(query: Query) -> Answer:
        """The youngest runs, and the one that the page shows (`run`), however old it is."""
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

    def run(query: Query) -> Answer | None:
        found = chosen(query)
        return None if found is None else as_json(_run(*found, reader))

    def curves(query: Query) -> Answer | None:
        found, asked = chosen(query), _asked(query.get("curves", ""))
        return None if found is None or asked is None else as_json(reader.curves(found[1], asked))

    def validation(query: Query) -> Answer | None:
        found = chosen(query)
        latest = None if found is None else latest_validation(found[1])
        return None if latest is None else as_json(latest)

    pages = {path: _file(*of) for path, of in FILES.items()}
    return {
        **pages,
        "/api/runs": runs,
        "/api/run": run,
        "/api/curves": curves,
        "/api/validation": validation,
    }


def _file(name: str, kind: str) -> Route:
    content = resources.files("jaxtrade.web").joinpath(*name.split("/")).read_bytes()
    return lambda query: Answer(content, kind)


def _run(entry: RunEntry, folder: Path, reader: Reader) -> dict[str, Any]:
    """Everything about a run but its curves."""
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
        "names": curves["names"],
        "version": curves["version"],
    }


def _asked(text: str) -> dict[str, tuple[int, int]] | None:
    """`name:width:known,...` of the curves that a page has and wants; None if it is not that."""
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
