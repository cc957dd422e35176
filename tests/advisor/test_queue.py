"""The queue of questions: one ticket per key, bounded, most wanted first, settled states
remembered.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.desk import Entry, Key, QuestionQueue, State
from jaxtrade.advisor.host.statistics import Statistics
from tests.advisor.balance import imbalance
from tests.advisor.service_parts import question

NOW = 50.0


def make(capacity=4, ttl=3):
    return QuestionQueue(capacity, ttl, Statistics())


def balance(queue):
    return imbalance(queue._counts.snapshot(len(queue), queue.in_flight))


def ready(queue, now=NOW):
    """The next question, everything being looked up."""
    for entry in queue.to_look_up(100):
        queue.looked_up(entry)
    entry = queue.next(now)
    assert entry is not None
    return entry


def key(bar, version="v1"):
    return Key(bar, version)


def test_most_wanted_first_and_of_equals_the_older():
    queue = make()
    for bar, priority in ((1, 0.5), (2, 0.9), (3, 0.9)):
        queue.submit(question(bar), priority, NOW)
    order = []
    for _ in range(3):
        entry = ready(queue)
        queue.start(entry)
        order.append(entry.key.bar)
    assert order == [2, 3, 1]


def test_the_same_question_again_is_one_ticket_with_the_higher_priority():
    queue = make()
    queue.submit(question(1), 0.5, NOW)
    queue.submit(question(2), 0.7, NOW)
    queue.submit(question(1), 0.9, NOW)
    queue.submit(question(1), 0.1, NOW)  # does not lower it
    entry = ready(queue)
    assert (entry.key.bar, entry.priority, len(queue)) == (1, 0.9, 2)
    assert (queue._counts.submitted, queue._counts.deduped) == (4, 2)


def test_another_prompt_version_is_another_question():
    queue = make()
    queue.submit(question(1, "v1"), 0.5, NOW)
    queue.submit(question(1, "v2"), 0.5, NOW)
    assert len(queue) == 2


def test_a_question_in_flight_or_answered_is_not_queued_again():
    """ONI's gap: dedup against what is under way, not only against what is finished."""
    queue = make()
    queue.submit(question(1), 0.5, NOW)
    entry = ready(queue)
    queue.start(entry)
    queue.submit(question(1), 0.9, NOW)
    assert (queue.state(key(1)), len(queue), queue._counts.deduped) == (State.IN_FLIGHT, 0, 1)
    queue.settle(entry, "done")
    queue.submit(question(1), 0.9, NOW)
    assert (queue.state(key(1)), len(queue), queue._counts.deduped) == (State.DONE, 0, 2)
    assert balance(queue) == 0


def test_full_drops_the_least_wanted_which_may_be_the_new_one():
    """The queue of RL-Trainer's advisor had no bound."""
    queue = make(capacity=2)
    queue.submit(question(1), 0.5, NOW)
    queue.submit(question(2), 0.4, NOW)
    queue.submit(question(3), 0.6, NOW)
    assert (queue.state(key(2)), queue.state(key(3))) == (State.ABSENT, State.QUEUED)
    queue.submit(question(4), 0.5, NOW)  # no more wanted than bar 1, and newer
    assert (queue.state(key(4)), queue.state(key(1))) == (State.ABSENT, State.QUEUED)
    assert (len(queue), queue._counts.dropped, balance(queue)) == (2, 2, 0)


def test_full_drops_the_least_wanted_whether_looked_up_or_not():
    queue = make(capacity=2)
    queue.submit(question(1), 0.2, NOW)
    queue.looked_up(queue.to_look_up(1)[0])
    queue.submit(question(2), 0.3, NOW)
    queue.submit(question(3), 0.4, NOW)
    assert queue.state(key(1)) is State.ABSENT
    queue.looked_up(queue.to_look_up(1)[0])  # bar 3
    queue.submit(question(4), 0.5, NOW)
    assert [queue.state(key(bar)) for bar in (2, 3, 4)] == [
        State.ABSENT,
        State.QUEUED,
        State.QUEUED,
    ]


def test_expires_ttl_chunks_after_it_was_last_wanted():
    queue = make(ttl=3)
    queue.submit(question(1), 0.5, NOW)
    queue.submit(question(2), 0.5, NOW)
    queue.tick()
    queue.submit(question(1), 0.5, NOW)
    queue.tick()
    queue.tick()
    assert (queue.state(key(1)), queue.state(key(2))) == (State.QUEUED, State.EXPIRED)
    queue.tick()
    assert (queue.state(key(1)), queue._counts.expired, balance(queue)) == (State.EXPIRED, 2, 0)
    queue.submit(question(1), 0.5, NOW)
    assert queue.state(key(1)) is State.QUEUED


def test_what_is_in_flight_does_not_expire():
    queue = make(ttl=1)
    queue.submit(question(1), 0.5, NOW)
    queue.start(ready(queue))
    for _ in range(5):
        queue.tick()
    assert queue.state(key(1)) is State.IN_FLIGHT


def test_a_retry_waits_for_its_time_and_lets_others_pass():
    queue = make()
    queue.submit(question(1), 0.9, NOW)
    queue.submit(question(2), 0.1, NOW)
    first = ready(queue)
    queue.start(first)
    queue.again(first, NOW + 5)
    assert ready(queue).key.bar == 2
    assert ready(queue, NOW + 5) is first
    assert (first.attempts, balance(queue)) == (1, 0)


def test_a_retry_into_a_full_queue_drops_the_least_wanted():
    queue = make(capacity=1)
    queue.submit(question(1), 0.1, NOW)
    first = ready(queue)
    queue.start(first)
    queue.submit(question(2), 0.5, NOW)
    queue.again(first, NOW)
    assert (queue.state(key(1)), queue.state(key(2)), queue._counts.dropped) == (
        State.ABSENT,
        State.QUEUED,
        1,
    )
    assert balance(queue) == 0


def test_a_failed_question_may_be_asked_anew_after_its_time_and_a_forgiven_one_at_once():
    queue = make()
    queue.submit(question(1), 0.5, NOW)
    entry = ready(queue)
    queue.start(entry)
    queue.settle(entry, "failed", NOW + 60)
    queue.submit(question(1), 0.5, NOW + 59)
    assert queue.state(key(1)) is State.FAILED
    queue.submit(question(1), 0.5, NOW + 60)
    assert queue.state(key(1)) is State.QUEUED
    entry = ready(queue)
    queue.start(entry)
    queue.settle(entry, "failed", math.inf)
    queue.forgive(key(1))
    queue.submit(question(1), 0.5, NOW)
    assert (queue.state(key(1)), balance(queue)) == (State.QUEUED, 0)


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_poisoned_question_is_never_asked_again(in_flight):
    queue = make()
    queue.submit(question(1), 0.5, NOW)
    entry = ready(queue)
    if in_flight:
        queue.start(entry)
    queue.settle(entry, "poisoned")
    queue.forgive(key(1))
    queue.submit(question(1), 0.5, 1e12)
    assert (queue.state(key(1)), len(queue), queue._counts.poisoned, balance(queue)) == (
        State.POISONED,
        0,
        1,
        0,
    )


@pytest.mark.parametrize("priority", [math.nan, math.inf, -math.inf])
def test_a_priority_that_is_no_number_is_dropped_and_counted(priority):
    queue = make()
    queue.submit(question(1), priority, NOW)
    assert (len(queue), queue._counts.dropped, balance(queue)) == (0, 1, 0)


def test_look_ups_come_most_wanted_first_and_at_most_so_many():
    queue = make()
    for bar, priority in ((1, 0.1), (2, 0.3), (3, 0.2)):
        queue.submit(question(bar), priority, NOW)
    assert [entry.key.bar for entry in queue.to_look_up(2)] == [2, 3]
    assert [entry.key.bar for entry in queue.to_look_up(9)] == [2, 3, 1]
    assert queue.to_look_up(0) == []
    assert queue.next(NOW) is None  # nothing is looked up yet


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "submit",
                    "submit",
                    "tick",
                    "look",
                    "hit",
                    "start",
                    "done",
                    "failed",
                    "poisoned",
                    "again",
                ]
            ),
            st.integers(0, 7),
            st.floats(0, 1),
        ),
        max_size=80,
    )
)
def test_nothing_is_lost_or_counted_twice(steps):
    """I7 after any sequence of operations; the bound holds, and no key is in two places."""
    queue, flying = make(capacity=3, ttl=2), dict[Key, Entry]()
    for what, bar, value in steps:
        if what == "submit":
            queue.submit(question(bar), value, NOW)
        elif what == "tick":
            queue.tick()
        elif what in ("look", "hit"):
            for entry in queue.to_look_up(1):
                queue.looked_up(entry) if what == "look" else queue.settle(entry, "cache_hit")
        elif what == "start":
            if (entry := queue.next(NOW)) is not None:
                assert entry.key not in flying
                queue.start(entry)
                flying[entry.key] = entry
        elif flying:
            entry = flying.pop(next(iter(flying)))
            if what in ("done", "failed", "poisoned"):
                queue.settle(entry, what, NOW + value - 0.5)
            else:
                queue.again(entry, NOW + value - 0.5)
        assert balance(queue) == 0
        assert len(queue) <= 3
        assert queue.in_flight == len(flying)
        assert sum(len(ranked) for ranked in queue._ranked.values()) == len(queue)
