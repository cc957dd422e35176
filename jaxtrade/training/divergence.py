"""What follows from a loss or gradient that is not finite: decided here, carried out by the training loop."""

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
from jaxtrade.types import LoopState, Row


class Response(enum.Enum):
    """What the run does next."""

    GO_ON = "go on"
    ROLL_BACK = "roll back"
    END = "end"


def respond(rows: Sequence[Row], rollbacks: int, allowed: int | None) -> Response:
    """What a chunk's rows lead to. All agents roll back where one of them has diverged.

    Args:
        rows: of one chunk; `finite` is False where any agent's loss or gradient is not.
        rollbacks: those that the run has done. allowed: how many it may do; None: it goes on whatever happens (a step
            that is not finite is never taken).
    """
    if allowed is None or all(row["finite"] for row in rows):
        return Response.GO_ON
    return Response.ROLL_BACK if rollbacks < allowed else Response.END


def describe(rows: Sequence[Row]) -> str:
    """The first update that is not finite, which agent's it is, and the learning rate if there is one."""
    fault = next(row for row in rows if not row["finite"])
    each = fault.get("finite" + EACH)
    which = f" of agent {each.index(False)}" if each else ""
    rate = f", at learning rate {fault['learning_rate']:.3g}" if "learning_rate" in fault else ""
    return f"update {fault['update']}: a loss or gradient{which} is not finite{rate}"


def diverged(rows: Sequence[Row], rollbacks: int, saved: Path | None, remedy: str) -> DivergedError:
    """The error of a run that has no rollback left. saved: its last checkpoint. remedy: what to try with
    the learner's own keys, or ""."""
    kept = "" if saved is None else f"; the last checkpoint is {saved}"
    often = f", after {rollbacks} rollback{'' if rollbacks == 1 else 's'}" if rollbacks else ""
    tries = f"{remedy}, or check" if remedy else "check"
    return DivergedError(f"{describe(rows)}{often}{kept}; {tries} the scale of the reward")


def rolled_back(state: LoopState, times: int, retry: Callable[[Any, int], Any]) -> Any:
    """`state` to go on from, after the run has come back to it `times` times: the count of all rollbacks is folded into
    its key, and `retry` (`Algorithm.retry`) changes its hyper-parameters."""
    rollbacks = state.rollbacks + jnp.int32(times)
    fold_in = Stack(state.rollbacks.shape).map(jax.random.fold_in)
    return state.replace(key=fold_in(state.key, rollbacks), rollbacks=rollbacks, hparams=retry(state.hparams, times))
