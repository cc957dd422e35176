"""The training of a run in its folder: its hooks (validation, population-based training), what it
measured, and what is said about it, whatever is evaluated afterwards.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.policy import save_policy_bundle
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.replay import last_session
from jaxtrade.notation import duration
from jaxtrade.progress.screen import Plain, Screen
from jaxtrade.rl import evolve
from jaxtrade.rl.state import finished
from jaxtrade.runs import rundir
from jaxtrade.runs.advice import TrainingAdvisor
from jaxtrade.runs.auto_envs import measure_update, sized
from jaxtrade.runs.beginning import METRICS
from jaxtrade.runs.evaluate import begin_for_run, history
from jaxtrade.runs.evaluate import open_run as open_setup
from jaxtrade.runs.job import SCORE, Job
from jaxtrade.runs.memory import size
from jaxtrade.runs.policies import scores_by_agent
from jaxtrade.runs.setup import Setup, policies_of, validation_shown, with_learner_of
from jaxtrade.runs.stored import RunResult, StoredRun, open_run
from jaxtrade.storage import checkpoint
from jaxtrade.storage.eager import EagerPrograms
from jaxtrade.storage.sinks import JsonlSink, read_rows
from jaxtrade.storage.sizes import tree_bytes
from jaxtrade.text import Tell, several
from jaxtrade.training import control, replacement
from jaxtrade.training.health import health_labels, population_health
from jaxtrade.training.hooks import Change, Hook
from jaxtrade.training.loop import TrainResult, train
from jaxtrade.training.together import from_main, is_main
from jaxtrade.types import PyTree, Row

# What a run measured of itself: speed, compilation, memory, time by phase. Nothing here is an
# expectation.

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


# Population-based training in a run: what scores the agents, what an event compiles, and the winner
# at the end. First its hook: it scores the agents between chunks, and replaces the worst. What an
# event does is a pure function (`rl.evolve`), which the caller gives, as it gives the score.


class Event(Protocol):
    """(state, scores float32[N], update) -> (the state after the event, the row of the lineage
    about it).
    """

    def __call__(
        self, state: PyTree, scores: np.ndarray, update: int
    ) -> tuple[PyTree, dict[str, Any]]: ...


class Evolution:
    """A hook of `train` (a `hooks.StatefulHook`): an event every `every` chunks, but not after the
    last one, because nothing would be trained after it.

    events, copies: events so far, and agents that became copies in them. A rollback and a resume
        restore both.
    """

    name = "evolution"

    def __init__(
        self,
        every: int,
        *,
        score: Callable[[PyTree], np.ndarray],
        event: Event,
        record: Callable[[dict[str, Any]], None],
        tell: Callable[[str], None],
        chunk_updates: int,
        total_updates: int,
    ) -> None:
        """
        Args:
            score: state -> score of each agent, float64[N]; higher is better. It reads validation
                sessions alone.
            record: takes the row of each event. tell: takes one line about it.
        """
        self._every, self._score, self._event, self._record, self._tell = (
            every,
            score,
            event,
            record,
            tell,
        )
        self._chunk_updates, self._total_updates = chunk_updates, total_updates
        self.events = self.copies = 0

    def memory(self) -> dict[str, Any]:
        return {"events": self.events, "copies": self.copies}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.events, self.copies = memory.get("events", 0), memory.get("copies", 0)

    def __call__(self, state: PyTree, update: int) -> Change:
        if update // self._chunk_updates % self._every or update >= self._total_updates:
            return Change()
        scores = self._score(state).astype(np.float32)
        state, row = self._event(state, scores, update)
        copied = [(i, source) for i, source in enumerate(row["source"]) if source != i]
        self.events, self.copies = self.events + 1, self.copies + len(copied)
        self._record(row)
        self._tell(
            f"evolution at update {update}: {described(scores)}; "
            + (
                ", ".join(f"agent {i} goes on from agent {source}" for i, source in copied)
                or "nobody is replaced: no agent is finite"
            )
        )
        return Change(state=state, save=True) if copied else Change()


def described(scores: np.ndarray) -> str:
    """The scores of an event in words."""
    known = scores[np.isfinite(scores)]
    if not len(known):
        return f"none of {several(len(scores), 'agent')} has a finite score"
    return f"scores {known.min():.6g} .. {known.max():.6g}, median {np.median(known):.6g}"


# `lineage.jsonl` in a run's folder: who went on from whom in population-based training, one JSON
# object per event.

LINEAGE = "lineage.jsonl"


class LineageSink(JsonlSink):
    """Appends events. Those after the update to which a run goes back are dropped, as rows of
    metrics are.

    It is a sink of the run, so that a rollback reaches it, but it takes neither metrics nor
    messages.
    """

    def __init__(self, folder: Path, resume_update: int | None = None) -> None:
        """resume_update: events up to this update, of an earlier process, are kept; None: begin a
        new file.
        """
        super().__init__(folder / LINEAGE, resume_update, every_update=False)

    def record(self, row: dict[str, Any]) -> None:
        """Append an event. A row of the same kind about the same update is there already if a
        finished run is opened again; it is not repeated."""
        if not any(
            (old["update"], old["event"]) == (row["update"], row["event"])
            for old in read_rows(self._path)
        ):
            super().write([row])

    def write(self, rows: Sequence[Row]) -> None:
        del rows


WINNER_FOLDER = "policy_winner"  # in the run folder, beside `policy`


class Evolving:
    """The evolution of a run's agents.

    hook: of the training loop; None if the drawn settings stay (`evolve.every` is 0).
    """

    def __init__(self, job: Job) -> None:
        self._job, setup, config = job, job.setup, job.config
        self._rules = evolve.rules_of(config)
        self._lineage = LineageSink(job.path, job.beginning.resume_update) if is_main() else None
        if self._lineage is not None:
            job.files.append(self._lineage)
        self._shown = validation_shown(setup, job.path, job.tell)
        self._program: Any = jax.jit(partial(evolve.exploit_parts, rules=self._rules))
        self.hook: Evolution | None = None
        if config.evolve.every:
            self.hook = Evolution(
                config.evolve.every,
                score=self.scores,
                event=self._event,
                record=self._record,
                tell=job.tell,
                chunk_updates=config.train.chunk_updates,
                total_updates=setup.plan.total_updates,
            )
            self.hook.recall(job.beginning.memory(self.hook.name) or {})

    def _record(self, row: dict[str, Any]) -> None:
        if self._lineage is not None:
            self._lineage.record(row)

    def scores(self, state: PyTree) -> np.ndarray:
        """Mean reward per validation session of each agent's greedy policy, float64[N], in every
        process.
        """
        return np.array(from_main(lambda: self._scored(state)))

    def _scored(self, state: PyTree) -> list[float]:
        """`scores`, computed by this process."""
        policies = jax.device_get(policies_of(self._job.setup, state))
        return scores_by_agent(self._job.setup, self._shown, policies, self._job.programs).tolist()

    def _event(
        self, state: PyTree, scores: np.ndarray, update: int
    ) -> tuple[PyTree, dict[str, Any]]:
        args = (
            evolve.parts_of(state),
            jnp.asarray(scores),
            evolve.event_key(self._job.config.seed, update),
        )
        programs = self._job.programs
        pending = programs.begun(self._program, args) or programs.begin(
            "evolution", self._program, args
        )
        parts, lineage = pending.wait()(*args)
        row = evolve.row_of(update, scores, jax.device_get(lineage))
        copies = np.asarray(row["source"]) != np.arange(
            len(scores)
        )  # none of them has diverged, or is frozen, yet
        counts = np.where(copies.reshape(state.rollbacks.shape), 0, jax.device_get(state.rollbacks))
        return evolve.with_parts(state, parts).replace(
            rollbacks=jnp.asarray(counts, jnp.int32)
        ), row

    def close(self, state: PyTree, update: int) -> dict[str, Any]:
        """Score the agents of a run's last state, save the policy of the best, and name it: the
        entry `evolution` of
        `summary.json`. Process 0 alone does this. update: of that state."""
        job, setup = self._job, self._job.setup
        scores = np.asarray(self._scored(state), np.float32)
        winner = evolve.winner_of(scores.tolist())
        self._record(
            {"update": update, "event": evolve.FINAL, "scores": scores.tolist(), "winner": winner}
        )
        settings = {
            name: np.asarray(getattr(state.hparams, name)).reshape(-1)
            for name in self._rules.ranges
        }
        found: dict[str, Any] = {
            "scores": [float(s) if np.isfinite(s) else None for s in scores],
            "winner": winner,
        }
        if self.hook is not None:
            found |= self.hook.memory()
        if winner is None:
            job.tell("evolution: no agent has a finite score, so there is no winner")
            return found
        own = {name: float(values[winner]) for name, values in settings.items()}
        policy = finished(policies_of(setup, state)[winner])
        save_policy_bundle(job.path / WINNER_FOLDER, policy, setup.env, setup.market, job.config)
        chosen = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
        job.tell(
            f"evolution: agent {winner} has the best score on the validation sessions, {scores[winner]:.6g} "
            f"(median {np.nanmedian(scores):.6g}), with {chosen}; its policy is in {job.path / WINNER_FOLDER}"
        )
        return found | {"winner_score": float(scores[winner]), "winner_settings": own}


def evolving(job: Job) -> Evolving | None:
    """The evolution of a run. None without `evolve.keys`, and for drawn settings without agents or
    validation sessions to rank them by."""
    config = job.config
    ranked = config.train.num_seeds > 1 and config.split.validation_sessions
    return Evolving(job) if config.evolve.on and ranked else None


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
    shown = validation_shown(setup, job.path, job.tell)
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
        step_sizes=setup.algorithm.info.step_sizes,
        exploration=setup.algorithm.info.exploration,
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


def shown_on(screen: Screen | None) -> AbstractContextManager[Screen]:
    """The caller's screen, which stays open, or one that closes with the run."""
    return Plain() if screen is None else nullcontext(screen)


def save_policies(job: Job, state: PyTree, folders: Iterable[Path]) -> list[PyTree]:
    """Write the policy bundles of `state`, each to its folder. Returns the policies, in the order of
    the agents."""
    setup = job.setup
    policies = [finished(policy) for policy in policies_of(setup, state)]
    for policy, folder in zip(policies, folders, strict=True):
        save_policy_bundle(folder, policy, setup.env, setup.market, setup.config)
    return policies


def go_on_with(path: Path, command: str = "train", more: Sequence[str] = ()) -> str:
    """The command that continues a run, as part of a message. command: that has begun it. more:
    further words of it.
    """
    return f"continue with: {rundir.quoted(['jaxtrade', command, '--resume', str(path), *more])}"


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

    def ahead(state: PyTree) -> None:
        """Begin to compile the programs with which process 0 evaluates. Those of a walk-forward are
        compiled when they are needed: they are not those of a run of one split."""
        begin_for_run(job.programs, job.setup, state, job.validation)

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
        ahead=ahead if is_main() and not config.walk.on else None,
        place=job.setup.place,
        **start,
    )


def whole_health(job: Job, trained: TrainResult) -> dict[str, tuple[bool, float]]:
    """Learning health over every update of the run, including updates of earlier processes.

    Recompiles are counted in this process only. Raises DataError if a row lacks a metric: rows of a
    run that was killed have no digest, so damage shows here.
    """
    recompiles = int(trained.health["recompiles"][1]) if trained.health else 0
    try:
        return population_health(
            history(job.path), recompiles, job.setup.stack, job.setup.algorithm.info.health
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{job.path / METRICS}: its rows do not have the metrics of this run ({error!r}); restore the "
            "file, then continue the run again"
        ) from None


def exit_code_of(trained: TrainResult) -> int:
    """1 if a health check has failed, else 0."""
    return int(not all(passed for passed, _ in trained.health.values()))


def closing_lines(
    job: Job, trained: TrainResult, controller: control.Controller | None
) -> Iterator[str]:
    """What is said about a finished training: its speed, the health of learning, its scores, and
    the agents that diverged for good.
    """
    if trained.history:
        labels = health_labels(job.setup.algorithm.info.health)
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
    yield from replacement.closing(trained.state.rollbacks, job.config.control.max_rollbacks)
