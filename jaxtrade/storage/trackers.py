"""Experiment trackers (`train.tracker`): what is written to wandb, trackio and mlflow, in a process
of its own.

    python -m jaxtrade.storage.trackers

reads JSON lines from its standard input: first a `Header`, then messages, each an object with
`update` and `values` (name -> number), and `event` (a line of text) where something happened. The
last one is `END`. Where the input ends without it, the run was killed.

A tracker is a process of its own because it may be slow, may hang, prints to standard output,
starts threads, and imports much; nothing of that may touch the run. `storage.tracker_sink` starts
the process and feeds it.

The step of a tracker cannot go back, and a run can. So the horizontal axis is the metric `update`,
and that the run went back is an event. Imports no heavy library, and no tracker before it is
needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jaxtrade.errors import ConfigError

PROJECT = "jaxtrade"
AXIS = "update"
END: Mapping[str, Any] = {"end": True}
ID_FILE = "tracker.json"  # in the run's folder: under which name the tracker knows the run
MOST = 1_000  # metrics that one call of MLflow may hold
# Where each tracker sends what it gets, if its variable is set; without one, only to files of this
# machine.
TARGETS: Mapping[str, tuple[str, ...]] = {
    "wandb": ("WANDB_MODE",),
    "trackio": ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"),
    "mlflow": ("MLFLOW_TRACKING_URI",),
}
QUIET = {
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
}  # reports about the tracker itself, which would go over the network


class Header(NamedTuple):
    """The first line. kind: the tracker. folder: the run's. online: whether it may use the network.
    resumed: whether the run goes on after a stop. config: the run's settings by name."""

    kind: str
    folder: str
    online: bool
    resumed: bool
    config: dict[str, Any]


class Tracker(Protocol):
    """One run in one tracker."""

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers of an update. Updates may come again after the run went back."""
        ...

    def event(self, text: str, update: int) -> None:
        """Log one line of text about the run."""
        ...

    def close(self, whole: bool) -> None:
        """Finish, so that everything is stored. whole: False if the run was killed."""
        ...


def check_tracker(
    kind: str,
    online: bool,
    env: Mapping[str, str] = os.environ,
    find: Callable[[str], object | None] = find_spec,
) -> None:
    """Check `train.tracker` before a run begins. find: tells whether a package is installed.

    Raises ConfigError if the package is absent, or `train.tracker_online` has no tracker or no
    place to send to.
    """
    if kind == "none":
        if online:
            raise ConfigError(
                "train.tracker_online=true: there is no tracker (train.tracker=none); set train.tracker, "
                "or leave train.tracker_online out"
            )
        return
    if find(kind) is None:
        raise ConfigError(
            f'train.tracker={kind}: {kind} is not installed: pip install "jaxtrade[{kind}]"; or set '
            "train.tracker=none: metrics.jsonl and TensorBoard's files need no package"
        )
    names = TARGETS[kind]
    if online and kind != "wandb" and not any(env.get(name) for name in names):
        raise ConfigError(
            f"train.tracker_online=true: set {' or '.join(names)}, so that {kind} knows where to send; "
            "or leave train.tracker_online out"
        )


def environment(kind: str, online: bool, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the tracker's process. Without `online`, and without a variable of the
    tracker that names a place, nothing is sent anywhere."""
    found = QUIET | dict(env)
    if any(found.get(name) for name in TARGETS[kind]):
        return found
    if kind == "wandb":
        found["WANDB_MODE"] = "online" if online else "offline"
    if kind == "trackio":
        found["HF_HUB_OFFLINE"] = "1"
    return found


class WandbTracker:
    """Weights & Biases. Offline, its files are in `wandb/` of the run's folder; `wandb sync` sends
    them later.
    """

    def __init__(self, header: Header, name: str) -> None:
        import wandb  # type: ignore[import-not-found]

        online = os.environ["WANDB_MODE"] == "online"
        settings = wandb.Settings(silent=True, console="off", save_code=False, disable_git=True)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=name.rpartition("-")[2],
            name=name,
            dir=header.folder,
            config=header.config,
            notes=header.folder,
            settings=settings,
            resume="allow" if header.resumed and online else None,
        )
        self._run.define_metric(AXIS)
        self._run.define_metric("*", step_metric=AXIS)

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._run.log({**values, AXIS: update})

    def event(self, text: str, update: int) -> None:
        self._run.log({"event": text, AXIS: update})

    def close(self, whole: bool) -> None:
        self._run.finish(exit_code=0 if whole else 1)


class TrackioTracker:
    """trackio. Its files are in its own folder (TRACKIO_DIR); `trackio show --project jaxtrade`
    shows them.
    """

    def __init__(self, header: Header, name: str) -> None:
        import trackio  # type: ignore[import-not-found]

        self._level = trackio.AlertLevel.INFO
        self._run: Any = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=name,
            config=header.config,
            embed=False,
            resume="allow" if header.resumed else "never",
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._run.log({**values, AXIS: update})

    def event(self, text: str, update: int) -> None:
        self._run.alert(f"update {update}", text, level=self._level)

    def close(self, whole: bool) -> None:
        if not whole:  # trackio has no state of its own for that
            self._run.alert(
                "killed",
                "the run was killed; metrics.jsonl may have later figures",
                level=self._level,
            )
        self._run.finish()


class MlflowTracker:
    """MLflow. Without MLFLOW_TRACKING_URI, the runs of a folder share the file `mlflow.db` beside
    them; `mlflow ui
    --backend-store-uri sqlite:///runs/mlflow.db` shows them. The step of a metric is its update."""

    def __init__(self, header: Header, name: str) -> None:
        from mlflow import MlflowClient  # type: ignore[import-not-found]
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found]

        self._metric, beside = Metric, Path(header.folder).parent
        self._client = client = MlflowClient(
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{beside}/mlflow.db"
        )
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = client.get_experiment_by_name(title)
        own = None if os.environ.get("MLFLOW_TRACKING_URI") else (beside / "mlruns").as_uri()
        experiment = (
            client.create_experiment(title, artifact_location=own)
            if found is None
            else found.experiment_id
        )
        known = client.search_runs([experiment], f"tags.`jaxtrade.run` = '{name}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            client.update_run(self._id, status="RUNNING")
        else:
            run = client.create_run(
                experiment,
                run_name=name,
                tags={"jaxtrade.run": name, "jaxtrade.folder": header.folder},
            )
            self._id = run.info.run_id
            items = [Param(key, str(value)[:6_000]) for key, value in header.config.items()]
            for first in range(0, len(items), 100):  # the most that one call may hold
                client.log_batch(self._id, params=items[first : first + 100])

    def log(self, values: Mapping[str, float], update: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, update) for name, value in values.items()]
        for first in range(0, len(metrics), MOST):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST])

    def event(self, text: str, update: int) -> None:
        self._client.set_tag(
            self._id, f"event.{int(1000 * time.time())}", f"update {update}: {text}"
        )

    def close(self, whole: bool) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if whole else "KILLED")


MAKERS: Mapping[str, Callable[[Header, str], Tracker]] = {
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
    "mlflow": MlflowTracker,
}


def run_name(header: Header) -> str:
    """Under which name the tracker knows the run: that of its folder and a random part, kept in the
    run's folder.
    """
    path = Path(header.folder) / ID_FILE
    if header.resumed and path.is_file():
        return str(json.loads(path.read_text(encoding="utf-8"))["name"])
    name = f"{Path(header.folder).name}-{os.urandom(4).hex()}"
    path.write_text(json.dumps({"name": name}) + "\n", encoding="utf-8")
    return name


def serve(lines: Any) -> None:
    """Feed the tracker that the first line names with the others, then close it."""
    header = Header(**json.loads(next(lines)))
    tracker = MAKERS[header.kind](header, run_name(header))
    if header.resumed:
        tracker.event(
            "the run goes on after a stop; later figures replace those of the same updates", 0
        )
    whole = False
    for line in lines:
        if not line.endswith("\n"):  # the run was killed while it wrote
            break
        message = json.loads(line)
        if whole := message == END:
            break
        if "event" in message:
            tracker.event(message["event"], message[AXIS])
        if message["values"]:
            tracker.log(message["values"], message[AXIS])
    tracker.close(whole)


if __name__ == "__main__":
    serve(sys.stdin)
