"""The episode monitor in whole runs: the same policy with it and without it, kills, rollbacks, lost
rows, Python.
"""

from functools import partial

import pytest

import jaxtrade as jt
from jaxtrade.cli import main
from jaxtrade.config import load_config
from jaxtrade.config.faults import migrate
from jaxtrade.runs.rundir import read_run
from jaxtrade.runs.setup import rows_of, warn_of_lost_episodes
from jaxtrade.storage import monitor
from jaxtrade.storage.archives import read_arrays
from jaxtrade.storage.sinks import read_rows
from tests.children import sets
from tests.messages import missing, refused
from tests.reading import OLD, read_json
from tests.reference_runs.runs import TINY
from tests.test_monitor_file import FullDisk

SETTINGS = (*TINY, "env.task=entry", "episode.max_steps=40", "monitor.on=true")


def files_of(folder):
    """Parameters of every checkpoint, evaluations and trades."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "state.npz":
            arrays = read_arrays(path)
            found[path.parent] = [
                arrays[name].tobytes() for name in sorted(arrays) if name.startswith("params/")
            ]
        elif path.name == "evaluation.json":
            found[path] = read_json(path)["agents"]
        elif path.name == "trades.csv":
            found[path] = path.read_bytes()
    return {path.relative_to(folder): content for path, content in found.items()}


def trained(path, *settings):
    return jt.run("quickstart", path, set=[*SETTINGS, *settings])


def content(path):
    """The rows without their times."""
    return jt.open_run(path).episodes.drop(columns="t")


# ---- without a run


def test_an_old_run_has_no_monitor():
    """A run folder without the section was trained without it; one that has the section keeps what
    it says.
    """
    assert migrate({"seed": 1})["monitor"] == {"on": False}
    assert migrate({"monitor": {"on": True}})["monitor"] == {"on": True}
    assert not read_run(OLD)[0].monitor.on
    assert load_config("quickstart").monitor.on


@pytest.mark.parametrize(
    ("settings", "rows"),
    [([], 64), (["rollout.num_steps=8"], 16), (["monitor.rows=5"], 5), (["monitor.csv=false"], 0)],
)
def test_room_for_rows(settings, rows):
    assert (
        rows_of(
            load_config("quickstart", ["rollout.num_envs=8", "rollout.num_steps=64", *settings])
        )
        == rows
    )


@pytest.mark.parametrize("value", ["0", "many", "2.5"])
def test_room_that_cannot_be(value):
    with refused("monitor.rows"):
        load_config("quickstart", [f"monitor.rows={value}"])


def test_lost_rows_are_told_once_they_are_lost():
    assert warn_of_lost_episodes([{"update": 1, "monitor/lost": 0}, {"update": 2}]) == ""
    text = warn_of_lost_episodes(
        [{"update": 1, "monitor/lost": 0}, {"update": 2, "monitor/lost": 1200}, {"update": 3}]
    )
    assert not missing(text, "1,200 episodes", "update 2", "monitor.csv", "raise it")


# ---- whole runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("monitored") / "run"
    trained(path)
    return path


@pytest.mark.slow
def test_the_policy_learns_the_same_with_it_and_without_it(run, tmp_path):
    """Bit by bit: parameters at every checkpoint and of the best state, evaluation and trades. Only
    the environments' statistics differ, which a checkpoint holds too."""
    off = tmp_path / "off"
    trained(off, "monitor.on=false")
    assert len(files_of(run)) > 3
    assert files_of(run) == files_of(off)
    assert not (off / "monitor.csv").exists()
    assert not [
        name
        for row in read_rows(off / "metrics.jsonl")
        for name in row
        if name.startswith("monitor")
    ]
    with refused("monitor.csv: ", "monitor.on"):
        _ = jt.open_run(off).episodes


@pytest.mark.slow
def test_the_rows_from_python(run):
    frame = jt.open_run(run).episodes
    rows = read_rows(run / "metrics.jsonl")
    assert len(frame) == sum(row["episodes"] for row in rows) > 20
    assert all(row["monitor/lost"] == 0 for row in rows)
    assert frame["t"].is_monotonic_increasing
    assert set(frame["symbol"]) == {"ES"}
    assert frame["l"].dtype == "int64"


@pytest.mark.slow
def test_lost_rows_are_reported_and_means_miss_nothing(tmp_path):
    path = tmp_path / "run"
    trained(path, "monitor.rows=1", "train.total_timesteps=1024")
    rows, log = read_rows(path / "metrics.jsonl"), (path / "run.log").read_text()
    assert all(row["monitor/lost"] == max(row["episodes"] - 1, 0) for row in rows)
    assert len(jt.open_run(path).episodes) == sum(row["episodes"] > 0 for row in rows)
    assert log.count("no row in monitor") == 1
    for row in rows:
        if row["episodes"]:
            assert row["monitor/return"] == pytest.approx(row["episode_reward"], rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_74_and_the_run_can_go_on(run, tmp_path, monkeypatch, capsys):
    def full(path, mode):
        """Half of the rows fit."""
        file = FullDisk(path, mode.replace("b", ""))
        file.left = (run / "monitor.csv").stat().st_size // 2
        return file

    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        sink = partial(monitor.MonitorSink, opened=full)
        patched.setattr("jaxtrade.runs.setup.MonitorSink", sink)
        assert main(["train", "quickstart", "--run-dir", str(path), *sets(*SETTINGS)]) == 74
    assert "monitor.csv: the episodes" in capsys.readouterr().err
    whole, kept = content(run), content(path)
    assert 0 < len(kept) < len(whole)
    assert kept.equals(whole.iloc[: len(kept)])
    assert main(["train", "--resume", str(path)]) in (0, 1)
    assert content(path).equals(whole)
