"""The circuit breaker, by hand and by the second."""

import math

import pytest

from jaxtrade.advisor.host.policy import Breaker


def run(breaker, outcomes, now=0.0):
    """Requests one after another: '+' succeeds, '-' fails, '?' says nothing."""
    changes = []
    for outcome in outcomes:
        assert breaker.wait(now) == 0
        changes.append(
            breaker.end({"+": True, "-": False, "?": None}[outcome], breaker.begin(), now)
        )
    return changes


def test_five_failures_in_a_row_open_it():
    breaker = Breaker()
    assert run(breaker, "----+----???-") == [*[""] * 12, "opened"]
    assert [breaker.wait(now) for now in (0.0, 29.0, 30.0)] == [30.0, 1.0, 0.0]
    assert breaker.state == "open"


def test_half_of_the_last_twenty_open_it():
    breaker = Breaker()
    assert run(breaker, "-+" * 9 + "-") == [""] * 19  # not twenty yet
    assert run(breaker, "+") == ["opened"]
    assert run(Breaker(), "-++" * 20) == [""] * 60  # a third is no reason


def test_one_probe_at_a_time_and_doubling_up_to_ten_minutes():
    breaker, now, pauses = Breaker(), 0.0, []
    run(breaker, "-----")
    for _ in range(7):
        pauses.append(breaker.wait(now))
        now += pauses[-1]
        assert breaker.begin() is True
        assert (breaker.wait(now), breaker.state) == (math.inf, "half open")
        assert breaker.end(False, True, now) == ""
    assert pauses == [30, 60, 120, 240, 480, 600, 600]
    assert breaker.openings == 1


def test_a_good_probe_closes_it_and_the_next_pause_is_short_again():
    breaker = Breaker()
    run(breaker, "-----")
    breaker.begin()
    breaker.end(False, True, 30.0)  # 60 s now
    breaker.begin()
    assert breaker.end(True, True, 95.0) == "closed"
    assert (breaker.state, breaker.open_seconds(500.0)) == ("closed", 95.0)
    assert run(breaker, "----", 100.0) == [""] * 4  # failures of before are forgotten
    assert run(breaker, "-", 100.0) == ["opened"]
    assert breaker.wait(100.0) == 30.0
    assert breaker.open_seconds(110.0) == 105.0


@pytest.mark.parametrize("late", [True, False])
def test_requests_from_before_the_opening_change_nothing(late):
    breaker = Breaker()
    run(breaker, "-----")
    assert breaker.end(late, False, 10.0) == ""
    assert (breaker.wait(10.0), breaker.state) == (20.0, "open")
    assert breaker.begin()
    assert breaker.end(late, False, 31.0) == ""
    assert breaker.state == "half open"


def test_a_refusal_is_for_good_and_said_once():
    """The old one had a cool-down flag that nobody read."""
    breaker = Breaker()
    assert breaker.refuse("wrong key", 5.0) is True
    assert breaker.refuse("wrong key", 6.0) is False
    assert (breaker.wait(1e9), breaker.state, breaker.refused) == (
        math.inf,
        "open for good",
        "wrong key",
    )
    assert breaker.end(True, False, 7.0) == ""
    assert breaker.open_seconds(15.0) == 10.0
