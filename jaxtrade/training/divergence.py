"""Response to a loss or gradient that is not finite. It is decided here and carried out by the
training loop.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.errors import DivergedError
from jaxtrade.storage.sinks import EACH
from jaxtrade.training.population import Stack
from jaxtrade.types import Algorithm, LoopState, Row


class Response(enum.Enum):
    """The run's next step after a chunk."""

    GO_ON = "go on"
    ROLL_BACK = "roll back"
    END = "end"


def respond(rows: Sequence[Row], rollbacks: int, allowed: int | None) -> Response:
    """Decide from the rows of a chunk. If one agent has diverged, all agents roll back (but see
    `replacement`).

    Args:
        rows: rows of one chunk. `finite` is False if the loss or gradient of any agent is not
            finite.
        rollbacks: number of rollbacks so far. allowed: maximum number; None means that the run
            always goes on (the learner skips steps that are not finite).
    """
    if allowed is None or all(row["finite"] for row in rows):
        return Response.GO_ON
    return Response.ROLL_BACK if rollbacks < allowed else Response.END


def describe(rows: Sequence[Row], step_sizes: Sequence[str] = ()) -> str:
    """Text for messages: the first update that is not finite, its agent, and those of the learner's
    step sizes that it reports (`Algorithm.step_sizes`)."""
    fault = next(row for row in rows if not row["finite"])
    each = fault.get("finite" + EACH)
    which = f" of agent {each.index(False)}" if each else ""
    sizes = "".join(
        f", at {name.replace('_', ' ')} {fault[name]:.3g}" for name in step_sizes if name in fault
    )
    return f"update {fault['update']}: a loss or gradient{which} is not finite{sizes}"


def diverged(
    rows: Sequence[Row], rollbacks: int, saved: Path | None, algorithm: Algorithm
) -> DivergedError:
    """The error of a run without a rollback left. saved: its last checkpoint, or None."""
    remedy = algorithm.remedies.diverged
    kept = "" if saved is None else f"; the last checkpoint is {saved}"
    often = f", after {rollbacks} rollback{'' if rollbacks == 1 else 's'}" if rollbacks else ""
    tries = f"{remedy}, or check" if remedy else "check"
    return DivergedError(
        f"{describe(rows, algorithm.step_sizes)}{often}{kept}; {tries} the scale of the reward"
    )


def rolled_back(state: LoopState, times: int, retry: Callable[[Any, int], Any]) -> Any:
    """The state to continue from after the run has gone back to `state` `times` times.

    The number of all rollbacks is folded into its key, so that the retry draws other random
    numbers. `retry` (`Algorithm.retry`) changes its hyper-parameters.
    """
    rollbacks = state.rollbacks + jnp.int32(times)
    fold_in = Stack(state.rollbacks.shape).map(jax.random.fold_in)
    return state.replace(
        key=fold_in(state.key, rollbacks), rollbacks=rollbacks, hparams=retry(state.hparams, times)
    )
