"""Mock advisors of known skill, for tests and ablations.

An answer depends on (seed, bar) only, never on order or time.

`Skilled` reads the future by design. Its `future` holds the coming direction of each bar: +1 up, -1
down, 0 where none is defined (no full horizon left in the session, or a move within costs). At a 0
it answers at random. If it stayed silent or flat there, its silence would leak the future.

Wrappers that change another backend's answers, for ablations: shifted, permuted, delayed, rare,
turning, slow.

`question_of` returns the question about another bar, or None where there is none. Without it a
wrapper changes only the bar's number. That is enough for backends that read nothing else (mocks,
recorded answers without time stamps).
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from jaxtrade.advisor.host.types import (
    DIRECTIONS,
    MAX_HORIZON,
    Answer,
    Backend,
    Failure,
    Question,
    advice_of,
    nearest,
    sha256_of,
)
from jaxtrade.errors import ConfigError

Honesty = Literal["honest", "overconfident", "underconfident"]


def uniform(seed: int, bar: int, stream: str) -> float:
    """Return a pseudo-random number in [0, 1).

    Equal arguments give the same number on every machine.
    """
    digest = hashlib.blake2b(f"{seed}/{bar}/{stream}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class Mock:
    """A backend that computes its answers at once. A subclass defines `opinion`."""

    name = "mock"
    inner: Backend | None = None  # the backend whose answers it changes

    def __init__(self, seed: int = 0, horizon: int = 30) -> None:
        if not 1 <= horizon <= MAX_HORIZON:
            raise ConfigError(f"advisor horizon {horizon}: expected 1 to {MAX_HORIZON} bars")
        self.seed, self.horizon = seed, horizon

    def identity(self) -> Mapping[str, str]:
        """Return the kind and every public attribute; arrays are given by their hash."""
        own = {key: value for key, value in vars(self).items() if key[0] != "_" and key != "inner"}
        shown = {
            key: str(value) if isinstance(value, int | float | str) else sha256_of(repr(value))[:16]
            for key, value in own.items()
        }
        inner = prefix_identity("of", self.inner) if self.inner else {}
        return {"kind": f"mock:{self.name}", **shown, **inner}

    def opinion(self, question: Question) -> Answer:
        """Answer a question. Defined by each subclass."""
        raise NotImplementedError

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline
        return self.opinion(question)

    def say(self, direction: str, confidence: float, risk: float = 0.5) -> Answer:
        """Build an answer with this mock's horizon."""
        return Answer(
            advice_of(direction, confidence, risk, self.horizon), model=f"mock:{self.name}"
        )

    def close(self) -> None:
        if self.inner:
            self.inner.close()


class Random(Mock):
    """Random direction and confidence: no skill."""

    name = "random"

    def opinion(self, question: Question) -> Answer:
        bar = question.bar
        direction = DIRECTIONS[int(3 * uniform(self.seed, bar, "direction"))]
        return self.say(
            direction, uniform(self.seed, bar, "confidence"), uniform(self.seed, bar, "risk")
        )


class Persistent(Mock):
    """A random side, long or short, that it keeps for a spell.

    It has no skill, and errors that come in runs.

    At each bar a new spell begins with probability 1 / `bars`, so spells last `bars` bars on
    average (geometric), and the side of each is drawn anew. The sides of two bars k apart therefore
    correlate by (1 - 1 / bars) ** k. Both draws depend on (seed, bar at which the spell began)
    only. Spells do not end with a session.
    """

    name = "persistent"

    def __init__(
        self, bars: float = 60.0, confidence: float = 0.6, seed: int = 0, horizon: int = 30
    ) -> None:
        super().__init__(seed, horizon)
        if not 1.0 <= bars < math.inf:
            raise ConfigError(
                f"advisor mock:persistent: {bars:g} bars, expected the mean length of a spell, 1 or more"
            )
        self.bars, self.confidence = float(bars), share("confidence", confidence)
        self._begun: dict[
            int, int
        ] = {}  # bar asked about -> first bar of its spell; only saves time

    def began(self, bar: int) -> int:
        """Return the first bar of the spell that `bar` lies in. Bar 0 begins one."""
        first = bar
        while (
            first > 0
            and first not in self._begun
            and uniform(self.seed, first, "spell") >= 1 / self.bars
        ):
            first -= 1
        self._begun[bar] = self._begun.get(first, first)
        return self._begun[bar]

    def opinion(self, question: Question) -> Answer:
        up = uniform(self.seed, self.began(question.bar), "side") < 0.5
        return self.say("long" if up else "short", self.confidence)


class Constant(Mock):
    """The same advice about every bar."""

    name = "constant"

    def __init__(
        self, direction: str = "long", confidence: float = 0.9, seed: int = 0, horizon: int = 30
    ) -> None:
        super().__init__(seed, horizon)
        if direction not in DIRECTIONS:
            raise ConfigError(f"advisor direction {direction!r}: expected {', '.join(DIRECTIONS)}")
        self.direction, self.confidence = direction, share("confidence", confidence)

    def opinion(self, question: Question) -> Answer:
        del question
        return self.say(self.direction, self.confidence)


class Skilled(Mock):
    """Gives the right direction with probability `q` at every bar where one is defined.

    It reads the future.

    future: int[T], the coming direction of each bar, -1, 0 or +1.
    honesty: sets the stated confidence to max(q, 1 - q) (`honest`), 0.99 (`overconfident`) or
        0.05 (`underconfident`).
    """

    name = "skilled"

    def __init__(
        self,
        future: Iterable[int],
        q: float = 0.6,
        honesty: Honesty = "honest",
        seed: int = 0,
        horizon: int = 30,
    ) -> None:
        super().__init__(seed, horizon)
        self.future, self.q, self.honesty = _directions(future), share("q", q), honesty
        stated = {"honest": max(self.q, 1 - self.q), "overconfident": 0.99, "underconfident": 0.05}
        if honesty not in stated:
            raise ConfigError(f"advisor honesty {honesty!r}: expected {', '.join(stated)}")
        self.confidence = stated[honesty]

    def opinion(self, question: Question) -> Answer:
        if not 0 <= question.bar < len(self.future):
            return Answer(
                None,
                Failure.EMPTY,
                f"bar {question.bar} is outside the {len(self.future)} known bars",
            )
        sign = self.future[question.bar]
        if sign == 0:
            sign = 1 if uniform(self.seed, question.bar, "undefined") < 0.5 else -1
        right = uniform(self.seed, question.bar, "skill") < self.q
        return self.say("long" if (sign > 0) == right else "short", self.confidence)


class Failing(Mock):
    """Always fails, with a chosen failure."""

    name = "failing"

    def __init__(
        self, failure: Failure | str = Failure.CONNECTION, retryable: bool = False
    ) -> None:
        super().__init__()
        known = [each.value for each in Failure]
        if failure not in (*Failure, *known):
            raise ConfigError(
                f"advisor mock:failing: failure {failure!r} unknown{nearest(str(failure), known)}"
            )
        self._failure, self.retryable = Failure(failure), retryable
        self.failure = self._failure.value

    def opinion(self, question: Question) -> Answer:
        return Answer(
            None, self._failure, f"mock failure about bar {question.bar}", retryable=self.retryable
        )


def share(name: str, value: float, kind: str = "mock") -> float:
    """Convert `value` to a float. Raises ConfigError where it is not from 0 to 1.

    Args:
        kind: of the advisor, for the message.
    """
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"advisor {kind}: {name} = {value:g}, expected a share from 0 to 1")
    return float(value)


def whole(name: str, value: float) -> int:
    """Convert `value` to an integer. Raises ConfigError where it is not a whole number."""
    if not float(value).is_integer():
        raise ConfigError(f"advisor {name} {value}: expected a whole number")
    return int(value)


def _directions(future: Iterable[int]) -> array[int]:
    """Convert any sequence or array of -1, 0 and +1 to an array of bytes.

    Raises ConfigError for anything else.
    """
    try:
        signs = list(future)
        if all(sign in (-1, 0, 1) for sign in signs):
            return array("b", map(int, signs))
    except (TypeError, ValueError):  # not a sequence, or a sequence of arrays
        pass
    raise ConfigError("advisor future: expected one of -1, 0, +1 for every bar")


def prefix_identity(head: str, backend: Backend) -> dict[str, str]:
    """Return the identity of a wrapped backend, with `head` before each name."""
    return {f"{head}.{key}": text for key, text in backend.identity().items()}


QuestionOf = Callable[[int], Question | None]


class Wrapper(Mock):
    """Base class: a backend that changes the answers of `inner`."""

    def __init__(
        self, inner: Backend, question_of: QuestionOf | None = None, seed: int = 0
    ) -> None:
        super().__init__(seed)
        self.inner: Backend = inner
        self._question_of = question_of

    def asked_about(self, question: Question, bar: int, deadline: float) -> Answer:
        """Return the inner backend's answer about another bar.

        It is EMPTY where there is no question about that bar.
        """
        about = self._question_of(bar) if self._question_of else question._replace(bar=bar)
        if not about:
            return Answer(None, Failure.EMPTY, f"bar {bar} cannot be asked about")
        return self.inner.answer(about, deadline)


class Moved(Wrapper):
    """Base class: at each bar, the inner backend's answer about another one."""

    _other: dict[int, int]

    def other(self, bar: int) -> int | None:
        """Return the bar whose answer is given at `bar`; None where no answer is moved to it."""
        return self._other.get(bar)

    def answer(self, question: Question, deadline: float) -> Answer:
        if (other := self.other(question.bar)) is None:
            detail = f"bar {question.bar} is not among the {len(self._other)} {self.name} bars"
            return Answer(None, Failure.EMPTY, detail)
        return self.asked_about(question, other, deadline)


class Permuted(Moved):
    """The inner backend's answers, shuffled over `bars`.

    The distribution of answers stays the same; their order does not, so opinions that last lose
    their persistence. `Shifted` is the placebo that keeps it.
    """

    name = "permuted"

    def __init__(
        self,
        inner: Backend,
        bars: Iterable[int],
        question_of: QuestionOf | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(inner, question_of, seed)
        self.bars = tuple(map(int, bars))
        shuffled = sorted(self.bars, key=lambda bar: uniform(seed, bar, "permuted"))
        self._other = dict(zip(self.bars, shuffled, strict=True))
        if len(self._other) < len(self.bars):
            raise ConfigError("mock:permuted: the same bar twice")


class Shifted(Moved):
    """The inner backend's answers, moved by whole sessions: the placebo.

    Each bar gets the answer about the bar at the same place of another session, so persistence,
    time of day and distribution of the answers stay.

    sessions: in time order, the askable bars of each as (bar, place), places ascending, as seconds
        since the session began. Sessions are rotated: session i gets the answers of session i + k
        (modulo their number). k is random, and lies in the middle half of what is possible, so that
        opinions that last for days are not their own placebo. Where the other session has no bar at
        this place, its nearest one is used (the earlier of two). A single session is rotated in
        itself, by at least `least` bars if it has twice as many.

    Raises ConfigError for fewer than two bars, and for a bar that occurs twice.
    """

    name = "shifted"

    def __init__(
        self,
        inner: Backend,
        sessions: Iterable[Iterable[tuple[int, int]]],
        question_of: QuestionOf | None = None,
        seed: int = 0,
        least: int = 30,
    ) -> None:
        super().__init__(inner, question_of, seed)
        self.least = least
        self.sessions = tuple(
            kept for session in sessions if (kept := tuple((int(b), int(p)) for b, p in session))
        )
        bars = [bar for session in self.sessions for bar, _ in session]
        if len(bars) < 2 or len(set(bars)) < len(bars):
            raise ConfigError(
                f"mock:shifted: {len(bars)} bars, {len(set(bars))} of them different; expected two or "
                "more bars, each once"
            )
        if len(self.sessions) > 1:
            self._other = _rotate_sessions(self.sessions, seed)
        else:
            offset = _offset(len(bars), max(least, len(bars) // 4), seed)
            self._other = dict(zip(bars, bars[offset:] + bars[:offset], strict=True))


def _offset(number: int, least: int, seed: int) -> int:
    """Draw a number of steps to rotate `number` items by.

    It is at least `least` either way round, and never 0.
    """
    least = min(max(1, least), number // 2)
    return least + int(uniform(seed, number, "shifted") * (number - 2 * least + 1))


def _rotate_sessions(sessions: Sequence[Sequence[tuple[int, int]]], seed: int) -> dict[int, int]:
    """Map each bar to the bar at the same place of another session."""
    number, other = len(sessions), dict[int, int]()
    offset = _offset(number, number // 4, seed)
    for i, session in enumerate(sessions):
        there = sessions[(i + offset) % number]
        places = [place for _, place in there]
        for bar, place in session:
            right = bisect_left(places, place)
            near = there[max(0, right - 1) : right + 1]
            other[bar] = min(near, key=lambda candidate: abs(candidate[1] - place))[0]
    return other


class DelayedBackend(Wrapper):
    """At bar b, the inner backend's answer about bar b - `bars`; EMPTY where that is below 0."""

    name = "delayed"

    def __init__(self, inner: Backend, bars: float, question_of: QuestionOf | None = None) -> None:
        super().__init__(inner, question_of)
        if bars < 0:
            raise ConfigError(f"mock:delayed: {bars} bars is negative, which would look ahead")
        self.bars = whole("bars", bars)

    def answer(self, question: Question, deadline: float) -> Answer:
        if question.bar < self.bars:
            return Answer(
                None, Failure.EMPTY, f"nothing was said {self.bars} bars before bar {question.bar}"
            )
        return self.asked_about(question, question.bar - self.bars, deadline)


class Available(Wrapper):
    """The inner backend's answers about a random share `p` of the bars; EMPTY about the others."""

    name = "available"

    def __init__(self, inner: Backend, p: float = 0.5, seed: int = 0) -> None:
        super().__init__(inner, None, seed)
        self.p = share("p", p)

    def answer(self, question: Question, deadline: float) -> Answer:
        if uniform(self.seed, question.bar, "available") >= self.p:
            return Answer(None, Failure.EMPTY, f"mock is not available at bar {question.bar}")
        return self.inner.answer(question, deadline)


class Turning(Wrapper):
    """The inner backend's answers before bar `turn`, and those of `then` from that bar on."""

    name = "turning"

    def __init__(self, inner: Backend, then: Backend, turn: float) -> None:
        super().__init__(inner)
        self._then, self.turn = then, whole("turn", turn)

    def identity(self) -> Mapping[str, str]:
        return {**super().identity(), **prefix_identity("then", self._then)}

    def answer(self, question: Question, deadline: float) -> Answer:
        return (self.inner if question.bar < self.turn else self._then).answer(question, deadline)

    def close(self) -> None:
        super().close()
        self._then.close()


class Slow(Wrapper):
    """Delays the inner backend's answers by `seconds` of real time (infinity: it hangs).

    A delay ends early at the deadline, with TIMEOUT, or by `close`, with STOPPED.
    """

    name = "slow"

    def __init__(self, inner: Backend, seconds: float = 1.0) -> None:
        super().__init__(inner)
        if not seconds >= 0:
            raise ConfigError(f"mock:slow: {seconds} seconds, expected 0 or more")
        self.seconds, self._closed = seconds, threading.Event()

    def answer(self, question: Question, deadline: float) -> Answer:
        began = time.monotonic()
        patience = max(0.0, deadline - began)
        if self._closed.wait(min(self.seconds, patience)):
            answer = Answer(None, Failure.STOPPED, "closed")
        elif self.seconds > patience:
            detail = "mock took longer than the deadline"
            answer = Answer(None, Failure.TIMEOUT, detail, retryable=True)
        else:
            answer = self.inner.answer(question, deadline)
        return answer._replace(latency=time.monotonic() - began)

    def close(self) -> None:
        self._closed.set()
        super().close()
