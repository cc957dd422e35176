"""The queue of questions: one ticket per key, bounded, most wanted first, settled states
remembered.
"""

from __future__ import annotations

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
    """The same question again is one ticket with the higher priority."""
    queue, order = make(), []
    for bar, priority in ((1, 0.5), (2, 0.7), (3, 0.9), (2, 0.9), (3, 0.1)):
        queue.submit(question(bar), priority, NOW)
    assert (len(queue), queue._counts.submitted, queue._counts.deduped) == (3, 5, 2)
    for _ in range(3):
        entry = ready(queue)
        queue.start(entry)
        order.append(entry.key.bar)
    assert order == [2, 3, 1]


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
