"""A whole curriculum on the bundled bars: handed on without loss, gated, killed, one report."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jaxtrade import cli
from tests.children import sets
from tests.messages import missing
from tests.reading import read_json
from tests.resuming import leaves

pytestmark = pytest.mark.slow

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


def arguments(path, *more):
    """Without an advisor: a live one answers when its threads come to it, and these tests compare
    bits.
    """
    flags = sets(*TINY, "enforce_gates=false", *more)
    return ["curriculum", "--advisor", "off", "--run-dir", str(path), "--non-interactive", *flags]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "course"
    assert cli.main(arguments(path)) == 0
    return path


def test_every_phase_is_handed_on_whole(whole):
    document = read_json(whole / "curriculum.json")
    assert [row["task"] for row in document["phases"]] == ["entry", "manage", "advised"]
    for row in document["phases"][1:]:
        assert row["start"]["coverage"] == "100 %"
        assert row["start"]["equal"] is True
        assert row["start"]["net_profit"]["source"] == row["start"]["net_profit"]["transferred"]
        assert row["test"]["coverage"] == 1.0
    report = (whole / "curriculum.txt").read_text()
    assert report.count("transfer coverage 100 %") == 2


def test_a_finished_curriculum_resumes_to_its_report(whole, capsys):
    assert cli.main(["curriculum", "--resume", str(whole)]) == 0
    shown, report = capsys.readouterr().out, (whole / "curriculum.txt").read_text()
    assert report.strip() in shown
    assert "LLM query rate" not in shown + report  # its advisor is off
    assert not (whole / "phases" / "3-advised" / "advice.jsonl").exists()


def test_a_gate_stops_with_its_reason(tmp_path, capsys):
    path = tmp_path / "course"
    assert (
        cli.main(arguments(path, "enforce_gates=true", "phases.entry.gate.min_trades=100000")) == 1
    )
    out = capsys.readouterr().out
    assert not missing(out, "after phase entry", "(trades)")
    assert not (path / "phases" / "2-manage").exists()


def test_from_a_run_it_begins_after_that_runs_task(whole, tmp_path):
    path = tmp_path / "course"
    assert cli.main([*arguments(path), "--from", str(whole / "phases" / "2-manage")]) == 0
    assert [folder.name for folder in sorted((path / "phases").iterdir()) if folder.is_dir()] == [
        "3-advised"
    ]
    for x, y in zip(
        leaves(path / "phases" / "3-advised"), leaves(whole / "phases" / "3-advised"), strict=True
    ):
        np.testing.assert_array_equal(x, y)  # the same source and seed: the same phase


def test_the_smoke_test_asks_the_advisor_of_the_last_phase(whole, tmp_path, capsys):
    """`--test`, as the menu runs it, with the shipped advisor; keys that are set go before its own."""
    path = tmp_path / "course"
    words = ["curriculum", "--test", "--run-dir", str(path), "--non-interactive", *sets(*TINY)]
    code = cli.main([*words, "--from", str(whole / "phases" / "2-manage")])
    assert code in (0, 1)  # 1: a check of the short run's learning failed
    advised = path / "phases" / "3-advised"
    assert (advised / "evaluation" / "test" / "evaluation.json").is_file()
    assert "LLM query rate" in capsys.readouterr().out


def test_killed_in_two_phases_it_ends_in_the_same_bits(whole, tmp_path):
    """`kill -9` at the first checkpoint of the first and of the last phase."""
    path = tmp_path / "course"
    nproc = read_json(whole / "begin.json")["nproc"]
    words, ends = arguments(path), []
    for phase in ("1-entry", "3-advised", None):
        process = subprocess.Popen(
            [sys.executable, "-m", "jaxtrade.cli", *words],
            stdout=subprocess.DEVNULL,
            env=os.environ | {"NPROC": nproc},
        )
        if phase is not None:
            checkpoint = f"phases/{phase}/checkpoints/*/manifest.json"
            while process.poll() is None and not any(path.glob(checkpoint)):
                time.sleep(0.002)
            process.kill()
        ends.append(process.wait(600))
        words = ["curriculum", "--resume", str(path)]
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert (path / "curriculum.txt").read_text() == (whole / "curriculum.txt").read_text()
    for folder in sorted((whole / "phases").glob("*/")):
        again = path / "phases" / folder.name
        assert (again / "gate.json").read_text() == (folder / "gate.json").read_text()
        for x, y in zip(leaves(again), leaves(folder), strict=True):
            np.testing.assert_array_equal(x, y, err_msg=folder.name)
