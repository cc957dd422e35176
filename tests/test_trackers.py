"""Trackers: what is refused before a run, what a run does without its tracker, and what the real
ones store.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError
from jaxtrade.runs.preflight import check_names
from jaxtrade.storage import trackers
from jaxtrade.storage.tracker_sink import LOG, ROOM, TrackerSink
from jaxtrade.storage.trackers import END, Header, check_tracker, environment, run_name, serve

KINDS = ("wandb", "trackio", "mlflow")
TINY = [
    word
    for key in (
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
    for word in ("--set", key)
]


def absent(name: str) -> None:
    return None


def row(update: int, **values: Any) -> dict[str, Any]:
    return {"update": update, "steps": 32 * update, "total_updates": 4, "seconds": 1.0, **values}


# --- before a run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named_with_what_to_install(kind: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"train\.tracker={kind}: {kind} is not installed: pip install "
        rf'"jaxtrade\[{kind}\]"',
    ):
        check_tracker(kind, False, {}, absent)
    check_tracker("none", False, {}, absent)


def test_online_needs_a_tracker_and_a_place() -> None:
    with pytest.raises(ConfigError, match="there is no tracker"):
        check_names(make_config({"train": {"tracker_online": True}}))
    for kind, name in (("trackio", "TRACKIO_SPACE_ID"), ("mlflow", "MLFLOW_TRACKING_URI")):
        with pytest.raises(ConfigError, match=name):
            check_tracker(kind, True, {}, bool)
        check_tracker(kind, True, {name: "somewhere"}, bool)
    check_tracker("wandb", True, {}, bool)


def test_nothing_is_sent_unless_the_user_says_so() -> None:
    assert environment("wandb", False, {})["WANDB_MODE"] == "offline"
    assert environment("wandb", True, {})["WANDB_MODE"] == "online"
    assert environment("wandb", False, {"WANDB_MODE": "online"})["WANDB_MODE"] == "online"
    assert environment("wandb", True, {"WANDB_MODE": "offline"})["WANDB_MODE"] == "offline"
    for kind in KINDS:
        found = environment(kind, False, {"HOME": "/home/me"})
        assert found["HOME"] == "/home/me"
        assert found["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert found["WANDB_ERROR_REPORTING"] == "false"
    assert (
        environment("mlflow", False, {"MLFLOW_DISABLE_TELEMETRY": "false"})[
            "MLFLOW_DISABLE_TELEMETRY"
        ]
        == "false"
    )


def test_a_resumed_run_keeps_its_name(tmp_path: Path) -> None:
    new = Header("wandb", str(tmp_path), False, False, {})
    name = run_name(new)
    assert name.startswith(f"{tmp_path.name}-")
    assert run_name(new._replace(resumed=True)) == name
    assert run_name(new) != name


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self, header: Header, name: str) -> None:
        self.got: list[Any] = [name]

    def log(self, values: Any, update: int) -> None:
        self.got.append((update, dict(values)))

    def event(self, text: str, update: int) -> None:
        self.got.append((update, text))

    def close(self, whole: bool) -> None:
        self.got.append(("closed", whole))


def test_a_killed_run_leaves_a_tracker_that_closes_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Recorder] = []
    monkeypatch.setattr(
        trackers, "MAKERS", {"wandb": lambda *args: made.append(Recorder(*args)) or made[0]}
    )
    header = json.dumps(Header("wandb", str(tmp_path), False, True, {})._asdict()) + "\n"
    whole = json.dumps({"update": 1, "values": {"train/loss": 0.5}}) + "\n"
    back = json.dumps({"update": 0, "values": {}, "event": "back"}) + "\n"
    serve(iter([header, whole, back, whole[:20]]))  # a killed process may leave a part of a line
    [recorder] = made
    name, resumed, *others = recorder.got
    assert name == json.loads((tmp_path / "tracker.json").read_text())["name"]
    assert "goes on after a stop" in resumed[1]
    assert others == [(1, {"train/loss": 0.5}), (0, "back"), ("closed", False)]
    for lines, ended in (([header, whole], False), ([header, whole, json.dumps(END) + "\n"], True)):
        made.clear()
        serve(iter(lines))
        assert made[0].got[-1] == ("closed", ended)


# --- a run without its tracker ---------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package `wandb` of some text, which the tracker's process finds before any other."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    return lambda text: (folder / "wandb.py").write_text(text) and None


def sink_of(folder: Path, kind: str = "wandb", **others: Any) -> tuple[TrackerSink, list[str]]:
    folder.mkdir(exist_ok=True)
    told: list[str] = []
    return TrackerSink(
        Header(kind, str(folder), False, False, {"seed": 1}), told.append, **others
    ), told


def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(
    package: Callable[[str], None], tmp_path: Path
) -> None:
    package("raise ImportError('libwandb.so.7 is not here')")
    sink, told = sink_of(tmp_path / "run")
    for update in range(200):
        sink.write([row(update)])
        time.sleep(0.05)
        if told:
            break
    sink.write([row(201)])
    sink.rewind(3, 96)
    sink.figures({"eval/score": 1.0}, 32)
    sink.close()
    assert len(told) == 1
    assert (
        "train.tracker=wandb: the tracker failed (ImportError: libwandb.so.7 is not here)"
        in told[0]
    )
    assert str(tmp_path / "run" / LOG) in told[0]


def test_a_tracker_that_hangs_costs_a_few_seconds_at_the_end(
    package: Callable[[str], None], tmp_path: Path
) -> None:
    package("import time\ntime.sleep(3600)")
    sink, told = sink_of(tmp_path / "run", patience=1.0)
    begun = time.monotonic()
    sink.write([row(update, loss=0.5) for update in range(100)])
    assert not told
    sink.close()
    assert time.monotonic() - begun < 30
    assert len(told) == 1
    assert "did not finish within 1 s" in told[0]
    sink.close()
    assert len(told) == 1


def test_a_tracker_that_falls_behind_is_given_up(
    package: Callable[[str], None], tmp_path: Path
) -> None:
    package("import time\ntime.sleep(3600)")
    sink, told = sink_of(tmp_path / "run", patience=60.0)
    many = {f"metric_{i}": 0.5 for i in range(100)}
    sink.write([row(update, **many) for update in range(2 * ROOM)])
    assert len(told) == 1
    assert f"is {ROOM:,} messages behind" in told[0]
    sink.close()
    assert len(told) == 1


@pytest.mark.slow
def test_a_run_whose_tracker_fails_ends_as_without_one(
    package: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package("raise ImportError('broken')")
    plain, tracked = tmp_path / "plain", tmp_path / "tracked"
    codes = [
        main(["train", "--run-dir", str(path), *TINY, "--set", f"train.tracker={kind}"])
        for path, kind in ((plain, "none"), (tracked, "wandb"))
    ]
    assert codes[0] == codes[1]
    log = (tracked / "run.log").read_text()
    assert log.count("the tracker failed") == 1
    assert capsys.readouterr().err.count("the tracker failed") == 1
    for name in ("policy/policy.npz", "evaluation/test/trades.csv"):
        assert (plain / name).read_bytes() == (tracked / name).read_bytes()


# --- the real packages -----------------------------------------------------------------------------------------------

# Records where Python opens connections, in the tracker's process; wandb's own server is reached on
# this machine.
WATCHER = """
import os, sys
def hook(name, args):
    if name == "socket.connect" and not isinstance(args[1], (str, bytes)):
        with open({file!r}, "a") as out:
            out.write(f"{{args[1][0]}}\\n")
sys.addaudithook(hook)
open({file!r}, "a").close()
"""
LOCAL = {"127.0.0.1", "::1", "localhost"}


def real(kind: str) -> None:
    """Skip unless the package of a tracker is installed."""
    if find_spec(kind) is None:
        pytest.skip(f'{kind} is not installed: pip install -e ".[trackers]" (docs/checks.md)')


def wandb_history(folder: Path) -> list[dict[str, Any]]:
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


def trackio_history(folder: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(os.environ["TRACKIO_DIR"] + "/jaxtrade.db") as database:
        rows = [
            json.loads(text)
            for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")
        ]
        return rows + [{"event": text} for (text,) in database.execute("SELECT text FROM alerts")]


def mlflow_run(folder: Path) -> tuple[Any, Any]:
    """(client, the only run of the folder's database)."""
    from mlflow import MlflowClient  # type: ignore[import-not-found]

    client = MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    experiment = client.get_experiment_by_name("jaxtrade")
    [run] = client.search_runs([experiment.experiment_id])
    return client, run


def mlflow_history(folder: Path) -> list[dict[str, Any]]:
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


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the hosts that the tracker's process connects to."""
    folder, hosts = tmp_path / "watcher", tmp_path / "hosts.txt"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCHER.format(file=str(hosts)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for name in ("WANDB_MODE", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return hosts


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_real_tracker_stores_rows_rollbacks_and_figures_on_this_machine(
    kind: str, watched: Path, tmp_path: Path
) -> None:
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
    assert not told, (folder / LOG).read_text()
    found = HISTORIES[kind](folder)
    losses = [(each["update"], each["train/loss"]) for each in found if "train/loss" in each]
    assert losses == [(1, 0.5), (3, 0.125), (3, 0.25)]
    assert [
        each["rollout/action_share/BUY"] for each in found if "rollout/action_share/BUY" in each
    ] == [0.75]
    assert [
        each["eval/test/greedy/net_profit"]
        for each in found
        if "eval/test/greedy/net_profit" in each
    ] == [-12.5]
    assert [each["event/back_to_update"] for each in found if "event/back_to_update" in each] == [
        2.0
    ]
    assert any("went back to update 2 (64 steps)" in each.get("event", "") for each in found)
    assert set(watched.read_text().split()) <= LOCAL


@pytest.mark.slow
def test_a_run_and_its_continuation_are_one_run_of_mlflow(watched: Path, tmp_path: Path) -> None:
    real("mlflow")
    path = tmp_path / "runs" / "one"
    said = ["--set", "train.tracker=mlflow", "--quiet"]
    assert main(["train", "--run-dir", str(path), *TINY, *said]) in (0, 1)
    _, run = mlflow_run(path)
    assert run.info.status == "FINISHED"
    assert run.data.tags["jaxtrade.folder"] == str(path)
    assert run.data.params["rollout.num_envs"] == "4"
    profit = json.loads((path / "evaluation/test/evaluation.json").read_text())["agents"]["greedy"][
        "strategy"
    ]
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
    assert set(watched.read_text().split()) <= LOCAL
