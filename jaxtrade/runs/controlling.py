"""The hook of a run that scores its policies on the validation sessions."""

from __future__ import annotations

import math

import jax

from jaxtrade.runs import board
from jaxtrade.runs.job import Job
from jaxtrade.runs.latest import LatestSession
from jaxtrade.runs.scoring import scores_by_agent
from jaxtrade.runs.setup import params_shown, policies_of
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
                {board.SCORE: value}, setup.stack.first(state.update) * setup.plan.steps_per_update
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
