"""Rates, concurrency and retries, hand-worked and by property."""

import bisect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.policy import Concurrency, PerMinute, RetryBudget


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


def test_concurrency_rises_by_one_per_ten_and_halves_at_overload():
    limit = Concurrency(8)
    limit.note_overload(started=0.0, now=1.0)
    assert limit.limit == 4
    for _ in range(19):
        limit.count_success()
    assert limit.limit == 5
    limit.count_success()
    assert limit.limit == 6
    for _ in range(100):
        limit.count_success()
    assert limit.limit == 8


def test_a_burst_of_overload_is_one_cut():
    """Requests begun before the cut do not show what it did."""
    limit = Concurrency(8)
    for _ in range(8):
        limit.note_overload(started=0.0, now=1.0)
    assert limit.limit == 4
    for now in (2.0, 3.0, 4.0):
        limit.note_overload(started=now - 0.5, now=now)
    assert limit.limit == 1


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_their_share(steps):
    budget, requests, retries = RetryBudget(), 0, 0
    for is_request in steps:
        if is_request:
            requests += 1
            budget.count_request()
        else:
            retries += budget.retry()
        assert retries <= 3 + requests / 10 + 1e-6
