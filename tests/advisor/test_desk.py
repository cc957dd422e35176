"""The service's rules without threads: a clock and a pool by hand."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.advisor.host.desk import Desk, QuestionKey
from jaxtrade.advisor.host.ledger import AdviceCache, Caps, Ledger
from jaxtrade.advisor.host.policy import TRAINING
from jaxtrade.advisor.host.types import Answer, ContainedFaults, Failure
from jaxtrade.config.service import ServiceOptions
from tests.advisor.balance import imbalance
from tests.advisor.service_parts import (
    ADVICE,
    HandClock,
    HandPool,
    ScriptedBackend,
    bad,
    good,
    question,
)


class Office:
    """A desk with everything around it made by hand."""

    def __init__(
        self,
        cache=None,
        ledger=None,
        pool=4,
        use=TRAINING,
        **options,
    ):
        self.options = ServiceOptions(workers=pool, **{"overhead_tokens": 64} | options)
        self.clock, self.pool = HandClock(), HandPool(pool)
        self.lines = []
        self.ready = []
        self.cache = AdviceCache(cache, self.lines.append)
        self.cache.open()
        self.ledger = Ledger(ledger, Caps.of(self.options))
        self.desk = Desk(
            ScriptedBackend(lambda *_: good()),
            self.options,
            self.clock,
            self.cache,
            self.ledger,
            self.pool,
            self.ready,
            ContainedFaults(self.lines.append),
            use,
        )  # type: ignore[arg-type]

    def want(self, *bars, priority=0.5):
        self.desk.queue_questions([(question(bar), priority) for bar in bars])
        self.turn()

    def turn(self, seconds=0.0):
        self.clock.now += seconds
        self.desk.turn()

    def answer(self, answer, index=0):
        self.desk.handle_result(self.pool.result(answer, index))
        self.turn()

    def asked(self):
        """Bars under way."""
        return [job.entry.question.bar for job in self.pool.jobs]

    def state(self, bar):
        return self.desk.queue.state(QuestionKey(bar, "v1"))

    @property
    def counts(self):
        found = self.desk.snapshot()
        assert imbalance(found) == 0
        return found


def test_a_question_is_asked_once_answered_once_and_remembered(tmp_path):
    office = Office(cache=tmp_path / "cache")
    office.want(7)
    office.want(7)
    assert office.asked() == [7]
    office.answer(good())
    office.want(7)
    assert (office.ready, office.asked(), office.counts["deduped"]) == ([(7, ADVICE)], [], 2)
    again = Office(cache=tmp_path / "cache")
    again.want(7)
    assert (again.ready, again.asked(), again.counts["cache_hit"]) == ([(7, ADVICE)], [], 1)


def test_the_deadline_is_of_the_clock():
    office = Office(deadline_s=12.0)
    office.want(1)
    assert office.pool.jobs[0].deadline == 1012.0


@pytest.mark.parametrize("failure", list(Failure))
def test_failure_is_absence_never_an_opinion(failure):
    """RL-Trainer's advisor made every failure a HOLD that counted as a success, and froze the
    agent. What the end of the run cancelled is no failure, but no opinion either.
    """
    office = Office()
    office.want(1)
    office.answer(bad(failure))
    for _ in range(50):
        office.turn(20.0)
        while office.pool.jobs:
            office.answer(bad(failure))
    assert (office.ready, office.counts["done"]) == ([], 0)
    stopped = failure is Failure.STOPPED
    assert office.counts["failures"] == ({} if stopped else {failure.value: office.counts["asked"]})
    assert office.counts["stopped"] == stopped


def test_unusable_advice_is_absence():
    office = Office()
    office.want(1)
    office.answer(good()._replace(advice=ADVICE._replace(confidence=1.01)))
    assert (office.ready, office.counts["failures"]) == ([], {"schema": 1})


# --- retries ---------------------------------------------------------------------------------------------------------


def test_at_most_three_attempts_with_growing_waits_that_hold_no_worker():
    office = Office()
    office.want(1)
    lost = bad(Failure.CONNECTION, retryable=True)
    office.answer(lost)
    assert office.state(1) == "queued"
    shown = [office.asked(), office.turn(0.49), office.asked(), office.turn(0.02), office.asked()]
    assert shown[::2] == [[], [], [1]]
    office.answer(lost)
    office.turn(1.51)  # at most 3 x 0.5
    office.answer(lost)
    assert office.state(1) == "failed"
    assert [office.counts[name] for name in ("asked", "retried", "failed")] == [3, 2, 1]


def test_what_is_not_retryable_fails_at_once_and_rests():
    office = Office(failed_for_s=60.0)
    office.want(1)
    office.answer(bad(Failure.HTTP, status=400))
    assert office.state(1) == "failed"
    office.turn(59)
    office.want(1)
    assert office.asked() == []
    office.turn(2)
    office.want(1)
    assert office.asked() == [1]


def test_an_outage_does_not_multiply_the_load():
    """Fault 11: retries are a tenth of requests, three to begin with."""
    office = Office(pool=64, queue_size=1000, breaker_failures=10**6, failed_for_s=1e9)
    office.want(*range(200))
    for _ in range(400):
        while office.pool.jobs:
            office.answer(bad(Failure.HTTP, status=500, retryable=True))
        office.turn(20.0)
        if office.desk.gates.breaker.state != "closed":
            office.turn(600.0)
    assert office.counts["failed"] == 200
    assert 200 < office.counts["asked"] <= 200 * 1.1 + 3
    assert office.counts["retries_denied"] > 0


def test_retry_after_is_honoured_and_pauses_the_endpoint():
    office = Office()
    office.want(1)
    office.answer(bad(Failure.HTTP, status=429, retryable=True, retry_after=7.0))
    office.want(2)
    assert office.asked() == []  # a question of its own, but the server asked for a pause
    office.turn(6.9)
    assert office.asked() == []
    office.turn(0.2)
    assert sorted(office.asked()) == [1, 2]


def test_a_retry_after_of_a_day_holds_nothing_up_for_ever():
    """The question waits, or expires; the endpoint is tried after ten minutes."""
    office = Office(ttl_chunks=5)
    office.want(1)
    office.answer(bad(Failure.HTTP, status=429, retryable=True, retry_after=86400.0))
    office.turn(601)
    office.want(2)
    assert office.asked() == [2]
    for _ in range(6):
        office.desk.queue_questions([])
    assert office.state(1) == "expired"
    assert office.counts["expired"] == 1


def test_overload_halves_what_runs_at_once():
    office = Office(pool=8)
    office.want(*range(20))
    for _ in range(8):
        office.desk.handle_result(office.pool.result(bad(Failure.HTTP, status=429)))
    office.turn(1.0)
    assert (len(office.asked()), office.counts["concurrency"]) == (0, 4)  # the breaker is open
    office.turn(30.0)
    assert len(office.asked()) == 1  # its probe
    office.answer(good())
    assert len(office.asked()) == 4


# --- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Failure.SCHEMA, Failure.EMPTY, Failure.TOO_LARGE])
def test_three_times_the_same_fault_poisons(failure):
    office = Office(failed_for_s=0.0)
    for _ in range(3):
        office.want(1)
        office.answer(bad(failure))
    office.turn(1e6)
    office.want(1)
    assert (office.state(1), office.asked()) == ("poisoned", [])
    assert (office.counts["poisoned"], office.counts["failed"]) == (1, 2)


def test_what_earlier_runs_failed_to_read_is_not_paid_for_again(tmp_path):
    first = Office(cache=tmp_path / "cache", failed_for_s=0.0)
    for bar in (1, 1, 1, 2, 2):
        first.want(bar)
        first.answer(bad(Failure.SCHEMA))
    second = Office(cache=tmp_path / "cache")
    second.want(1, 2)
    assert (second.state(1), second.asked()) == ("poisoned", [2])
    assert (second.counts["negatives"], second.counts["poisoned"]) == (1, 1)
    second.answer(bad(Failure.SCHEMA))  # the third of bar 2
    assert second.state(2) == "poisoned"


# --- room, cache, stop -----------------------------------------------------------------------------------------------


def test_the_cache_answers_while_nothing_may_be_asked(tmp_path):
    first = Office(cache=tmp_path / "cache")
    first.want(1)
    first.answer(good())
    second = Office(cache=tmp_path / "cache", max_calls=0)
    second.want(2)
    second.want(1)
    assert (second.ready, second.asked()) == ([(1, ADVICE)], [])


def test_what_another_process_answered_meanwhile_is_not_asked(tmp_path):
    office, other = (Office(cache=tmp_path / "cache", pool=1) for _ in range(2))
    office.want(1)
    office.want(2)
    other.want(2)
    other.answer(good())
    office.answer(good())
    assert [bar for bar, _ in office.ready] == [1, 2]
    assert (office.asked(), office.counts["cache_hit"]) == ([], 1)


def test_advice_in_the_cache_is_checked_too(tmp_path):
    office = Office(cache=tmp_path / "cache")
    office.want(1)
    office.answer(good())
    wrong = "[0, 1, 1, 7.3, 0.5, 30]"
    office.cache._connection.execute("UPDATE answers SET advice = ?", (wrong,))
    again = Office(cache=tmp_path / "cache")
    again.want(1)
    assert (again.ready, again.asked()) == ([], [1])


def test_a_hung_worker_fails_its_question_for_this_run():
    """Its call may still be open: asking again could pay twice (I11)."""
    office = Office()
    office.want(1)
    office.pool.hang()
    office.turn()
    assert office.state(1) == "failed"
    office.turn(1e9)
    office.want(1)
    assert office.asked() == []
    assert (office.counts["stuck"], office.counts["failures"]) == (1, {"timeout": 1})


def test_what_a_hung_worker_brings_late_goes_to_the_cache():
    office = Office()
    office.want(1)
    finished = HandPool.result(office.pool, good())
    office.pool.jobs.append(finished.job)
    office.pool.hang()
    office.turn()
    office.desk.handle_result(finished)
    assert (office.ready, office.counts["late"], office.ledger.sum_spend()) == ([], 1, (1, 60, 0))
    office.want(1)
    assert (office.ready, office.asked(), office.counts["cache_hit"]) == ([(1, ADVICE)], [], 1)


def test_what_the_end_of_the_run_cancels_has_not_failed():
    office = Office(pool=6)
    office.want(*range(6))
    office.desk.gates.stopping = True
    office.desk.queue_questions([(question(9), 1.0)])
    office.answer(good())
    for _ in range(5):
        office.answer(bad(Failure.STOPPED))
    names = ("stopped", "dropped", "failed", "failures", "mode")
    assert [office.counts[name] for name in names] == [5, 5, 0, {}, "stopped"]
    assert ([bar for bar, _ in office.ready], office.asked(), office.lines) == ([0], [], [])


@pytest.mark.parametrize("failure", [Failure.CONNECTION, Failure.SCHEMA])
def test_a_run_that_has_ended_waits_for_nothing(failure):
    """What fails in the wind-down is counted. That the next try is in 30 s is no news: there is
    none.
    """
    office = Office(pool=8)
    office.want(*range(8))
    office.desk.gates.stopping = True
    while office.pool.jobs:
        office.answer(bad(failure))
    assert office.counts["failures"] == {failure.value: 8}
    assert not any("next try" in line for line in office.lines)


# --- the laws --------------------------------------------------------------------------------------------------------

ANSWERS = [
    good(),
    good(),
    bad(Failure.SCHEMA),
    bad(Failure.PARSE, retryable=True),
    bad(Failure.TIMEOUT, retryable=True),
    bad(Failure.CONNECTION, retryable=True),
    bad(Failure.HTTP, status=500, retryable=True),
    bad(Failure.HTTP, status=429, retryable=True, retry_after=3.0),
    bad(Failure.HTTP, status=400),
    bad(Failure.STOPPED),
    bad(Failure.RAISED),
    Answer(None),
    bad(Failure.EMPTY),
    good(0, 0),
]


class Trial:
    """An office under random operations, with every invariant asserted after each."""

    def __init__(self, max_calls):
        self.max_calls = max_calls
        self.office = Office(
            pool=3,
            queue_size=6,
            ttl_chunks=3,
            ready_rows=5,
            max_calls=max_calls,
            max_tokens=4000 if max_calls else None,
            failed_for_s=5.0,
        )
        self.paid = Counter()
        self.taken = []

    def step(self, what, value):
        office = self.office
        if what == "want":
            office.desk.queue_questions([(question(bar), priority) for bar, priority in value])
        elif what == "pass":
            office.clock.now += value
        elif what == "take":
            self.taken += [bar for bar, _ in office.ready[:value]]
            del office.ready[:value]
        elif what == "hang" and office.pool.jobs:
            office.pool.hang()
        elif what == "answer" and office.pool.jobs:
            answer = ANSWERS[value]
            self.paid[office.pool.jobs[0].entry.question.bar] += answer.advice is not None
            office.desk.handle_result(office.pool.result(answer))
        office.turn()
        self.check()

    def check(self):
        """I4, I7, I9, and one question is never under way twice."""
        office, counts = self.office, self.office.counts
        assert counts["queued"] <= 6
        assert counts["in_flight"] == len(office.pool.jobs) <= 3
        assert len(set(office.asked())) == len(office.asked())
        assert len(office.ready) + counts["in_flight"] <= 5
        if self.max_calls is not None:
            assert counts["asked"] <= self.max_calls
            assert office.ledger.sum_spend().tokens <= 4000

    def end(self):
        """I11, and every paid answer is handed out once."""
        everything = self.taken + [bar for bar, _ in self.office.ready]
        assert len(everything) == len(set(everything))
        assert max(self.paid.values(), default=0) <= 1
        assert sorted(everything) == sorted(bar for bar, count in self.paid.items() if count)


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("want"),
                st.lists(st.tuples(st.integers(0, 15), st.floats(0, 1)), max_size=8),
            ),
            st.tuples(st.just("answer"), st.integers(0, len(ANSWERS) - 1)),
            st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, 20.0, 100.0])),
            st.tuples(st.just("take"), st.integers(1, 5)),
            st.tuples(st.just("hang"), st.none()),
        ),
        max_size=60,
    ),
    st.sampled_from([None, 15]),
)
def test_counts_caps_and_bounds_hold_after_any_sequence(steps, max_calls):
    trial = Trial(max_calls)
    for what, value in steps:
        trial.step(what, value)
    trial.end()
