"""A whole curriculum on the bundled bars: handed on without loss, gated, killed at random moments,
one report.
"""

from __future__ import annotations

import json

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


def arguments(path, *more):
    """Without an advisor: a live one answers when its threads come to it, and these tests compare
    bits.
    """
    flags = [
        flag for override in (*TINY, "enforce_gates=false", *more) for flag in ("--set", override)
    ]
    return ["curriculum", "--advisor", "off", "--run-dir", str(path), "--non-interactive", *flags]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "course"
    assert cli.main(arguments(path)) == 0
    return path


@pytest.mark.slow
def test_every_phase_is_handed_on_whole(whole):
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
def test_a_finished_curriculum_resumes_to_its_report(whole, capsys):
    assert cli.main(["curriculum", "--resume", str(whole)]) == 0
    shown, report = capsys.readouterr().out, (whole / "curriculum.txt").read_text(encoding="utf-8")
    assert report.strip() in shown
    assert "LLM query rate" not in shown + report  # its advisor is off
    assert not (whole / "phases" / "3-advised" / "advice.jsonl").exists()


@pytest.mark.slow
def test_a_gate_stops_with_its_reason(tmp_path, capsys):
    path = tmp_path / "course"
    assert (
        cli.main(arguments(path, "enforce_gates=true", "phases.entry.gate.min_trades=100000")) == 1
    )
    out = capsys.readouterr().out
    assert not missing(out, "after phase entry", "(trades)")
    assert not (path / "phases" / "2-manage").exists()


@pytest.mark.slow
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


def leaves(path):
    source = load_source(path)
    return [
        np.asarray(x) for x in jax.tree.leaves((source.params, source.normaliser, source.opt_state))
    ]
