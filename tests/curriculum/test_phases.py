"""A whole curriculum on the bundled bars: handed on without loss, gated, killed at random moments, one report."""

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

TINY = ("rollout.num_envs=8", "rollout.num_steps=32", "ppo.num_minibatches=2", "network.hidden=[8]",
        "train.total_timesteps=2048",
        "train.chunk_updates=2", "train.checkpoint_every=1", "train.tensorboard=false")


def arguments(path: Path, *more: str) -> list[str]:
    flags = [flag for override in (*TINY, "enforce_gates=false", *more) for flag in ("--set", override)]
    return ["curriculum", "--run-dir", str(path), "--non-interactive", *flags]


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
def test_a_finished_curriculum_resumes_to_its_report(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["curriculum", "--resume", str(whole)]) == 0
    assert (whole / "curriculum.txt").read_text(encoding="utf-8").strip() in capsys.readouterr().out


@pytest.mark.slow
def test_a_gate_stops_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "course"
    assert cli.main(arguments(path, "enforce_gates=true", "phases.entry.gate.min_trades=100000")) == 1
    out = capsys.readouterr().out
    assert "stopped after phase entry: its gate failed (trades)" in out
    assert not (path / "phases" / "2-manage").exists()


@pytest.mark.slow
def test_from_a_run_it_begins_after_that_runs_task(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "course"
    assert cli.main([*arguments(path), "--from", str(whole / "phases" / "2-manage")]) == 0
    assert [folder.name for folder in sorted((path / "phases").iterdir()) if folder.is_dir()] == ["3-advised"]
    for x, y in zip(leaves(path / "phases" / "3-advised"), leaves(whole / "phases" / "3-advised"), strict=True):
        np.testing.assert_array_equal(x, y)  # the same source and seed: the same phase


def leaves(path: Path) -> list[np.ndarray]:
    source = load_source(path)
    return [np.asarray(x) for x in jax.tree.leaves((source.params, source.normaliser, source.opt_state))]


def killed(process: subprocess.Popen[bytes], path: Path, draw: random.Random, inside_training: bool) -> bool:
    """Kill it after some seconds, or just after it has saved a checkpoint; False where it came to its end before."""
    def saved() -> int:
        return len(list(path.glob("phases/*/checkpoints/*/manifest.json")))

    # Importing and compiling take most of the time, and a slow machine's chance would hardly ever hit training.
    before, seconds = saved(), draw.uniform(0.0, 0.2) if inside_training else draw.uniform(5.0, 16.0)
    while inside_training and process.poll() is None and saved() <= before:
        time.sleep(0.002)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [5, pytest.param(20, marks=pytest.mark.long)])
def test_killed_at_random_moments_it_ends_in_the_same_bits(whole: Path, tmp_path: Path, wanted: int) -> None:
    """`kill -9` `wanted` times, wherever it happens to be: starting, training, evaluating, between phases."""
    path, draw, kills = tmp_path / "course", random.Random(0), 0
    environment = {**os.environ, "NPROC": json.loads((whole / "begin.json").read_text())["nproc"]}
    first = [sys.executable, "-m", "jaxtrade.cli", *arguments(path)]
    for _ in range(4 * wanted):
        command = first if not path.exists() else [*first[:3], "curriculum", "--resume", str(path)]
        with (tmp_path / "output").open("a") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            if kills < wanted and killed(process, path, draw, inside_training=kills % 2 == 0):
                kills += 1
                continue
            process.wait(600.0)
        assert process.returncode == 0, (tmp_path / "output").read_text()[-3000:]
        if kills >= wanted:
            break
        # It finished before it was killed often enough: take the last phase's end and all but its first checkpoint
        # away, and let them be made again.
        for name in ("gate.json", "summary.json"):
            (path / "phases" / "3-advised" / name).unlink()
        for later in sorted((path / "phases" / "3-advised" / "checkpoints").iterdir())[1:]:
            shutil.rmtree(later)
    assert kills >= wanted
    assert (tmp_path / "output").read_text().count("resumed after update") >= 1  # a kill has hit training, too
    for name in ("1-entry", "2-manage", "3-advised"):
        gates = [json.loads((root / "phases" / name / "gate.json").read_text()) for root in (path, whole)]
        assert gates[0] == gates[1]
    assert (path / "curriculum.txt").read_text() == (whole / "curriculum.txt").read_text()
    for phase in ("1-entry", "2-manage", "3-advised"):
        for x, y in zip(leaves(path / "phases" / phase), leaves(whole / "phases" / phase), strict=True):
            np.testing.assert_array_equal(x, y, err_msg=phase)
