"""Wrappers that change another backend's answers, for ablations: shifted, permuted, delayed, rare,
turning, slow.

`question_of` returns the question about another bar, or None where there is none. Without it a wrapper changes only the
bar's number. That is enough for backends that read nothing else (mocks, recorded answers without time stamps).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from jaxtrade.advisor.host.mocks import Mock, prefixed, share, uniform
from jaxtrade.advisor.host.types import Answer, Backend, Failure, Question
from jaxtrade.errors import ConfigError

QuestionOf = Callable[[int], Question | None]


class Wrapper(Mock):
    """Base class: a backend that changes the answers of `inner`."""

    def __init__(
        self, inner: Backend, question_of: QuestionOf | None = None, seed: int = 0
    ) -> None:
        super().__init__(seed)
        self._inner, self._question_of = inner, question_of

    @property
    def inner(self) -> Backend:
        """The backend whose answers it changes."""
        return self._inner

    def _of(self) -> Backend | None:
        return self._inner

    def asked_about(self, question: Question, bar: int, deadline: float) -> Answer:
        """The inner backend's answer about another bar, or EMPTY where there is no question about
        that bar.
        """
        about = self._question_of(bar) if self._question_of else question._replace(bar=bar)
        if about is None:
            return Answer(None, Failure.EMPTY, f"bar {bar} cannot be asked about")
        return self._inner.answer(about, deadline)


class Permuted(Wrapper):
    """The inner backend's answers, shuffled over `bars`. The distribution of answers stays the
    same; their order does not, so opinions that last lose their persistence. `Shifted` is the
    placebo that keeps it."""

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

    def other(self, bar: int) -> int | None:
        """The bar whose answer is given at `bar`; None where `bar` is not permuted."""
        return self._other.get(bar)

    def answer(self, question: Question, deadline: float) -> Answer:
        if (other := self.other(question.bar)) is None:
            return Answer(
                None,
                Failure.EMPTY,
                f"bar {question.bar} is not among the {len(self.bars)} permuted bars",
            )
        return self.asked_about(question, other, deadline)


class Shifted(Wrapper):
    """The inner backend's answers, moved by whole sessions: the placebo. Each bar gets the answer
    about the bar at the same place of another session, so persistence, time of day and distribution
    of the answers stay.

    sessions: in time order, the askable bars of each as (bar, place), places ascending, as seconds
        since the session
    began. Sessions are rotated: session i gets the answers of session i + k (modulo their number).
    k is random, and lies in the middle half of what is possible, so that opinions that last for
    days are not their own placebo. Where the other session has no bar at this place, its nearest
    one is used (the earlier of two). A single session is rotated in itself, by at least `least`
    bars if it has twice as many.

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
        self._other = (
            _rotated(self.sessions, seed) if len(self.sessions) > 1 else _turned(bars, least, seed)
        )

    def other(self, bar: int) -> int | None:
        """The bar whose answer is given at `bar`; None where `bar` is in no session."""
        return self._other.get(bar)

    def answer(self, question: Question, deadline: float) -> Answer:
        if (other := self.other(question.bar)) is None:
            return Answer(
                None,
                Failure.EMPTY,
                f"bar {question.bar} is not among the {len(self._other)} shifted bars",
            )
        return self.asked_about(question, other, deadline)


def _offset(number: int, least: int, seed: int) -> int:
    """A random number of steps to rotate `number` items by: at least `least` either way round, and
    never 0.
    """
    least = min(max(1, least), number // 2)
    return least + int(uniform(seed, number, "shifted") * (number - 2 * least + 1))


def _rotated(sessions: Sequence[Sequence[tuple[int, int]]], seed: int) -> dict[int, int]:
    """bar -> bar at the same place of another session."""
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


def _turned(bars: Sequence[int], least: int, seed: int) -> dict[int, int]:
    """bar -> another bar of the only session."""
    offset = _offset(len(bars), max(least, len(bars) // 4), seed)
    return {bar: bars[(i + offset) % len(bars)] for i, bar in enumerate(bars)}


class Delayed(Wrapper):
    """At bar b, the inner backend's answer about bar b - `bars`; EMPTY where that is below 0."""

    name = "delayed"

    def __init__(self, inner: Backend, bars: int, question_of: QuestionOf | None = None) -> None:
        super().__init__(inner, question_of)
        if bars < 0:
            raise ConfigError(f"mock:delayed: {bars} bars is negative, which would look ahead")
        self.bars = bars

    def answer(self, question: Question, deadline: float) -> Answer:
        if question.bar < self.bars:
            return Answer(
                None, Failure.EMPTY, f"nothing was said {self.bars} bars before bar {question.bar}"
            )
        return self.asked_about(question, question.bar - self.bars, deadline)


class Available(Wrapper):
    """The inner backend's answers about a random share `p` of the bars; EMPTY about the others."""

    name = "available"

    def __init__(self, inner: Backend, p: float, seed: int = 0) -> None:
        super().__init__(inner, None, seed)
        self.p = share("p", p)

    def answer(self, question: Question, deadline: float) -> Answer:
        if uniform(self.seed, question.bar, "available") >= self.p:
            return Answer(None, Failure.EMPTY, f"mock is not available at bar {question.bar}")
        return self._inner.answer(question, deadline)


class Turning(Wrapper):
    """The inner backend's answers before bar `turn`, and those of `then` from that bar on."""

    name = "turning"

    def __init__(self, inner: Backend, then: Backend, turn: int) -> None:
        super().__init__(inner)
        self._then, self.turn = then, turn

    def identity(self) -> Mapping[str, str]:
        return {**super().identity(), **prefixed("then", self._then)}

    def answer(self, question: Question, deadline: float) -> Answer:
        return (self._inner if question.bar < self.turn else self._then).answer(question, deadline)

    def close(self) -> None:
        super().close()
        self._then.close()


class Slow(Wrapper):
    """Delays the inner backend's answers by `seconds` of real time (infinity: it hangs).

    A delay ends early at the deadline, with TIMEOUT, or by `close`, with STOPPED.
    """

    name = "slow"

    def __init__(
        self, inner: Backend, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(inner)
        if not seconds >= 0:
            raise ConfigError(f"mock:slow: {seconds} seconds, expected 0 or more")
        self.seconds, self._monotonic, self._closed = seconds, monotonic, threading.Event()

    def answer(self, question: Question, deadline: float) -> Answer:
        began = self._monotonic()
        patience = max(0.0, deadline - began)
        if self._closed.wait(min(self.seconds, patience)):
            return Answer(None, Failure.STOPPED, "closed", latency=self._monotonic() - began)
        if self.seconds > patience:
            return Answer(
                None,
                Failure.TIMEOUT,
                "mock took longer than the deadline",
                retryable=True,
                latency=self._monotonic() - began,
            )
        return self._inner.answer(question, deadline)._replace(latency=self._monotonic() - began)

    def close(self) -> None:
        self._closed.set()
        super().close()
