"""What acts between two chunks of a run.

Population-based training, the scores on the validation sessions, the advisor, the clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.evaluators import total_rewards
from jaxtrade.evaluation.policy import save_policy_bundle
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.replay import last_session
from jaxtrade.rl import evolve
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs.advice import TrainingAdvisor
from jaxtrade.runs.job import SCORE, Job
from jaxtrade.runs.setup import Setup, policies_of, validation_shown
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.digests import write_whole
from jaxtrade.storage.sinks import JsonlSink, read_rows
from jaxtrade.text import Log, several
from jaxtrade.training.control import FOLDER, Controller
from jaxtrade.training.hooks import Change, Hook
from jaxtrade.training.loop import TrainResult
from jaxtrade.training.multiprocess import from_main, is_main
from jaxtrade.types import PyTree, Row

# Scores of the policies in training, on the validation sessions.

Seen = Callable[[Setup, Record, Lane], None]


def scores_by_agent(
    setup: Setup,
    shown: Mapping[str, EnvParams],
    policies: Sequence[PyTree],
    programs: Programs,
    seen: Seen | None = None,
) -> np.ndarray:
    """Compute the mean reward per validation session of each greedy policy (float64[agents]).

    Every symbol has equal weight.

    Each agent of a sweep is scored under its own costs, account, brackets and weights: by the
    reward that it learns from.

    shown: by symbol, the parameters with the advice that is known on the validation sessions.
    policies: of all agents, in order.
    seen: receives, for each symbol, its setup and what the first agent did there.
    """
    steps, means = setup.steps("validation"), []
    for symbol, own in setup.symbols.items():
        sessions = own.splits["validation"]
        totals = total_rewards(
            own.env,
            setup.rules_on(symbol, shown[symbol]),
            sessions,
            own.algorithm,
            [setup.acting(policy, symbol) for policy in policies],
            programs,
            steps,
            None if seen is None else partial(seen, own),
        )
        means.append(totals / int(sessions.count))
    return np.mean(means, axis=0)


def rank_agents(
    setup: Setup, policies: Sequence[PyTree], path: Path, log: Log, programs: Programs
) -> tuple[float, ...]:
    """Compute the scores by which the agents of a sweep are ranked at its end.

    There are none without a sweep or validation sessions.
    """
    if not setup.agents.are_listed or not int(setup.splits["validation"].count):
        return ()
    shown = validation_shown(setup, path, log)
    return tuple(scores_by_agent(setup, shown, policies, programs).tolist())


# Population-based training: what scores the agents, what an event compiles, and the winner at the
# end. First its hook: it scores the agents between chunks, and replaces the worst.


def describe_scores(scores: np.ndarray) -> str:
    """Describe the scores of an event in words."""
    known = scores[np.isfinite(scores)]
    if not len(known):
        return f"none of {several(len(scores), 'agent')} has a finite score"
    return f"scores {known.min():.6g} .. {known.max():.6g}, median {np.median(known):.6g}"


# `lineage.jsonl` in a run's folder: who went on from whom in population-based training, one JSON
# object per event.

LINEAGE = "lineage.jsonl"


class LineageSink(JsonlSink):
    """Appends events.

    Those after the update to which a run goes back are dropped, as rows of metrics are.

    It is a sink of the run, so that a rollback reaches it, but it takes neither metrics nor
    messages.
    """

    def __init__(self, folder: Path, resume_update: int | None = None) -> None:
        """Continue or begin the file of events in `folder`.

        resume_update: events up to this update, of an earlier process, are kept; None: begin a new
        file.
        """
        super().__init__(folder / LINEAGE, resume_update, every_update=False)

    def record(self, row: dict[str, Any]) -> None:
        """Append an event.

        A row of the same kind about the same update is there already if a finished run is opened
        again; it is not repeated.
        """
        if not any(
            (old["update"], old["event"]) == (row["update"], row["event"])
            for old in read_rows(self._path)
        ):
            super().write([row])

    def write(self, rows: Sequence[Row]) -> None:
        del rows


WINNER_FOLDER = "policy_winner"  # in the run folder, beside `policy`


class Evolving:
    """The evolution of a run's agents: a hook (a `hooks.StatefulHook`) with an event every `every` chunks.

    There is none after the last chunk, because nothing would be trained after it. It is no hook
    where the drawn settings stay (`evolve.every` is 0).

    events, copies: events so far, and agents that became copies in them. A rollback and a resume
        restore both.
    """

    name = "evolution"
    events = copies = 0

    def __init__(self, job: Job) -> None:
        self._job, self._rules = job, evolve.rules_of(job.config)
        self.every = job.config.evolve.every
        self._lineage = LineageSink(job.path, job.beginning.resume_update) if is_main() else None
        if self._lineage is not None:
            job.files.append(self._lineage)
        self._shown = validation_shown(job.setup, job.path, job.log)
        self._program: Any = jax.jit(partial(evolve.exploit_parts, rules=self._rules))
        if self.every:
            self.recall(job.beginning.memory(self.name) or {})

    def memory(self) -> dict[str, Any]:
        return {"events": self.events, "copies": self.copies}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.events, self.copies = memory.get("events", 0), memory.get("copies", 0)

    def __call__(self, state: PyTree, update: int) -> Change:
        job = self._job
        last = update >= job.setup.plan.total_updates
        if last or update // job.config.train.chunk_updates % self.every:
            return Change()
        scores = self.scores(state).astype(np.float32)
        state, row = self.event(state, scores, update)
        copied = [(i, source) for i, source in enumerate(row["source"]) if source != i]
        self.events, self.copies = self.events + 1, self.copies + len(copied)
        self.record(row)
        job.log(
            f"evolution at update {update}: {describe_scores(scores)}; "
            + (
                ", ".join(f"agent {i} goes on from agent {source}" for i, source in copied)
                or "nobody is replaced: no agent is finite"
            )
        )
        return Change(state=state, save=True) if copied else Change()

    def record(self, row: dict[str, Any]) -> None:
        """Keep the row of an event."""
        if self._lineage is not None:
            self._lineage.record(row)

    def scores(self, state: PyTree) -> np.ndarray:
        """Score each agent's greedy policy (float64[N]), in every process.

        The score is the mean reward per validation session.
        """
        return np.array(from_main(lambda: self._score(state)))

    def _score(self, state: PyTree) -> list[float]:
        """Compute `scores` in this process."""
        policies = jax.device_get(policies_of(self._job.setup, state))
        return scores_by_agent(self._job.setup, self._shown, policies, self._job.programs).tolist()

    def event(
        self, state: PyTree, scores: np.ndarray, update: int
    ) -> tuple[PyTree, dict[str, Any]]:
        """Return the state after an event, and the row of the lineage about it.

        scores: float32[N].
        """
        args = (
            evolve.parts_of(state),
            jnp.asarray(scores),
            evolve.event_key(self._job.config.seed, update),
        )
        programs = self._job.programs
        pending = programs.find(self._program, args) or programs.begin(
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
        """Score the agents of a run's last state, save the policy of the best, and name it.

        Return the entry `evolution` of `summary.json`. Process 0 alone does this.

        update: of that state.
        """
        job, setup = self._job, self._job.setup
        scores = np.asarray(self._score(state), np.float32)
        winner = evolve.winner_of(scores.tolist())
        self.record(
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
        if self.every:
            found |= self.memory()
        if winner is None:
            job.log("evolution: no agent has a finite score, so there is no winner")
            return found
        own = {name: float(values[winner]) for name, values in settings.items()}
        policy = finish_policy(policies_of(setup, state)[winner])
        save_policy_bundle(job.path / WINNER_FOLDER, policy, setup.env, setup.market, job.config)
        chosen = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
        job.log(
            f"evolution: agent {winner} has the best score on the validation sessions, {scores[winner]:.6g} "
            f"(median {np.nanmedian(scores):.6g}), with {chosen}; its policy is in {job.path / WINNER_FOLDER}"
        )
        return found | {"winner_score": float(scores[winner]), "winner_settings": own}


def evolving(job: Job) -> Evolving | None:
    """Make the evolution of a run.

    None without `evolve.keys`, and for drawn settings without agents or validation sessions to rank
    them by.
    """
    config = job.config
    ranked = config.train.num_seeds > 1 and config.split.validation_sessions
    return Evolving(job) if config.evolve.on and ranked else None


# The hook of a run that scores its policies on the validation sessions.


def controller_of(job: Job) -> Controller | None:
    """Make the hook that scores the policy on the validation sessions.

    A resumed run restores the hook's memory.

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
    shown = validation_shown(setup, job.path, job.log)
    job.validation = next(iter(shown.values()))

    latest = LatestSession(job.path, job.log)

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

    controller = Controller(
        chosen,
        score,
        job.path / FOLDER,
        chunk_updates=config.train.chunk_updates,
        total_updates=setup.plan.total_updates,
        steps_per_update=setup.plan.steps_per_update,
        metadata=job.metadata,
        log=job.log,
        unit=f"mean reward per session{setup.stack.mean_label}",
        step_sizes=setup.algorithm.info.step_sizes,
        exploration=setup.algorithm.info.exploration,
    )
    controller.recall(job.beginning.memory(controller.name) or {})
    return controller


FILE = "validation/latest.json"


class LatestSession:
    """Collects the session of one evaluation (`see`), and writes it (`write`) for `jaxtrade watch`.

    It is written with its score. The run goes on if it cannot be written.

    Of several agents it is the first one's, of several symbols the first symbol's.
    """

    def __init__(self, folder: Path, log: Log) -> None:
        """log: receives the line about a file that cannot be written."""
        self._path, self._log, self._told = folder / FILE, log, False
        self._session: dict[str, Any] | None = None

    def see(self, setup: Setup, record: Record, lane: Lane) -> None:
        """Take what an agent did on a symbol."""
        if self._session is None:
            self._session = last_session(record, lane.decisions, setup.single, lane.params)

    def write(self, update: int, score: float, scores: Sequence[tuple[int, float]]) -> None:
        """Write the session that was seen, if any.

        scores: (update, score) of the evaluations before this one.
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
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_whole(self._path, json.dumps(document, allow_nan=False) + "\n")
        except OSError as error:
            if not self._told:
                self._told = True
                self._log(
                    f"note: {self._path} cannot be written ({error.strerror}); the run goes on, and 'jaxtrade "
                    "watch' shows no newer validation session"
                )


# All hooks of a run.


def advisor_of(job: Job) -> TrainingAdvisor | None:
    """Make the advisor for the rest of the training.

    None if the run has no advisor or nothing is left to train.
    """
    if job.setup.fusion is None or job.beginning.update >= job.setup.plan.total_updates:
        return None
    advisor = TrainingAdvisor(
        job.config, job.setup.single, job.setup.splits["train"], job.path, job.log
    )
    advisor.recall(job.beginning.memory(advisor.bridge.name))
    return advisor


@dataclass
class Hooks:
    """The hooks of a run. Each is None where the run has no such hook.

    ended: the result of a run that a hook has stopped before: it is not trained again.
    advice: what the advisor did, once training has ended.
    """

    controller: Controller | None = None
    evolution: Evolving | None = None
    advisor: TrainingAdvisor | None = None
    ended: TrainResult | None = None
    advice: Any = None

    def in_order(self, job: Job) -> list[Hook]:
        """List the hooks in the order in which they act."""
        return [
            hook
            for hook in (
                self.controller,
                self.evolution if self.evolution and self.evolution.every else None,
                job.wall_clock,
                self.advisor and self.advisor.bridge,
            )
            if hook is not None
        ]


@contextmanager
def run_hooks(job: Job) -> Iterator[Hooks]:
    """Open the hooks of a run while it trains."""
    controller = controller_of(job)
    advisor = advisor_of(job) if is_main() else None
    hooks = Hooks(controller, evolving(job), advisor)
    begins = job.beginning
    if begins.state is not None and controller is not None and controller.is_exhausted:
        steps = begins.update * job.setup.plan.steps_per_update
        hooks.ended = TrainResult(
            begins.state, [], {}, begins.update, steps, 0.0, float("nan"), True
        )
    try:
        yield hooks
    finally:
        if advisor is not None:
            hooks.advice = advisor.close()
