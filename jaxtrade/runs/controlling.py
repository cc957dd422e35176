"""The hook of a run that scores its policies on the validation sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.replay import last_session
from jaxtrade.runs.job import SCORE, Job
from jaxtrade.runs.scoring import scores_by_agent
from jaxtrade.runs.setup import Setup, params_shown, policies_of
from jaxtrade.text import Tell
from jaxtrade.training import control
from jaxtrade.training.together import from_main
from jaxtrade.types import PyTree


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
