"""A circuit breaker: whether an endpoint that fails may be asked at all. Pure; times are of one monotonic clock.

The old advisor had a cool-down flag that was set and never read.
"""

from __future__ import annotations

import math
from collections import deque


class Breaker:
    """Opens after `consecutive` failures in a row or where at least `share` of the last `window` requests failed. Then
    nothing is asked for `first` seconds, doubled up to `longest` at every failed probe; one probe decides whether it
    closes. A refusal (credentials, model, quota) opens it for good.
    """

    def __init__(self, consecutive: int = 5, window: int = 20, share: float = 0.5, first: float = 30.0,
                 longest: float = 600.0) -> None:
        self._consecutive, self._share, self._first, self._longest = consecutive, share, first, longest
        self._recent: deque[bool] = deque(maxlen=window)
        self._in_a_row = 0
        self._pause = first
        self._opened: float | None = None  # when it opened; None: closed
        self._until = 0.0
        self._probing = False
        self._open_before = 0.0
        self.refused = ""  # why it is open for good
        self.openings = 0

    @property
    def state(self) -> str:
        if self.refused:
            return "open for good"
        return "closed" if self._opened is None else "half open" if self._probing else "open"

    def open_seconds(self, now: float) -> float:
        """For how long it has been open, all in all."""
        return self._open_before + (0.0 if self._opened is None else now - self._opened)

    def wait(self, now: float) -> float:
        """Seconds until a request may start: 0, or inf while only an outcome can tell."""
        if self.refused or self._probing:
            return math.inf
        return 0.0 if self._opened is None else max(0.0, self._until - now)

    def begin(self) -> bool:
        """A request starts, `wait` being 0; True where it is the probe."""
        self._probing = self._opened is not None
        return self._probing

    def end(self, ok: bool | None, probe: bool, now: float) -> str:
        """A request has ended; None: it says nothing of the endpoint. Returns "opened", "closed" or "".

        Requests from before the opening that end while it is open change nothing.
        """
        if self._opened is not None and not probe:
            return ""
        if probe:
            return self._probed(ok, now)
        if ok is None:
            return ""
        self._in_a_row = 0 if ok else self._in_a_row + 1
        self._recent.append(ok)
        full = len(self._recent) == self._recent.maxlen
        if self._in_a_row >= self._consecutive or (
                full and self._recent.count(False) >= self._share * len(self._recent)):
            self._open(now, self._first)
            return "opened"
        return ""

    def _probed(self, ok: bool | None, now: float) -> str:
        self._probing = False
        if ok and self._opened is not None:
            self._open_before += now - self._opened
            self._opened = None
            self._in_a_row = 0
            self._recent.clear()
            return "closed"
        if ok is False:
            self._until = now + (pause := min(2 * self._pause, self._longest))
            self._pause = pause
        return ""

    def _open(self, now: float, pause: float) -> None:
        self._opened, self._until, self._pause = now, now + pause, pause
        self.openings += 1

    def refuse(self, reason: str, now: float) -> bool:
        """Open for good; False where it was already."""
        if self.refused:
            return False
        self.refused = reason
        if self._opened is None:
            self._open(now, math.inf)
        return True
