"""Advisors of known skill: seeded, and a function of (seed, bar) only."""

import math
import threading
import time

import numpy as np
import pytest

from jaxtrade.advisor.host.mocks import (
    Available,
    Constant,
    DelayedBackend,
    Failing,
    Permuted,
    Persistent,
    Random,
    Shifted,
    Skilled,
    Slow,
    Turning,
    uniform,
)
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.types import Failure
from jaxtrade.errors import ConfigError
from tests.advisor.asking import SOON, ask, question

BARS = 4000
FUTURE = np.where(np.arange(BARS) % 10 == 9, 0, np.where(np.arange(BARS) % 3 == 0, 1, -1))
DEFINED = np.flatnonzero(FUTURE)
DAYS = [
    [(bar, 60 * (bar - first)) for bar in range(first, first + 40)] for first in range(0, BARS, 50)
]  # 10 bars off

MAKERS = {
    "random": lambda seed: Random(seed),
    "constant": lambda seed: Constant("short", 0.4, seed),
    "skilled": lambda seed: Skilled(FUTURE, 0.6, seed=seed),
    "persistent": lambda seed: Persistent(20, seed=seed),
    "permuted": lambda seed: Permuted(Skilled(FUTURE, 0.9, seed=1), range(500), seed=seed),
    "shifted": lambda seed: Shifted(Skilled(FUTURE, 0.9, seed=1), DAYS, seed=seed),
    "delayed": lambda seed: DelayedBackend(Random(seed), 5),
    "available": lambda seed: Available(Random(seed), 0.5, seed),
    "turning": lambda seed: Turning(Random(seed), Constant(), 100),
    "failing": lambda seed: Failing(),
}


def side(advice):
    return int(np.sign(advice.buy - advice.sell))


def sides(backend, bars):
    return np.array(
        [side(backend.answer(question(0)._replace(bar=int(bar)), math.inf).advice) for bar in bars]
    )


def hits(backend):
    return float(np.mean(sides(backend, DEFINED) == FUTURE[DEFINED]))


@pytest.mark.parametrize("name", MAKERS)
def test_order_and_threads_do_not_matter(name):
    """A new backend for each bar gives what one gives in another order."""
    bars, one = range(90, 130), MAKERS[name](7)
    ordered = [MAKERS[name](7).answer(question(bar), math.inf) for bar in bars]
    others = np.random.default_rng(1).permutation(bars).tolist()
    shuffled = {bar: one.answer(question(bar), math.inf) for bar in others}
    assert [shuffled[bar] for bar in bars] == ordered
    assert one.identity() == MAKERS[name](7).identity()


def test_numbers_are_the_same_on_every_machine():
    assert [round(uniform(3, bar, "skill"), 6) for bar in range(3)] == [
        0.056628,
        0.269924,
        0.580015,
    ]
    draws = np.array([uniform(1, bar, "x") for bar in range(20_000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 10, (0, 1))[0].std() < 70  # about 42 expected


@pytest.mark.parametrize(
    ("q", "expected"), [(0.0, 0.0), (0.3, 0.3), (0.6, 0.6), (0.9, 0.9), (1.0, 1.0)]
)
def test_skill_is_what_is_claimed(q, expected):
    spread = 4 * math.sqrt(max(q * (1 - q), 1e-12) / len(DEFINED))
    assert abs(hits(Skilled(FUTURE, q)) - expected) <= spread


@pytest.mark.slow
@pytest.mark.parametrize("bars", [10, 60])
def test_persistent_opinions_last_as_long_as_claimed(bars):
    """Spells are geometric with this mean, and their sides are drawn anew, so the sides of two bars
    k apart correlate by (1 - 1 / bars) ** k. 4 standard errors each."""
    length = 20_000
    mock = Persistent(bars, seed=5)
    spells = np.diff(np.unique([mock.began(bar) for bar in range(length)]))
    error = 4 * bars / math.sqrt(len(spells)) * math.sqrt(1 - 1 / bars)
    assert abs(spells.mean() - bars) <= error
    up = sides(mock, np.arange(length))
    assert set(up) == {-1, 1}
    error = 4 * math.sqrt(2 * bars / length)  # there are length / bars independent sides
    assert abs(up.mean()) <= error
    for lag in (1, bars):
        assert abs(np.mean(up[lag:] * up[:-lag]) - (1 - 1 / bars) ** lag) <= error


def test_a_shift_moves_whole_sessions():
    """Each session gets the answers of one other session, place by place: the order within a
    session stays. So the days are the same, of the same persistence.
    """
    inner = make_backend("mock:persistent:20")
    placebo = Shifted(inner, DAYS, seed=3)
    others = np.array([[placebo.other(bar) for bar, _ in day] for day in DAYS])
    assert (np.diff(others, axis=1) == 1).all()
    [offset] = set((others[:, 0] // 50 - np.arange(len(DAYS))) % len(DAYS))
    assert len(DAYS) // 4 <= offset <= len(DAYS) - len(DAYS) // 4
    kept = np.array([bar for day in DAYS for bar, _ in day])
    shifted, plain = (sides(backend, kept).reshape(-1, 40).tolist() for backend in (placebo, inner))
    assert sorted(shifted) == sorted(plain)
    assert shifted != plain
    assert ask(placebo, bar=45).failure is Failure.EMPTY


@pytest.mark.parametrize("number", [2, 3, 9])
def test_no_session_is_its_own_placebo(number):
    for seed in range(60):
        placebo = Shifted(Random(), DAYS[:number], seed=seed)
        assert all(placebo.other(50 * i) // 50 != i for i in range(number))


def test_where_the_other_session_has_no_such_bar_the_nearest_place_counts():
    """A short day, and a day that begins late: places are times since the session began."""
    late, short = [(100, 120), (101, 180), (103, 300)], [(200, 0), (201, 60), (202, 120)]
    long = [(bar, 60 * bar) for bar in range(6)]
    for days, others in (
        ([late, [], short], {100: 202, 101: 202, 103: 202, 200: 100, 201: 100, 202: 100}),
        ([long, late], {0: 100, 1: 100, 2: 100, 3: 101, 4: 101, 5: 103}),
    ):
        placebo = Shifted(Random(), days)
        assert {bar: placebo.other(bar) for bar in others} == others


def test_a_single_session_is_turned_by_its_horizon_at_least():
    for seed in range(60):
        placebo = Shifted(Random(), DAYS[:1], seed=seed, least=15)
        others = [placebo.other(bar) for bar in range(40)]
        assert sorted(others) == list(range(40))
        assert all(15 <= abs(other - bar) <= 25 for bar, other in enumerate(others))


@pytest.mark.parametrize(
    ("name", "stated"),
    [("skilled:0.6", 0.6), ("overconfident:0.5", 0.99), ("underconfident:0.9", 0.05)],
)
def test_confidence_by_honesty(name, stated):
    assert ask(make_backend(f"mock:{name}", {"future": FUTURE})).advice.confidence == stated


def test_outside_the_known_bars_is_absence():
    for backend, bar in (
        (Skilled(FUTURE), -1),
        (Skilled(FUTURE), BARS),
        (Permuted(Random(), [1, 2, 3]), 4),
    ):
        assert ask(backend, bar=bar).failure is Failure.EMPTY


def test_delay_gives_older_opinions():
    inner = Skilled(FUTURE, 1.0)
    delayed = DelayedBackend(inner, 30)
    assert ask(delayed, bar=29).failure is Failure.EMPTY
    assert all(ask(delayed, bar=bar) == ask(inner, bar=bar - 30) for bar in range(30, 90))
    assert ask(DelayedBackend(inner, 0), bar=4) == ask(inner, bar=4)
    with pytest.raises(ConfigError, match="-1"):
        DelayedBackend(inner, -1)


@pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
def test_availability(p):
    backend = Available(Constant(), p, 3)
    failures = [ask(backend, bar=bar).failure for bar in range(2000)]
    assert abs(failures.count(None) / 2000 - p) <= 0.045
    assert set(failures) <= {None, Failure.EMPTY}


def test_turn():
    turning = Turning(Constant("long"), Constant("short"), 10)
    assert [side(ask(turning, bar=bar).advice) for bar in (0, 9, 10, 50)] == [1, 1, -1, -1]
    assert turning.identity()["then.direction"] == "short"


@pytest.mark.parametrize("failure", list(Failure))
def test_failing_is_absence_of_any_kind(failure):
    backend = make_backend("mock:failing", {"failure": failure.value, "retryable": True})
    answer = ask(backend)
    assert (answer.advice, answer.failure, answer.retryable) == (None, failure, True)
    assert backend.identity()["failure"] == failure.value


def test_slow_keeps_the_deadline_and_stops():
    assert ask(Slow(Constant(), 0.05)).latency >= 0.05
    hung = Slow(Constant(), math.inf)
    late = ask(hung, 0.2)
    assert (late.failure, late.retryable) == (Failure.TIMEOUT, True)
    assert late.latency >= 0.2
    threading.Timer(0.1, hung.close).start()
    began = time.monotonic()
    assert [ask(hung, 20).failure for _ in range(2)] == [Failure.STOPPED] * 2
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Skilled, [np.array([0.5, 1])]),
        (Skilled, [FUTURE, math.nan]),
        (Constant, ["up"]),
        (Permuted, [Random(), [1, 1]]),
        (Persistent, [0.5]),
        (Shifted, [Random(), [[(3, 0)]]]),
    ],
)
def test_settings_that_cannot_be(kind, given):
    with pytest.raises(ConfigError):
        kind(*given)
