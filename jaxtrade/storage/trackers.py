"""Experiment trackers (`train.tracker`): a sink that feeds wandb, trackio or MLflow in a thread.

A tracker may be slow, may hang, raises and imports much, so nothing of the run waits for it: rows
go into a bounded queue, and a daemon thread imports the package and writes to it. If the tracker
fails, hangs or falls too far behind, the run says so once and goes on without it. Outside the main
thread Python lets nobody replace a signal handler.

The step of a tracker cannot go back, and a run can. So the horizontal axis is the metric `update`,
and that the run went back is an event. Imports no heavy library, and no tracker before it is
needed.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError
from jaxtrade.storage.sinks import (
    NO_FIGURES,
    UNNAMED,
    MetricSink,
    Names,
    metrics_of,
    scalars_of,
)
from jaxtrade.text import WARNING, Log

if TYPE_CHECKING:
    from jaxtrade.types import Row

PROJECT = "jaxtrade"
THREAD = "jaxtrade-tracker"
AXIS = "update"
ID_FILE = "tracker.json"  # in the run's folder: under which name the tracker knows the run
MOST = 1_000  # metrics that one call of MLflow may hold
PATIENCE = 5.0  # seconds that a finished run waits for its tracker
ROOM = 1_000  # messages that may wait
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
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
}  # no reports about the tracker itself, which would go over the network, and no lines on the console
_SECRET = re.compile("KEY|TOKEN|PASSWORD|SECRET")  # in the name of a variable
Values = Mapping[str, float]


def check_tracker(
    kind: str,
    online: bool,
    env: Mapping[str, str] = os.environ,
    find: Callable[[str], object | None] = find_spec,
) -> None:
    """Check `train.tracker` before a run begins.

    find: says whether a package is installed.
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
    if not find(kind):
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


class TrackedRun(NamedTuple):
    """A run, for its tracker.

    folder: the run's.
    name: under which the tracker knows it.
    resumed: whether it goes on after a stop.
    online: whether the tracker may use the network.
    config: the settings by name.
    """

    folder: Path
    name: str
    resumed: bool
    online: bool
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One run in one tracker."""

    def log(self, rows: Sequence[tuple[int, Values]]) -> None:
        """Log (update, numbers by name). Updates may come again after a rollback."""
        ...

    def event(self, text: str, update: int) -> None:
        """Log one line of text about the run."""
        ...

    def close(self) -> None:
        """Finish, so that everything is stored."""
        ...


class _OneRun:
    """A tracker whose package holds the run as an object."""

    _run: Any

    def log(self, rows: Sequence[tuple[int, Values]]) -> None:
        for update, values in rows:
            self._run.log({**values, AXIS: update})

    def close(self) -> None:
        self._run.finish()


class WandbTracker(_OneRun):
    """Weights & Biases.

    Offline, its files are in `wandb/` of the run's folder; `wandb sync` sends them later.
    """

    def __init__(self, about: TrackedRun) -> None:
        import wandb  # type: ignore[import-not-found]

        mode = os.environ.get("WANDB_MODE") or ("online" if about.online else "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=about.name.rpartition("-")[2],
            name=about.name,
            dir=str(about.folder),
            config=dict(about.config),
            notes=str(about.folder),
            mode=mode,
            reinit="create_new",  # the process may have a run of its own
            settings=wandb.Settings(
                silent=True,
                console="off",
                save_code=False,
                disable_git=True,
                stop_fn=lambda: None,  # its default interrupts this process
            ),
            resume="allow" if about.resumed and mode == "online" else None,
        )
        self._run.define_metric(AXIS)
        self._run.define_metric("*", step_metric=AXIS)

    def event(self, text: str, update: int) -> None:
        self._run.log({"event": text, AXIS: update})


class TrackioTracker(_OneRun):
    """trackio.

    Its files are in its own folder (TRACKIO_DIR); `trackio show --project jaxtrade` shows them.
    """

    def __init__(self, about: TrackedRun) -> None:
        import trackio  # type: ignore[import-not-found]

        for name, module in list(sys.modules.items()):  # the console is the run's
            if name.partition(".")[0] == "trackio":
                vars(module)["print"] = lambda *_, **__: None
        self._level = trackio.AlertLevel.INFO
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=about.name,
            config=dict(about.config),
            embed=False,
            resume="allow" if about.resumed else "never",
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def event(self, text: str, update: int) -> None:
        self._run.alert(f"update {update}", text, level=self._level)


class MlflowTracker:
    """MLflow. The step of a metric is its update.

    Without MLFLOW_TRACKING_URI, the runs of a folder share the file `mlflow.db` beside them;
    `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db` shows them.
    """

    def __init__(self, about: TrackedRun) -> None:
        from mlflow import MlflowClient  # type: ignore[import-not-found]
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found]

        place, beside = os.environ.get("MLFLOW_TRACKING_URI"), about.folder.parent
        self._metric = Metric
        self._client = client = MlflowClient(place or f"sqlite:///{beside}/mlflow.db")
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        own = None if place else (beside / "mlruns").as_uri()
        known = client.get_experiment_by_name(title)
        experiment = known.experiment_id if known else client.create_experiment(title, own)
        runs = client.search_runs([experiment], f"tags.`jaxtrade.run` = '{about.name}'")
        if runs:
            self._id = runs[0].info.run_id
            client.update_run(self._id, status="RUNNING")
            return
        tags = {"jaxtrade.run": about.name, "jaxtrade.folder": str(about.folder)}
        run = client.create_run(experiment, run_name=about.name, tags=tags)
        self._id = run.info.run_id
        items = [Param(key, str(value)[:6_000]) for key, value in about.config.items()]
        for first in range(0, len(items), 100):  # the most that one call may hold
            client.log_batch(self._id, params=items[first : first + 100])

    def log(self, rows: Sequence[tuple[int, Values]]) -> None:
        now = int(1000 * time.time())
        metrics = [
            self._metric(name, value, now, update)
            for update, values in rows
            for name, value in values.items()
        ]
        for first in range(0, len(metrics), MOST):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST])

    def event(self, text: str, update: int) -> None:
        tag = f"event.{int(1000 * time.time())}"
        self._client.set_tag(self._id, tag, f"update {update}: {text}")

    def close(self) -> None:
        self._client.set_terminated(self._id)


MAKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
    "mlflow": MlflowTracker,
}


def run_name(folder: Path, resumed: bool) -> str:
    """Return the name by which the tracker knows the run.

    It is that of its folder and a random part, kept in the run's folder.
    """
    path = folder / ID_FILE
    if resumed and path.is_file():
        return str(json.loads(path.read_text(encoding="utf-8"))["name"])
    name = f"{folder.name}-{os.urandom(4).hex()}"
    path.write_text(json.dumps({"name": name}) + "\n", encoding="utf-8")
    return name


class TrackerSink(MetricSink):
    """Sends rows and metrics to a tracker, in a thread.

    The names of the metrics are those of TensorBoard's tags. A number that is not finite is
    left out.
    """

    def __init__(
        self,
        kind: str,
        about: TrackedRun,
        log: Log,
        names: Names = UNNAMED,
        patience: float = PATIENCE,
    ) -> None:
        """Start the thread.

        log: receives one line if the tracker fails.
        patience: seconds to wait for it at the end.
        """
        self._kind, self._about, self._log, self._names = kind, about, log, names
        self._patience, self._update, self._lost = patience, 0, False
        self._fault: BaseException | None = None
        self._waiting: queue.Queue[tuple[str, Any] | None] = queue.Queue(ROOM)
        self._thread = threading.Thread(target=self._feed, name=THREAD, daemon=True)
        self._thread.start()

    def write(self, rows: Sequence[Row]) -> None:
        found = [
            (
                int(row["update"]),
                metrics_of(row, self._names, (*NO_FIGURES, AXIS)) | {"steps": float(row["steps"])},
            )
            for row in rows
        ]
        self._update = found[-1][0]
        self._put(("log", (found,)))

    def rewind(self, update: int, steps: int) -> None:
        """Log to the tracker that the run went back: it keeps the metrics that this undid."""
        self._update = update
        line = (
            f"the run went back to update {update} ({steps:,} steps); later figures replace those of "
            "the same updates"
        )
        self._put(("event", (line, update)))
        self._put(("log", ([(update, {"event/back_to_update": float(update)})],)))

    def figures(self, values: Values, steps: int) -> None:
        """Send numbers by name, as of the last update."""
        found = dict(scalars_of("", values)) | {"steps": float(steps)}
        self._put(("log", ([(self._update, found)],)))

    def close(self) -> None:
        """Wait for the tracker, at most `patience` seconds."""
        self._put(None)
        if not self._lost:
            self._thread.join(self._patience)
            if self._fault:
                self._give_up(f"failed ({self._reason()})")
            elif self._thread.is_alive():
                self._give_up(f"did not finish within {self._patience:g} s")

    def _put(self, message: tuple[str, Any] | None) -> None:
        """Queue the name and arguments of a call, unless the tracker is lost.

        None: no more will come.
        """
        if self._lost:
            return
        if self._fault:
            self._give_up(f"failed ({self._reason()})")
            return
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._give_up(f"is {ROOM:,} messages behind")

    def _feed(self) -> None:
        """Run the thread: open the tracker, pass on what waits, and close it."""
        try:
            for name, value in QUIET.items():
                os.environ.setdefault(name, value)
            tracker = MAKERS[self._kind](self._about)
            if self._about.resumed:
                line = (
                    "the run goes on after a stop; later figures replace those of the same updates"
                )
                tracker.event(line, 0)
            for name, arguments in iter(self._waiting.get, None):
                getattr(tracker, name)(*arguments)
            tracker.close()
        except BaseException as error:  # whatever it is, it is not the run's
            self._fault = error

    def _give_up(self, why: str) -> None:
        """Go on without the tracker, and warn about it."""
        self._lost = True
        interrupt.abandon()
        self._log(
            f"{WARNING}train.tracker={self._kind}: the tracker {why}; the run goes on without it, and "
            "metrics.jsonl has every figure"
        )

    def _reason(self) -> str:
        """Return the first line of the tracker's error, without secrets.

        Hides the values of variables that hold keys, and the name and password of a URL.
        """
        text = f"{type(self._fault).__name__}: {self._fault}"
        for name, value in os.environ.items():
            if value and _SECRET.search(name):
                text = text.replace(value, f"${name}")
        return re.sub(r"//[^/@\s]+@", "//", text).partition("\n")[0][:200]
