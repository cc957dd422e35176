"""Population-based training as a hook: scores the agents between chunks, and replaces the worst.

What an event does is a pure function (`rl.evolve`), which the caller gives, as it gives the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from jaxtrade.text import several
from jaxtrade.training.hooks import Change
from jaxtrade.types import PyTree


class Event(Protocol):
    """(state, scores float32[N], update) -> (the state after the event, the row of the lineage
    about it).
    """

    def __call__(
        self, state: PyTree, scores: np.ndarray, update: int
    ) -> tuple[PyTree, dict[str, Any]]: ...


class Evolution:
    """A hook of `train` (a `hooks.StatefulHook`): an event every `every` chunks, but not after the
    last one, because nothing would be trained after it.

    events, copies: events so far, and agents that became copies in them. A rollback and a resume
        restore both.
    """

    name = "evolution"

    def __init__(
        self,
        every: int,
        *,
        score: Callable[[PyTree], np.ndarray],
        event: Event,
        record: Callable[[dict[str, Any]], None],
        tell: Callable[[str], None],
        chunk_updates: int,
        total_updates: int,
    ) -> None:
        """
        Args:
            score: state -> score of each agent, float64[N]; higher is better. It reads validation
                sessions alone.
            record: takes the row of each event. tell: takes one line about it.
        """
        self._every, self._score, self._event, self._record, self._tell = (
            every,
            score,
            event,
            record,
            tell,
        )
        self._chunk_updates, self._total_updates = chunk_updates, total_updates
        self.events = self.copies = 0

    def memory(self) -> dict[str, Any]:
        return {"events": self.events, "copies": self.copies}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.events, self.copies = memory.get("events", 0), memory.get("copies", 0)

    def __call__(self, state: PyTree, update: int) -> Change:
        if update // self._chunk_updates % self._every or update >= self._total_updates:
            return Change()
        scores = self._score(state).astype(np.float32)
        state, row = self._event(state, scores, update)
        copied = [(i, source) for i, source in enumerate(row["source"]) if source != i]
        self.events, self.copies = self.events + 1, self.copies + len(copied)
        self._record(row)
        self._tell(
            f"evolution at update {update}: {described(scores)}; "
            + (
                ", ".join(f"agent {i} goes on from agent {source}" for i, source in copied)
                or "nobody is replaced: no agent is finite"
            )
        )
        return Change(state=state, save=True) if copied else Change()


def described(scores: np.ndarray) -> str:
    """The scores of an event in words."""
    known = scores[np.isfinite(scores)]
    if not len(known):
        return f"none of {several(len(scores), 'agent')} has a finite score"
    return f"scores {known.min():.6g} .. {known.max():.6g}, median {np.median(known):.6g}"
