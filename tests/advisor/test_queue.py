"""The queue of questions: one ticket per key, bounded, most wanted first, settled states
remembered.
"""

from jaxtrade.advisor.host.desk import QuestionKey, QuestionQueue
from jaxtrade.advisor.host.types import ServiceCounts
from tests.advisor.balance import imbalance
from tests.advisor.service_parts import question

NOW = 50.0


def make(capacity=4, ttl=3):
    return QuestionQueue(capacity, ttl, ServiceCounts())


def balance(queue):
    return imbalance(queue.counts.snapshot(len(queue), queue.in_flight))


def ready(queue, now=NOW):
    """The next question, everything being looked up."""
    for entry in queue.to_look_up(100):
        entry.looked_up = True
    entry = queue.next(now)
    assert entry is not None
    return entry


def key(bar, version="v1"):
    return QuestionKey(bar, version)


def test_most_wanted_first_and_of_equals_the_older():
    """The same question again is one ticket with the higher priority."""
    queue, order = make(), []
    for bar, priority in ((1, 0.5), (2, 0.7), (3, 0.9), (2, 0.9), (3, 0.1)):
        queue.submit(question(bar), priority, NOW)
    assert (len(queue), queue.counts.submitted, queue.counts.deduped) == (3, 5, 2)
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
    assert (queue.state(key(2)), queue.state(key(3))) == ("absent", "queued")
    queue.submit(question(4), 0.5, NOW)  # no more wanted than bar 1, and newer
    assert (queue.state(key(4)), queue.state(key(1))) == ("absent", "queued")
    assert (len(queue), queue.counts.dropped, balance(queue)) == (2, 2, 0)


def test_expires_ttl_chunks_after_it_was_last_wanted():
    queue = make(ttl=3)
    queue.submit(question(1), 0.5, NOW)
    queue.submit(question(2), 0.5, NOW)
    queue.tick()
    queue.submit(question(1), 0.5, NOW)
    queue.tick()
    queue.tick()
    assert (queue.state(key(1)), queue.state(key(2))) == ("queued", "expired")
    queue.tick()
    assert (queue.state(key(1)), queue.counts.expired, balance(queue)) == ("expired", 2, 0)
    queue.submit(question(1), 0.5, NOW)
    assert queue.state(key(1)) == "queued"
