"""A limit on a run's time: the hook that ends it between two chunks (`control.wall_clock`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from jaxtrade.training.hooks import Change
from jaxtrade.training.together import from_main
from jaxtrade.types import PyTree


class WallClock:
    """Ends a run after the first chunk that passes a limit. A finished run is not ended.

    seconds: the limit, from when this hook is made: compilation counts. total_updates: length of
        the run. now: the
    clock, in seconds. reason: why the run was ended; None if it was not.

    Of several processes, the clock of process 0 decides for all.
    """

    def __init__(
        self, seconds: float, total_updates: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds, self.total, self._now, self._begun = seconds, total_updates, now, now()
        self.reason: str | None = None

    def __call__(self, state: PyTree, update: int) -> Change:
        del state
        passed = from_main(lambda: self._now() - self._begun)
        if passed < self.seconds or update >= self.total:
            return Change()
        self.reason = (
            f"control.wall_clock: stopped after update {update} of {self.total}, {passed:,.1f} s after the "
            f"start (limit {self.seconds:,.1f} s)"
        )
        return Change(stop=True)
