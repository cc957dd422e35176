"""`status.json`: written at every chunk, never a reason for a run to fail; and what another process
makes of it.
"""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from jaxtrade.errors import DataError
from jaxtrade.storage import status
from jaxtrade.storage.status import (
    STAMP,
    STATUS,
    StatusSink,
    age_of,
    began_of,
    is_alive,
    is_quiet,
    read_status,
)
from tests.messages import refused

ABOUT = {"task": "entry", "learner": "ppo", "market": "ES"}


def read(folder):
    """The status of a folder that has one."""
    found = read_status(folder)
    assert found is not None
    return found


def row(update):
    return {"update": float(update), "total_updates": 10.0, "steps": 100.0 * update}


def test_a_sink_says_what_the_run_does(tmp_path):
    sink = StatusSink(tmp_path, pytest.fail, ABOUT)
    found = read(tmp_path)
    assert (found.pid, found.host, found.phase, found.update) == (
        os.getpid(),
        platform.node(),
        "loading",
        None,
    )
    sink.phase("compiling", "the program", 0, str)
    assert read(tmp_path).phase == "compiling"
    sink.write([row(1), row(2)])
    found = read(tmp_path)
    assert (found.phase, found.update, found.total_updates, found.steps) == ("training", 2, 10, 200)
    assert found.chunk_seconds is None, "one chunk has no time between two"
    sink.write([row(3)])
    assert (read(tmp_path).chunk_seconds or 0.0) >= 0
    sink.note_failure(ValueError("first line\nsecond"))
    sink.close()
    found = read(tmp_path)
    assert (found.phase, found.fault, found.steps) == ("ended", "ValueError: first line", 300)
    assert (found.task, found.learner, found.market) == ("entry", "ppo", "ES")


def test_a_status_that_cannot_be_written_is_told_once_and_tried_again(tmp_path):
    told = []
    (tmp_path / STATUS).mkdir()  # a folder in its place, for root too
    sink = StatusSink(tmp_path, told.append, ABOUT)
    sink.write([row(1)])
    assert len(told) == 1
    assert told[0].startswith(f"note: {tmp_path / STATUS} cannot be written (")
    (tmp_path / STATUS).rmdir()
    sink.write([row(2)])
    assert read(tmp_path).update == 2
    assert len(told) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', "\x00"])
def test_a_damaged_status_names_its_file(tmp_path, text):
    assert read_status(tmp_path) is None
    (tmp_path / STATUS).write_text(text)
    with refused("status.json: cannot", kind=DataError):
        read_status(tmp_path)


def at(seconds_ago, **changes):
    """A status of this process that was written some seconds ago."""
    stamp = f"{datetime.now(UTC) - timedelta(seconds=seconds_ago):{STAMP}}"
    own = status.RunStatus(os.getpid(), platform.node(), began_of(os.getpid()), "training", stamp)
    return own._replace(**changes)


def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_run_without_a_sign_of_life_is_quiet():
    assert 49 <= age_of(at(50)) <= 55
    assert not is_quiet(at(50))
    assert is_quiet(at(200))
    assert not is_quiet(at(200, chunk_seconds=60.0)), "its chunks are long"
    assert is_quiet(at(700, chunk_seconds=60.0))
    assert not is_quiet(at(700, phase="compiling"))
    assert is_quiet(at(4_000, phase="compiling"))
    assert age_of(at(-100)) == 0.0, "a clock that runs ahead"


def test_a_process_is_known_by_its_number_and_its_start():
    assert is_alive(at(0)) is True
    assert is_alive(at(0, host="another")) is None
    assert is_alive(at(0, pid=gone())) is False
    if sys.platform == "linux":
        assert is_alive(at(0, began="1")) is False, "another process has its number now"


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say when a process began")
def test_a_process_whose_parent_did_not_ask_yet_is_gone():
    ended = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert ended.stdout is not None
    ended.stdout.read()
    began = began_of(ended.pid)
    while began:  # it closes its output a moment before it has ended
        began = began_of(ended.pid)
    assert is_alive(at(0, pid=ended.pid, began="1")) is False
    ended.wait()
    ended.stdout.close()
