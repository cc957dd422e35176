"""A run of an earlier version (tests/fixtures/run_0_1_0, made by 20cc2a7) stays readable: evaluate,
replay, resume.
"""

import shutil

import numpy as np
import pytest

from jaxtrade.cli import main
from tests.messages import missing, refuses
from tests.reading import OLD, read_json


@pytest.fixture
def old(tmp_path, monkeypatch):
    for name in ("NPROC", "XLA_FLAGS"):  # a resume sets them: give them back afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    copied = tmp_path / "run"
    shutil.copytree(OLD, copied)
    return copied


def agents(path):
    return read_json(path / "evaluation" / "test" / "evaluation.json")["agents"]


def trades(path):
    return (path / "evaluation" / "test" / "trades.csv").read_text()


@pytest.mark.slow
def test_it_is_evaluated_to_the_same_trades(old, capsys):
    shutil.rmtree(old / "evaluation")
    assert main(["evaluate", str(old)]) == 0
    assert "your policy" in capsys.readouterr().out
    assert trades(old) == trades(OLD)
    assert agents(old)["greedy"] == agents(OLD)["greedy"]


def test_it_can_be_continued_with_other_keys(old, capsys):
    """Only what is given now is at fault: the old keys and the old unit of its stops are read as
    today's.
    """
    assert main(["train", "--continue", str(old), "--set", "seed=x"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --set: 'seed' = 'x': ")
    assert "whole number" in line


def test_its_file_alone_is_refused_with_todays_keys_and_units(old, capsys):
    assert main(["train", str(old / "config.yaml")]) == 2
    said = capsys.readouterr().err
    assert not missing(said, "'ppo.num_envs': ", "rollout.num_envs now")
    for old_value, write in (
        ("'brackets.stop_atr' = 1500", "write 1.5"),
        ("'brackets.trail_atr' = 1000", "write 1"),
    ):
        [line] = [line for line in said.splitlines() if old_value in line]
        assert not missing(line, "the unit is ATRs", "at most 100", write)


@pytest.mark.slow
def test_it_is_replayed(old, capsys):
    assert main(["replay", str(old), "--session", "2013-10-11"]) == 0
    assert "2013-10-11" in capsys.readouterr().out


@pytest.mark.slow
def test_it_is_resumed_from_its_checkpoint_to_the_same_end(old):
    """The last checkpoint is taken away, and trained again. The fixture may come from another
    processor.
    """
    last = old / "checkpoints" / "update-00000004"
    shutil.rmtree(last)
    shutil.rmtree(old / "policy")
    assert main(["train", "--resume", str(old)]) in (0, 1)
    with (
        np.load(last / "state.npz") as ours,
        np.load(OLD / "checkpoints" / last.name / "state.npz") as theirs,
    ):
        assert set(ours.files) == set(theirs.files)
        for name in ours.files:
            if name.startswith("params/"):
                np.testing.assert_allclose(
                    ours[name], theirs[name], rtol=0, atol=1e-4, err_msg=name
                )


@pytest.mark.parametrize(
    "words", ["evaluate {}", "replay {} --session 2013-10-11", "train --resume {}"]
)
def test_an_edited_configuration_is_refused(old, words, capsys):
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("gamma: 0.99", "gamma: 0.98"))
    refuses(capsys, words.format(old).split(), "restore the file")
