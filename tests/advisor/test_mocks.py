"""Advisors of known skill: seeded, and a function of (seed, bar) only."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from jaxtrade.advisor.host import mocks, wrappers
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.types import Advice, Backend, Failure, Question
from jaxtrade.errors import ConfigError
from tests.advisor.asking import SOON, ask, question

BARS = 4000
FUTURE = np.where(np.arange(BARS) % 10 == 9, 0, np.where(np.arange(BARS) % 3 == 0, 1, -1))
DEFINED = np.flatnonzero(FUTURE)

MAKERS: dict[str, Callable[[int], Backend]] = {
    "random": lambda seed: mocks.Random(seed),
    "constant": lambda seed: mocks.Constant("short", 0.4, seed),
    "skilled": lambda seed: mocks.Skilled(FUTURE, 0.6, seed=seed),
    "permuted": lambda seed: wrappers.Permuted(mocks.Skilled(FUTURE, 0.9, seed=1), range(500), seed=seed),
    "delayed": lambda seed: wrappers.Delayed(mocks.Random(seed), 5),
    "available": lambda seed: wrappers.Available(mocks.Random(seed), 0.5, seed),
    "turning": lambda seed: wrappers.Turning(mocks.Random(seed), mocks.Constant(), 100),
    "failing": lambda seed: mocks.Failing(),
}


def side(advice: Advice | None) -> int:
    assert advice is not None
    return int(np.sign(advice.buy - advice.sell))


def sides(backend: Backend, bars: np.ndarray) -> np.ndarray:
    return np.array([side(backend.answer(question(0)._replace(bar=int(bar)), math.inf).advice) for bar in bars])


def hits(backend: Backend) -> float:
    return float(np.mean(sides(backend, DEFINED) == FUTURE[DEFINED]))


@pytest.mark.parametrize("name", MAKERS)
def test_order_and_threads_do_not_matter(name: str) -> None:
    bars = np.arange(90, 130)
    ordered = [MAKERS[name](7).answer(question(int(bar)), math.inf) for bar in bars]  # a new one for each
    one = MAKERS[name](7)
    others = np.random.default_rng(1).permutation(bars).tolist()
    shuffled = {bar: one.answer(question(bar), math.inf) for bar in others}
    assert [shuffled[int(bar)] for bar in bars] == ordered
    assert one.identity() == MAKERS[name](7).identity()
    assert all(isinstance(text, str) for text in one.identity().values())


@pytest.mark.parametrize("name", ["random", "skilled", "permuted", "available"])
def test_another_seed_gives_other_answers(name: str) -> None:
    first, second = (MAKERS[name](seed) for seed in (7, 8))
    assert [ask(first, bar=bar) for bar in range(50)] != [ask(second, bar=bar) for bar in range(50)]
    assert first.identity() != second.identity()


def test_numbers_are_the_same_on_every_machine() -> None:
    assert [round(mocks.uniform(3, bar, "skill"), 6) for bar in range(3)] == [0.056628, 0.269924, 0.580015]
    draws = np.array([mocks.uniform(1, bar, "x") for bar in range(20_000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 10, (0, 1))[0].std() < 70  # about 42 expected


@pytest.mark.parametrize(("q", "expected"), [(0.0, 0.0), (0.3, 0.3), (0.6, 0.6), (0.9, 0.9), (1.0, 1.0)])
def test_skill_is_what_is_claimed(q: float, expected: float) -> None:
    spread = 4 * math.sqrt(max(q * (1 - q), 1e-12) / len(DEFINED))
    assert abs(hits(mocks.Skilled(FUTURE, q)) - expected) <= spread


def test_kinds_of_skill() -> None:
    given = {"future": FUTURE}
    assert hits(make_backend("mock:oracle", given)) == 1.0
    assert hits(make_backend("mock:adversarial:1", given)) == 0.0
    assert abs(hits(make_backend("mock:adversarial:0.7", given)) - 0.3) < 0.04
    assert abs(hits(make_backend("mock:random")) - 1 / 3) < 0.04  # flat hits nothing
    placebo = make_backend("mock:permuted/mock:oracle", {**given, "bars": np.arange(BARS)})
    up = float(np.mean(FUTURE[DEFINED] > 0))
    assert abs(hits(placebo) - (up**2 + (1 - up) ** 2)) < 0.04  # what the two frequencies give by chance
    assert sorted(sides(placebo, np.arange(BARS))) == sorted(sides(make_backend("mock:oracle", given), np.arange(BARS)))


def test_confidence_by_honesty() -> None:
    given = {"future": FUTURE}
    stated = {}
    for name in ("skilled:0.6", "adversarial:0.6", "overconfident:0.5", "underconfident:0.9", "oracle"):
        advice = ask(make_backend(f"mock:{name}", given)).advice
        assert advice is not None
        stated[name] = advice.confidence
    assert stated == {"skilled:0.6": 0.6, "adversarial:0.6": 0.6, "overconfident:0.5": 0.99,
                      "underconfident:0.9": 0.05, "oracle": 1.0}


def test_an_undefined_future_is_not_given_away() -> None:
    undefined = np.flatnonzero(FUTURE == 0)
    said = sides(mocks.Skilled(FUTURE, 1.0), undefined)
    assert set(said) == {-1, 1}
    assert abs(float(np.mean(said))) < 0.2


def test_outside_the_known_bars_is_absence() -> None:
    for bar in (-1, BARS):
        assert ask(mocks.Skilled(FUTURE), bar=bar).failure is Failure.EMPTY
    assert ask(wrappers.Permuted(mocks.Random(), [1, 2, 3]), bar=4).failure is Failure.EMPTY


def test_delay_gives_older_opinions() -> None:
    inner = mocks.Skilled(FUTURE, 1.0)
    delayed = wrappers.Delayed(inner, 30)
    assert ask(delayed, bar=29).failure is Failure.EMPTY
    assert all(ask(delayed, bar=bar) == ask(inner, bar=bar - 30) for bar in range(30, 90))
    assert wrappers.Delayed(inner, 0).answer(question(4), 0.0) == ask(inner, bar=4)
    with pytest.raises(ConfigError, match="look ahead"):
        wrappers.Delayed(inner, -1)


def test_wrappers_can_ask_the_whole_question_about_another_bar() -> None:
    rules = make_backend("rules")
    calls = []

    def question_of(bar: int) -> Question:
        calls.append(bar)
        return question(bar)

    assert wrappers.Delayed(rules, 5, question_of).answer(question(9), 0.0).advice is not None
    assert calls == [4]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_availability(p: float) -> None:
    answers = [ask(wrappers.Available(mocks.Constant(), p, 3), bar=bar) for bar in range(2000)]
    assert abs(sum(answer.advice is not None for answer in answers) / 2000 - p) <= 0.045
    assert {answer.failure for answer in answers if answer.advice is None} <= {Failure.EMPTY}


def test_turn() -> None:
    turning = wrappers.Turning(mocks.Constant("long"), mocks.Constant("short"), 10)
    assert [side(ask(turning, bar=bar).advice) for bar in (0, 9, 10, 50)] == [1, 1, -1, -1]
    assert turning.identity()["then.direction"] == "short"


@pytest.mark.parametrize("failure", list(Failure))
def test_failing_is_absence_of_any_kind(failure: Failure) -> None:
    backend = make_backend("mock:failing", {"failure": failure.value, "retryable": True})
    answer = ask(backend)
    assert (answer.advice, answer.failure, answer.retryable) == (None, failure, True)
    assert backend.identity() == {"kind": "mock:failing", "failure": failure.value, "retryable": "True", "seed": "0",
                                  "horizon": "30"}


def test_slow_keeps_the_deadline_and_stops() -> None:
    assert ask(wrappers.Slow(mocks.Constant(), 0.05)).latency >= 0.05
    late = ask(wrappers.Slow(mocks.Constant(), math.inf), 0.2)
    assert (late.failure, late.retryable) == (Failure.TIMEOUT, True)
    assert late.latency >= 0.2
    hung = wrappers.Slow(mocks.Constant(), math.inf)
    threading.Timer(0.1, hung.close).start()
    began = time.monotonic()
    assert ask(hung, 10).failure is Failure.STOPPED
    assert time.monotonic() - began < SOON
    assert ask(hung, 10).failure is Failure.STOPPED


@pytest.mark.parametrize("broken", [
    lambda: mocks.Skilled(np.array([0.5, 1])), lambda: mocks.Skilled(np.zeros((2, 2))),
    lambda: mocks.Skilled(FUTURE, 1.2), lambda: mocks.Skilled(FUTURE, math.nan), lambda: mocks.Constant("up"),
    lambda: mocks.Random(horizon=0), lambda: wrappers.Permuted(mocks.Random(), [1, 1]),
    lambda: wrappers.Available(mocks.Random(), 2), lambda: wrappers.Slow(mocks.Random(), math.nan),
    lambda: mocks.Skilled(FUTURE, honesty="modest"),  # type: ignore[arg-type]
])
def test_settings_that_cannot_be(broken: Callable[[], Backend]) -> None:
    with pytest.raises(ConfigError):
        broken()
