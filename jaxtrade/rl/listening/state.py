"""An algorithm with an advisor: its advice in the training state, updated by what becomes visible before each update.

One state serves all agents of a population: it is taken out before their vmapped update and put back after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.advisor.outcomes import Outcomes, no_outcomes, scored
from jaxtrade.advisor.table import AdviceView, Delta, demand, received
from jaxtrade.types import Algorithm, Array, PyTree


class AdviceState(struct.PyTreeNode):
    """Everything about advice that influences training.

    view: the table, and how it is seen. followed: int8[T] what came after each bar, 0 outside the training sessions
    (`outcomes.what_followed`). askable: bool[T]. want: float32[T] how much each bar's advice was missed since it was
    last asked about. outcomes: what became of the advice so far. memory: float32[], as in `outcomes.scored`.
    """

    view: AdviceView
    followed: Array
    askable: Array
    want: Array
    outcomes: Outcomes
    memory: Array


def start_advice(view: AdviceView, followed: np.ndarray | Array, askable: np.ndarray | Array, bins: int,
                 memory: float) -> AdviceState:
    """The state before the first update; advice that is in the table already has not been scored."""
    askable = jnp.asarray(askable)
    return AdviceState(view, jnp.asarray(followed, jnp.int8), askable, jnp.zeros(askable.shape[0], jnp.float32),
                       no_outcomes(bins), jnp.float32(memory))


def with_answers(advice: AdviceState, delta: Delta) -> AdviceState:
    """A delta's rows in the table, and scored."""
    return advice.replace(view=advice.view.replace(table=received(advice.view.table, delta)),
                          outcomes=scored(advice.outcomes, delta, advice.followed, advice.memory))


def wanted(advice: AdviceState, most: int) -> tuple[AdviceState, tuple[Array, Array]]:
    """The bars most wanted, as `table.demand`, and the state in which they have been asked about."""
    bars, weight = demand(advice.want, advice.askable, advice.view.table.version, most)
    return advice.replace(want=advice.want.at[bars].set(0.0)), (bars, weight)


def visited(advice: AdviceState, visits: Array) -> AdviceState:
    """visits: float32[..., T], of one agent or of several."""
    return advice.replace(want=advice.want + visits.reshape(-1, advice.want.shape[0]).sum(axis=0))


# (update int32[], bars int32[K], weights float32[K]) -> Delta; runs on the host, inside the compiled program
HostCall = Callable[[Array, Array, Array], Delta]


def with_advice(algorithm: Algorithm, start: AdviceState, most: int = 0, ask: HostCall | None = None) -> Algorithm:
    """`algorithm`, of one agent or a population, with `start` in its first state.

    `inputs` of its update is a `Delta`, or None where `ask` is called instead: once per update, with the `most` bars
    that are wanted most.
    """

    def init(key: Array, params: PyTree) -> Any:
        return algorithm.init(key, params).replace(advice=start)

    def update(state: Any, params: PyTree, inputs: PyTree = None) -> tuple[Any, dict[str, Array]]:
        advice = state.advice
        if ask is not None:
            advice, (bars, weight) = wanted(advice, most)
            inputs = ask(jnp.reshape(state.update, -1)[0], bars, weight)
        advice = with_answers(advice, inputs)
        state, metrics = algorithm.update(state.replace(advice=None), params, advice)
        return state.replace(advice=visited(advice, metrics.pop("visits"))), metrics

    return algorithm._replace(init=init, update=update)


def first_of(delta: Delta, updates: int, bars: int) -> Delta:
    """`delta` for a chunk's first update and padding for the others: NumPy arrays [updates, ...]."""
    rows = np.zeros((updates, *delta.rows.shape), np.float32)
    where = np.full((updates, *delta.bars.shape), bars, np.int32)
    version = np.zeros(updates, np.int32)
    rows[0], where[0], version[0] = delta.rows, delta.bars, delta.version
    return Delta(where, rows, version)
