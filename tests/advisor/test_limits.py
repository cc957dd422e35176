"""Rates, concurrency and retries, hand-worked and by property."""

from __future__ import annotations

import bisect
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.policy import Concurrency, PerMinute, RetryBudget, jittered


def drawn(bucket, amount, until):
    """Times at which `amount` is taken, as soon as it may be, from 0 to `until`."""
    now, times = 0.0, []
    while now < until:
        if (wait := bucket.wait(amount, now)) <= 1e-9:
            bucket.take(amount, now)
            times.append(now)
        else:
            now += wait
    return times


@pytest.mark.parametrize("limit", [2, 3, 10, 60, 600])
def test_never_more_than_the_limit_in_any_minute(limit):
    times = drawn(PerMinute(limit, 0.0), 1, 400.0)
    for first, start in enumerate(times):
        assert bisect.bisect_left(times, start + 60 - 1e-6) - first <= limit
    assert len(times) >= 0.9 * (limit - max(1, limit / 10)) * 400 / 60  # and not much less


def test_a_tenth_at_once_and_the_rest_spread():
    times = drawn(PerMinute(600, 0.0), 1, 10.0)
    assert sum(time == 0 for time in times) == 60
    assert sum(0 < time <= 10 for time in times) == pytest.approx(90, abs=1)  # 540 a minute


def test_an_idle_bucket_does_not_overflow():
    bucket = PerMinute(60, 0.0)
    assert bucket.wait(6, 1e6) == 0
    bucket.take(6, 1e6)
    assert bucket.wait(1, 1e6) == pytest.approx(1 / 0.9)


def test_one_larger_than_the_burst_goes_through_and_is_paid_for():
    bucket = PerMinute(600, 0.0)  # burst 60, 9 a second
    assert bucket.wait(240, 0.0) == 0
    bucket.take(240, 0.0)
    assert bucket.wait(60, 0.0) == pytest.approx(240 / 9)
    bucket.give_back(180)  # it was 60 in the end
    assert bucket.wait(60, 0.0) == pytest.approx(60 / 9)
    bucket.give_back(1e9)
    bucket.take(60, 0.0)
    assert bucket.wait(1, 0.0) > 0  # never above the burst


def test_a_limit_below_two_is_refused():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        PerMinute(1, 0.0)


def test_concurrency_rises_by_one_per_ten_and_halves_at_overload():
    limit = Concurrency(8)
    limit.overloaded(started=0.0, now=1.0)
    assert limit.limit == 4
    for _ in range(19):
        limit.succeeded()
    assert limit.limit == 5
    limit.succeeded()
    assert limit.limit == 6
    for _ in range(100):
        limit.succeeded()
    assert limit.limit == 8


def test_a_burst_of_overload_is_one_cut():
    """Requests begun before the cut do not show what it did."""
    limit = Concurrency(8)
    for _ in range(8):
        limit.overloaded(started=0.0, now=1.0)
    assert limit.limit == 4
    for now in (2.0, 3.0, 4.0):
        limit.overloaded(started=now - 0.5, now=now)
    assert limit.limit == 1


def test_retries_are_a_tenth_of_requests_and_three_to_begin_with():
    budget = RetryBudget()
    assert [budget.retry() for _ in range(4)] == [True, True, True, False]
    for _ in range(10):
        budget.requested()
    assert [budget.retry(), budget.retry()] == [True, False]
    for _ in range(100_000):
        budget.requested()
    assert sum(budget.retry() for _ in range(50)) == 10  # the recent hundred, not all of time


def test_no_share_is_no_retry():
    budget = RetryBudget(share=0.0)
    budget.requested()
    assert not budget.retry()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_their_share(steps):
    budget, requests, retries = RetryBudget(), 0, 0
    for is_request in steps:
        if is_request:
            requests += 1
            budget.requested()
        else:
            retries += budget.retry()
        assert retries <= 3 + requests / 10 + 1e-6


def test_decorrelated_jitter_stays_between_base_and_cap():
    rng, delay, seen = random.Random(0), 0.0, []
    for _ in range(2000):
        delay = jittered(delay, 0.5, 20.0, rng)
        seen.append(delay)
    assert seen[0] == 0.5
    assert min(seen) >= 0.5
    assert max(seen) == 20.0
    assert all(after <= max(0.5, 3 * before) for before, after in itertools.pairwise(seen))
    assert len(set(seen)) > 1000
