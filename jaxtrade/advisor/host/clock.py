"""The clock that is not injected. Monotonic: a step of the wall clock or of NTP changes nothing."""

from __future__ import annotations

import time


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
