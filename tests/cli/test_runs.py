"""`jaxtrade runs`: each state of a run, its figures, broken folders, order, JSON."""

import json
import shutil

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.cli.runs import ORDERS, find_newest, lines
from jaxtrade.errors import ConfigError
from jaxtrade.runs.inventory import entries_in, sort_entries
from tests.structure import ROOT
from tests.test_status import at, gone

OLD = ROOT / "tests" / "fixtures" / "run_0_1_0"


def make(
    folder,
    status=None,
    summary=None,
    net=None,
):
    folder.mkdir(parents=True)
    shutil.copy(OLD / "config.yaml", folder)
    shutil.copy(OLD / "manifest.json", folder)
    if status is not None:
        (folder / "status.json").write_text(json.dumps({"format": 1, **status._asdict()}))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    if net is not None:
        where = folder / "evaluation" / "test"
        where.mkdir(parents=True)
        (where / "evaluation.json").write_text(json.dumps(evaluation(net)))
    return folder


def evaluation(net):
    figures = {"net_profit": net, "return_pct": net / 500}
    return {
        "settings": {"sessions": 4},
        "agents": {"greedy": {"strategy": figures}, "flat": {"strategy": {}}},
    }


def status(ago=1, **changes):
    """Of this process, half through its training."""
    half = {"update": 5, "total_updates": 10, "steps": 500, "chunk_seconds": 1.0}
    about = {"task": "entry", "learner": "ppo", "market": "ES"}
    return at(ago, **(half | about | changes))


SUMMARY = {"steps": 1_000, "stop_reason": None}
# Made when a test runs: a status is as old as the time since it was made.
STATES = {
    "running": (lambda: status(), None),
    "running, compiling": (lambda: status(600, phase="compiling"), None),
    "running, again": (lambda: status(), SUMMARY),
    "running elsewhere": (lambda: status(host="another"), None),
    "stalled": (lambda: status(5_000), None),
    "stalled elsewhere": (lambda: status(5_000, host="another"), None),
    "died": (lambda: status(pid=gone()), None),
    "stopped": (
        lambda: status(phase="ended", fault="PreemptedError: SIGTERM: stopped after update 5"),
        None,
    ),
    "failed": (lambda: status(phase="ended", fault="DivergedError: update 5"), None),
    "done": (lambda: status(phase="ended", update=10, steps=1_000), SUMMARY),
    "done early": (
        lambda: status(phase="ended"),
        SUMMARY | {"stop_reason": "control.patience: 8 evaluations"},
    ),
    "stopped by the clock": (
        lambda: status(phase="ended"),
        SUMMARY | {"stop_reason": "control.wall_clock: stopped"},
    ),
    "died at the end": (lambda: status(phase="ended"), None),
    "done, an old version": (lambda: None, SUMMARY),
    "unknown": (lambda: None, None),
}


@pytest.mark.parametrize("name", STATES)
def test_each_state_is_recognised(name, tmp_path):
    written, summary = STATES[name]
    own = written()
    make(tmp_path / "run", own, summary)
    [entry] = entries_in(tmp_path)
    assert entry.status == name.partition(",")[0].split()[0]
    assert (entry.task, entry.learner, entry.market) == (
        "manage" if own is None else "entry",
        "ppo",
        "ES",
    )
    assert (entry.fault is None) == (entry.status in ("running", "stalled", "done"))
    assert entry.early == (name == "done early")
    assert ("done, early" in "".join(lines([entry], "", None))) == entry.early


def test_steps_and_figures(tmp_path):
    make(tmp_path / "half", status(), None)
    make(tmp_path / "whole", status(phase="ended", update=10, steps=1_000), SUMMARY, net=100.0)
    make(tmp_path / "old", None, SUMMARY)
    seeds = make(tmp_path / "seeds", status(phase="ended"), SUMMARY) / "evaluation" / "test"
    seeds.mkdir(parents=True)
    (seeds / "seeds.json").write_text(
        json.dumps({"seeds": {str(n): evaluation(net) for n, net in enumerate((4.0, 8.0, 400.0))}})
    )
    inside = make(tmp_path / "in_sample", status(), None, net=7.0)
    (inside / "evaluation" / "test").rename(inside / "evaluation" / "train")
    found = {entry.name: entry for entry in entries_in(tmp_path)}
    assert (found["half"].steps, found["half"].total_steps, found["half"].net_per_day) == (
        500,
        1_000,
        None,
    )
    whole = found["whole"]
    assert (whole.net_per_day, whole.return_pct, whole.days, whole.split, whole.agents) == (
        25.0,
        0.2,
        4,
        "test",
        1,
    )
    assert (found["seeds"].net_per_day, found["seeds"].agents) == (2.0, 3)
    assert (found["old"].steps, found["old"].total_steps) == (1_000, 1_024)
    assert found["in_sample"].net_per_day is None, (
        "figures of the training sessions are none of a run's results"
    )
    assert whole.age is not None
    assert 0 <= whole.age < 60


@pytest.mark.parametrize(
    "broken", ["manifest.json", "summary.json", "status.json", "evaluation/test/evaluation.json"]
)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"agents": 3, "pid": [], "steps": "x"}']
)
def test_a_broken_folder_is_a_line_with_its_fault(broken, content, tmp_path, capsys):
    make(tmp_path / "good", status(), None)
    run = make(tmp_path / "bad", status(phase="ended"), SUMMARY, net=1.0)
    (run / broken).write_bytes(content)
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    found = {entry.name: entry for entry in entries_in(tmp_path)}
    assert found["good"].status == "running"
    if broken == "manifest.json" and content in (b"{}", STRANGE):
        assert found["bad"].status == "done", "an object; this list reads nothing in it"
        return
    assert found["bad"].status == "broken"
    assert f"bad: {found['bad'].fault}" in out
    assert str(run) in str(found["bad"].fault)


STRANGE = b'{"agents": 3, "pid": [], "steps": "x"}'


def test_folders_without_their_files(tmp_path):
    (tmp_path / "half" / "checkpoints").mkdir(parents=True)
    (tmp_path / "no run").mkdir()
    (tmp_path / ".hidden" / "checkpoints").mkdir(parents=True)
    (tmp_path / "trials.jsonl").write_text("")
    [entry] = entries_in(tmp_path)
    assert (entry.name, entry.status) == ("half", "broken")
    assert "no manifest.json" in str(entry.fault)
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        entries_in(tmp_path / "nowhere")


def test_parts_of_sweeps_and_curricula_are_runs(tmp_path):
    for part in ("sweep/group_0", "sweep/group_1", "course/phases/1-entry", "search/best"):
        make(tmp_path / part, status())
    for sweep in ("sweep", "search"):
        (tmp_path / sweep / "sweep.json").write_text("{}")
        (tmp_path / sweep / "config.yaml").write_text("")
    (tmp_path / "course" / "curriculum.yaml").write_text("")
    assert [entry.name for entry in entries_in(tmp_path)] == [
        "course/phases/1-entry",
        "search/best",
        "sweep/group_0",
        "sweep/group_1",
    ]
    assert [entry.name for entry in entries_in(tmp_path / "sweep" / "group_0")] == ["group_0"]


def test_a_walk_forward_is_listed_with_all_its_days(tmp_path):
    folder = tmp_path / "walk"
    folder.mkdir()
    (folder / "walkforward.json").write_text(json.dumps({"data_sha256": "d"}))
    assert entries_in(tmp_path)[0].status == "unknown"
    np.savez(
        folder / "daily.npz",
        date=np.arange(19_000, 19_006),
        fold=np.repeat([0, 1], 3),
        seeds=np.array([3, 4]),
        net=np.array([[1.0, 2, 3, 4, 5, 6], [3, 3, 3, 3, 3, 3]]),
        baselines=np.array(["flat"]),
        baseline_net=np.zeros((1, 6)),
    )
    [entry] = entries_in(tmp_path)
    assert (entry.status, entry.split, entry.days, entry.agents) == ("done", "walk-forward", 6, 2)
    assert entry.net_per_day == pytest.approx(3.25)


def test_the_order(tmp_path):
    make(tmp_path / "a", status(30), None, net=4.0)
    make(tmp_path / "b", status(10), SUMMARY, net=8.0)
    make(tmp_path / "c", status(20, phase="ended"), SUMMARY)
    entries = entries_in(tmp_path)

    def names(order, backwards=False):
        return [entry.name for entry in sort_entries(entries, order, backwards)]

    assert names("name") == ["a", "b", "c"]
    assert names("name", True) == ["c", "b", "a"]
    assert names("age") == ["b", "c", "a"]
    assert names("net") == ["b", "a", "c"]
    assert names("net", True) == ["a", "b", "c"], "what has no figure is last, backwards too"
    assert names("status") == ["a", "b", "c"]
    assert names("steps")[0] == "c"
    assert all(len(names(order)) == 3 for order in ORDERS)


def test_the_table_and_the_json(tmp_path, capsys):
    make(tmp_path / "one", status(phase="ended", update=10, steps=1_000), SUMMARY, net=100.0)
    make(tmp_path / "two", status(phase="ended", fault="DivergedError: update 5"), None)
    assert main(["runs", str(tmp_path), "--sort", "name"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "run",
        "status",
        "market",
        "learner",
        "task",
        "steps",
        "net/day",
        "($)",
        "days",
        "age",
    ]
    assert lines[1].split()[:9] == [
        "one",
        "done",
        "ES",
        "ppo",
        "entry",
        "1,000",
        "(100%)",
        "25.00",
        "4",
    ]
    assert lines[2].split()[:8] == ["two", "failed", "ES", "ppo", "entry", "500", "(50%)", "-"]
    assert lines[3:] == ["", "two: DivergedError: update 5"]
    assert main(["runs", str(tmp_path), "--json", "--sort", "name"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["net_per_day"], second["net_per_day"], second["status"]) == (25.0, None, "failed")
    (tmp_path / "none").mkdir()
    assert main(["runs", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'none'}: no runs\n"
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


def test_the_report_is_of_the_newest_evaluated_run(tmp_path):
    make(tmp_path / "evaluated", status(60, phase="ended"), SUMMARY, net=100.0)
    make(tmp_path / "later", status(30, phase="ended"), SUMMARY, net=100.0)
    make(tmp_path / "not_yet", status(1), None)
    assert find_newest(tmp_path) == tmp_path / "later"
    with pytest.raises(ConfigError, match="no run in it was evaluated"):
        find_newest(tmp_path / "later" / "evaluation")
