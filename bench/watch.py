"""What `jaxtrade watch` costs and how fast it is, beside a run that really trains.

- `delay`: from when a chunk's rows are in the metrics file (the time of the file) until a viewer has received its
  curves, and until the page in Chromium has painted them. The run, the server and the viewer share
  this machine.
- `sides`, `pairs`: the speed of one run, in turns without a server and with one that three viewers ask. A turn is a
  number of chunks; its time is that of the file. A watched turn starts when each viewer has all
  curves.
- `long_file`: a new server and a metrics file of 100 MB (rows of the run, again and again) until the first curves are
  there, and until all rows are in them; the greatest resident memory of the server's process.

`targets` holds each figure against its promise of `targets.yaml`.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from . import browser, harness, programs, targets, watch_run, watch_viewer
from .advisor import LEVEL, paired
from .browser import Browser
from .catalogue import Options
from .harness import Sample
from .watch_run import Training
from .watch_viewer import Seen, Viewer

VIEWERS = 3
ALONE, WATCHED = "alone", "three viewers"
VIEWER, PAGE = "viewer", "page in Chromium"
RUN = "live"
ROWS = 2_000  # at most of the run, in the long file


class Shape(NamedTuple):
    """How much is measured. keys: put over the quickstart's. pairs: of turns, of `turn` chunks
    each; `chunks`: whose delay is taken; file_bytes: of the long file."""

    keys: Mapping[str, Any]
    chunk_updates: int
    chunks: int
    turn: int
    pairs: int
    file_bytes: int


FULL = Shape({}, 20, 100, 15, 40, 100_000_000)  # 20 updates: the default
QUICK = Shape(
    {
        "rollout.num_envs": 16,
        "rollout.num_steps": 32,
        "network.hidden": [8],
        "ppo.num_minibatches": 2,
        "train.tensorboard": False,
    },
    20,
    5,
    5,
    2,
    1_000_000,
)


class FirstLook(NamedTuple):
    """A new server and a long file. first, whole: until the first curves were there, and until all
    rows were in them (None: not asked for); peak_bytes of the server (None: the system does not
    say)."""

    first: Sample
    whole: Sample | None
    peak_bytes: int | None


def delay_of(found: Sequence[float]) -> dict[str, Any]:
    """Median and greatest of some delays."""
    return {
        "chunks": len(found),
        "median_seconds": harness.rounded(statistics.median(found)),
        "most_seconds": harness.rounded(max(found)),
    }


def delay_to_viewer(run: Training, chunks: int) -> dict[str, Any]:
    with (
        watch_viewer.served(run.folder.parent) as server,
        watch_viewer.viewers(server, RUN, 1) as [viewer],
    ):
        newest = run.after(chunks + 1).update
        watch_run.until(
            lambda: viewer.error is not None or viewer.seen[-1].update >= newest, server.process
        )
        return delay_of(watch_viewer.delays(run.chunks, viewer.seen))


def delay_to_page(run: Training, chunks: int, page: Browser) -> dict[str, Any]:
    with watch_viewer.served(run.folder.parent) as server:
        watch_viewer.open_page(page, server)
        page.run(watch_viewer.RECORD)
        newest = run.after(
            chunks + 3
        ).update  # the first ones may be drawn before the page records them

        def all_drawn() -> list[Seen] | None:
            found = watch_viewer.drawn(page)
            return found if found and found[-1].update >= newest else None

        watch_run.until(lambda: all_drawn() is not None, server.process, 0.5)
        return delay_of(watch_viewer.delays(run.chunks, watch_viewer.drawn(page)))


def watched_turn(run: Training, chunks: int) -> Sample:
    with (
        watch_viewer.served(run.folder.parent) as server,
        watch_viewer.viewers(server, RUN, VIEWERS),
    ):
        return run.turn(chunks)


def speed(run: Training, shape: Shape) -> dict[str, Any]:
    """The run's speed, alone and watched, in turns."""
    taken = harness.take_turns(
        {ALONE: partial(run.turn, shape.turn), WATCHED: partial(watched_turn, run, shape.turn)},
        shape.pairs,
    )
    last = run.chunks[-1]
    steps = last.steps // last.update * shape.chunk_updates * shape.turn
    sides = {name: harness.summary(samples, steps) for name, samples in taken.items()}
    name = f"{WATCHED}/{ALONE}"
    return {
        "sides": sides,
        "ratios": {name: harness.ratio(sides, WATCHED, ALONE)},
        "pairs": {name: paired([taken], WATCHED, ALONE)},
    }


def look_by_viewer(folder: Path) -> FirstLook:
    """Raises RuntimeError if the viewer fails."""
    with watch_viewer.served(folder) as server:
        begin, before = time.time(), server.cpu_seconds()

        def spent() -> Sample:
            return Sample(viewer.seen[-1].time - begin, server.cpu_seconds() - before)

        viewer = Viewer(server, RUN)
        try:
            watch_run.until(lambda: bool(viewer.seen or viewer.error), server.process)
            first = spent()
            watch_run.until(lambda: viewer.complete or viewer.error is not None, server.process)
            return FirstLook(first, spent(), server.peak_bytes())
        finally:
            viewer.close()


def look_by_page(folder: Path, page: Browser) -> FirstLook:
    with watch_viewer.served(folder) as server:
        before = server.cpu_seconds()
        seconds = watch_viewer.open_page(page, server)
        first = Sample(seconds, server.cpu_seconds() - before)
        watch_run.until(
            lambda: (
                "read so far" not in page.run("return document.getElementById('facts').textContent")
            ),
            server.process,
            0.5,
        )
        return FirstLook(first, None, server.peak_bytes())


def long_file(
    run: Path, folder: Path, size: int, repeats: int, page: Browser | None
) -> dict[str, Any]:
    """Figures of a run's folder whose metrics file is long."""
    with (run / watch_run.METRICS).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, ROWS) if line.endswith("\n")]
    shutil.copytree(
        run,
        folder / RUN,
        ignore=shutil.ignore_patterns(watch_run.METRICS, "tensorboard", "checkpoints"),
    )
    count = watch_run.lengthened(rows, folder / RUN / watch_run.METRICS, size)
    work = {VIEWER: partial(look_by_viewer, folder)} | (
        {PAGE: partial(look_by_page, folder, page)} if page is not None else {}
    )
    taken = harness.take_turns(work, repeats)
    peaks = [
        each.peak_bytes for looks in taken.values() for each in looks if each.peak_bytes is not None
    ]
    whole = [each.whole for each in taken[VIEWER] if each.whole is not None]
    return {
        "rows": count,
        "first_curves": {
            name: programs.durations([each.first for each in looks])
            for name, looks in taken.items()
        },
        "all_rows": {VIEWER: programs.durations(whole)},
        **({"peak_resident_bytes": max(peaks)} if peaks else {}),
    }


def held(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each promise about this bench, what was measured, and whether it was met; None where nothing
    was.
    """
    found = []
    for target in (each for each in targets.load() if each.bench == "watch"):
        value = target.measured({"": {"watch": result}})[1]
        found.append(
            {
                "what": target.what,
                "target": target.promise,
                "measured": value,
                "unit": target.unit,
                "met": None if value is None else target.met(value),
            }
        )
    return found


def run(options: Options) -> dict[str, Any]:
    """Raises RuntimeError: the run, the server or a viewer failed."""
    shape = QUICK if options.quick else FULL
    pairs = max(shape.pairs, options.repeats)
    lacking = browser.lacking()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        top = Path(name)
        with browser.browser_if_any(top / "profile") as page:
            with watch_run.training(top / "runs", shape.keys, shape.chunk_updates) as training:
                measured = speed(training, shape._replace(pairs=pairs))
                delay = {VIEWER: delay_to_viewer(training, shape.chunks)}
                if page is not None:
                    delay[PAGE] = delay_to_page(training, shape.chunks, page)
            read = long_file(training.folder, top / "long", shape.file_bytes, options.repeats, page)
    left_out = ({PAGE: lacking} if lacking else {}) | (
        {}
        if "peak_resident_bytes" in read
        else {"peak_resident_bytes": "this system does not keep it (no /proc)"}
    )
    result = {
        "config": {
            **shape._asdict(),
            "pairs": pairs,
            "viewers": VIEWERS,
            "poll_seconds": watch_viewer.POLL,
            "repeats": options.repeats,
            "interval": f"{LEVEL:.0%} bootstrap of the median of ratios of neighbours",
        },
        "delay": delay,
        **measured,
        "long_file": read,
        "left_out": left_out,
    }
    return result | {"targets": held(result)}
