"""Limits on requests: per minute, in flight, and retries. No I/O; times come from one monotonic
clock, in seconds.
"""

from __future__ import annotations

import random

_MINUTE = 60.0
_SMOOTH = 0.1  # share of a minute's allowance that may be used in one burst


class PerMinute:
    """A token bucket that lets at most `limit` through in any 60 seconds, except for a single take
    above the limit.

    The burst counts against the minute's allowance: `burst` at once, and the other `limit - burst`
    spread over the minute.
    """

    def __init__(self, limit: float, now: float) -> None:
        if limit < 2:
            raise ValueError(f"a limit per minute is at least 2, got {limit}")
        self._burst = max(1.0, _SMOOTH * limit)
        self._rate = (limit - self._burst) / _MINUTE
        self._level, self._at = self._burst, now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken.

        An amount above the burst may be taken when the bucket is full. The level then goes below
        zero, and later takes wait longer.
        """
        level = min(self._burst, self._level + (now - self._at) * self._rate)
        return max(0.0, (min(amount, self._burst) - level) / self._rate)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` at the time `now` (seconds)."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now

    def give_back(self, amount: float) -> None:
        """Return an amount that was taken but not used."""
        self._level = min(self._burst, self._level + amount)


class Concurrency:
    """The limit on requests in flight: additive increase, multiplicative decrease (AIMD; Chiu and
    Jain 1989).

    It rises by one per `per_step` successes and halves at a sign of overload. It stays between 1
    and `most`.
    """

    def __init__(self, most: int, per_step: int = 10) -> None:
        self._most, self._per_step = most, per_step
        self._successes = 0
        self._cut_at = float("-inf")
        self.limit = most

    def succeeded(self) -> None:
        """Count a success, which may raise the limit."""
        self._successes += 1
        if self._successes >= self._per_step:
            self._successes = 0
            self.limit = min(self._most, self.limit + 1)

    def overloaded(self, started: float, now: float) -> None:
        """Note that a request sent at `started` met overload.

        Requests sent up to the last cut are ignored: they do not show whether that cut was enough.
        """
        if started > self._cut_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._cut_at = now


class RetryBudget:
    """A retry budget, so that an outage cannot multiply the load.

    Each new question adds `share` retries, up to `most`. The budget starts with `reserve` retries.
    """

    def __init__(self, share: float = 0.1, reserve: float = 3.0, most: float = 10.0) -> None:
        self._share, self._most = share, most
        self._level = reserve if share > 0 else 0.0

    def requested(self) -> None:
        """Note that a question was sent for the first time."""
        self._level = min(self._most, self._level + self._share)

    def retry(self) -> bool:
        """Take one retry from the budget. Returns False where none is left."""
        if self._level < 1.0 - 1e-9:
            return False
        self._level -= 1.0
        return True


def jittered(previous: float, base: float, cap: float, rng: random.Random) -> float:
    """Seconds before the next attempt, by decorrelated jitter (Brooker 2015).

    It is uniform in [base, 3 x previous] and at most `cap`. previous: the wait before the last
    attempt, 0 at first.
    """
    return min(cap, rng.uniform(base, max(base, 3 * previous)))
