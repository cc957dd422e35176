"""Training control by scores on validation sessions.

It is early stopping, plateau adjustments and the best checkpoint.

`decide` is a pure function of numbers. `Controller` is the hook around it. It calls a score
function that the caller gives, keeps the best state, and changes tunable floats. Because these are
leaves of the state, nothing compiles again.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxtrade.config import ControlConfig
from jaxtrade.errors import DivergedError
from jaxtrade.storage import checkpoint
from jaxtrade.text import several
from jaxtrade.training.hooks import Change
from jaxtrade.training.multiprocess import is_main
from jaxtrade.training.run_io import write_checkpoint
from jaxtrade.types import PyTree

FOLDER = "best"  # subfolder of a run directory
KEEP_ALL = 1_000_000  # `write_checkpoint` deletes nothing: `_prune` decides what stays


class ControlState(NamedTuple):
    """The state of the controller: plain numbers, saved in each checkpoint.

    scores: (update, score) of every evaluation.
    best_score, best_update: those of the best evaluation.
    since_best: evaluations since the best one.
    flat: evaluations since then (or since the last adjustment) that count towards the
        next adjustment.
    cooldown: number of coming evaluations that do not count.
    adjustments: number of adjustments.
    """

    scores: tuple[tuple[int, float], ...] = ()
    best_score: float | None = None
    best_update: int | None = None
    since_best: int = 0
    flat: int = 0
    cooldown: int = 0
    adjustments: int = 0


class ControlDecision(NamedTuple):
    """Result of one evaluation.

    best: the state is the best so far.
    adjust: lower the step sizes and raise the exploration.
    stop: end the run early.
    """

    best: bool = False
    adjust: bool = False
    stop: bool = False


def is_exhausted(state: ControlState, config: ControlConfig) -> bool:
    """Return whether there was no better score for `patience` evaluations.

    This is final: a resume does not continue the run.
    """
    return 0 < config.patience <= state.since_best and len(state.scores) >= config.min_evaluations


def decide(
    state: ControlState, score: float, update: int, config: ControlConfig, last: bool = False
) -> tuple[ControlState, ControlDecision]:
    """Add one evaluation, and return (new state, decision).

    A run that stops or has finished (`last`) is not adjusted.

    score: higher is better. It is a new best only if it exceeds the best score by more
        than `config.improvement`.
    """
    state = state._replace(scores=(*state.scores, (update, score)))
    if state.best_score is None or score > state.best_score + config.improvement:
        state = state._replace(
            best_score=score,
            best_update=update,
            since_best=0,
            flat=0,
            cooldown=max(state.cooldown - 1, 0),
        )
        return state, ControlDecision(best=True)
    counts = state.cooldown == 0
    state = state._replace(
        since_best=state.since_best + 1,
        flat=state.flat + counts,
        cooldown=max(state.cooldown - 1, 0),
    )
    stop = is_exhausted(state, config)
    if last or stop:
        return state, ControlDecision(stop=stop and not last)
    if not 0 < config.plateau_patience <= state.flat:
        return state, ControlDecision()
    state = state._replace(
        flat=0, cooldown=config.plateau_cooldown, adjustments=state.adjustments + 1
    )
    return state, ControlDecision(adjust=True)


def adjust_floats(
    floats: Mapping[str, Any],
    config: ControlConfig,
    step_sizes: Sequence[str],
    exploration: Sequence[str],
) -> dict[str, Any]:
    """Return the tunable floats after one adjustment.

    A value that is already beyond its bound does not change.

    Args:
        floats: by name, float64[] for one agent or float64[N] for several.
        step_sizes, exploration: names of the floats to lower and to raise, as in `Learner`.
    """
    lower = {
        name: np.minimum(
            floats[name], np.maximum(floats[name] * config.plateau_lr_factor, config.plateau_lr_min)
        )
        for name in step_sizes
    }
    raised = {
        name: np.maximum(
            floats[name],
            np.minimum(floats[name] * config.plateau_ent_factor, config.plateau_ent_max),
        )
        for name in exploration
    }
    return lower | raised


def _format_values(values: np.ndarray) -> str:
    """Format one number if all agents have the same value, else the lowest and the highest."""
    low, high = np.min(values), np.max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} .. {high:.3g}"


@dataclass(eq=False)
class Controller:
    """A hook of `train` (a `hooks.StatefulHook`) that evaluates and keeps the best state.

    It evaluates every `evaluate_every` chunks and after the last one.

    score: (state) -> score of its policy; higher is better.
    unit: name of the score in messages.
    folder: of the best state.
    metadata: further metadata of its checkpoints.
    log: receives one line per evaluation.
    step_sizes, exploration: names of the tunable floats that a plateau lowers and
        raises (`LearnerInfo`).
    saved_best: best update as of the last regular checkpoint.

    `folder` holds the whole best state as a checkpoint. During the run it also holds the state that
    was the best at the last regular checkpoint. A resume or a rollback goes back to that
    checkpoint, and needs its best state. Any other state in the folder then belongs to updates that
    are undone, so `recall` sets it aside.
    """

    name: ClassVar[str] = "control"

    config: ControlConfig
    score: Callable[[PyTree], float]
    folder: Path
    _: KW_ONLY
    chunk_updates: int
    total_updates: int
    steps_per_update: int
    metadata: Mapping[str, Any]
    log: Callable[[str], None]
    unit: str
    step_sizes: Sequence[str] = ()
    exploration: Sequence[str] = ()
    state: ControlState = field(default_factory=ControlState)
    saved_best: int | None = None

    def __post_init__(self) -> None:
        every = self.config.evaluate_every
        if not every:
            raise ValueError("a Controller needs control.evaluate_every of at least 1")
        self.every = every

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.state, self.config)

    def memory(self) -> dict[str, Any]:
        self.saved_best = self.state.best_update
        return self.state._asdict()

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.state = ControlState(
            **{**memory, "scores": tuple((u, s) for u, s in memory.get("scores", ()))}
        )
        for update, path in checkpoint.list_checkpoints(self.folder) if is_main() else ():
            if update != self.state.best_update:
                checkpoint.set_aside(path)

    def __call__(self, state: PyTree, update: int) -> Change:
        last = update >= self.total_updates
        if update // self.chunk_updates % self.every and not last:
            return Change()
        score = self.score(state)
        if not math.isfinite(score):
            raise DivergedError(
                f"update {update}: {self.unit} is {score} on the validation sessions; check the scale "
                "of the reward (reward.preset, reward.weights)"
            )
        self.state, decision = decide(self.state, score, update, self.config, last)
        overrides: dict[str, Any] = {}
        notes = [f"the best is {self.state.best_score:.6g} at update {self.state.best_update}"]
        if decision.best:
            self._keep(state, update)
            notes = ["the best so far"]
        if decision.adjust:
            floats = {
                name: np.asarray(getattr(state.hparams, name), np.float64)
                for name in (*self.step_sizes, *self.exploration)
            }
            overrides = adjust_floats(floats, self.config, self.step_sizes, self.exploration)
            notes.append(
                "no progress: "
                + (
                    ", ".join(
                        f"{name} {_format_values(floats[name])} -> {_format_values(value)}"
                        for name, value in overrides.items()
                    )
                    or "this learner has nothing to adjust"
                )
            )
        if decision.stop:
            notes.append(
                f"stopped early, after {self.state.since_best} evaluations without a better one"
            )
        self.log(f"validation at update {update}: {self.unit} {score:.6g}; {'; '.join(notes)}")
        return Change(stop=decision.stop, hparams=overrides)

    def _keep(self, state: PyTree, update: int) -> None:
        steps, memory = update * self.steps_per_update, self.state._asdict()
        metadata = {**self.metadata, "steps": steps, "hooks": {self.name: memory}}
        write_checkpoint(self.folder, update, state, metadata, KEEP_ALL)
        self._prune({update, self.saved_best})

    def _prune(self, keep: set[int | None]) -> None:
        for update, path in checkpoint.list_checkpoints(self.folder) if is_main() else ():
            if update not in keep:
                shutil.rmtree(path)

    def summary(self) -> str:
        """Summarise the whole run in one line. There must have been an evaluation."""
        state = self.state
        return (
            f"validation: {self.unit} was best at update {state.best_update}, {state.best_score:.6g} (of "
            f"{several(len(state.scores), 'evaluation')}, last {state.scores[-1][1]:.6g}; "
            f"{several(state.adjustments, 'adjustment')}); that state is in {self.folder}; the table below is of "
            f"{'it' if self.config.keep == 'best' else 'the last one'}"
        )

    def best(self, like: PyTree) -> PyTree:
        """Load the best state of a finished run, and delete all others.

        Raises CheckpointError if its checkpoint cannot be read.

        like: template of the state.
        """
        assert self.state.best_update is not None
        self._prune({self.state.best_update})
        return checkpoint.restore(self.folder / f"update-{self.state.best_update:08d}", like).state
