"""The training of a run in its folder, and what is said about it, whatever is evaluated
afterwards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from jaxtrade.errors import DataError
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.session_view import last_session
from jaxtrade.runs import performance
from jaxtrade.runs.advice import TrainingAdvisor
from jaxtrade.runs.beginning import METRICS
from jaxtrade.runs.ending import quoted
from jaxtrade.runs.evaluate import begin_for_run, history
from jaxtrade.runs.evolving import Evolving
from jaxtrade.runs.job import SCORE, Job
from jaxtrade.runs.policies import scores_by_agent
from jaxtrade.runs.setup import Setup, params_shown, policies_of
from jaxtrade.storage import checkpoint
from jaxtrade.storage.eager import EagerPrograms
from jaxtrade.text import Tell
from jaxtrade.training import control, replacement
from jaxtrade.training.health import population_health
from jaxtrade.training.hooks import Hook
from jaxtrade.training.loop import TrainResult, train
from jaxtrade.training.together import from_main, is_main
from jaxtrade.types import PyTree

# The hook of a run that scores its policies on the validation sessions.


def controller_of(job: Job) -> control.Controller | None:
    """The hook that scores the policy on the validation sessions. A resumed run restores the hook's
    memory.

    None if `control.evaluate_every` is 0.
    """
    setup, config, chosen = job.setup, job.config, job.config.control
    if not chosen.evaluate_every:
        return None
    # A transferred run may open new actions step by step. It must not stop early before they are
    # all open.
    if getattr(job.beginning.state, "opening", None) is not None:
        updates = config.transfer.open_until * setup.plan.total_updates
        least = math.ceil(updates / (chosen.evaluate_every * config.train.chunk_updates))
        chosen = chosen.model_copy(update={"min_evaluations": max(chosen.min_evaluations, least)})
    shown = {
        symbol: params_shown(own, "validation", job.path, job.tell)[0]
        for symbol, own in setup.symbols.items()
    }
    job.validation = next(iter(shown.values()))

    latest = LatestSession(job.path, job.tell)

    def score(state: PyTree) -> float:
        policies = jax.device_get(policies_of(setup, state))
        value = from_main(
            lambda: float(scores_by_agent(setup, shown, policies, job.programs, latest.see).mean())
        )
        if math.isfinite(value):
            latest.write(setup.stack.first(state.update), value, controller.state.scores)
        for each in job.boards:
            each.figures(
                {SCORE: value}, setup.stack.first(state.update) * setup.plan.steps_per_update
            )
        return value

    controller = control.Controller(
        chosen,
        score,
        job.path / control.FOLDER,
        chunk_updates=config.train.chunk_updates,
        total_updates=setup.plan.total_updates,
        steps_per_update=setup.plan.steps_per_update,
        metadata=job.metadata,
        tell=job.tell,
        unit=f"mean reward per session{setup.stack.mean_label}",
        step_sizes=setup.algorithm.step_sizes,
        exploration=setup.algorithm.exploration,
    )
    controller.recall(job.beginning.memory(controller.name) or {})
    return controller


FILE = "validation/latest.json"


class LatestSession:
    """Collects the session of one evaluation (`see`), and writes it with its score (`write`), for
    `jaxtrade watch`. The run goes on if it cannot be written.

    Of several agents it is the first one's, of several symbols the first symbol's.
    """

    def __init__(self, folder: Path, tell: Tell) -> None:
        """tell: receives the line about a file that cannot be written."""
        self._path, self._tell, self._told = folder / FILE, tell, False
        self._session: dict[str, Any] | None = None

    def see(self, setup: Setup, record: Record, lane: Lane) -> None:
        """Take what an agent did on a symbol."""
        if self._session is None:
            self._session = last_session(record, lane.decisions, setup.single, lane.params)

    def write(self, update: int, score: float, scores: Sequence[tuple[int, float]]) -> None:
        """Write the session that was seen, if any. scores: (update, score) of the evaluations
        before this one.
        """
        session, self._session = self._session, None
        if session is None:
            return
        every = [*scores, (update, score)]
        document = session | {
            "update": update,
            "score": score,
            "best": max(value for _, value in every),
            "scores": every,
        }
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(
                    f"note: {self._path} cannot be written ({error.strerror}); the run goes on, and 'jaxtrade "
                    "watch' shows no newer validation session"
                )


# What `summary.json` of a finished run holds.


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


def go_on_with(path: Path, command: str = "train", more: Sequence[str] = ()) -> str:
    """The command that continues a run, as part of a message. command: that has begun it. more:
    further words of it.
    """
    return f"continue with: {quoted(['jaxtrade', command, '--resume', str(path), *more])}"


def how_to_continue(path: Path, command: str = "train", more: Sequence[str] = ()) -> str:
    """What to say about a run that Ctrl-C has stopped. Arguments as `go_on_with`."""
    said = (
        ""
        if checkpoint.list_checkpoints(path / "checkpoints")
        else "the run had saved nothing yet; "
    )
    return said + go_on_with(path, command, more)


def train_job(
    job: Job,
    controller: control.Controller | None = None,
    advisor: TrainingAdvisor | None = None,
    evolution: Evolving | None = None,
) -> TrainResult:
    """Train from the run's current update to its end. A run that already stopped early is not
    trained again.
    """
    config, beginning = job.config, job.beginning
    if beginning.state is not None and controller and controller.exhausted:
        steps = beginning.update * job.setup.plan.steps_per_update
        return TrainResult(
            beginning.state, [], {}, beginning.update, steps, 0.0, float("nan"), True
        )
    hooks: list[Hook] = [] if controller is None else [controller]
    if evolution is not None and evolution.hook is not None:
        hooks.append(evolution.hook)
    if job.wall_clock is not None:
        hooks.append(job.wall_clock)
    exchange = None if advisor is None else advisor.exchange
    if advisor is not None:
        advisor.recall(beginning.memory(advisor.exchange.name))
        hooks.append(advisor.exchange)
    start = beginning.arguments(job.setup, exchange.start if exchange else None)
    programs = EagerPrograms() if config.compute.eager else job.programs
    return train(
        job.setup.algorithm,
        job.setup.trained_params,
        num_seeds=job.setup.stack,
        config=config.train,
        sinks=[job.screen, *job.files, job.watch],
        metadata=job.metadata,
        checkpoint_dir=job.path / "checkpoints",
        hooks=hooks,
        max_rollbacks=config.control.max_rollbacks,
        exchange=exchange,
        programs=programs,
        ahead=partial(_begin_evaluation, job) if is_main() else None,
        place=job.setup.place,
        **start,
    )


def _begin_evaluation(job: Job, state: PyTree) -> None:
    """Begin to compile the programs with which process 0 evaluates. state: shapes and dtypes
    suffice.

    Those of a walk-forward are compiled when they are needed: they are not those of a run of one
    split.
    """
    if not job.config.walk.on:
        begin_for_run(job.programs, job.setup, state, job.validation)


def whole_health(job: Job, trained: TrainResult) -> dict[str, tuple[bool, float]]:
    """Learning health over every update of the run, including updates of earlier processes.

    Recompiles are counted in this process only. Raises DataError if a row lacks a metric: rows of a
    run that was killed have no digest, so damage shows here.
    """
    recompiles = int(trained.health["recompiles"][1]) if trained.health else 0
    try:
        return population_health(
            history(job.path), recompiles, job.setup.stack, job.setup.algorithm.health
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{job.path / METRICS}: its rows do not have the metrics of this run ({error!r}); restore the "
            "file, then continue the run again"
        ) from None


def closing_lines(
    trained: TrainResult, controller: control.Controller | None, labels: dict[str, str]
) -> Iterator[str]:
    """What is said about a finished training: its speed, the health of learning, and its scores.
    labels: of the health checks, by name."""
    if trained.history:
        yield (
            f"trained {trained.steps:,} steps at {trained.steps_per_second:,.0f} steps/s, after compiling for "
            f"{trained.compile_seconds:.1f} s"
        )
        checks = ", ".join(
            f"{labels[name]} {value:.3g} {'ok' if ok else 'FAILED'}"
            for name, (ok, value) in trained.health.items()
        )
        yield f"learning health (did the learner work? it says nothing about profit): {checks}"
    else:
        yield "nothing left to train; evaluating"
    if controller and controller.state.scores:
        yield controller.summary()
