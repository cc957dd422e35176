"""The real clock, used where no other is injected. It is monotonic: steps of the wall clock or NTP
do not affect it.
"""

from __future__ import annotations

import time


class SystemClock:
    """The `Clock` of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
