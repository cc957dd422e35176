"""Advisors of known skill: seeded, and a function of (seed, bar) only."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.types import Backend, Failure
from jaxtrade.errors import ConfigError
from tests.advisor.asking import SOON, ask, question

BARS = 4000
FUTURE = np.where(np.arange(BARS) % 10 == 9, 0, np.where(np.arange(BARS) % 3 == 0, 1, -1))
DEFINED = np.flatnonzero(FUTURE)
DAYS = [
    [(bar, 60 * (bar - first)) for bar in range(first, first + 40)] for first in range(0, BARS, 50)
]  # 10 bars off

MAKERS: dict[str, Callable[[int], Backend]] = {
    "random": lambda seed: mocks.Random(seed),
    "constant": lambda seed: mocks.Constant("short", 0.4, seed),
    "skilled": lambda seed: mocks.Skilled(FUTURE, 0.6, seed=seed),
    "persistent": lambda seed: mocks.Persistent(20, seed=seed),
    "permuted": lambda seed: mocks.Permuted(
        mocks.Skilled(FUTURE, 0.9, seed=1), range(500), seed=seed
    ),
    "shifted": lambda seed: mocks.Shifted(mocks.Skilled(FUTURE, 0.9, seed=1), DAYS, seed=seed),
    "delayed": lambda seed: mocks.Delayed(mocks.Random(seed), 5),
    "available": lambda seed: mocks.Available(mocks.Random(seed), 0.5, seed),
    "turning": lambda seed: mocks.Turning(mocks.Random(seed), mocks.Constant(), 100),
    "failing": lambda seed: mocks.Failing(),
}


def side(advice):
    assert advice is not None
    return int(np.sign(advice.buy - advice.sell))


def sides(backend, bars):
    return np.array(
        [side(backend.answer(question(0)._replace(bar=int(bar)), math.inf).advice) for bar in bars]
    )


def hits(backend):
    return float(np.mean(sides(backend, DEFINED) == FUTURE[DEFINED]))


@pytest.mark.parametrize("name", MAKERS)
def test_order_and_threads_do_not_matter(name):
    bars = np.arange(90, 130)
    ordered = [
        MAKERS[name](7).answer(question(int(bar)), math.inf) for bar in bars
    ]  # a new one for each
    one = MAKERS[name](7)
    others = np.random.default_rng(1).permutation(bars).tolist()
    shuffled = {bar: one.answer(question(bar), math.inf) for bar in others}
    assert [shuffled[int(bar)] for bar in bars] == ordered
    assert one.identity() == MAKERS[name](7).identity()
    assert all(isinstance(text, str) for text in one.identity().values())


@pytest.mark.parametrize(
    "name", ["random", "persistent", "skilled", "permuted", "shifted", "available"]
)
def test_another_seed_gives_other_answers(name):
    first, second = (MAKERS[name](seed) for seed in (7, 8))
    assert [ask(first, bar=bar) for bar in range(50)] != [ask(second, bar=bar) for bar in range(50)]
    assert first.identity() != second.identity()


def test_numbers_are_the_same_on_every_machine():
    assert [round(mocks.uniform(3, bar, "skill"), 6) for bar in range(3)] == [
        0.056628,
        0.269924,
        0.580015,
    ]
    draws = np.array([mocks.uniform(1, bar, "x") for bar in range(20_000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 10, (0, 1))[0].std() < 70  # about 42 expected


@pytest.mark.parametrize(
    ("q", "expected"), [(0.0, 0.0), (0.3, 0.3), (0.6, 0.6), (0.9, 0.9), (1.0, 1.0)]
)
def test_skill_is_what_is_claimed(q, expected):
    spread = 4 * math.sqrt(max(q * (1 - q), 1e-12) / len(DEFINED))
    assert abs(hits(mocks.Skilled(FUTURE, q)) - expected) <= spread


@pytest.mark.slow
@pytest.mark.parametrize("bars", [1, 10, 60, 240])
def test_persistent_opinions_last_as_long_as_claimed(bars):
    """Spells are geometric with this mean, and their sides are drawn anew, so the sides of two bars
    k apart correlate by (1 - 1 / bars) ** k. 4 standard errors each."""
    length = 40_000
    mock = mocks.Persistent(bars, seed=5)
    began = np.array([mock.began(bar) for bar in range(length)])
    spells = np.diff(np.unique(began))
    assert (
        abs(spells.mean() - bars)
        <= 4 * bars / math.sqrt(len(spells)) * math.sqrt(1 - 1 / bars) + 1e-9
    )
    up = sides(mock, np.arange(length))
    assert set(up) == {-1, 1}
    error = 4 * math.sqrt(
        2 * bars / length
    )  # sides are independent between spells, so there are length / bars of them
    assert abs(up.mean()) <= error
    for lag in {1, bars}:
        assert abs(np.mean(up[lag:] * up[:-lag]) - (1 - 1 / bars) ** lag) <= error


@pytest.mark.slow
def test_persistent_opinions_know_nothing_and_name_their_confidence():
    rates = [hits(mocks.Persistent(60, seed=seed)) for seed in range(40)]
    assert abs(np.mean(rates) - 0.5) <= 4 * np.std(rates) / math.sqrt(len(rates))
    advice = ask(make_backend("mock:persistent:60", {"confidence": 0.8})).advice
    assert advice is not None
    assert advice.confidence == 0.8
    assert (
        len({side(ask(mocks.Persistent(), bar=bar).advice) for bar in (-1, 0)}) <= 2
    )  # no bar is out of its reach


def test_a_shift_moves_whole_sessions():
    """Each session gets the answers of one other session, place by place: the order within a
    session stays.
    """
    placebo = mocks.Shifted(mocks.Random(), DAYS, seed=3)
    offsets = set()
    for number, day in enumerate(DAYS):
        others = [placebo.other(bar) for bar, _ in day]
        began = others[0]
        assert began is not None
        assert others == list(range(began, began + 40))
        offsets.add((began // 50 - number) % len(DAYS))
    [offset] = offsets
    assert len(DAYS) // 4 <= offset <= len(DAYS) - len(DAYS) // 4
    inner = make_backend("mock:persistent:20")
    kept = [bar for day in DAYS for bar, _ in day]
    shifted = sides(mocks.Shifted(inner, DAYS), np.array(kept)).reshape(-1, 40)
    plain = sides(inner, np.array(kept)).reshape(-1, 40)
    assert sorted(map(tuple, shifted)) == sorted(
        map(tuple, plain)
    )  # the same days, of the same persistence
    assert not np.array_equal(shifted, plain)
    assert ask(placebo, bar=45).failure is Failure.EMPTY


@pytest.mark.parametrize("number", [2, 3, 4, 9])
def test_no_session_is_its_own_placebo(number):
    for seed in range(60):
        placebo = mocks.Shifted(mocks.Random(), DAYS[:number], seed=seed)
        for i, day in enumerate(DAYS[:number]):
            other = placebo.other(day[0][0])
            assert other is not None
            assert other // 50 != i


def test_where_the_other_session_has_no_such_bar_the_nearest_place_counts():
    """A short day, and a day that begins late: places are times since the session began."""
    late, short = [(100, 120), (101, 180), (103, 300)], [(200, 0), (201, 60), (202, 120)]
    placebo = mocks.Shifted(mocks.Random(), [late, [], short])
    assert [placebo.other(bar) for bar in (100, 101, 103)] == [202, 202, 202]
    assert [placebo.other(bar) for bar in (200, 201, 202)] == [100, 100, 100]
    gap = mocks.Shifted(
        mocks.Random(), [[(0, 0), (1, 60), (2, 120), (3, 180), (4, 240), (5, 300)], late]
    )
    assert [gap.other(bar) for bar in range(6)] == [100, 100, 100, 101, 101, 103]


def test_a_single_session_is_turned_by_its_horizon_at_least():
    for seed in range(60):
        placebo = mocks.Shifted(mocks.Random(), DAYS[:1], seed=seed, least=15)
        others = [other for bar in range(40) if (other := placebo.other(bar)) is not None]
        assert sorted(others) == list(range(40))
        assert all(15 <= abs(other - bar) <= 25 for bar, other in enumerate(others))
    brief = mocks.Shifted(mocks.Random(), [DAYS[0][:5]], least=30)
    assert brief.other(0) in (2, 3)  # as far as five bars allow


def test_kinds_of_skill():
    given = {"future": FUTURE}
    assert hits(make_backend("mock:oracle", given)) == 1.0
    assert hits(make_backend("mock:adversarial:1", given)) == 0.0
    assert abs(hits(make_backend("mock:adversarial:0.7", given)) - 0.3) < 0.04
    assert abs(hits(make_backend("mock:random")) - 1 / 3) < 0.04  # flat hits nothing
    placebo = make_backend("mock:permuted/mock:oracle", {**given, "bars": np.arange(BARS)})
    up = float(np.mean(FUTURE[DEFINED] > 0))
    assert (
        abs(hits(placebo) - (up**2 + (1 - up) ** 2)) < 0.04
    )  # what the two frequencies give by chance
    shifted = make_backend(
        "mock:shifted/mock:oracle", {**given, "sessions": [[(b, b) for b in range(BARS)]]}
    )
    assert (
        abs(hits(shifted) - (up**2 + (1 - up) ** 2)) < 0.2
    )  # this future repeats, so a shift may hit it more often
    assert sorted(sides(placebo, np.arange(BARS))) == sorted(
        sides(make_backend("mock:oracle", given), np.arange(BARS))
    )


def test_confidence_by_honesty():
    given = {"future": FUTURE}
    stated = {}
    for name in (
        "skilled:0.6",
        "adversarial:0.6",
        "overconfident:0.5",
        "underconfident:0.9",
        "oracle",
    ):
        advice = ask(make_backend(f"mock:{name}", given)).advice
        assert advice is not None
        stated[name] = advice.confidence
    assert stated == {
        "skilled:0.6": 0.6,
        "adversarial:0.6": 0.6,
        "overconfident:0.5": 0.99,
        "underconfident:0.9": 0.05,
        "oracle": 1.0,
    }


def test_an_undefined_future_is_not_given_away():
    undefined = np.flatnonzero(FUTURE == 0)
    said = sides(mocks.Skilled(FUTURE, 1.0), undefined)
    assert set(said) == {-1, 1}
    assert abs(float(np.mean(said))) < 0.2


def test_outside_the_known_bars_is_absence():
    for bar in (-1, BARS):
        assert ask(mocks.Skilled(FUTURE), bar=bar).failure is Failure.EMPTY
    assert ask(mocks.Permuted(mocks.Random(), [1, 2, 3]), bar=4).failure is Failure.EMPTY


def test_delay_gives_older_opinions():
    inner = mocks.Skilled(FUTURE, 1.0)
    delayed = mocks.Delayed(inner, 30)
    assert ask(delayed, bar=29).failure is Failure.EMPTY
    assert all(ask(delayed, bar=bar) == ask(inner, bar=bar - 30) for bar in range(30, 90))
    assert mocks.Delayed(inner, 0).answer(question(4), 0.0) == ask(inner, bar=4)
    with pytest.raises(ConfigError, match="look ahead"):
        mocks.Delayed(inner, -1)


def test_wrappers_can_ask_the_whole_question_about_another_bar():
    rules = make_backend("rules")
    calls = []

    def question_of(bar):
        calls.append(bar)
        return question(bar)

    assert mocks.Delayed(rules, 5, question_of).answer(question(9), 0.0).advice is not None
    assert calls == [4]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_availability(p):
    answers = [ask(mocks.Available(mocks.Constant(), p, 3), bar=bar) for bar in range(2000)]
    assert abs(sum(answer.advice is not None for answer in answers) / 2000 - p) <= 0.045
    assert {answer.failure for answer in answers if answer.advice is None} <= {Failure.EMPTY}


def test_turn():
    turning = mocks.Turning(mocks.Constant("long"), mocks.Constant("short"), 10)
    assert [side(ask(turning, bar=bar).advice) for bar in (0, 9, 10, 50)] == [1, 1, -1, -1]
    assert turning.identity()["then.direction"] == "short"


@pytest.mark.parametrize("failure", list(Failure))
def test_failing_is_absence_of_any_kind(failure):
    backend = make_backend("mock:failing", {"failure": failure.value, "retryable": True})
    answer = ask(backend)
    assert (answer.advice, answer.failure, answer.retryable) == (None, failure, True)
    assert backend.identity() == {
        "kind": "mock:failing",
        "failure": failure.value,
        "retryable": "True",
        "seed": "0",
        "horizon": "30",
    }


def test_slow_keeps_the_deadline_and_stops():
    assert ask(mocks.Slow(mocks.Constant(), 0.05)).latency >= 0.05
    late = ask(mocks.Slow(mocks.Constant(), math.inf), 0.2)
    assert (late.failure, late.retryable) == (Failure.TIMEOUT, True)
    assert late.latency >= 0.2
    hung = mocks.Slow(mocks.Constant(), math.inf)
    threading.Timer(0.1, hung.close).start()
    began = time.monotonic()
    assert ask(hung, 10).failure is Failure.STOPPED
    assert time.monotonic() - began < SOON
    assert ask(hung, 10).failure is Failure.STOPPED


@pytest.mark.parametrize(
    "broken",
    [
        lambda: mocks.Skilled(np.array([0.5, 1])),
        lambda: mocks.Skilled(np.zeros((2, 2))),
        lambda: mocks.Skilled(FUTURE, 1.2),
        lambda: mocks.Skilled(FUTURE, math.nan),
        lambda: mocks.Constant("up"),
        lambda: mocks.Random(horizon=0),
        lambda: mocks.Permuted(mocks.Random(), [1, 1]),
        lambda: mocks.Persistent(0.5),
        lambda: mocks.Persistent(math.inf),
        lambda: mocks.Persistent(math.nan),
        lambda: mocks.Persistent(9, confidence=2),
        lambda: mocks.Shifted(mocks.Random(), []),
        lambda: mocks.Shifted(mocks.Random(), [[(3, 0)]]),
        lambda: mocks.Shifted(mocks.Random(), [[(3, 0), (3, 60)]]),
        lambda: mocks.Available(mocks.Random(), 2),
        lambda: mocks.Slow(mocks.Random(), math.nan),
        lambda: mocks.Skilled(FUTURE, honesty="modest"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_cannot_be(broken):
    with pytest.raises(ConfigError):
        broken()
