"""What `summary.json` of a finished run holds."""

from __future__ import annotations

import math
from typing import Any

from jaxtrade.runs import performance
from jaxtrade.runs.job import Job
from jaxtrade.training import control, replacement
from jaxtrade.training.loop import TrainResult


def of_run(job: Job, trained: TrainResult, controller: control.Controller | None) -> dict[str, Any]:
    """The content of a finished run's `summary.json`."""
    found = {
        "health": {
            name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()
        },
        "updates": trained.updates,
        "steps": trained.steps,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": None
        if math.isnan(trained.steps_per_second)
        else trained.steps_per_second,
        "stopped_early": trained.stopped,
        "stop_reason": _stop_reason(job, trained, controller),
        "performance": performance.measured(job, trained),
        "warnings": job.watch.seen,
    }
    found |= replacement.summary(trained.state.rollbacks, job.config.control.max_rollbacks)
    return found if controller is None else found | {"validation": controller.state._asdict()}


def _stop_reason(
    job: Job, trained: TrainResult, controller: control.Controller | None
) -> str | None:
    """Why the run ended before its last update. None if it did not."""
    if job.stop_reason is not None or not trained.stopped or controller is None:
        return job.stop_reason
    return f"control.patience: {controller.state.since_best} evaluations without a better score"
