"""How long the page of a report takes: to be made, and to be ready in a browser, with 60,000 bars and more.

The run is real: the quickstart's settings on synthetic ES bars, 155 sessions held out, so that the page holds 60,000
bars or more. `making` collects the figures, makes the page and writes it. `ready` is what the page says of itself: from
the start of the navigation until its last script is done (`data-ready`), opened from `file://` in headless Chromium.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
from pathlib import Path
from typing import Any

from jaxtrade.config import load_config
from jaxtrade.reporting import collect, make
from jaxtrade.runs.train import run as train

from . import browser, harness, programs
from .catalogue import Options

TEST, TRAINED = 155, 20  # sessions
SETTINGS = ("data.market=ES", "data.source=synthetic", "train.tensorboard=false")
QUICK = ("train.total_timesteps=4096", "rollout.num_envs=16", "rollout.num_steps=32", "network.hidden=[8]",
         "ppo.num_minibatches=2")
READY = "return Number(document.documentElement.dataset.ready) / 1000"


def trained(folder: Path, quick: bool) -> Path:
    """A run with an evaluation on `TEST` sessions."""
    test = 3 if quick else TEST
    config = load_config("quickstart", [
        *SETTINGS, *(QUICK if quick else ()), f"data.synthetic_sessions={test + TRAINED}",
        f"split.test_sessions={test}", "split.validation_sessions=0", "split.embargo_sessions=0"])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return train(config, folder / "run").path


def until_ready(page: browser.Browser, path: Path) -> float:
    """Seconds that the page says it took."""
    page.open(path)
    return page.run(READY)


def run(options: Options) -> dict[str, Any]:
    """Raises RuntimeError if there is no browser."""
    if lacking := browser.lacking():
        raise RuntimeError(f"bench report: {lacking}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        top = Path(name)
        path = trained(top, options.quick)

        def making() -> make.ReportFiles:
            report = make.make(collect.collect(collect.choose(path)))
            make.write(report, path / "report")
            return report

        report = making()
        file = path / "report" / "report.html"
        with browser.browser(top / "profile") as page:
            until_ready(page, file)  # the browser's own first start is not the page's
            making_taken, ready = [], []
            for _ in range(options.repeats):
                making_taken.append(harness.clock(making))
                ready.append(until_ready(page, file))
        size = file.stat().st_size
    return {"config": {"repeats": options.repeats, "settings": list(SETTINGS),
                       "trades": report.trades.count("\n") - 1},
            "bars": report.bars, "bars_left_out": report.dropped, "bytes": size,
            "programs": {"making": programs.durations(making_taken)},
            "ready": {"seconds": harness.rounded(statistics.median(ready)),
                      "most_seconds": harness.rounded(max(ready))}}
