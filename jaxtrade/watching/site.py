"""The routes of the live page: its files, and what it asks about the runs below a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from jaxtrade.watching import described
from jaxtrade.watching.folders import runs_below
from jaxtrade.watching.reader import Reader
from jaxtrade.watching.server import Answer, Query, Route, as_json

JS, CSS, HTML = "text/javascript; charset=utf-8", "text/css; charset=utf-8", "text/html; charset=utf-8"
UPLOT = "vendor/uplot/"
FILES = {  # path -> file below jaxtrade/web, media type
    "/": ("watch.html", HTML), "/watch.js": ("watch.js", JS), "/curves.js": ("curves.js", JS),
    "/session.js": ("session.js", JS), "/theme.js": ("theme.js", JS), "/theme.css": ("theme.css", CSS),
    "/watch.css": ("watch.css", CSS), "/uplot.js": (UPLOT + "uPlot.iife.min.js", JS),
    "/uplot.css": (UPLOT + "uPlot.min.css", CSS),
}
MOST_RUNS = 200  # in the list of the page, newest first
MOST_CURVES = 200
State = Callable[[Path], tuple[str, float | None]]  # a run's state in a word, and the seconds since it last wrote


def routes(folder: Path, reader: Reader, state: State) -> dict[str, Route]:
    """What the server answers for the runs below `folder`. state: of a run."""

    def chosen(query: Query) -> tuple[str, Path] | None:
        """The run that a request names: one of those that were found, so that no request names a path."""
        name = query.get("run", "")
        found = runs_below(folder).get(name)
        return None if found is None else (name, found)

    def runs(_: Query) -> Answer:
        found = list(runs_below(folder).items())
        return as_json({"count": len(found), "runs": [
            {"name": name, "state": state(run)[0], "line": described.about(run)} for name, run in found[:MOST_RUNS]]})

    def run(query: Query) -> Answer | None:
        found = chosen(query)
        return None if found is None else as_json(_run(*found, reader, state))

    def curves(query: Query) -> Answer | None:
        found, asked = chosen(query), _asked(query.get("curves", ""))
        return None if found is None or asked is None else as_json(reader.curves(found[1], asked))

    def validation(query: Query) -> Answer | None:
        found = chosen(query)
        latest = None if found is None else described.latest_validation(found[1])
        return None if latest is None else as_json(latest)

    pages = {path: _file(*of) for path, of in FILES.items()}
    return {**pages, "/api/runs": runs, "/api/run": run, "/api/curves": curves, "/api/validation": validation}


def _file(name: str, kind: str) -> Route:
    content = resources.files("jaxtrade.web").joinpath(*name.split("/")).read_bytes()
    return lambda query: Answer(content, kind)


def _run(name: str, folder: Path, reader: Reader, state: State) -> dict[str, Any]:
    """Everything about a run but its curves."""
    curves, (word, age) = reader.curves(folder, {}), state(folder)
    last, lines = curves["last"], described.log_tail(folder)
    progress, share = described.progress_of(last)
    more = [["read so far", f"{100 * curves['share_read']:.0f} % of the metrics"]] if curves["share_read"] < 1 else []
    return {"name": name, "about": described.about(folder), "state": word, "age": age, "progress": progress,
            "share": share, "eta": last["eta_seconds"] if word == "running" else None,
            "speed": last["steps_per_second"], "more": more, "warnings": described.warnings_in(lines),
            "log": lines[-described.LOG_LINES:], "validation": described.validation_stamp(folder),
            "names": curves["names"], "version": curves["version"], "now": time.time()}


def _asked(text: str) -> dict[str, tuple[int, int]] | None:
    """`name:width:known,...` of the curves that a page has and wants; None if it is not that."""
    found = {}
    for part in text.split(",") if text else ():
        name, *numbers = part.rsplit(":", 2)
        if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
            return None
        found[name] = (int(numbers[0]), int(numbers[1]))
    return found if len(found) <= MOST_CURVES else None
