"""How a process notices that another one is gone, and how it leaves. Real processes are in
`tests/scale`.
"""

import signal
import sys

import pytest

from jaxtrade.errors import ConfigError, PreemptedError, ProcessLostError, StorageError
from jaxtrade.runs import distributed
from jaxtrade.runs.distributed import ALONE, ProcessGroup
from jaxtrade.training import multiprocess, run_io
from jaxtrade.training import run_io as stopping
from tests.children import run_python

GLOO = ValueError(
    "UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error "
    "[127.0.0.1]:50571: Connection reset by peer"
)
BARRIER = RuntimeError("INTERNAL: Barrier failed because: UNAVAILABLE: Task 1 heartbeat timeout.")


@pytest.fixture
def second_of_two(monkeypatch):
    monkeypatch.setattr(multiprocess, "process_count", lambda: 2)
    monkeypatch.setattr(multiprocess, "process_index", lambda: 1)


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize("error", [GLOO, BARRIER])
def test_what_a_collective_says_of_a_dead_partner_is_one_line(error):
    said = r"^process 1 of 2: another process"
    with pytest.raises(ProcessLostError, match=said) as lost, distributed.explain_loss():
        raise error
    assert "start all processes again" in str(lost.value)
    assert lost.value.exit_code == 69


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("shapes differ"),
        StorageError("Connection closed"),
        OSError("Socket closed"),
    ],
)
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(type(error)) as same, distributed.explain_loss():
        raise error
    assert same.value is error


def test_one_process_loses_no_other():
    assert not distributed.is_lost(GLOO)
    distributed.join(ALONE)
    assert distributed.leave(75) == 75


TALKING = """
import os, sys
from jaxtrade.runs import distributed
if {joined}:
    distributed._say_when_aborted("first")
    distributed._say_when_aborted("gone")
print("before", file=sys.stderr)
distributed.say("last")
os.write(2, b"a thread\\n")
if {joined}:
    os.abort()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="JAX has no several processes on Windows")
@pytest.mark.parametrize(
    ("joined", "code", "said"),
    [
        (False, 0, "before\nlast\na thread\n"),
        (True, 69, "before\nlast\n\nerror: gone\n"),
    ],
)
def test_nothing_that_jax_says_comes_after_the_line_of_a_process_that_has_joined_others(
    joined, code, said
):
    done = run_python("-c", TALKING.format(joined=joined), timeout=60)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_port_that_is_taken_is_a_mistake():
    layout = ProcessGroup("flags", 0, 2, "10.0.0.1:80")
    taken = distributed._not_joined(layout, RuntimeError("UNKNOWN: Failed to start RPC server"))
    assert isinstance(taken, ConfigError)
    assert "process 0 cannot listen" in str(taken)
    assert "name them by --coordinator" in str(
        distributed._not_joined(layout, ValueError("coordinator_address?"))
    )


@pytest.mark.parametrize(
    ("own", "agreed", "found"),
    [(None, 0, None), (None, 15, signal.SIGTERM), (signal.SIGINT, 2, signal.SIGINT)],
)
def test_a_border_knows_the_signals_of_all_processes(
    own,
    agreed,
    found,
    monkeypatch,
):
    told = []
    monkeypatch.setattr(stopping, "agree", lambda number: told.append(number) or agreed)
    signals = stopping.Signals()
    signals.received = own
    assert signals.at_border() == found
    assert told == [int(own or 0)]


def test_only_process_0_writes_checkpoints(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(run_io.checkpoint, "save", lambda *args: written.append(args))
    for main in (False, True):
        monkeypatch.setattr(run_io, "is_main", lambda main=main: main)
        run_io.write_checkpoint(tmp_path, 3, {}, {}, 1)
    assert written == [(tmp_path, 3, {}, {}, 1)]


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize(
    ("code", "seconds", "ends"),
    [
        (0, [], False),  # JAX itself waits for the others
        (PreemptedError.exit_code, [distributed.LONG_S], False),  # all of them come
        (2, [distributed.LEAVE_S], True),  # this one fails alone: the others do not come
        (ProcessLostError.exit_code, [], True),
    ],
)
def test_leaving_waits_as_long_as_it_makes_sense(code, seconds, ends, monkeypatch):
    waited, handled = [], signal.getsignal(signal.SIGTERM)

    def barrier(name, limit):
        waited.append(limit)
        if ends:
            raise RuntimeError("DEADLINE_EXCEEDED")

    def end(number):
        raise SystemExit(number)

    monkeypatch.setattr(multiprocess, "barrier", barrier)
    monkeypatch.setattr(distributed.os, "_exit", end)
    try:
        if ends:
            with pytest.raises(SystemExit) as stop:
                distributed.leave(code)
            assert stop.value.code == code
        else:
            assert distributed.leave(code) == code
    finally:
        signal.signal(signal.SIGTERM, handled)
    assert waited == seconds


TALKATIVE = """
import os
from jaxtrade.cli.training import _results_alone
print("before")
_results_alone()
os.write(1, b"[Gloo] a library\\n")
print("result")
"""


def test_what_a_library_prints_is_not_among_the_results():
    child = run_python("-c", TALKATIVE, timeout=60)
    assert child.returncode == 0, child.stderr
    assert child.stdout == "before\nresult\n"
    assert child.stderr == "[Gloo] a library\n"
