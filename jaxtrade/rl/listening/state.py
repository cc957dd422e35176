"""An algorithm with an advisor. The training state holds the advice, and new answers enter it
before each update.

All agents of a population share one advice state. It is taken out of the training state before the
vmapped update and put back after it, so that it is not copied for each agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.advisor.bridge import Bridge, exchange
from jaxtrade.advisor.outcomes import (
    Outcomes,
    PanelOutcomes,
    no_outcomes,
    no_panel_outcomes,
    panel_scored,
    scored,
)
from jaxtrade.advisor.table import AdviceView, Delta, demand, received
from jaxtrade.config import AdvisorConfig
from jaxtrade.training.hooks import Change
from jaxtrade.types import Algorithm, Array, PyTree


class AdviceState(struct.PyTreeNode):
    """Everything about advice that influences training.

    view: the advice table, and the rows of it that each bar may read.
    followed: int8[T], sign of the price move after each bar, 0 outside the training sessions
        (`outcomes.what_followed`).
    askable: bool[T], bars that may be asked about.
    want: float32[T], need for advice about each bar since it was last requested (sums of
        `fusion.visits`).
    outcomes: statistics of the scored advice, of one advisor or of a panel.
    memory: float32[], as in `outcomes.scored`.
    """

    view: AdviceView
    followed: Array
    askable: Array
    want: Array
    outcomes: Outcomes | PanelOutcomes
    memory: Array


def start_advice(
    view: AdviceView,
    followed: np.ndarray | Array,
    askable: np.ndarray | Array,
    config: AdvisorConfig,
) -> AdviceState:
    """The state before the first update. Advice that is already in the table is not scored."""
    askable = jnp.asarray(askable)
    bars = askable.shape[0]
    outcomes = no_panel_outcomes(config, bars) if config.advisors > 1 else no_outcomes(config, bars)
    return AdviceState(
        view,
        jnp.asarray(followed, jnp.int8),
        askable,
        jnp.zeros(bars, jnp.float32),
        outcomes,
        jnp.float32(config.memory),
    )


def with_answers(advice: AdviceState, delta: Delta) -> AdviceState:
    """Add the rows of a delta to the table and score them."""
    table, outcomes = received(advice.view.table, delta), advice.outcomes
    if isinstance(outcomes, PanelOutcomes):
        outcomes = panel_scored(outcomes, delta, table, advice.followed, advice.memory)
    else:
        outcomes = scored(outcomes, delta, advice.followed, advice.memory)
    return advice.replace(view=advice.view.replace(table=table), outcomes=outcomes)


def wanted(advice: AdviceState, most: int) -> tuple[AdviceState, tuple[Array, Array]]:
    """Select the bars with the highest want -> (state in which their want is 0, (bars, weights) as
    `table.demand`).
    """
    bars, weight = demand(advice.want, advice.askable, advice.view.table.version, most)
    return advice.replace(want=advice.want.at[bars].set(0.0)), (bars, weight)


def visited(advice: AdviceState, visits: Array) -> AdviceState:
    """Add visits to the want. visits: float32[..., T], of one agent or of several."""
    return advice.replace(want=advice.want + visits.reshape(-1, advice.want.shape[0]).sum(axis=0))


# (update int32[], bars int32[K], weights float32[K]) -> Delta; a host callback inside the compiled
# program
HostCall = Callable[[Array, Array, Array], Delta]


def with_advice(
    algorithm: Algorithm, start: AdviceState, most: int = 0, ask: HostCall | None = None
) -> Algorithm:
    """Wrap `algorithm` (one agent or a population), so that its state holds `start` at first.

    Without `ask`, `inputs` of its update is a `Delta`. With `ask`, `inputs` is None, and each
    update calls `ask` once with the `most` bars that have the highest want.
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


# The two transports of advice into the compiled program. Both use the same bridge to the host.
#
# `exchange`: between chunks. New answers are the inputs of a chunk's updates, each with at most
#     `advisor.rows`, and the
# bars with the highest want are an output of its end. `callback`: one unordered host callback per
# update does both.


class AdviceExchange:
    """A `training.hooks.Exchange` and a `training.hooks.StatefulHook`. Its memory is that of the
    bridge.

    start: advice state of a new run, over T bars. updates: number of updates in a chunk
        (`train.chunk_updates`).
    """

    def __init__(
        self, config: AdvisorConfig, start: AdviceState, bridge: Bridge, updates: int = 1
    ) -> None:
        self.config, self.start, self.bridge, self.updates = config, start, bridge, updates
        self._bars = start.want.shape[0]

    @property
    def name(self) -> str:
        return self.bridge.name

    @property
    def inside(self) -> bool:
        """True if the compiled program itself calls the host (transport `callback`)."""
        return self.config.transport == "callback"

    @property
    def most(self) -> int:
        """Number of bars per request (static).

        Between chunks: `demand` for each of the chunk's updates, but at most what the service's
        queue holds, which would drop the rest.
        """
        chosen = self.config
        if self.inside or chosen.demand_per == "chunk":
            return min(chosen.demand, self._bars)
        return min(chosen.demand * self.updates, self._bars, chosen.service.queue_size)

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        ask = exchange(self.bridge) if self.inside else None
        return with_advice(algorithm, self.start, self.most, ask)

    def close_chunk(self, state: Any) -> tuple[Any, PyTree]:
        if self.inside:
            return state, None
        advice, news = wanted(state.advice, self.most)
        return state.replace(advice=advice), news

    def inputs(self, update: int, updates: int) -> PyTree:
        if self.inside:
            return None
        deltas = [self.bridge.delta(update + i) for i in range(updates)]
        return Delta(
            np.stack([delta.bars for delta in deltas]),
            np.stack([delta.rows for delta in deltas]),
            np.stack([delta.version for delta in deltas]),
        )

    def receive(self, update: int, news: PyTree) -> None:
        del update
        if not self.inside:
            self.bridge.wanted(*news)

    def __call__(self, state: PyTree, update: int) -> Change:
        """Changes nothing. Raises JournalError if a replay differs from the recorded run."""
        self.bridge.check()
        return Change()

    def memory(self) -> dict[str, Any]:
        return self.bridge.memory()

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.bridge.recall(memory)
