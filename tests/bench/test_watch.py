"""The bench of the live page: delays by hand, the file that it follows, a viewer of the real
server, its table.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import targets, watch, watch_page, watch_run, watch_viewer
from bench.catalogue import Options
from bench.watch_run import Chunk
from bench.watch_viewer import Seen

ROOT = Path(__file__).resolve().parents[2]
OLD = ROOT / "tests" / "fixtures" / "run_0_1_0"


def test_delays_by_hand() -> None:
    """The first chunk was there before the viewer; one answer brings the next two; the last one was
    never seen.
    """
    chunks = [
        Chunk(5, 0, 9.0),
        Chunk(10, 0, 10.5),
        Chunk(15, 0, 11.0),
        Chunk(20, 0, 12.0),
        Chunk(25, 0, 13.0),
    ]
    seen = [Seen(5, 10.0, 1.0), Seen(15, 11.25, 1.0), Seen(20, 13.75, 1.0)]
    assert watch_viewer.delays(chunks, seen) == [0.75, 0.25, 1.75]
    behind = [Seen(5, 9.5, 0.4), *seen[1:]]  # the first answer held a part of the rows
    assert watch_viewer.delays(chunks, behind) == [1.75]
    assert watch_viewer.delays(chunks, behind[:1]) == []
    assert watch.delay_of([0.75, 0.25, 1.75]) == {
        "chunks": 3,
        "median_seconds": 0.75,
        "most_seconds": 1.75,
    }


def test_a_chunk_counts_when_its_last_row_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert watch_run.last_chunk(path, 2) is None
    path.write_text('{"update": 1, "steps": 8}\n{"update": 2, "st')
    assert watch_run.last_chunk(path, 2) is None
    path.write_text('{"update": 1, "steps": 8}\n{"update": 2, "steps": 16}\n')
    os.utime(path, ns=(0, 1_500_000_000))
    assert watch_run.last_chunk(path, 2) == Chunk(2, 16, 1.5)
    assert watch_run.last_chunk(path, 4) is None


def test_a_long_file_goes_on_where_the_rows_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    count = watch_run.lengthened(
        [{"update": 1, "loss": 0.5}, {"update": 2, "loss": 0.25}], path, 1000
    )
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, count + 1))
    assert [row["loss"] for row in rows[:4]] == [0.5, 0.25, 0.5, 0.25]
    assert 1000 <= path.stat().st_size < 1100


def test_viewers_of_the_real_server_receive_a_further_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_viewer, "POLL", 0.02)
    shutil.copytree(OLD, tmp_path / watch.RUN)
    with watch_viewer.served(tmp_path) as server:
        with watch_viewer.viewers(server, watch.RUN, 2) as [viewer, other]:
            assert (viewer.seen[0].update, viewer.seen[0].share, other.seen[0].update) == (
                4,
                1.0,
                4,
            )
            with (tmp_path / watch.RUN / watch_run.METRICS).open("a") as file:
                file.write('{"update": 5, "steps": 1280, "approx_kl": 0.5}\n')
            watch_run.until(
                lambda: bool(viewer.error) or viewer.seen[-1].update == 5, server.process
            )
        if Path("/proc/self/status").exists():
            assert 10_000_000 < (server.peak_bytes() or 0) < 200_000_000
        lost = watch_viewer.Viewer(server, "missing")
        watch_run.until(lambda: lost.error is not None, server.process)
    with pytest.raises(RuntimeError, match=r"GET /api/run\?run=missing: 404"):
        lost.close()


def test_a_viewer_asks_as_often_as_the_page() -> None:
    script = (ROOT / "jaxtrade" / "web" / "watch.js").read_text(encoding="utf-8")
    assert f"const POLL = {1000 * watch_viewer.POLL:.0f};" in script


def result() -> dict[str, Any]:
    found: dict[str, Any] = {
        "stamp": {"commit": "abc"},
        "config": {"pairs": 20},
        "delay": {"viewer": {"chunks": 60, "median_seconds": 0.75, "most_seconds": 2.5}},
        "pairs": {"three viewers/alone": {"median": 0.995}},
        "long_file": {
            "rows": 70_000,
            "all_rows": {"viewer": {"seconds": 4.0}},
            "peak_resident_bytes": 97_000_000,
            "first_curves": {"viewer": {"seconds": 0.3}},
        },
    }
    return found | {"targets": watch.held(found)}


def test_every_figure_is_held_against_its_target() -> None:
    found = {each["what"]: each for each in result()["targets"]}
    assert len(found) == 6 == sum(target.bench == "watch" for target in targets.load())
    own = [
        (each["measured"], each["met"]) for what, each in found.items() if "Chromium" not in what
    ]
    assert own == [(0.995, True), (2.5, False), (0.3, True), (97_000_000, True)]
    assert all(
        each["measured"] is each["met"] is None
        for what, each in found.items()
        if "Chromium" in what
    )


def test_the_table_of_its_page() -> None:
    lines = watch_page.lines(result())
    assert len(lines) == 2 + 6 + 2
    assert lines[2].endswith("| >= 0.99x | 0.995x | met |")
    assert lines[3].endswith("| <= 2 s | 2.5 s | **missed** |")
    assert lines[4].endswith("| <= 2 s | not measured |  |")
    assert lines[7].endswith("| <= 200 MB | 97 MB | met |")
    assert lines[-1] == (
        "Speed: 20 pairs of turns of one run. Delays: viewer 0.75 s (median of 60 chunks). The long "
        "file has 70,000 rows; all of them are in the curves after 4 s. Commit abc."
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_result() -> None:
    found = watch.run(Options(quick=True, repeats=2))
    json.dumps(found, allow_nan=False)
    lacking = {each["what"] for each in found["targets"] if each["met"] is None}
    assert all("Chromium" in what or "memory" in what for what in lacking)
    assert bool(lacking) == bool(found["left_out"])
    assert found["delay"]["viewer"]["chunks"] >= 5
    assert found["sides"]["alone"]["steps"] == found["sides"]["three viewers"]["steps"] > 0
