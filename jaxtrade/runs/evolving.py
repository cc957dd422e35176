"""Population-based training in a run: what scores the agents, what an event compiles, and the
winner at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.evaluation.policy import save_policy_bundle
from jaxtrade.rl import evolve
from jaxtrade.rl.state import finished
from jaxtrade.runs.job import Job
from jaxtrade.runs.policies import scores_by_agent
from jaxtrade.runs.setup import params_shown, policies_of
from jaxtrade.storage.sinks import JsonlSink, read_rows
from jaxtrade.training.together import from_main, is_main
from jaxtrade.types import PyTree

if TYPE_CHECKING:
    from jaxtrade.types import Row
from collections.abc import Callable, Mapping
from typing import Protocol

from jaxtrade.text import several
from jaxtrade.training.hooks import Change

# Population-based training as a hook: scores the agents between chunks, and replaces the worst.
#
# What an event does is a pure function (`rl.evolve`), which the caller gives, as it gives the
# score.


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


class LineageSink:
    """Appends events. Those after the update to which a run goes back are dropped, as rows of
    metrics are.

    It is a sink of the run, so that a rollback reaches it, but it takes neither metrics nor
    messages.
    """

    def __init__(self, folder: Path, resume_update: int | None = None) -> None:
        """resume_update: events up to this update, of an earlier process, are kept; None: begin a
        new file.
        """
        self._path = folder / LINEAGE
        self._file = JsonlSink(self._path, resume_update, every_update=False)

    def record(self, row: dict[str, Any]) -> None:
        """Append an event. A row of the same kind about the same update is there already if a
        finished run is opened again; it is not repeated."""
        if not any(
            (old["update"], old["event"]) == (row["update"], row["event"])
            for old in read_rows(self._path)
        ):
            self._file.write([row])

    def write(self, rows: Sequence[Row]) -> None:
        del rows

    def rewind(self, update: int, steps: int) -> None:
        self._file.rewind(update, steps)

    def message(self, text: str) -> None:
        del text

    def close(self) -> None:
        self._file.close()


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
        self._shown = {
            symbol: params_shown(own, "validation", job.path, job.tell)[0]
            for symbol, own in setup.symbols.items()
        }
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
