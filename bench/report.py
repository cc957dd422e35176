"""How long the page of a report takes: to be made, and to be ready in a browser, with 60,000 bars
and more.

The run is real: the quickstart's settings on synthetic ES bars, 155 sessions held out, so that the
page holds 60,000 bars or more. `making` collects the figures, makes the page and writes it. `ready`
is what the page says of itself: from the start of the navigation until its last script is done
(`data-ready`), opened from `file://` in headless Chromium.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtrade.config import load_config
from jaxtrade.reporting import collect, make
from jaxtrade.runs.train import run as train

from . import browser, harness, programs
from .catalogue import Options

BARS = 60_000  # at least, of a full result
TEST, TRAINED = 155, 20  # sessions
SETTINGS = ("data.market=ES", "data.source=synthetic", "train.tensorboard=false")
QUICK = (
    "train.total_timesteps=4096",
    "rollout.num_envs=16",
    "rollout.num_steps=32",
    "network.hidden=[8]",
    "ppo.num_minibatches=2",
)
READY = "return Number(document.documentElement.dataset.ready) / 1000"


def trained(folder: Path, quick: bool) -> Path:
    """A run with an evaluation on `TEST` sessions."""
    test = 3 if quick else TEST
    config = load_config(
        "quickstart",
        [
            *SETTINGS,
            *(QUICK if quick else ()),
            f"data.synthetic_sessions={test + TRAINED}",
            f"split.test_sessions={test}",
            "split.validation_sessions=0",
            "split.embargo_sessions=0",
        ],
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return train(config, folder / "run").path


def until_ready(page: browser.Browser, path: Path) -> float:
    """Seconds that the page says it took."""
    page.open(path)
    return page.run(READY)


def measured(
    work: Callable[[], Any], file: Path, page: browser.Browser | None, repeats: int
) -> tuple[list[harness.Sample], list[float]]:
    """What `work`, which writes the file, took, and the seconds until the page was ready, in turns;
    none without a browser."""
    if page is not None:
        until_ready(page, file)  # the browser's own first start is not the page's
    taken, ready = [], []
    for _ in range(repeats):
        taken.append(harness.clock(work))
        if page is not None:
            ready.append(until_ready(page, file))
    return taken, ready


def run(options: Options) -> dict[str, Any]:
    """Raises RuntimeError if the page holds fewer bars than it promises."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        top = Path(name)
        path = trained(top, options.quick)

        def making() -> make.ReportFiles:
            report = make.make(collect.collect(collect.choose(path)))
            make.write(report, path / "report")
            return report

        report, file = making(), path / "report" / "report.html"
        if not options.quick and report.bars < BARS:
            raise RuntimeError(
                f"bench report: the page holds {report.bars:,} bars ({report.dropped:,} were left out); "
                f"expected {BARS:,} or more: hold more sessions out (TEST in bench/report.py)"
            )
        with browser.browser_if_any(top / "profile") as page:
            taken, ready = measured(making, file, page, options.repeats)
        size = file.stat().st_size
    lacking = browser.lacking()
    found = {
        "config": {
            "repeats": options.repeats,
            "settings": list(SETTINGS),
            "trades": report.trades.count("\n") - 1,
        },
        "bars": report.bars,
        "bars_left_out": report.dropped,
        "bytes": size,
        "programs": {"making": programs.durations(taken)},
    }
    if ready:
        found["ready"] = {
            "seconds": harness.rounded(statistics.median(ready)),
            "most_seconds": harness.rounded(max(ready)),
        }
    return found | {"left_out": {"ready": lacking} if lacking else {}}
