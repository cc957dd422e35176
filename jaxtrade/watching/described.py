"""What the page says about a run besides its curves: state, progress, warnings, the last lines of
its log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrade.runs.inventory import RunEntry

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
