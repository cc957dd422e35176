"""The rule by which `learners` decides that a run has met its target: means over the last steps or
episodes.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .learners_settings import Goal


class Recent:
    """What a run has given lately. One entry per call of `add`: an update, or a step of all
    environments.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._entries: deque[tuple[float, int]] = deque()  # (sum, number of what is averaged)
        self._sum, self._count, self.steps = 0.0, 0, 0

    def add(self, steps: int, reward: float, episodes: int, returns: float) -> None:
        """steps: environment steps taken. reward: their sum of rewards. episodes, returns: the
        episodes that ended, and the sum of their returns."""
        entry = (reward, steps) if self._goal.by == "step" else (returns, episodes)
        self._entries.append(entry)
        self._sum, self._count, self.steps = (
            self._sum + entry[0],
            self._count + entry[1],
            self.steps + steps,
        )
        while self._count - self._entries[0][1] >= self._goal.window:
            total, count = self._entries.popleft()
            self._sum, self._count = self._sum - total, self._count - count

    @property
    def mean(self) -> float:
        """Over the window; minus infinity before there are as many."""
        return self._sum / self._count if self._count >= self._goal.window else float("-inf")

    @property
    def reached(self) -> bool:
        return self.mean >= self._goal.target

    def result(self, budget: int) -> dict[str, Any]:
        """reached; steps: until then, or the whole budget; last: mean of the last window, None if
        it was never full.
        """
        return {
            "reached": self.reached,
            "steps": self.steps if self.reached else budget,
            "last": self.mean if self._count >= self._goal.window else None,
        }
