"""Mock advisors of known skill, for tests and ablations. An answer depends on (seed, bar) only,
never on order or time.

`Skilled` reads the future by design. Its `future` holds the coming direction of each bar: +1 up, -1 down, 0 where none
is defined (no full horizon left in the session, or a move within costs). At a 0 it answers at random. If it stayed
silent or flat there, its silence would leak the future.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from jaxtrade.advisor.host.schema import DIRECTIONS, MAX_HORIZON, advice_of
from jaxtrade.advisor.host.types import Answer, Backend, Failure, Question
from jaxtrade.errors import ConfigError

Honesty = Literal["honest", "overconfident", "underconfident"]


def uniform(seed: int, bar: int, stream: str) -> float:
    """A pseudo-random number in [0, 1). Equal arguments give the same number on every machine."""
    digest = hashlib.blake2b(f"{seed}/{bar}/{stream}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class Mock:
    """A backend that computes its answers at once. A subclass defines `opinion`."""

    name = "mock"

    def __init__(self, seed: int = 0, horizon: int = 30) -> None:
        if not 1 <= horizon <= MAX_HORIZON:
            raise ConfigError(f"advisor horizon {horizon}: expected 1 to {MAX_HORIZON} bars")
        self.seed, self.horizon = seed, horizon

    def identity(self) -> Mapping[str, str]:
        """The kind and every public attribute; arrays are given by their hash."""
        shown = {
            key: _fingerprint(value) for key, value in vars(self).items() if not key.startswith("_")
        }
        inner = self._of()
        return {"kind": f"mock:{self.name}", **shown, **(prefixed("of", inner) if inner else {})}

    def _of(self) -> Backend | None:
        return None

    def opinion(self, question: Question) -> Answer:
        """The answer to a question. Defined by each subclass."""
        raise NotImplementedError

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline
        return self.opinion(question)

    def say(self, direction: str, confidence: float, risk: float = 0.5) -> Answer:
        """An answer with this mock's horizon."""
        return Answer(
            advice_of(direction, confidence, risk, self.horizon), model=f"mock:{self.name}"
        )

    def close(self) -> None:
        if inner := self._of():
            inner.close()


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
    """A random side, long or short, that it keeps for a spell: no skill, and errors that come in
    runs.

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
        """The first bar of the spell that `bar` lies in. Bar 0 begins one."""
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
    """Gives the right direction with probability `q` at every bar where one is defined. It reads
    the future.

    future: int[T], the coming direction of each bar, -1, 0 or +1. honesty: sets the stated
        confidence to max(q, 1 - q)
    (`honest`), 0.99 (`overconfident`) or 0.05 (`underconfident`).
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
        if honesty not in get_args(Honesty):
            raise ConfigError(
                f"advisor honesty {honesty!r}: expected {', '.join(get_args(Honesty))}"
            )
        self.future, self.q, self.honesty = _directions(future), share("q", q), honesty
        self.confidence = {"honest": max(q, 1 - q), "overconfident": 0.99, "underconfident": 0.05}[
            honesty
        ]

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

    def __init__(self, failure: Failure = Failure.CONNECTION, retryable: bool = False) -> None:
        super().__init__()
        self.failure, self._failure, self.retryable = failure.value, failure, retryable

    def opinion(self, question: Question) -> Answer:
        return Answer(
            None, self._failure, f"mock failure about bar {question.bar}", retryable=self.retryable
        )


def share(name: str, value: float, kind: str = "mock") -> float:
    """`value` as a float. kind: of the advisor, for the message. Raises ConfigError where it is not
    from 0 to 1.
    """
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"advisor {kind}: {name} = {value:g}, expected a share from 0 to 1")
    return float(value)


def _directions(future: Iterable[int]) -> array[int]:
    """Any sequence or array of -1, 0 and +1 as an array of bytes. Raises ConfigError for anything
    else.
    """
    try:
        signs = list(future)
        if all(sign in (-1, 0, 1) for sign in signs):
            return array("b", map(int, signs))
    except (TypeError, ValueError):  # not a sequence, or a sequence of arrays
        pass
    raise ConfigError("advisor future: expected one of -1, 0, +1 for every bar")


def prefixed(head: str, backend: Backend) -> dict[str, str]:
    """The identity of a wrapped backend, with `head` before each name."""
    return {f"{head}.{key}": text for key, text in backend.identity().items()}


def _fingerprint(value: object) -> str:
    plain = isinstance(value, int | float | str)
    return str(value) if plain else hashlib.sha256(repr(value).encode()).hexdigest()[:16]
