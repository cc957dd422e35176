"""Sources of rows: the threads between a service and the training loop."""

import struct
import threading
import time

import numpy as np
import pytest

from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.host.mocks import Random
from jaxtrade.advisor.host.service import AdviceService, Live
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import ConfigError, DataError
from tests.advisor.asking import SOON
from tests.advisor.balance import imbalance
from tests.advisor.bridge_parts import HandService, bytes_of, journal, plain, replaying
from tests.advisor.service_parts import ADVICE, question, until
from tests.messages import missing


@pytest.fixture
def lives():
    """Maker of live sources, which are stopped at the end."""
    made = []

    def make(service, question_of=question, **more):
        made.append(Live(service, question_of, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for live in made:
        live.stop()


def test_answers_become_rows_of_float32(lives):
    service = HandService()
    live = lives(service)
    service.ready.append((5, ADVICE._replace(confidence=0.1)))
    assert until(lambda: live.statistics()["rows_waiting"] == 1)
    (row,) = live.take(0, 4)
    assert row.bar == 5
    assert row.values == struct.unpack("6f", struct.pack("6f", 0.1, 1.5, -0.5, 0.1, 0.25, 30))
    assert live.take(0, 4) == []


def test_answers_are_heard_as_they_become_rows(lives):
    """What is no row was not seen by the run either."""
    service, heard = HandService(), []
    lives(service, heard=lambda *given: heard.append(given))
    wrong = ADVICE._replace(confidence=float("nan"))
    service.ready.extend([(5, ADVICE), (6, wrong), (7, ADVICE)])
    assert until(lambda: len(heard) == 2)
    assert heard == [(5, ADVICE), (7, ADVICE)]


def test_two_answers_about_a_bar_come_one_after_the_other(lives):
    service = HandService()
    live = lives(service)
    for bar, confidence in [(1, 0.1), (1, 0.2), (2, 0.3), (1, 0.4), (3, 0.5), (2, 0.6)]:
        service.ready.append((bar, ADVICE._replace(confidence=confidence)))
    assert until(lambda: live.statistics()["rows_waiting"] == 6)
    found = [[(row.bar, round(row.values[3], 1)) for row in live.take(0, 3)] for _ in range(4)]
    assert found == [[(1, 0.1), (2, 0.3), (3, 0.5)], [(1, 0.2), (2, 0.6)], [(1, 0.4)], []]


@pytest.mark.parametrize("number", [float("nan"), 1e39, "0.9", None])
def test_what_is_no_float32_is_left_out(lives, number):
    service, reported = HandService(), []
    live = lives(service, log=reported.append)
    wrong = [ADVICE._replace(confidence=number), ADVICE._replace(buy=number)]
    service.ready.extend(enumerate([wrong[0], ADVICE, wrong[1]]))
    assert until(lambda: live.statistics()["rows_refused"] == 2)
    assert until(lambda: live.statistics()["rows_waiting"] == 1)
    assert [row.bar for row in live.take(0, 4)] == [1]
    assert len(reported) == 1


def test_rows_beyond_what_is_made_ready_stay_with_the_service(lives):
    service = HandService()
    live = lives(service, ahead=10)
    service.ready.extend((bar, ADVICE) for bar in range(25))
    assert until(lambda: live.statistics()["rows_waiting"] == 10)
    time.sleep(0.1)
    assert len(service.ready) == 15
    got = []
    while len(got) < 25:
        got += [row.bar for row in live.take(0, 4)]
    assert got == list(range(25))


def test_a_bar_without_a_question_is_skipped_for_good(lives):
    tried, reported, service = [], [], HandService()
    errors = {1: DataError("no close"), 2: ConfigError("v9"), 3: ZeroDivisionError("sk-CANARY")}

    def question_of(bar):
        tried.append(bar)
        if bar in errors:
            raise errors[bar]
        return question(6 if bar == 5 else bar)

    live = lives(service, question_of, log=reported.append)
    for _ in range(3):
        live.want([(bar, 1.0) for bar in range(7)])
    assert until(lambda: len(service.batches) == 3)
    assert service.bars() == [[0, 4, 6]] * 3
    assert tried == list(range(7))
    assert live.statistics()["bars_unaskable"] == sum(live.statistics()["contained"].values()) == 4
    assert len(reported) == 4
    assert not missing(reported[0], "bar 1", "no close")
    assert "CANARY" not in str(reported)


def test_bars_in_flight_are_those_without_a_row(lives, monkeypatch):
    monkeypatch.setattr("jaxtrade.advisor.host.service._MOST_OPEN", 3)
    service = HandService()
    live = lives(service)
    live.want([(1, 1.0), (2, 1.0), (3, 1.0)])
    live.want([(1, 9.0), (4, 1.0)])
    assert live.in_flight() == [(3, 1.0), (1, 9.0), (4, 1.0)]  # the latest
    service.ready.append((1, ADVICE))
    assert until(lambda: live.statistics()["rows_waiting"] == 1)
    live.take(0, 4)
    assert live.in_flight() == [(3, 1.0), (4, 1.0)]


class Blocked(HandService):
    """Whose `submit` does not return before the test is over."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def submit(self, wanted):
        self.gate.wait(60)


def test_a_submission_that_hangs_holds_nobody_up():
    service, longest = Blocked(), 0.0
    live = Live(service, question, log=[].append)
    bridge = Bridge(live, 100, 4)
    threads = threading.active_count()
    for update in range(1100):
        began = time.perf_counter()
        bridge.request(np.array([update % 90, 91]), np.ones(2))
        bridge.delta(update)
        longest = max(longest, time.perf_counter() - began)
    assert longest < SOON
    assert threading.active_count() == threads
    assert live._mailbox.qsize() <= 64
    assert live.statistics()["wants_missed"] > 1000
    service.ready.append((3, ADVICE))
    assert until(lambda: live.statistics()["rows_waiting"] == 1)  # answers come nevertheless
    assert sorted(plain(bridge.delta(1100))[1]) == [3]
    began = time.monotonic()
    bridge.stop()
    assert time.monotonic() - began < SOON
    assert service.stopped
    service.gate.set()


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_service_that_raises_is_contained(lives, error):
    class Broken(HandService):
        def submit(self, wanted):
            raise error("sk-CANARY")

        def take(self, most):
            raise error("sk-CANARY")

    reported = []
    live = lives(Broken(), log=reported.append)
    for _ in range(3):
        live.want([(1, 1.0)])
    assert until(lambda: live.statistics()["contained"].get(f"asking {error.__name__}") == 3)
    assert until(lambda: live.statistics()["contained"].get(f"taking {error.__name__}", 0) >= 2)
    assert len(reported) == 2
    assert "CANARY" not in str(reported)


def test_every_answer_is_handed_out_once_and_replays(tmp_path):
    """Conservation from the service to the table, and the replay, delta for delta."""
    T, M = 400, 32
    service = AdviceService(Random(seed=1), ServiceOptions(workers=3))
    bridge = Bridge(Live(service, question), T, M, journal(tmp_path))
    rng, got, shown, end = np.random.default_rng(0), [], [], time.monotonic() + 60
    while len(got) < T and time.monotonic() < end:
        bars = rng.permutation(np.setdiff1d(np.arange(T), got))[:64]
        bridge.request(bars.astype(np.int32), rng.random(len(bars)).astype(np.float32))
        delta = bridge.delta(len(shown))
        real = delta.bars < T
        assert int(delta.version) == (bridge.version if real.any() else 0)
        got += delta.bars[real].tolist()
        shown.append(bytes_of(delta))
        time.sleep(0.002)
    assert sorted(got) == list(range(T))
    bridge.stop()
    counts = bridge.statistics()
    assert counts["rows_handed_out"] == T == counts["done"]
    assert (counts["rows_lost"], counts["rows_refused"], counts["contained"]) == (0, 0, {})
    assert imbalance(counts) == 0
    assert counts["queries_per_update"] == pytest.approx(T / len(shown))
    replay = replaying(read_journal(tmp_path / "journal.jsonl"), T, M)
    assert [bytes_of(replay.delta(update)) for update in range(len(shown))] == shown
    replay.request(np.array([1]), np.array([1.0]))  # of no effect
    assert replay.memory()["in_flight"] == []
