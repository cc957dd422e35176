"""A circuit breaker: decides whether requests to a failing endpoint may start. It does no I/O.

All times come from one monotonic clock, in seconds.
"""

from __future__ import annotations

import math
from collections import deque


class Breaker:
    """A circuit breaker for one endpoint.

    It opens after `consecutive` failures in a row, or when at least `share` of the last `window`
    requests failed. While it is open no request starts for `first` seconds. Then one request, the
    probe, decides: success closes the breaker, failure doubles the pause up to `longest`. A refusal
    (credentials, model, quota) opens it for good.
    """

    def __init__(
        self,
        consecutive: int = 5,
        window: int = 20,
        share: float = 0.5,
        first: float = 30.0,
        longest: float = 600.0,
    ) -> None:
        self.consecutive, self._share, self._first, self._longest = (
            consecutive,
            share,
            first,
            longest,
        )
        self._recent: deque[bool] = deque(maxlen=window)
        self._in_a_row = 0
        self._pause = first
        self._opened: float | None = None  # when it opened; None while closed
        self._until = 0.0
        self._probing = False
        self._open_before = 0.0  # seconds of earlier openings
        self.refused = ""  # why it is open for good, or ""
        self.openings = 0

    @property
    def state(self) -> str:
        """The state, for reports: closed, open, half open (one attempt is being made) or open for
        good.
        """
        if self.refused:
            return "open for good"
        return "closed" if self._opened is None else "half open" if self._probing else "open"

    @property
    def in_a_row(self) -> int:
        """Failures since the last success, while it is closed."""
        return self._in_a_row

    def open_seconds(self, now: float) -> float:
        """Seconds that it has been open in total."""
        return self._open_before + (0.0 if self._opened is None else now - self._opened)

    def wait(self, now: float) -> float:
        """Seconds until a request may start. inf while a probe is in flight, and after a
        refusal.
        """
        if self.refused or self._probing:
            return math.inf
        return 0.0 if self._opened is None else max(0.0, self._until - now)

    def begin(self) -> bool:
        """Note that a request starts. Call it only when `wait` is 0. Returns whether this request
        is the probe.
        """
        self._probing = self._opened is not None
        return self._probing

    def end(self, ok: bool | None, probe: bool, now: float) -> str:
        """Note that a request has ended. Returns "opened", "closed" or "" (no change).

        ok: whether the endpoint is healthy; None where the result says nothing about it. Requests
            that started before
        the breaker opened and end while it is open change nothing.
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
        if self._in_a_row >= self.consecutive or (
            full and self._recent.count(False) >= self._share * len(self._recent)
        ):
            self._open(now, self._first)
            return "opened"
        return ""

    def _probed(self, ok: bool | None, now: float) -> str:
        self._probing = False
        if (
            self.refused
        ):  # while the probe was in flight: a good answer does not take a refusal back
            return ""
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
        """Open the breaker for good. Returns False where it already was."""
        if self.refused:
            return False
        self.refused = reason
        if self._opened is None:
            self._open(now, math.inf)
        return True
