"""The commands that a run prints at its end: they work as printed, and carry nothing that is not
needed.
"""

import os
import shlex
import sys
from types import SimpleNamespace

import pytest

from jaxtrade.cli.parser import build_parser
from jaxtrade.config import make_config
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import evaluation_footer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the commands are quoted for a POSIX shell")


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """Pytest's own command line is that of another program."""
    monkeypatch.setattr(sys, "argv", ["pytest"])


def run_of(path, **sections):
    """A run's folder with its configuration, and nothing else."""
    config = make_config(sections, "test")
    rundir.create_run(
        path, config, {"config_sha256": config.digest(), "data_sha256": "0", "nproc": 1}
    )
    return config


def commands(
    path,
    config,
    seeds=(0,),
    split="test",
    advisor=(),
    **settings,
):
    settings = {"last_session": "2013-10-11", **settings}
    result = SimpleNamespace(provenance={"split": split}, settings=settings, tables={})
    results = dict.fromkeys(seeds, result)
    lines = list(evaluation_footer(path, path / "evaluation", results, config, advisor))
    assert lines[0] == f"run       {path}"
    first = [line[:10].strip() for line in lines].index("next")
    return [line[10:] for line in lines[first:]]


def words(command):
    """The command as a shell reads it, without the program. It must be one that `jaxtrade`
    knows.
    """
    found = shlex.split(command, comments=True)
    assert found[0] == "jaxtrade"
    build_parser().parse_args(found[1:])
    return found[1:]


def test_a_plain_run_needs_no_flags(tmp_path):
    path = tmp_path / "run"
    page, replay, grid = commands(path, run_of(path))
    assert words(page) == ["report", str(path), "--open"]
    assert words(grid) == ["evaluate", str(path), "--cost-grid"]
    assert words(replay) == ["replay", str(path), "--session", "2013-10-11"]


@pytest.mark.parametrize(
    ("days", "target", "flag"),
    [(5, 3000, "--pass-probability"), (4, 3000, "--cost-grid"), (5, None, "--cost-grid")],
)
def test_an_account_that_can_pass_is_asked_about(tmp_path, days, target, flag):
    path = tmp_path / "run"
    rules = {"profit_target": target, "drawdown": 2500}
    _, _, last = commands(path, run_of(path), sessions=days, rules=rules)
    assert words(last) == ["evaluate", str(path), flag]


def test_paths_with_spaces_are_quoted(tmp_path):
    path = tmp_path / "my runs; all of them" / "run"
    for command in commands(path, run_of(path)):
        assert words(command)[1] == str(path)


@pytest.mark.parametrize("split", ["train", "validation", "all"])
def test_another_split_is_named(tmp_path, split):
    """A run that holds no session out is evaluated on its training sessions; `evaluate` alone would
    refuse it.
    """
    path = tmp_path / "run"
    page, replay, grid = (words(each) for each in commands(path, run_of(path), split=split))
    assert page == ["report", str(path), "--split", split, "--open"]
    assert grid == ["evaluate", str(path), "--split", split, "--cost-grid"]
    assert replay == ["replay", str(path), "--session", "2013-10-11"]


def test_one_of_several_seeds_is_named(tmp_path):
    """Also after `evaluate --seed 4`, whose results have one seed: the run still has several."""
    path = tmp_path / "run"
    config = run_of(path, train={"num_seeds": 3}, seed=3)
    for seeds, first in (((3, 4, 5), "3"), ((4,), "4")):
        for command in commands(path, config, seeds):
            assert words(command)[2:4] == ["--seed", first]


def test_another_advisor_is_named_where_the_command_takes_one(tmp_path):
    path = tmp_path / "run"
    other = ("--advisor", "mock:oracle", "--set", "advisor.options.skill=0.7")
    replay, grid = (words(each) for each in commands(path, run_of(path), advisor=other))
    assert grid == ["evaluate", str(path), *other, "--cost-grid"]
    assert "--advisor" not in replay


def test_bars_at_another_place_are_named(tmp_path):
    """Only then: a run finds its own file by itself, from any folder."""
    bars, moved = tmp_path / "bars.csv", tmp_path / "moved bars.csv"
    bars.write_text("time,open\n")
    path = tmp_path / "run"
    config = run_of(path, data={"source": "file", "file": str(bars), "market": "ES"})
    for command in commands(path, config):
        assert "--data" not in words(command)
    bars.rename(moved)
    used = rundir.read_run(path, {"data.file": str(moved)})[0]
    for command in commands(path, used)[1:]:  # a report reads no bars
        assert words(command)[2:4] == ["--data", str(moved)]


def test_the_program_is_named_as_the_shell_finds_it(tmp_path, monkeypatch):
    """`.venv/bin/jaxtrade train` does not put `jaxtrade` on the path, so its next commands have to
    say where it is.
    """
    here, other = tmp_path / "a" / "jaxtrade", tmp_path / "b" / "jaxtrade"
    for each in (here, other):
        each.parent.mkdir()
        each.write_text("#!/bin/sh\n")
        each.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(here), "train"])
    for path, expected in (
        (here.parent, "jaxtrade"),
        (other.parent, str(here)),
        (tmp_path, str(here)),
    ):
        monkeypatch.setenv("PATH", str(path))
        assert rundir.program() == [expected]
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "jaxtrade" / "__main__.py"), "train"])
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-P", "-m", "jaxtrade", "train"])
    assert rundir.program() == ["python3", "-P", "-m", "jaxtrade"]
    monkeypatch.setattr(sys, "argv", ["my_script.py"])
    assert rundir.program() == ["jaxtrade"]
