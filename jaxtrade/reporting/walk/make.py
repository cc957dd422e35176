"""Make the page of a walk-forward: `report.html` and `report.json`."""

from __future__ import annotations

import json
import math
from pathlib import Path

from jaxtrade.errors import ConfigError
from jaxtrade.reporting.make import MB
from jaxtrade.reporting.markup import Markup
from jaxtrade.reporting.page import document, header
from jaxtrade.reporting.walk import sections
from jaxtrade.reporting.walk.collect import WalkReportData
from jaxtrade.storage.staged import staged
from jaxtrade.text import several

SCRIPTS = ("theme.js",)  # the page draws nothing by scripts
PARTS = {
    "honesty": ("How far to believe this", sections.honesty),
    "folds": ("Folds", sections.folds),
    "sample": ("Out of sample and in sample", sections.sample),
    "baselines": ("Baselines", sections.baselines),
    "equity": ("Days out of sample", sections.equity),
    "provenance": ("Provenance", sections.provenance),
}


def page(data: WalkReportData) -> str:
    """The whole HTML document."""
    walk, days = data["walk"], data["days"]["date"]
    title = f"{walk['market']}, walk-forward"
    pooled = walk["pooled"]
    facts = (
        f"{walk['walk']['mode']}, {several(len(walk['folds']), 'fold')} x {several(len(pooled['seeds']), 'seed')}",
        several(pooled["independent_days"], "tested day"),
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        f"run {data['run']}",
    )
    parts: dict[str, tuple[str, Markup]] = {
        name: (head, made(data)) for name, (head, made) in PARTS.items()
    }
    return document(title, header("Walk-forward report", title, facts), parts, data["run"], SCRIPTS)


def write(data: WalkReportData, folder: Path, max_mb: float = 3.0) -> dict[str, Path]:
    """Write `report.html` and `report.json` into a folder, both or none -> their paths.

    Raises ConfigError if the page would take more than `max_mb` millions of bytes, or that is not
    above 0, and OSError (disk).
    """
    if not 0 < max_mb < math.inf:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: expected a size above 0, in millions of bytes"
        )
    html = page(data)
    if (size := len(html.encode()) / MB) > max_mb:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: the page takes {size:.2f} MB; give {size + 0.1:.1f} or more"
        )
    texts = {"report.html": html, "report.json": json.dumps(data, indent=2, allow_nan=False) + "\n"}
    with staged(folder, noted=False) as new:
        for name, text in texts.items():
            (new / name).write_bytes(text.encode("utf-8"))
    return {name: folder / name for name in texts}
