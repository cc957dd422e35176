"""The queue of questions: which are waiting, in flight and settled. It has no thread and no clock
of its own.

Each key has at most one request at a time. Submitting the same question again raises its priority.
The queue's size is bounded, so a slow server cannot fill the memory.
"""

from __future__ import annotations

import bisect
import enum
import math
from dataclasses import dataclass
from typing import NamedTuple

from jaxtrade.advisor.host.statistics import Statistics
from jaxtrade.advisor.host.types import Question


class Key(NamedTuple):
    """Identifies a question within a run. The bar and the prompt's version determine the whole
    prompt.
    """

    bar: int
    prompt_version: str


class State(enum.Enum):
    """Where a question stands.

    ABSENT: never submitted, or dropped because the queue was full. FAILED (after a while) and
        EXPIRED questions may be
    sent again. DONE and POISONED ones are never sent again in this run.
    """

    ABSENT = "absent"
    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    POISONED = "poisoned"


_DONE, _POISONED = (
    (State.DONE, math.inf),
    (State.POISONED, math.inf),
)  # shared by hundreds of thousands of keys


@dataclass(slots=True, eq=False)
class Entry:
    """A question that is waiting or in flight.

    serial: number of its first submission. chunk: when it was last submitted. count: submissions.
        attempts: requests
    sent. not_before: earliest clock time of a retry. delay: seconds that it waited before its last
    retry. looked_up: whether the cache was searched without success. cache_key: see
    `AdviceCache.key`.
    """

    key: Key
    question: Question
    priority: float
    serial: int
    chunk: int
    count: int = 1
    attempts: int = 0
    not_before: float = -math.inf
    delay: float = 0.0
    looked_up: bool = False
    cache_key: str = ""

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: the higher, the sooner it is sent. Among equal priorities the older question
        comes first.
        """
        return (self.priority, -self.serial)


class QuestionQueue:
    """Holds at most `capacity` waiting questions. A question expires `ttl` chunks after it was last
    submitted.
    """

    def __init__(self, capacity: int, ttl: int, counts: Statistics) -> None:
        self._capacity, self._ttl, self._counts = capacity, ttl, counts
        self._chunk = self._serial = 0
        self._waiting: dict[
            Key, Entry
        ] = {}  # in the order of `chunk`, so that `tick` finds the oldest first
        self._ranked: dict[bool, list[tuple[tuple[float, int], Key]]] = {
            False: [],
            True: [],
        }  # by `looked_up`
        self._flying: dict[Key, Entry] = {}
        self._settled: dict[
            Key, tuple[State, float]
        ] = {}  # the state, and the time from which it may be sent again

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """The number of questions that have been sent and not answered."""
        return len(self._flying)

    @property
    def unseen(self) -> int:
        """The number of waiting questions that have not been looked up in the cache yet."""
        return len(self._ranked[False])

    def state(self, key: Key) -> State:
        """Where the question `key` stands."""
        if key in self._waiting:
            return State.QUEUED
        if key in self._flying:
            return State.IN_FLIGHT
        return self._settled.get(key, (State.ABSENT, 0.0))[0]

    # --- submissions -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Count one chunk. Questions not submitted again for `ttl` chunks expire."""
        self._chunk += 1
        while self._waiting:
            entry = next(iter(self._waiting.values()))
            if entry.chunk > self._chunk - self._ttl:
                break
            self._leave(entry)
            self._settled[entry.key] = (State.EXPIRED, -math.inf)
            self._counts.expired += 1

    def submit(self, question: Question, priority: float, now: float) -> None:
        """Request an answer. Questions of higher `priority` are sent first; one that is not finite
        is dropped.
        """
        self._counts.submitted += 1
        key = Key(question.bar, question.prompt_version)
        if not math.isfinite(priority):
            self._counts.dropped += 1
        elif (entry := self._waiting.get(key)) is not None:
            self._counts.deduped += 1
            self._leave(entry)
            self._want(entry, priority)
            self._join(entry)
        elif (entry := self._flying.get(key)) is not None:
            self._counts.deduped += 1
            self._want(entry, priority)
        elif key in self._settled and now < self._settled[key][1]:
            self._counts.deduped += 1
        else:
            self._settled.pop(key, None)
            self._serial += 1
            self._join(Entry(key, question, priority, self._serial, self._chunk))
            self._make_room()

    def _want(self, entry: Entry, priority: float) -> None:
        entry.priority = max(entry.priority, priority)
        entry.count += 1
        entry.chunk = self._chunk

    def _make_room(self) -> None:
        if len(self._waiting) > self._capacity:
            worst = min(ranked[0] for ranked in self._ranked.values() if ranked)
            self._leave(self._waiting[worst[1]])
            self._counts.dropped += 1

    def _join(self, entry: Entry) -> None:
        self._waiting[entry.key] = entry
        bisect.insort(self._ranked[entry.looked_up], (entry.rank, entry.key))

    def _leave(self, entry: Entry) -> None:
        del self._waiting[entry.key]
        ranked = self._ranked[entry.looked_up]
        del ranked[bisect.bisect_left(ranked, (entry.rank, entry.key))]

    # --- choosing what to send ----------------------------------------------------------------------------------------

    def to_look_up(self, most: int) -> list[Entry]:
        """At most `most` questions that have not been looked up in the cache, highest priority
        first.
        """
        return [self._waiting[key] for _, key in self._ranked[False][: -most - 1 : -1]]

    def looked_up(self, entry: Entry) -> None:
        """Note that the cache does not have the answer."""
        self._leave(entry)
        entry.looked_up = True
        self._join(entry)

    def next(self, now: float) -> Entry | None:
        """The question of the highest priority that may be sent now, or None."""
        entries = (self._waiting[key] for _, key in reversed(self._ranked[True]))
        return next((entry for entry in entries if entry.not_before <= now), None)

    # --- state changes -----------------------------------------------------------------------------------------------

    def start(self, entry: Entry) -> None:
        """Move a waiting question into flight."""
        self._leave(entry)
        entry.attempts += 1
        self._flying[entry.key] = entry

    def again(self, entry: Entry, not_before: float) -> None:
        """Put a question in flight back into the queue for a retry. Its time to expiry starts
        again.
        """
        del self._flying[entry.key]
        entry.not_before, entry.chunk = not_before, self._chunk
        self._join(entry)
        self._make_room()

    def done(self, entry: Entry) -> None:
        """Settle a question in flight that was answered."""
        del self._flying[entry.key]
        self._settled[entry.key] = _DONE
        self._counts.done += 1

    def hit(self, entry: Entry) -> None:
        """Settle a waiting question that the cache answered."""
        self._leave(entry)
        self._settled[entry.key] = _DONE
        self._counts.cache_hit += 1

    def failed(self, entry: Entry, until: float) -> None:
        """Settle a question in flight without an answer. It is not sent again before `until`."""
        del self._flying[entry.key]
        self._settled[entry.key] = (State.FAILED, until)
        self._counts.failed += 1

    def cancelled(self, entry: Entry, until: float) -> None:
        """Settle a question in flight whose request was cancelled: it has not failed, and counts as
        dropped.
        """
        del self._flying[entry.key]
        self._settled[entry.key] = (State.FAILED, until)
        self._counts.dropped += 1

    def poisoned(self, entry: Entry) -> None:
        """Settle a question, waiting or in flight, that fails in the same way every time."""
        if entry.key in self._flying:
            del self._flying[entry.key]
        else:
            self._leave(entry)
        self._settled[entry.key] = _POISONED
        self._counts.poisoned += 1

    def forgive(self, key: Key) -> None:
        """Let a failed question be submitted again at once, because its answer is now in the
        cache.
        """
        if self._settled.get(key, (State.ABSENT, 0.0))[0] is State.FAILED:
            self._settled[key] = (State.FAILED, -math.inf)
