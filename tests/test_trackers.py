"""Trackers: what is refused before a run, what a run does without its tracker, and what the real
ones store.
"""

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from importlib.util import find_spec

import pytest

from jaxtrade import interrupt
from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.runs.plan import check_names
from jaxtrade.storage import trackers
from jaxtrade.storage.trackers import ROOM, TrackedRun, TrackerSink, check_tracker, run_name
from tests.children import run_python, sets
from tests.messages import refused
from tests.reading import read_json

KINDS = ("wandb", "trackio", "mlflow")
TINY = sets(
    "rollout.num_envs=4",
    "rollout.num_steps=8",
    "rollout.num_shards=1",
    "ppo.num_minibatches=1",
    "network.hidden=[8]",
    "train.total_timesteps=128",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "evaluation.policy_samples=1",
)


def absent(name):
    return None


def row(update, **values):
    return {"update": update, "steps": 32 * update, "total_updates": 4, "seconds": 1.0, **values}


# --- before a run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named_with_what_to_install(kind):
    with refused(f"tracker={kind}: ", f"jaxtrade[{kind}]"):
        check_tracker(kind, False, {}, absent)
    check_tracker("none", False, {}, absent)


def test_online_needs_a_tracker_and_a_place():
    with refused("tracker_online"):
        check_names(make_config({"train": {"tracker_online": True}}))
    for kind, name in (("trackio", "TRACKIO_SPACE_ID"), ("mlflow", "MLFLOW_TRACKING_URI")):
        with refused(name):
            check_tracker(kind, True, {}, bool)
        check_tracker(kind, True, {name: "somewhere"}, bool)
    check_tracker("wandb", True, {}, bool)


def test_a_resumed_run_keeps_its_name(tmp_path):
    name = run_name(tmp_path, False)
    assert name.startswith(f"{tmp_path.name}-")
    assert run_name(tmp_path, True) == name
    assert run_name(tmp_path, False) != name


# --- what a tracker gets ---------------------------------------------------------------------------------------------


def sink_of(folder, kind="wandb", resumed=False, online=False, **others):
    folder.mkdir(exist_ok=True)
    told = []
    about = TrackedRun(folder, run_name(folder, resumed), resumed, online, {"seed": 1})
    return TrackerSink(kind, about, told.append, **others), told


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self, about):
        self.got = [about.name]

    def log(self, rows):
        self.got += rows

    def event(self, text, update):
        self.got.append((update, text))

    def close(self):
        self.got.append("closed")


def test_rows_events_and_figures_come_in_order(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        trackers, "MAKERS", {"wandb": lambda about: made.append(Recorder(about)) or made[0]}
    )
    sink, told = sink_of(tmp_path, resumed=True)
    sink.write([row(1, loss=0.5), row(2, loss=float("nan"))])
    sink.rewind(1, 32)
    sink.figures({"eval/score": 1.0}, 32)
    sink.close()
    assert not told
    name, (at, resumed), first, second, (back, text), *others = made[0].got
    assert name == read_json(tmp_path / "tracker.json")["name"]
    assert (at, back) == (0, 1)
    assert "goes on after a stop" in resumed
    assert "update 1 (32 steps)" in text
    assert first == (1, {"train/loss": 0.5, "time/seconds": 1.0, "steps": 32.0})
    assert "train/loss" not in second[1]
    assert others == [
        (1, {"event/back_to_update": 1.0}),
        (1, {"eval/score": 1.0, "steps": 32.0}),
        "closed",
    ]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a package `wandb` of some text, which is found before any other."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(interrupt._STATE, "abandoned", False)

    def write(text):
        (folder / "wandb.py").write_text(FAKE + text)
        monkeypatch.delitem(sys.modules, "wandb", raising=False)

    yield write  # type: ignore[misc]
    for thread in threading.enumerate():
        if thread.name == trackers.THREAD:  # one that hangs in its import holds the module's lock
            thread.join(3)
    sys.modules.pop("wandb", None)


# A `wandb` that does nothing, and that each test breaks in its own way.
FAKE = """
import atexit, os, signal, sys, threading, time
class Settings:
    def __init__(self, **keys): pass
class Run:
    def define_metric(self, *names, **others): pass
    def log(self, values): pass
    def finish(self): pass
def init(**keys):
    global given
    given = keys
    return Run()
"""


@pytest.mark.parametrize(
    ("variable", "online", "mode"),
    [(None, False, "offline"), (None, True, "online"), ("offline", True, "offline")],
)
def test_nothing_is_sent_unless_the_user_says_so(
    variable, online, mode, package, tmp_path, monkeypatch
):
    package("")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    for name in trackers.QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")  # the user's own word counts
    sink, told = sink_of(tmp_path / "run", online=online)
    sink.close()
    assert not told
    assert sys.modules["wandb"].given["mode"] == mode
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"


# --- a run without its tracker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('broken')",
        "def init(**keys): raise ImportError('broken')",
        "def log(self, values): raise ImportError('broken')\nRun.log = log",
        "def finish(self): raise ImportError('broken')\nRun.finish = finish",
        "def init(**keys): sys.exit(ImportError('broken'))",
    ],
    ids=["import", "init", "log", "finish", "exit"],
)
def test_a_tracker_that_raises_costs_one_line(text, package, tmp_path):
    package(text)
    sink, told = sink_of(tmp_path / "run")
    for update in range(20):
        sink.write([row(update)])
        time.sleep(0.01)
    sink.rewind(3, 96)
    sink.figures({"eval/score": 1.0}, 32)
    sink.close()
    sink.close()
    [line] = told
    assert "train.tracker=wandb" in line
    assert "broken" in line


@pytest.mark.parametrize(
    "text",
    [
        "time.sleep(0.5)",
        "def init(**keys): time.sleep(0.5)",
        "def log(self, values): time.sleep(0.5)\nRun.log = log",
        "def finish(self): time.sleep(0.5)\nRun.finish = finish",
    ],
    ids=["import", "init", "log", "finish"],
)
def test_a_tracker_that_hangs_costs_one_line_and_its_patience(text, package, tmp_path):
    package(text)
    sink, told = sink_of(tmp_path / "run", patience=0.1)
    sink.write([row(1, loss=0.5)])
    assert not told
    sink.close()
    sink.close()
    [line] = told
    assert "0.1 s" in line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tracker_that_replaces_a_signal_handler_costs_one_line(number, package, tmp_path):
    package(f"signal.signal({int(number)}, lambda *_: None)")
    before = signal.getsignal(number)
    sink, told = sink_of(tmp_path / "run")
    sink.close()
    assert signal.getsignal(number) is before
    [line] = told
    assert "signal" in line


def test_a_tracker_that_falls_behind_is_given_up(package, tmp_path):
    package("time.sleep(1)")
    sink, told = sink_of(tmp_path / "run", patience=60.0)
    for update in range(2 * ROOM):
        sink.write([row(update)])
    [line] = told
    assert f"{ROOM:,} messages" in line
    sink.close()
    assert len(told) == 1


def test_the_line_has_no_key(package, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "abc123def456")
    package(
        "raise ValueError('no access with ' + os.environ['WANDB_API_KEY'] + ' to https://me:pass@host/x')"
    )
    sink, told = sink_of(tmp_path / "run")
    sink.close()
    [line] = told
    assert "with $WANDB_API_KEY to https://host/x" in line


def train(path, kind):
    """A tiny run in a process of its own."""
    words = ["train", "--run-dir", str(path), *TINY, "--set", f"train.tracker={kind}"]
    return run_python("-m", "jaxtrade", *words, timeout=600)


@pytest.mark.slow
def test_a_run_whose_tracker_hangs_ends_as_without_one(package, tmp_path):
    """It would hang the end of the process too."""
    package(
        "atexit.register(time.sleep, 3600)\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "def finish(self): time.sleep(3600)\nRun.finish = finish"
    )
    plain, tracked = tmp_path / "plain", tmp_path / "tracked"
    first, second = train(plain, "none"), train(tracked, "wandb")
    assert first.returncode == second.returncode
    assert (tracked / "run.log").read_text().count("the tracker") == 1
    assert second.stderr.count("the tracker") == 1
    for name in ("policy/policy.npz", "evaluation/test/trades.csv"):
        assert (plain / name).read_bytes() == (tracked / name).read_bytes()


# --- the real packages -----------------------------------------------------------------------------------------------

LOCAL = {"127.0.0.1", "::1", "localhost"}  # wandb's own server is reached on this machine
HOSTS = set()  # where Python opened connections
SECRET = "sk-a-key-that-no-file-may-hold"


def hook(name, arguments):
    if name == "socket.connect" and not isinstance(arguments[1], str | bytes):
        HOSTS.add(str(arguments[1][0]))


def real(kind):
    """Skip unless the package of a tracker is installed."""
    if find_spec(kind) is None:
        pytest.skip(f'{kind} is not installed: pip install -e ".[trackers]" (docs/checks.md)')


def wandb_history(folder):
    """The history of an offline run: a log of records in blocks of 32 KiB, each with checksum,
    length and type.
    """
    from wandb.proto import wandb_internal_pb2  # type: ignore[import-not-found]

    data = next(folder.glob("wandb/offline-run-*/run-*.wandb")).read_bytes()
    place, part, found = 7, b"", []
    while place + 7 <= len(data):
        if (left := -place % 32_768) < 7 and left:
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        part, place = part + data[place + 7 : place + 7 + size], place + 7 + size
        if kind in (1, 4):  # whole, or the last part of a record
            record = wandb_internal_pb2.Record.FromString(part)
            part = b""
            if record.WhichOneof("record_type") == "history":
                found.append(
                    {
                        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                        for item in record.history.item
                    }
                )
    return found


def trackio_history(folder):
    with sqlite3.connect(os.environ["TRACKIO_DIR"] + "/jaxtrade.db") as database:
        rows = [
            json.loads(text)
            for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")
        ]
        return rows + [{"event": text} for (text,) in database.execute("SELECT text FROM alerts")]


def mlflow_run(folder):
    """(client, the only run of the folder's database)."""
    from mlflow import MlflowClient  # type: ignore[import-not-found]

    client = MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    experiment = client.get_experiment_by_name("jaxtrade")
    [run] = client.search_runs([experiment.experiment_id])
    return client, run


def mlflow_history(folder):
    client, run = mlflow_run(folder)
    rows = [
        {name: each.value, "update": each.step}
        for name in run.data.metrics
        for each in client.get_metric_history(run.info.run_id, name)
    ]
    return rows + [
        {"event": text} for name, text in run.data.tags.items() if name.startswith("event.")
    ]


HISTORIES = {"wandb": wandb_history, "trackio": trackio_history, "mlflow": mlflow_history}


@pytest.fixture(scope="module")
def hooked():
    sys.addaudithook(hook)  # nothing can take it away again


@pytest.fixture
def watched(hooked, tmp_path, monkeypatch):
    """The hosts that this process connects to."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    for name in ("WANDB_MODE", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    HOSTS.clear()
    return HOSTS


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_real_tracker_stores_rows_rollbacks_and_figures_on_this_machine(
    kind, watched, tmp_path, capfd
):
    real(kind)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    sink, told = sink_of(folder, kind, names={"action_share": ["HOLD", "BUY"]}, patience=120.0)
    sink.write(
        [row(1, loss=0.5, action_share=[0.25, 0.75]), row(2, loss=float("nan")), row(3, loss=0.125)]
    )
    sink.rewind(2, 64)
    sink.write([row(3, loss=0.25)])
    sink.figures({"eval/test/greedy/net_profit": -12.5}, 96)
    sink.close()
    assert not told
    assert capfd.readouterr() == ("", ""), "the console is the run's"
    found = HISTORIES[kind](folder)

    def of(name):
        return [each[name] for each in found if name in each]

    losses = [(each["update"], each["train/loss"]) for each in found if "train/loss" in each]
    assert losses == [(1, 0.5), (3, 0.125), (3, 0.25)]
    assert of("rollout/action_share/BUY") == [0.75]
    assert of("eval/test/greedy/net_profit") == [-12.5]
    assert of("event/back_to_update") == [2.0]
    assert any("update 2 (64 steps)" in each.get("event", "") for each in found)
    assert watched <= LOCAL
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.slow
def test_a_run_and_its_continuation_are_one_run_of_mlflow(watched, tmp_path):
    real("mlflow")
    path = tmp_path / "runs" / "one"
    said = ["--set", "train.tracker=mlflow", "--quiet"]
    assert main(["train", "--run-dir", str(path), *TINY, *said]) in (0, 1)
    _, run = mlflow_run(path)
    assert run.info.status == "FINISHED"
    assert run.data.tags["jaxtrade.folder"] == str(path)
    assert run.data.params["rollout.num_envs"] == "4"
    profit = read_json(path / "evaluation/test/evaluation.json")["agents"]["greedy"]["strategy"]
    assert run.data.metrics["eval/test/greedy/net_profit"] == profit["net_profit"]
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    found = {
        each["update"]: each["train/approx_kl"]
        for each in mlflow_history(path)
        if "train/approx_kl" in each
    }
    assert found == {each["update"]: each["approx_kl"] for each in rows}
    assert main(["train", "--resume", str(path), "--quiet"]) in (0, 1)
    _, again = mlflow_run(path)  # still a single one
    assert again.info.run_id == run.info.run_id
    assert any("goes on after a stop" in text for text in again.data.tags.values())
    assert "the tracker" not in (path / "run.log").read_text()
    assert watched <= LOCAL
