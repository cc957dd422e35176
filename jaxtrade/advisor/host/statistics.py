"""What happened, in numbers: the service's counts and durations, and exceptions that were contained.

Every submission is in exactly one count. One thread writes; other threads read snapshots.
"""

from __future__ import annotations

import bisect
import math
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PER_DECADE = 5
EDGES = tuple(
    10.0 ** (step / _PER_DECADE) for step in range(-3 * _PER_DECADE, 2 * _PER_DECADE + 1)
)  # 1 ms .. 100 s


@dataclass
class Histogram:
    """Durations in logarithmic buckets, in seconds.

    `counts[i]` counts durations in (edges[i - 1], edges[i]]. The last bucket counts all longer ones.
    """

    edges: tuple[float, ...] = EDGES
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    longest: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.edges) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect.bisect_left(self.edges, seconds)] += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def quantile(self, share: float) -> float | None:
        """The quantile `share` in seconds, rounded up to its bucket's upper edge, at most the
        longest duration.

        None without durations.
        """
        wanted, seen = share * sum(self.counts), 0
        for count, edge in zip(self.counts, (*self.edges, math.inf), strict=True):
            seen += count
            if count and seen >= wanted:
                return min(edge, self.longest)
        return None

    def snapshot(self) -> dict[str, Any]:
        """The durations as JSON values."""
        return {
            "edges_s": list(self.edges),
            "counts": list(self.counts),
            "total_s": self.total,
            "p50_s": self.quantile(0.5),
            "p99_s": self.quantile(0.99),
            "longest_s": self.longest,
        }


@dataclass
class Statistics:
    """Counts since the start. The first block counts submissions, the second attempts, the third
    the service's events.

    deduped: submissions of a known question (waiting, in flight, answered, failed recently, or
        poisoned). dropped:
    submissions dropped because the queue was full, the priority was not finite, or the service had
    stopped. late: advice from workers that had been given up, kept in the cache. usage_unknown:
    answers without token counts; their whole reservation counts as spent. stopped: attempts that
    the end of the run cancelled; they are no failures, and their questions count as dropped.
    """

    submitted: int = 0
    deduped: int = 0
    cache_hit: int = 0
    done: int = 0
    failed: int = 0
    expired: int = 0
    dropped: int = 0
    poisoned: int = 0

    asked: int = 0
    retried: int = 0
    retries_denied: int = 0
    late: int = 0
    stopped: int = 0
    usage_unknown: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # attempts by kind of failure
    unusable: Counter[str] = field(
        default_factory=Counter
    )  # attempts whose answer cannot be used, by reason
    http: Counter[int] = field(default_factory=Counter)  # attempts by HTTP status
    models: Counter[str] = field(
        default_factory=Counter
    )  # attempts by the model that the server reports
    latency: Histogram = field(default_factory=Histogram)  # seconds per attempt

    negatives: int = 0  # questions poisoned by failures in the cache
    stuck: int = 0  # workers given up because they did not return
    died: int = 0  # worker threads that ended unexpectedly

    def snapshot(self, queued: int, in_flight: int, **more: Any) -> dict[str, Any]:
        """A copy of all counts as JSON values, safe to pass to another thread."""
        found: dict[str, Any] = {"queued": queued, "in_flight": in_flight}
        for name, value in vars(self).items():
            if isinstance(value, Counter):
                found[name] = {str(key): count for key, count in value.items()}
            else:
                found[name] = value.snapshot() if isinstance(value, Histogram) else value
        return found | more


class ContainedFaults:
    """The contained exceptions of one object. `tell` receives one line per kind. If `tell` raises,
    the line is counted in `unreported` and nothing else happens."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.unreported = 0

    def contain(self, where: str, error: BaseException) -> int:
        """Count an exception that is a bug of this package or of an object passed to it.

        The report names the exception's class and place only, because its text might contain a
        secret.
        """
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        name = type(error).__name__
        line = f"advisor: {name} in {where}{place}; contained, please report it"
        return self.trouble(f"{where} {name}", line)

    def trouble(self, kind: str, line: str) -> int:
        """Count a problem of `kind` and report `line` the first time. Returns the count."""
        with self._lock:
            self._counts[kind] += 1
            count = self._counts[kind]
        if count == 1:
            self.tell(line)
        return count

    def tell(self, line: str) -> None:
        """Send one line to the console. An error of the console is counted, not raised."""
        try:
            self._tell(line)
        except Exception:
            self.unreported += 1

    def counts(self) -> dict[str, int]:
        """The number of occurrences by kind."""
        with self._lock:
            return dict(self._counts)
