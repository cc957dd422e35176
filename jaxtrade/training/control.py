"""Training control: what follows from the scores of the policy on validation sessions, decided between chunks.

`decide` is pure and knows numbers alone. `Controller` is the hook around it: it asks for the score, keeps the best
state and sets tunable floats, so nothing is compiled again. Who scores is the caller's affair.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import ControlConfig
from jaxtrade.errors import DivergedError
from jaxtrade.storage import checkpoint
from jaxtrade.training.hooks import Change
from jaxtrade.training.run_io import write_checkpoint
from jaxtrade.types import PyTree

FOLDER = "best"  # of a run directory
KEEP_ALL = 1_000_000


class ControlState(NamedTuple):
    """What the decisions of a run follow from; plain numbers, saved in each checkpoint.

    scores: (update, score) of every evaluation. best_score, best_update: of the best. since_best: evaluations since.
    flat: of these, those that count towards the next adjustment. cooldown: evaluations to come that do not count.
    adjustments: made so far.
    """

    scores: tuple[tuple[int, float], ...] = ()
    best_score: float | None = None
    best_update: int | None = None
    since_best: int = 0
    flat: int = 0
    cooldown: int = 0
    adjustments: int = 0


class Decision(NamedTuple):
    """best: the state is the best so far. adjust: lower the learning rate, raise the entropy bonus. stop: end early."""

    best: bool
    adjust: bool
    stop: bool


def exhausted(state: ControlState, config: ControlConfig) -> bool:
    """Patience is at its end. The run stays so: it stops there, and is not continued by a resume."""
    return 0 < config.patience <= state.since_best and len(state.scores) >= config.min_evaluations


def decide(state: ControlState, score: float, update: int, config: ControlConfig,
           last: bool = False) -> tuple[ControlState, Decision]:
    """What one more evaluation means. A run that stops, or is at its last update, is not adjusted."""
    state = state._replace(scores=(*state.scores, (update, score)))
    if state.best_score is None or score > state.best_score + config.improvement:
        state = state._replace(best_score=score, best_update=update, since_best=0, flat=0,
                               cooldown=max(state.cooldown - 1, 0))
        return state, Decision(best=True, adjust=False, stop=False)
    counts = state.cooldown == 0
    state = state._replace(since_best=state.since_best + 1, flat=state.flat + counts,
                           cooldown=max(state.cooldown - 1, 0))
    stop = exhausted(state, config)
    if last or stop:
        return state, Decision(best=False, adjust=False, stop=stop and not last)
    if not 0 < config.plateau_patience <= state.flat:
        return state, Decision(best=False, adjust=False, stop=False)
    state = state._replace(flat=0, cooldown=config.plateau_cooldown, adjustments=state.adjustments + 1)
    return state, Decision(best=False, adjust=True, stop=False)


def adjusted(floats: Mapping[str, Any], config: ControlConfig, step_sizes: Sequence[str],
             exploration: Sequence[str]) -> dict[str, Any]:
    """Tunable floats after one adjustment; what lies beyond its bound already stays as it is.

    floats: by name, float64, of one agent or [N] of several. step_sizes, exploration: names of the floats that are
    lowered and raised, as in `Algorithm`.
    """
    lower = {name: np.minimum(floats[name], np.maximum(floats[name] * config.plateau_lr_factor, config.plateau_lr_min))
             for name in step_sizes}
    raised = {name: np.maximum(floats[name], np.minimum(floats[name] * config.plateau_ent_factor,
                                                        config.plateau_ent_max)) for name in exploration}
    return lower | raised


def _shown(values: np.ndarray) -> str:
    """The number that all agents share, or the lowest and the highest."""
    low, high = np.min(values), np.max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} .. {high:.3g}"


class Controller:
    """A hook of `train` that evaluates every so many chunks, and after the last (a `hooks.StatefulHook`).

    The best state is kept whole under `folder`; beside it, until the run is finished, the best one of the last
    checkpoint, so that a run that goes back there (by a resume or a rollback) finds what it remembers. What it finds
    there besides belongs to updates that are undone, and is set aside.
    """

    name = "control"

    def __init__(self, config: ControlConfig, score: Callable[[PyTree], float], folder: Path, *, chunk_updates: int,
                 total_updates: int, steps_per_update: int, metadata: Mapping[str, Any], tell: Callable[[str], None],
                 unit: str, step_sizes: Sequence[str] = (), exploration: Sequence[str] = ()) -> None:
        """
        Args:
            score: state -> score of its policy, higher is better. unit: what it is, in words.
            folder: of the best state. metadata: of its checkpoints, beside what is remembered.
            tell: takes one line for every evaluation.
            step_sizes, exploration: names of the tunable floats that a plateau lowers and raises (`Algorithm`).
        """
        self._step_sizes, self._exploration = tuple(step_sizes), tuple(exploration)
        self.state = ControlState()
        self._config, self._score, self._folder = config, score, folder
        self._chunk_updates, self._total_updates = chunk_updates, total_updates
        self._steps_per_update, self._metadata = steps_per_update, dict(metadata)
        self._tell, self._unit = tell, unit
        self._saved_best: int | None = None  # best update of what a resume or a rollback would go back to

    @property
    def exhausted(self) -> bool:
        return exhausted(self.state, self._config)

    def memory(self) -> dict[str, Any]:
        self._saved_best = self.state.best_update
        return self.state._asdict()

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.state = ControlState(**{**memory, "scores": tuple((u, s) for u, s in memory.get("scores", ()))})
        for update, path in checkpoint.list_checkpoints(self._folder):
            if update != self.state.best_update:
                checkpoint.set_aside(path)

    def __call__(self, state: PyTree, update: int) -> Change:
        last = update >= self._total_updates
        if update // self._chunk_updates % self._config.evaluate_every and not last:
            return Change()
        score = self._score(state)
        if not math.isfinite(score):
            raise DivergedError(f"update {update}: {self._unit} is {score} on the validation sessions; check the scale "
                                "of the reward (reward.preset, reward.weights)")
        self.state, decision = decide(self.state, score, update, self._config, last)
        overrides: dict[str, Any] = {}
        notes = [f"the best is {self.state.best_score:.6g} at update {self.state.best_update}"]
        if decision.best:
            self._keep(state, update)
            notes = ["the best so far"]
        if decision.adjust:
            floats = {name: np.asarray(getattr(state.hparams, name), np.float64)
                      for name in (*self._step_sizes, *self._exploration)}
            overrides = adjusted(floats, self._config, self._step_sizes, self._exploration)
            notes.append("no progress: " + (", ".join(
                f"{name} {_shown(floats[name])} -> {_shown(value)}" for name, value in overrides.items())
                or "this learner has nothing to adjust"))
        if decision.stop:
            notes.append(f"stopped early, after {self.state.since_best} evaluations without a better one")
        self._tell(f"validation at update {update}: {self._unit} {score:.6g}; {'; '.join(notes)}")
        return Change(stop=decision.stop, hparams=overrides)

    def _keep(self, state: PyTree, update: int) -> None:
        steps, memory = update * self._steps_per_update, self.state._asdict()
        metadata = self._metadata | {"steps": steps, "hooks": {self.name: memory}}
        write_checkpoint(self._folder, update, state, metadata, KEEP_ALL)
        self._prune({update, self._saved_best})

    def _prune(self, keep: set[int | None]) -> None:
        for update, path in checkpoint.list_checkpoints(self._folder):
            if update not in keep:
                shutil.rmtree(path)

    def summary(self) -> str:
        """One line on the whole run."""
        state = self.state
        return (f"validation: {self._unit} was best at update {state.best_update}, {state.best_score:.6g} (of "
                f"{len(state.scores)} evaluations, last {state.scores[-1][1]:.6g}; {state.adjustments} adjustments); "
                f"that state is in {self._folder}")

    def best(self, like: PyTree) -> PyTree:
        """The best state of a finished run, which alone is kept. Raises CheckpointError."""
        assert self.state.best_update is not None
        self._prune({self.state.best_update})
        return checkpoint.restore(self._folder / f"update-{self.state.best_update:08d}", like).state
