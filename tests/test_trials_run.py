"""A run's openings of its test split: training, evaluations and grids are entered in the trial log
and told.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from jaxtrade.config import load_config
from jaxtrade.evaluation.run_days import on_shared_days, read_run_days
from jaxtrade.reporting import collect
from jaxtrade.runs.evaluate import evaluate_run, grid_run, replay_run
from jaxtrade.runs.openings import UNCOUNTED
from jaxtrade.runs.stored import open_run
from jaxtrade.runs.train import run
from jaxtrade.storage.status import is_alive, read_status
from jaxtrade.storage.trials import HEAD, TRIALS, read_trials
from tests.messages import missing
from tests.test_run_doors import TINY

SPLIT = ("split.test_sessions=2", "split.validation_sessions=1", "data.synthetic_sessions=6")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return run(
        load_config(None, [*TINY, *SPLIT, "train.total_timesteps=256"]), folder / "first"
    ).path


@pytest.fixture
def path(trained, tmp_path) -> Path:
    """The run in a folder of its own, with its log."""
    shutil.copytree(trained.parent, tmp_path / "runs")
    return tmp_path / "runs" / trained.name


def report(path: Path, split: str = "test") -> tuple[dict, str]:
    folder = path / "evaluation" / split
    return json.loads((folder / "evaluation.json").read_text()), (
        folder / "evaluation.txt"
    ).read_text()


@pytest.mark.slow
def test_a_training_enters_its_opening_before_it_shows_it(trained: Path) -> None:
    [opening] = read_trials(trained.parent).openings
    document, text = report(trained)
    manifest = json.loads((trained / "manifest.json").read_text())
    settings = document["settings"]
    assert (opening.kind, opening.run, opening.split, opening.agent) == (
        "train",
        "first",
        "test",
        "greedy",
    )
    assert (opening.config, opening.data) == (manifest["config_sha256"], manifest["data_sha256"])
    assert (opening.first, opening.last) == (settings["first_session"], settings["last_session"])
    assert opening.sessions == settings["sessions"] == len(opening.dates) == 2
    records = open_run(trained).evaluation.records
    assert opening.net == {"0": tuple(round(value, 3) for value in records.daily_net[0])}
    assert sum(opening.net["0"]) == pytest.approx(
        document["agents"]["greedy"]["strategy"]["net_profit"]
    )
    log = str(trained.parent / TRIALS)
    expected = {
        "opened": 1,
        "trials": 1,
        "fault": None,
        "counted": True,
        "log": log,
        "first": opening.utc,
        "last": opening.utc,
        "whole": 1,
    }
    assert {name: document["trials"][name] for name in expected} == expected
    for name in ("psr", "dsr"):
        assert not missing(document["trials"][name]["why"], "5 days", "are 2")
    assert not missing(document["trials"]["pbo"]["why"], "10 trials", "are 1")
    assert sum(line.startswith("trials: ") for line in text.splitlines()) == 3
    assert "opened 1 time (1 distinct trial)" in text


@pytest.mark.slow
def test_a_finished_run_says_so_in_its_status(trained: Path) -> None:
    status = read_status(trained)
    assert status is not None
    assert (status.phase, status.fault, status.update, status.total_updates) == (
        "ended",
        None,
        2,
        2,
    )
    assert (status.task, status.learner, status.market, status.steps) == (
        "manage",
        "ppo",
        "ES",
        256,
    )
    assert is_alive(status) is True, "this very process"


@pytest.mark.slow
@pytest.mark.long
def test_the_same_policy_again_is_another_opening_and_no_other_trial(path: Path) -> None:
    assert "opened 2 times (1 distinct trial)" in evaluate_run(path)
    evaluate_run(path, "validation")
    assert "trials" not in report(path, "validation")[0], "validation is no opening"
    assert "opened 3 times (1 distinct trial)" in evaluate_run(path, "all")
    openings = read_trials(path.parent).openings
    assert [(each.kind, each.split, each.sessions) for each in openings] == [
        ("train", "test", 2),
        ("evaluate", "test", 2),
        ("evaluate", "all", 2),
    ]
    assert openings[0].net == openings[1].net == openings[2].net, (
        "of all sessions, the test days alone are kept"
    )
    text = grid_run(path, intrabar=True)
    assert "opened 4 times (1 distinct trial)" in text
    grid = read_trials(path.parent).openings[-1]
    assert (grid.kind, grid.net) == ("grid", {})
    other = run(
        load_config(None, [*TINY, *SPLIT, "train.total_timesteps=256", "seed=7"]),
        path.parent / "other",
    )
    assert "opened 5 times (2 distinct trials)" in other.table
    log = (path.parent / TRIALS).read_bytes()
    for split, then in (("test", 2), ("all", 3)):
        page = collect.collect(collect.choose(path, split)).data["trials"]
        assert page is not None
        assert (page["opened"], page["at_evaluation"], page["trials"]) == (5, then, 2), (
            "by now, and then"
        )
    assert (path.parent / TRIALS).read_bytes() == log, "a report is no opening"


@pytest.mark.slow
def test_a_report_says_what_the_evaluation_says_of_the_same_trials(trained: Path) -> None:
    page, document = collect.collect(collect.choose(trained)).data, report(trained)[0]["trials"]
    assert page["trials"] is not None
    for name in ("opened", "trials", "fault", "first", "last"):
        assert page["trials"][name] == document[name]
    for name in ("psr", "dsr"):
        assert page["statistics"][name] == document[name]
    assert {name: page["statistics"]["pbo"][name] for name in ("value", "why")} == {
        name: document["pbo"][name] for name in ("value", "why")
    }


@pytest.mark.slow
@pytest.mark.long
def test_other_features_another_task_and_one_more_day_open_the_same_days(path: Path) -> None:
    changes = (
        ["env.features=[close, rsi_14]"],
        ["env.task=entry"],
        ["split.test_sessions=3", "split.validation_sessions=0"],
    )
    for number, each in enumerate(changes):
        other = run(
            load_config(None, [*TINY, *SPLIT, "train.total_timesteps=256", *each]),
            path.parent / f"n{number}",
        )
        assert f"opened {number + 2} times ({number + 2} distinct trials)" in other.table
    openings = read_trials(path.parent).openings
    assert len({each.data for each in openings}) == 2, "features change the digest of the data"
    assert openings[3].dates[1:] == openings[0].dates
    features = [read_run_days(path.parent / name) for name in ("first", "n0")]
    assert features[0].data != features[1].data
    assert len(on_shared_days(features, False)) == 2, "so they can be compared, day by day"


@pytest.mark.slow
@pytest.mark.long
def test_a_replay_of_a_test_session_is_an_opening_and_the_same_one_counts_once(path: Path) -> None:
    first, second = read_trials(path.parent).openings[0].dates
    for session in (first, first, second):
        assert len(list(replay_run(path, session))) > 10
    openings = read_trials(path.parent).openings[1:]
    assert [(each.kind, each.dates, each.net) for each in openings] == [
        ("replay", (first,), {}),
        ("replay", (second,), {}),
    ]
    list(replay_run(path, "2023-11-20"))
    assert len(read_trials(path.parent).openings) == 3, "a training session is no opening"
    assert "opened 4 times (1 distinct trial)" in evaluate_run(path)


@pytest.mark.slow
def test_a_damaged_log_makes_the_count_na_and_names_the_line(path: Path) -> None:
    file = path.parent / TRIALS
    file.write_bytes(file.read_bytes().replace(b'"kind":"train"', b'"kind":"grid!"'))
    text = evaluate_run(path)
    assert f"n/a: {file}: line 1: was changed" in text
    found = report(path)[0]["trials"]
    assert (found["opened"], found["trials"], found["counted"]) == (None, None, True)
    assert "line 1: was changed" in found["fault"]
    assert found["dsr"]["why"] == found["pbo"]["why"]
    assert "trial log" in found["dsr"]["why"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("several", [False, True])
def test_a_log_that_cannot_be_written_fails_no_run_and_is_said(
    path: Path, capsys, several: bool
) -> None:
    (path.parent / TRIALS).unlink()
    (path.parent / HEAD).unlink()
    (path.parent / TRIALS).mkdir()  # a file that cannot be opened, for root too
    more = ["train.num_seeds=2", "evolve.keys={}"] if several else []
    result = run(
        load_config(None, [*TINY, *SPLIT, "train.total_timesteps=256", *more]),
        path.parent / "second",
    )
    assert result.exit_code in (0, 1)
    assert UNCOUNTED in capsys.readouterr().err
    assert f"NOTE: {UNCOUNTED}" in result.table
    seed = "seed_0" if several else "."
    document = json.loads(
        (path.parent / "second" / "evaluation" / "test" / seed / "evaluation.json").read_text()
    )
    assert any(label.startswith(UNCOUNTED) for label in document["labels"])
    assert document["trials"]["counted"] is False
    assert f"NOTE: {UNCOUNTED}" in grid_run(path, intrabar=True)
