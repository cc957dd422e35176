"""The two transports of advice into the compiled program. Both use the same bridge to the host.

`exchange`: between chunks. New answers are the inputs of a chunk's updates, each with at most
    `advisor.rows`, and the
bars with the highest want are an output of its end. `callback`: one unordered host callback per
update does both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrade.advisor.bridge import Bridge, exchange
from jaxtrade.advisor.table import Delta
from jaxtrade.config import AdvisorConfig
from jaxtrade.rl.listening.state import AdviceState, wanted, with_advice
from jaxtrade.training.hooks import Change
from jaxtrade.types import Algorithm, PyTree


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
