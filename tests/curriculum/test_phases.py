"""A whole curriculum on the bundled bars: handed on without loss, gated, killed at random moments,
one report.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.runs.source import load_source
from tests.messages import missing

TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=2048",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)
MOMENTS = ("checkpoint", "file", "start")


def arguments(path: Path, *more: str) -> list[str]:
    """Without an advisor: a live one answers when its threads come to it, and these tests compare
    bits.
    """
    flags = [
        flag for override in (*TINY, "enforce_gates=false", *more) for flag in ("--set", override)
    ]
    return ["curriculum", "--advisor", "off", "--run-dir", str(path), "--non-interactive", *flags]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "course"
    assert cli.main(arguments(path)) == 0
    return path


@pytest.mark.slow
def test_every_phase_is_handed_on_whole(whole: Path) -> None:
    document = json.loads((whole / "curriculum.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in document["phases"]] == ["entry", "manage", "advised"]
    for row in document["phases"][1:]:
        assert row["start"]["coverage"] == "100 %"
        assert row["start"]["equal"] is True
        assert row["start"]["net_profit"]["source"] == row["start"]["net_profit"]["transferred"]
        assert row["test"]["coverage"] == 1.0
    report = (whole / "curriculum.txt").read_text(encoding="utf-8")
    assert report.count("transfer coverage 100 %") == 2


@pytest.mark.slow
def test_a_finished_curriculum_resumes_to_its_report(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["curriculum", "--resume", str(whole)]) == 0
    shown, report = capsys.readouterr().out, (whole / "curriculum.txt").read_text(encoding="utf-8")
    assert report.strip() in shown
    assert "LLM query rate" not in shown + report  # its advisor is off
    assert not (whole / "phases" / "3-advised" / "advice.jsonl").exists()


@pytest.mark.slow
def test_a_gate_stops_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "course"
    assert (
        cli.main(arguments(path, "enforce_gates=true", "phases.entry.gate.min_trades=100000")) == 1
    )
    out = capsys.readouterr().out
    assert not missing(out, "after phase entry", "(trades)")
    assert not (path / "phases" / "2-manage").exists()


@pytest.mark.slow
def test_from_a_run_it_begins_after_that_runs_task(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "course"
    assert cli.main([*arguments(path), "--from", str(whole / "phases" / "2-manage")]) == 0
    assert [folder.name for folder in sorted((path / "phases").iterdir()) if folder.is_dir()] == [
        "3-advised"
    ]
    for x, y in zip(
        leaves(path / "phases" / "3-advised"), leaves(whole / "phases" / "3-advised"), strict=True
    ):
        np.testing.assert_array_equal(x, y)  # the same source and seed: the same phase


def leaves(path: Path) -> list[np.ndarray]:
    source = load_source(path)
    return [
        np.asarray(x) for x in jax.tree.leaves((source.params, source.normaliser, source.opt_state))
    ]


def written(path: Path) -> set[str]:
    """The files in a folder that another process writes."""
    return {os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names}


def killed(process: subprocess.Popen[bytes], path: Path, draw: random.Random, moment: str) -> bool:
    """Kill it at a moment of its own work; False where it came to its end before. Moments are
    counted in files, for seconds that hit training on one machine come after the end on a faster
    one."""
    before, wanted = (
        written(path),
        {"start": 0, "checkpoint": 1, "file": draw.randint(1, 12)}[moment],
    )

    def happened() -> int:
        new = written(path) - before
        return len(
            [name for name in new if name.endswith("manifest.json")]
            if moment == "checkpoint"
            else new
        )

    while process.poll() is None and happened() < wanted:
        time.sleep(0.002)
    try:
        process.wait(draw.uniform(0.0, {"start": 3.0, "checkpoint": 0.02, "file": 0.2}[moment]))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("wanted", [3, 20])
def test_killed_at_random_moments_it_ends_in_the_same_bits(
    whole: Path, tmp_path: Path, wanted: int
) -> None:
    """`kill -9` `wanted` times, wherever it happens to be: starting, training, evaluating, between
    phases.
    """
    path, draw, kills, in_training = tmp_path / "course", random.Random(0), 0, False
    log = tmp_path / "output"
    environment = {**os.environ, "NPROC": json.loads((whole / "begin.json").read_text())["nproc"]}
    first = [sys.executable, "-m", "jaxtrade.cli", *arguments(path)]
    for _ in range(4 * wanted):
        command = first if not path.exists() else [*first[:3], "curriculum", "--resume", str(path)]
        with log.open("a") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            if kills < wanted and killed(process, path, draw, MOMENTS[kills % 3]):
                kills += 1
                continue
            process.wait(600.0)
        assert process.returncode == 0, log.read_text()[-3000:]
        in_training = "resumed after update" in log.read_text()
        if kills >= wanted and in_training:
            break
        # It finished before it was killed often enough, or never in training: take the last phase's
        # end and all but its first checkpoint away, and let them be made again.
        for name in ("gate.json", "summary.json"):
            (path / "phases" / "3-advised" / name).unlink()
        for later in sorted((path / "phases" / "3-advised" / "checkpoints").iterdir())[1:]:
            shutil.rmtree(later)
    assert kills >= wanted
    assert in_training
    for name in ("1-entry", "2-manage", "3-advised"):
        gates = [
            json.loads((root / "phases" / name / "gate.json").read_text()) for root in (path, whole)
        ]
        assert gates[0] == gates[1]
    assert (path / "curriculum.txt").read_text() == (whole / "curriculum.txt").read_text()
    for phase in ("1-entry", "2-manage", "3-advised"):
        for x, y in zip(
            leaves(path / "phases" / phase), leaves(whole / "phases" / phase), strict=True
        ):
            np.testing.assert_array_equal(x, y, err_msg=phase)
