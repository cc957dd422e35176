"""The service with its threads: it never waits, tells the truth and stops."""

import logging
import operator
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from jaxtrade.advisor.host import service
from jaxtrade.advisor.host.ledger import Caps, Ledger
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Answer, Failure
from jaxtrade.config.service import ServiceOptions
from tests.advisor.asking import SOON
from tests.advisor.service_parts import ADVICE, CANARY, ScriptedBackend, bad, good, question, until
from tests.children import run_python

ROOT = Path(__file__).parents[2]


def held(gate):
    """A backend that hangs, whatever its deadline, until `gate` is set."""

    def script(asked, deadline, attempt):
        def wait():
            gate.wait(60)
            return good()

        return wait

    return ScriptedBackend(script)


def test_submit_and_take_do_not_wait_while_everything_hangs(run):
    """RL-Trainer's advisor blocked its caller for up to 5 ms per environment and step."""
    gate, times = threading.Event(), []
    running = run(held(gate), workers=2, queue_size=100)
    running.want(10**6, 10**6 + 1)
    assert until(lambda: running.counts["in_flight"] == 2)
    for chunk in range(300):
        batch = [(question(64 * chunk + bar), 0.5) for bar in range(64)]
        began = time.perf_counter()
        running.service.submit(batch)
        running.service.take(256)
        times.append(time.perf_counter() - began)
    assert sorted(times)[150] < 64 * 5e-3
    assert running.counts["submitted"] == 300 * 64 + 2
    assert until(lambda: running.counts["queued"] == 100)
    assert running.counts["in_flight"] == 2
    gate.set()


def test_a_hung_ledger_or_disk_does_not_reach_the_caller(run, monkeypatch):
    gate, hangs = threading.Event(), threading.Event()
    running = run(queue_size=10)
    assert service._JOIN_S < 3.0
    monkeypatch.setattr(service, "_JOIN_S", 0.3)
    known = lambda entry: hangs.set() or not gate.wait(60)  # noqa: E731
    monkeypatch.setattr(running.service._desk, "_answer_from_cache", known)
    running.want(10**6)
    assert hangs.wait(10)
    began = time.perf_counter()
    for chunk in range(100):
        running.want(*range(10 * chunk, 10 * chunk + 10))
        running.service.take(10)
        assert running.counts["submitted"] == 10 * (chunk + 1) + 1
    assert running.service._mailbox.qsize() <= 5  # bounded
    for _ in range(3000):
        running.want()
    assert time.perf_counter() - began < SOON
    assert running.service._mailbox.qsize() <= 1030  # also where nothing is wanted
    assert running.counts["dropped"] >= 900
    running.stop()
    assert "hangs" in running.lines[-1]
    gate.set()


def test_answers_are_credited_to_their_own_bar(run):
    """Fault 19: in whatever order they come. The old one credited outcomes to whichever environment
    came last.
    """

    def script(asked, deadline, attempt):
        time.sleep(0.001 * (asked.bar * 7 % 5))
        return Answer(ADVICE._replace(horizon=asked.bar + 1))

    running = run(ScriptedBackend(script))
    running.want(*range(200))
    assert running.settled()
    rows = running.service.take(1000)
    bars = [bar for bar, _ in rows]
    assert bars != sorted(bars) == list(range(200))
    assert all(advice.horizon == bar + 1 for bar, advice in rows)


def test_a_raising_backend_is_contained_reported_once_and_keeps_the_secret(run, caplog):
    def raises(*_):
        raise ValueError(f"bad header Bearer {CANARY}")

    running = run(ScriptedBackend(raises), breaker_failures=1000)
    with caplog.at_level(logging.DEBUG):
        running.want(*range(19))
        assert running.settled()
    counts = running.counts
    assert (counts["failures"], counts["faults"]) == ({"raised": 19}, {"ValueError": 19})
    assert len(running.lines) == 1
    assert CANARY not in repr(counts) + repr(running.lines) + caplog.text
    assert running.service.take(100) == []


def test_dead_workers_are_replaced_and_counted(run):
    def dies():
        raise SystemExit

    running = run(
        ScriptedBackend(lambda asked, *_: dies if asked.bar % 4 == 0 else good()), workers=8
    )
    running.want(*range(16))
    assert running.settled()
    names = ("died", "done", "failed", "threads")
    assert [running.counts[name] for name in names] == [4, 12, 4, 8]


def test_hung_workers_are_replaced_so_often_and_threads_stay_bounded(run):
    gate = threading.Event()
    running = run(held(gate), workers=2, deadline_s=0.05, grace_s=0.05, breaker_failures=1000)
    running.want(*range(20))
    assert until(lambda: running.counts["breaker"] == "open for good")
    counts = running.counts
    assert counts["asked"] <= 4
    assert counts["stuck"] >= 3
    assert counts["threads"] <= 4
    assert len(running.lines) == 1
    running.stop()
    gate.set()


def test_stop_is_short_when_nothing_is_under_way(run, monkeypatch):
    for limit in ("_DRAIN_S", "_CLOSE_S", "_JOIN_S"):
        monkeypatch.setattr(service, limit, 60.0)
    running = run()
    running.want(1)
    assert running.settled()
    running.stop()
    assert running.backend.closed.is_set()
    assert running.lines == []
    running.stop()
    running.want(2, 3)
    assert (running.counts["dropped"], running.counts["mode"]) == (2, "stopped")
    assert running.service.take(9) == [(1, ADVICE)]


@pytest.mark.slow
@pytest.mark.parametrize("closes", [True, False])
def test_stop_is_bounded_when_all_workers_hang(run, closes):
    """The thread of RL-Trainer's advisor was never stopped: "terminate called without an active
    exception".
    """
    gate, others = threading.Event(), set(threading.enumerate())
    running = run(held(gate), workers=8)
    if closes:
        running.backend.closed = gate  # closing ends what is under way
    running.want(*range(50))
    assert until(lambda: running.counts["in_flight"] == 8)
    running.stop()
    assert running.counts["in_flight"] == (0 if closes else 8)
    gate.set()
    names = lambda: {each.name for each in set(threading.enumerate()) - others}  # noqa: E731
    assert until(lambda: not any(name.startswith("advisor-") for name in names()))


def test_stop_waits_for_what_is_paid_for(run, tmp_path, monkeypatch):
    assert service._DRAIN_S == 1.0
    for limit in ("_DRAIN_S", "_JOIN_S"):  # a busy machine may need more than that second
        monkeypatch.setattr(service, limit, 60.0)

    def slow():
        time.sleep(0.4)
        return good()

    running = run(ScriptedBackend(lambda *_: slow), cache=str(tmp_path / "cache"))
    running.want(1)
    assert until(lambda: running.counts["in_flight"] == 1)
    running.stop()
    assert running.service.take(9) == [(1, ADVICE)]
    again = run(cache=str(tmp_path / "cache"))
    again.want(1)
    assert again.settled()
    assert again.counts["cache_hit"] == 1


def test_stop_is_bounded_when_closing_hangs_or_raises(run):
    gate = threading.Event()
    hangs, raises = run(), run()
    hangs.backend.close = lambda: gate.wait(60)
    raises.backend.close = lambda: 1 // 0
    hangs.stop()
    raises.stop()
    gate.set()
    assert raises.counts["faults"] == {"close ZeroDivisionError": 1}
    assert len(raises.lines) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_bug_at_the_desk_is_contained_counted_and_ends_asking(run, monkeypatch, error):
    def raises(now):
        raise error

    running = run(queue_size=2)
    monkeypatch.setattr(running.service._desk.queue, "next", raises)
    running.want(1)
    assert until(lambda: running.counts["mode"].startswith("cache only"))
    for _ in range(20):
        running.want(2)
    assert error.__name__ in running.lines[0]
    running.stop()


def test_a_listener_that_raises_ends_nothing():
    def deaf(line):
        raise BrokenPipeError

    def script(asked, deadline, attempt):
        return good() if asked.bar else lambda: 1 // 0  # type: ignore[return-value]

    with AdviceService(ScriptedBackend(script), ServiceOptions(), log=deaf) as asked:
        asked.submit([(question(bar), 1.0 / (bar + 1)) for bar in range(10)])
        assert until(lambda: asked.statistics()["done"] == 9)
        assert asked.statistics()["unreported"] == 1


def test_troubles_go_to_the_log_by_default(caplog):
    refused = bad(Failure.REFUSED, status=401, detail="wrong key")
    backend = ScriptedBackend(lambda *_: refused)
    caplog.set_level(logging.WARNING, "jaxtrade.advisor")
    with AdviceService(backend, ServiceOptions()) as asked:
        asked.submit([(question(1), 1.0)])
        assert until(lambda: asked.statistics()["failed"] == 1)
    [line] = [record.message for record in caplog.records]
    assert "(wrong key)" in line


def test_files_and_threads_do_not_pile_up(tmp_path):
    """I4 over many services in one process."""

    def opened():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def once():
        options = ServiceOptions(cache=str(tmp_path / "cache"), ledger=str(tmp_path / "ledger"))
        with AdviceService(ScriptedBackend(), options) as asked:
            asked.submit([(question(1), 1.0)])

    once()
    before = opened()
    for _ in range(10):
        once()
    # fewer, where a thread of the first one was still ending
    assert until(lambda: all(map(operator.le, opened(), before)))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"max_cost": 1.0}, "max_cost"),
        ({"max_cost": 1.0, "price_prompt": 0.1}, "price_completion"),
        ({"retry_cap_s": 0.1}, "retry_cap_s"),
        ({"breaker_longest_s": 1.0}, "breaker_longest_s"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"requests_per_minute": 1}, "requests_per_minute"),
        ({"tokens_per_minute": 1}, "tokens_per_minute"),
    ],
)
def test_options_that_contradict_themselves_are_refused(wrong, name):
    with pytest.raises(ValidationError, match=name):
        ServiceOptions(**wrong)


# --- the interpreter's exit ------------------------------------------------------------------------------------------

HEAD = """
import sys, threading, time
from jaxtrade.config.service import ServiceOptions
from jaxtrade.advisor.host.service import AdviceService
from tests.advisor.service_parts import ScriptedBackend, good, question, until
def hang():
    time.sleep(600)
    return good()
backend = ScriptedBackend(lambda *_: hang)
backend.close = lambda: time.sleep(600)
service = AdviceService(backend, ServiceOptions(workers=4))
service.submit([(question(bar), 0.5) for bar in range(100)])
assert until(lambda: service.statistics()["in_flight"] == 4)
print(time.monotonic(), flush=True)
"""


ENDS = {
    "": 0,
    "service.stop()": 0,
    "sys.exit(7)": 7,
    "raise RuntimeError('of the user')": 1,
    "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)": -2,
}


@pytest.mark.slow
@pytest.mark.parametrize(("tail", "code"), ENDS.items())
def test_a_process_with_a_hung_backend_ends_within_three_seconds(tail, code):
    """The standard pool's threads hold an interpreter for as long as they hang."""
    done = run_python("-c", HEAD + tail, cwd=ROOT, timeout=120)
    ended = time.monotonic()
    assert done.returncode == code, done.stderr
    assert ended - float(done.stdout) < SOON
    assert "terminate called" not in done.stderr
    assert "Fatal" not in done.stderr
    assert done.stderr == "" or code in (1, -2)


KILLED = """
import os, sys
from jaxtrade.config.service import ServiceOptions
from jaxtrade.advisor.host.service import AdviceService
from tests.advisor.service_parts import ScriptedBackend, good, question, until
folder, bars = sys.argv[1], 600
sold = os.open(folder + "/sold", os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # the server's book
def sell(asked, deadline, attempt):
    os.write(sold, b"%d\\n" % asked.bar)
    return good()
options = ServiceOptions(workers=4, cache=folder + "/cache", ledger=folder + "/ledger")
with AdviceService(ScriptedBackend(sell), options) as service:
    service.submit([(question(bar), 0.5) for bar in range(bars)])
    assert until(lambda: service.statistics()["ready"] == bars, 60)
"""


@pytest.mark.slow
def test_a_kill_loses_no_more_paid_answers_than_there_are_workers(tmp_path):
    """Fault 24: resume asks again only about what was under way, and knows what was spent."""
    book = tmp_path / "sold"
    book.touch()
    for kill_at in (100, 350, 10**9):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT)
        while len(book.read_text().split()) < kill_at and child.poll() is None:
            time.sleep(0.005)
        child.kill()
        child.wait(30)
    assert child.returncode == 0
    sold = book.read_text().split()
    assert set(sold) == set(map(str, range(600)))
    assert len(sold) - 600 <= 2 * 4
    assert Ledger(tmp_path / "ledger", Caps()).sum_spend().calls >= len(sold)


def test_a_forked_child_leaves_its_parents_service_alone():
    code = textwrap.dedent("""
        import os, time, warnings
        warnings.simplefilter("ignore")
        from jaxtrade.config.service import ServiceOptions
        from jaxtrade.advisor.host.service import AdviceService
        from tests.advisor.service_parts import ScriptedBackend, good, question, until
        service = AdviceService(ScriptedBackend(), ServiceOptions())
        child = os.fork()
        if child == 0:
            service.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        service.submit([(question(1), 0.5)])
        assert until(lambda: service.statistics()["done"] == 1)
        """)
    done = run_python("-c", code, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
