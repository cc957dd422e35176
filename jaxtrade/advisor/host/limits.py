"""How much may be asked at once, per minute and again. Pure; times are of one monotonic clock, in seconds."""

from __future__ import annotations

import random

_MINUTE = 60.0
_SMOOTH = 0.1  # share of a minute's allowance that may be used at once


class PerMinute:
    """A token bucket that never lets more than `limit` through in any 60 seconds (one larger take apart).

    Its burst comes out of the minute's allowance: `burst` at once, the other `limit - burst` spread over the minute.
    """

    def __init__(self, limit: float, now: float) -> None:
        if limit < 2:
            raise ValueError(f"a limit per minute is at least 2, got {limit}")
        self._burst = max(1.0, _SMOOTH * limit)
        self._rate = (limit - self._burst) / _MINUTE
        self._level, self._at = self._burst, now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken. More than the burst may be taken once the bucket is full: the level
        goes below zero and later takes pay for it."""
        level = min(self._burst, self._level + (now - self._at) * self._rate)
        return max(0.0, (min(amount, self._burst) - level) / self._rate)

    def take(self, amount: float, now: float) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now

    def give_back(self, amount: float) -> None:
        """What was taken and not used."""
        self._level = min(self._burst, self._level + amount)


class Concurrency:
    """How many requests may be under way: one more per 10 successes, half at a sign of overload (AIMD; Chiu and
    Jain 1989), at least 1 and at most `most`."""

    def __init__(self, most: int, per_step: int = 10) -> None:
        self._most, self._per_step = most, per_step
        self._successes = 0
        self._cut_at = float("-inf")
        self.limit = most

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self._per_step:
            self._successes = 0
            self.limit = min(self._most, self.limit + 1)

    def overloaded(self, started: float, now: float) -> None:
        """A request begun at `started` met overload. Those begun up to the last cut do not tell of its effect."""
        if started > self._cut_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._cut_at = now


class RetryBudget:
    """At most `share` retries per request over the recent ones, and `reserve` of them to begin with, so that an outage
    cannot multiply the load."""

    def __init__(self, share: float = 0.1, reserve: float = 3.0, most: float = 10.0) -> None:
        self._share, self._most = share, most
        self._level = reserve if share > 0 else 0.0

    def requested(self) -> None:
        """A question was asked for the first time."""
        self._level = min(self._most, self._level + self._share)

    def retry(self) -> bool:
        """Whether one more retry is within the budget, which it then uses."""
        if self._level < 1.0 - 1e-9:
            return False
        self._level -= 1.0
        return True


def jittered(previous: float, base: float, cap: float, rng: random.Random) -> float:
    """Seconds before the next attempt: decorrelated jitter (Brooker 2015), uniform in [base, 3 x previous] and at most
    `cap`; previous: the wait before, 0 at first."""
    return min(cap, rng.uniform(base, max(base, 3 * previous)))
