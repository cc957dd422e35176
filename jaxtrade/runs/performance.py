"""What a run measured of itself (speed, compilation, memory, time by phase), and `summary.json`,
which holds it. Nothing here is an expectation.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxtrade.errors import ConfigError
from jaxtrade.progress.screen import duration
from jaxtrade.runs import rundir
from jaxtrade.runs.auto_envs import measure_update, sized
from jaxtrade.runs.evaluate import open_run as open_setup
from jaxtrade.runs.job import Job
from jaxtrade.runs.memory import size
from jaxtrade.runs.setup import with_learner_of
from jaxtrade.runs.stored import RunResult, StoredRun, open_run
from jaxtrade.storage.sizes import tree_bytes
from jaxtrade.training import replacement
from jaxtrade.training.control import Controller
from jaxtrade.training.loop import TrainResult

UNITS: Mapping[str, str] = {  # every figure, in the order in which it is shown
    "steps_per_second": "environment steps of all agents per second of training, without compilation",
    "compile_seconds": "seconds to compile the training program, or to read it from JAX's cache",
    "phase_seconds": "seconds by phase of the command that finished the run",
    "num_envs": "environments of each agent",
    "num_steps": "steps of each environment per update",
    "agents": "agents trained side by side",
    "devices": "devices",
    "device": "kind of device",
    "threads": "compute threads on a CPU",
    "market_bytes": "bytes of the market on the device, shared by all environments",
    "state_bytes": "bytes of the training state",
    "program_bytes": "bytes that the compiled program works on: arguments, results, temporaries",
    "peak_resident_bytes": "most bytes of memory that the process has had",
    "times_one_env": "times the steps per second of one environment, both measured one update at a time; only on "
    "request",
}
UNITS_KEY = "units"


def measured(job: Job, trained: TrainResult) -> dict[str, Any]:
    """The figures of `UNITS` for a run that has just trained. None for what was not measured."""
    config, device = job.config, jax.local_devices()[0]
    speed = trained.steps_per_second
    return {
        "steps_per_second": None if math.isnan(speed) else speed,
        "compile_seconds": trained.compile_seconds if trained.history else None,
        "phase_seconds": {phase.name: phase.seconds for phase in job.screen.phases} or None,
        "num_envs": config.rollout.num_envs,
        "num_steps": config.rollout.num_steps,
        "agents": job.setup.stack.count,
        "devices": jax.device_count(),
        "device": device.device_kind,
        "threads": int(os.environ["NPROC"])
        if device.platform == "cpu" and "NPROC" in os.environ
        else None,
        "market_bytes": tree_bytes(job.setup.params),
        "state_bytes": tree_bytes(trained.state),
        "program_bytes": trained.program_bytes,
        "peak_resident_bytes": _peak(),
        "times_one_env": None,
    }


def _peak() -> int | None:
    if os.name == "nt":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def performance_info(
    run: RunResult | StoredRun | Path | str, against_one: bool = False
) -> dict[str, Any]:
    """What a finished run measured of itself, and under `units` what each figure is. None: not
    measured.

        jaxtrade.performance_info(result)["steps_per_second"]

    Args:
        run: the result of a run, an opened run, or its folder.
        against_one: also time one update of the run and one with a single environment, here and
            now. It takes two compilations, and the ratio is kept in the run's `summary.json`.
    Raises:
        ConfigError: not a run, or one that has not finished. DataError: as `open_run` of a run
            whose bars are gone.
    """
    path = Path(run) if isinstance(run, str | Path) else run.path
    stored = open_run(path)
    if (summary := stored.summary) is None:
        raise ConfigError(
            f"{path}: the run has not finished, so it has no figures of itself; let it finish: jaxtrade "
            f"train --resume {path}"
        )
    if against_one:
        figures = dict(summary.get("performance", {})) | {"times_one_env": _times_one(path)}
        summary = summary | {"performance": figures}
        rundir.write_json(path / "summary.json", summary)
    rollout = stored.config.rollout
    own = {
        name: summary.get(name) for name in ("steps_per_second", "compile_seconds")
    }  # runs of earlier versions
    own |= {
        "num_envs": rollout.num_envs,
        "num_steps": rollout.num_steps,
        "agents": stored.config.agents,
        "device": stored.manifest.get("device", {}).get("kind"),
        "devices": stored.manifest.get("device", {}).get("count"),
    }
    own |= summary.get("performance", {})
    return {name: own.get(name) for name in UNITS} | {UNITS_KEY: dict(UNITS)}


def _times_one(path: Path) -> float | None:
    setup, _ = open_setup(path)
    if setup.fusion is not None:
        raise ConfigError(
            f"{path}: an update with an advisor waits for its answers, so one environment cannot be "
            "timed alone; leave against_one (--perf-one) out"
        )
    one, own = (
        measure_update(each, None).steps_per_second
        for each in (with_learner_of(setup, sized(setup.config, 1)), setup)
    )
    return None if one is None or own is None else own / one


def lines(info: Mapping[str, Any]) -> Iterator[str]:
    """The figures as lines for people. What was not measured is left out."""
    yield "measured in this run:"
    for name, unit in UNITS.items():
        if info[name] is not None:
            yield f"  {name.replace('_', ' '):<20} {_shown(name, info[name]):<24} {unit}"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{each} {duration(seconds)}" for each, seconds in value.items())
    if name.endswith("_bytes"):
        return size(value)
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 100
        else (f"{value:,.0f}" if isinstance(value, int | float) else str(value))
    )


def summary_of(
    job: Job, trained: TrainResult, controller: Controller | None = None
) -> dict[str, Any]:
    """The content of `summary.json`, by which a run is known to have finished."""
    performance, reason = measured(job, trained), job.stop_reason
    if reason is None and trained.stopped and controller is not None:
        since = controller.state.since_best
        reason = f"control.patience: {since} evaluations without a better score"
    found = {
        "health": {
            name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()
        },
        "updates": trained.updates,
        "steps": trained.steps,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": performance["steps_per_second"],
        "stopped_early": trained.stopped,
        "stop_reason": reason,
        "performance": performance,
        "warnings": job.watch.seen,
    }
    found |= replacement.summary(trained.state.rollbacks, job.config.control.max_rollbacks)
    return found if controller is None else found | {"validation": controller.state._asdict()}
