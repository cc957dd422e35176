"""One of several agents diverges: it alone goes back to the rollback point.

The others stay bit-identical.

The rule, for a run with several agents and a limit of rollbacks above 0:

- An agent whose loss or gradient is not finite in a chunk takes its own part of the rollback
  point, with another key and the changes of `LearnerInfo.retry`. It goes on at the update of the
  others, so it learns from fewer updates.
- The limit holds for each agent. An agent that has none left is frozen: at the end of every chunk it is
  put back to its part of the rollback point, unchanged. Its count in the state is then one above
  the limit, so a resumed run knows it.
- The run ends when all agents are frozen.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.errors import DivergedError
from jaxtrade.storage.sinks import EACH, UNDONE
from jaxtrade.text import several
from jaxtrade.training.population import Stack, agent_rows
from jaxtrade.types import Learner, LoopState, PyTree, Row

# Response to a loss or gradient that is not finite. It is decided here and carried out by the
# training loop.


class Response(enum.Enum):
    """The run's next step after a chunk."""

    GO_ON = "go on"
    ROLL_BACK = "roll back"
    END = "end"


def respond(rows: Sequence[Row], rollbacks: int, allowed: int | None) -> Response:
    """Decide from the rows of a chunk.

    If one agent has diverged, all agents roll back (but see `replacement`).

    Args:
        rows: rows of one chunk. `finite` is False if the loss or gradient of any agent is
            not finite.
        rollbacks: number of rollbacks so far.
        allowed: maximum number; None means that the run always goes on (the learner skips steps
            that are not finite).
    """
    if allowed is None or all(row["finite"] for row in rows):
        return Response.GO_ON
    return Response.ROLL_BACK if rollbacks < allowed else Response.END


def describe(rows: Sequence[Row], step_sizes: Sequence[str] = ()) -> str:
    """Describe the first update that is not finite, for messages.

    The text names its agent, and those of the learner's step sizes that it
    reports (`LearnerInfo.step_sizes`).
    """
    fault = next(row for row in rows if not row["finite"])
    each = fault.get("finite" + EACH)
    which = f" of agent {each.index(False)}" if each else ""
    sizes = "".join(
        f", at {name.replace('_', ' ')} {fault[name]:.3g}" for name in step_sizes if name in fault
    )
    return f"update {fault['update']}: a loss or gradient{which} is not finite{sizes}"


def make_diverged_error(
    rows: Sequence[Row], rollbacks: int, saved: Path | None, algorithm: Learner
) -> DivergedError:
    """Make the error of a run without a rollback left. saved: its last checkpoint, or None."""
    remedy = algorithm.info.remedies.diverged
    kept = "" if saved is None else f"; the last checkpoint is {saved}"
    often = f", after {rollbacks} rollback{'' if rollbacks == 1 else 's'}" if rollbacks else ""
    tries = f"{remedy}, or check" if remedy else "check"
    return DivergedError(
        f"{describe(rows, algorithm.info.step_sizes)}{often}{kept}; {tries} the scale of the reward"
    )


def changes_of(algorithm: Learner) -> str:
    """Say with what changes a run or an agent tries again."""
    return " and ".join(
        note for note in (algorithm.info.retry_note, "other random numbers") if note
    )


def rolled_back(state: LoopState, times: int, retry: Callable[[Any, int], Any]) -> Any:
    """Return the state to continue from after the run has gone back to `state` `times` times.

    The number of all rollbacks is folded into its key, so that the retry draws other random
    numbers. `retry` (`LearnerInfo.retry`) changes its hyper-parameters.
    """
    rollbacks = state.rollbacks + jnp.int32(times)
    fold_in = Stack(state.rollbacks.shape).map(jax.random.fold_in)
    return state.replace(
        key=fold_in(state.key, rollbacks), rollbacks=rollbacks, hparams=retry(state.hparams, times)
    )


def find_frozen(rollbacks: np.ndarray, allowed: int) -> list[int]:
    """Return the indices of the agents that have diverged for good.

    rollbacks: int[...] `LoopState.rollbacks`.
    """
    return [int(i) for i in np.flatnonzero(np.reshape(rollbacks, -1) > allowed)]


def summary(rollbacks: Any, allowed: int) -> dict[str, Any]:
    """Return what a run's `summary.json` says about rollbacks.

    rollbacks: int[] of one agent, or int[...] of several.
    """
    counts = np.asarray(rollbacks)
    if not counts.ndim:
        return {"rollbacks": int(counts)}
    gone = find_frozen(counts, allowed) if allowed else []
    times = np.minimum(
        counts.reshape(-1), allowed
    ).tolist()  # a frozen agent counts one more than it went back
    return {"rollbacks": max(times), "rollbacks_by_agent": times, "frozen_agents": gone}


def frozen_agents_lines(rollbacks: Any, allowed: int) -> list[str]:
    """Return the line of a finished run about agents that diverged for good, if any."""
    gone = summary(rollbacks, allowed).get("frozen_agents")
    return (
        [
            f"agents that diverged for good (their policies are of their last finite state): "
            f"{', '.join(map(str, gone))}"
        ]
        if gone
        else []
    )


class ReplacementDecision(NamedTuple):
    """What happens to each agent after a chunk; all [agents].

    again: bool, goes back and tries again.
    stays: bool, is frozen.
    rollbacks: int, the new counts.
    """

    again: np.ndarray
    stays: np.ndarray
    rollbacks: np.ndarray

    @property
    def back(self) -> np.ndarray:
        """bool[agents]: whose chunk is undone."""
        return self.again | self.stays


def decide(rows: Sequence[Row], rollbacks: np.ndarray, allowed: int) -> ReplacementDecision:
    """Decide from the rows of a chunk.

    Args:
        rollbacks: int[agents] before the chunk.
        allowed: the limit for each agent.
    """
    finite = np.all([row["finite" + EACH] for row in rows], axis=0)
    was_frozen = rollbacks > allowed
    again = ~finite & (rollbacks < allowed)
    gone = ~finite & (rollbacks == allowed)
    return ReplacementDecision(again, gone | was_frozen, rollbacks + again + gone)


def replace_diverged(
    state: Any,
    good: LoopState,
    decision: ReplacementDecision,
    retries: np.ndarray,
    retry: Callable[[Any, int], Any],
    stack: Stack,
) -> Any:
    """Return the state of all agents after those that diverged have gone back to `good`.

    Leaves [*stack.shape, ...]. An agent that tries again has its count of rollbacks folded into its
    key, as in `rolled_back`. `update` and advice stay those of all.

    retries: int[agents] how often each agent has gone back to `good`, this time included.
    """
    again, back = (
        jnp.asarray(each.reshape(stack.shape)) for each in (decision.again, decision.back)
    )
    rollbacks = jnp.asarray(decision.rollbacks.reshape(stack.shape), jnp.int32)
    fold_in, hparams = stack.map(jax.random.fold_in), good.hparams
    for times in sorted(set(retries[decision.again].tolist())):  # `retry` takes one number for all
        chosen = jnp.asarray((decision.again & (retries == times)).reshape(stack.shape))
        hparams = _where(chosen, retry(good.hparams, times), hparams)
    old = good.replace(key=_where(again, fold_in(good.key, rollbacks), good.key), hparams=hparams)
    shared = {name: getattr(state, name) for name in ("update", "total_updates")}
    if hasattr(state, "advice"):  # shared by all agents, without an axis of them
        shared["advice"] = state.advice
    without = dict.fromkeys(shared)
    merged = _where(back, old.replace(**without), state.replace(**without))
    return merged.replace(**shared, rollbacks=rollbacks)


def _where(mask: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Select `new` where an agent's `mask` is True.

    Always new arrays, because the next chunk donates them.
    """
    return jax.tree.map(
        lambda a, b: jnp.where(jnp.reshape(mask, mask.shape + (1,) * (a.ndim - mask.ndim)), a, b),
        new,
        old,
    )


def mark_undone(rows: Sequence[dict[str, Any]], decision: ReplacementDecision) -> None:
    """Note in the rows of a chunk whose part of them is undone, if any."""
    if decision.back.any():
        for row in rows:
            row[UNDONE + EACH] = decision.back.tolist()


def messages(
    rows: Sequence[Row],
    decision: ReplacementDecision,
    before: np.ndarray,
    allowed: int,
    point: int,
    algorithm: Learner,
) -> list[str]:
    """Return one line for each agent that diverged in this chunk.

    Args:
        before: int[agents] counts of rollbacks before it.
        point: update of the rollback point.
    """
    changes, lines = changes_of(algorithm), []
    for i in np.flatnonzero(decision.rollbacks > before):
        own = [
            row | {"update": of["update"]}
            for row, of in zip(agent_rows(rows, int(i)), rows, strict=True)
        ]
        fault = describe(own, algorithm.info.step_sizes)
        lines.append(
            f"agent {i}, {fault}; it goes back to its state of update {point} (rollback {before[i] + 1} of at most "
            f"{allowed}), with {changes}; the other agents go on"
            if decision.again[i]
            else f"agent {i}, {fault}; after {several(int(before[i]), 'rollback')} it is frozen: it stays at its "
            f"state of update {point}"
        )
    return lines
