"""A run's openings of its test split: training, evaluations and grids are entered in the trial log
and told.
"""

import shutil

import pytest

from jaxtrade.config import load_config
from jaxtrade.reporting import collect
from jaxtrade.runs.evaluate import Request, evaluate_run
from jaxtrade.runs.stored_run import open_run
from jaxtrade.runs.train import run
from jaxtrade.storage.status import is_alive, read_status
from jaxtrade.storage.trials import TRIALS, read_trials
from tests.messages import missing
from tests.reading import read_json
from tests.test_run_doors import TINY

pytestmark = pytest.mark.slow

SPLIT = ("split.test_sessions=2", "split.validation_sessions=1", "data.synthetic_sessions=6")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return run(
        load_config(None, [*TINY, *SPLIT, "train.total_timesteps=256"]), folder / "first"
    ).path


@pytest.fixture
def path(trained, tmp_path):
    """The run in a folder of its own, with its log."""
    shutil.copytree(trained.parent, tmp_path / "runs")
    return tmp_path / "runs" / trained.name


def report(path, split="test"):
    folder = path / "evaluation" / split
    return read_json(folder / "evaluation.json"), (folder / "evaluation.txt").read_text()


def test_a_training_enters_its_opening_before_it_shows_it(trained):
    [opening] = read_trials(trained.parent).looks
    document, text = report(trained)
    manifest = read_json(trained / "manifest.json")
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
    trials = document["trials"]
    assert (trials["opened"], trials["trials"], trials["counted"]) == (1, 1, True)
    assert (trials["log"], trials["fault"]) == (str(trained.parent / TRIALS), None)
    for name in ("psr", "dsr"):
        assert not missing(trials[name]["why"], "5 days", "are 2")
    assert "looked at 1 time (1 distinct trial)" in text


def test_a_finished_run_says_so_in_its_status(trained):
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


def test_a_report_says_what_the_evaluation_says_of_the_same_trials(trained):
    page, document = collect.collect(collect.choose(trained)).data, report(trained)[0]["trials"]
    assert page["trials"] is not None
    for name in ("opened", "trials", "fault", "first", "last"):
        assert page["trials"][name] == document[name]
    for name in ("psr", "dsr"):
        assert page["statistics"][name] == document[name]
    assert {name: page["statistics"]["pbo"][name] for name in ("value", "why")} == {
        name: document["pbo"][name] for name in ("value", "why")
    }


def test_a_damaged_log_makes_the_count_na_and_names_the_line(path):
    file = path.parent / TRIALS
    file.write_bytes(file.read_bytes().replace(b'"kind":"train"', b'"kind":"grid!"'))
    text = evaluate_run(Request(path))
    assert f"n/a: {file}: line 1: was changed" in text
    found = report(path)[0]["trials"]
    assert (found["opened"], found["trials"], found["counted"]) == (None, None, True)
    assert "line 1: was changed" in found["fault"]
    assert found["dsr"]["why"] == found["pbo"]["why"]
    assert "trial log" in found["dsr"]["why"]
