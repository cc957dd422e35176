"""monitor.csv: Stable-Baselines3's format, and a file that stays readable after a kill, a full disk
and a rollback.
"""

import errno
import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from jaxtrade.errors import DataError, StorageError
from jaxtrade.evaluation.frames import read_episodes
from jaxtrade.storage.monitor import (
    COLUMNS,
    FIELDS,
    Episodes,
    MonitorSink,
    ended_episodes,
    place_after,
    text_of,
)
from tests.messages import refused
from tests.reading import ROOT

START = 1_700_000_000.25
NAN = float("nan")


def episode(update, count=2, agent=None, symbol=0):
    """Rows whose reward tells the update and their place in it."""
    rows = [
        [update + i / 8, 10 * update + i, 0.25, 3.5, NAN if i else -0.125, 0.5, symbol]
        for i in range(count)
    ]
    return Episodes(
        update,
        np.array(rows, np.float32).reshape(count, len(COLUMNS) + 1),
        np.arange(count) if agent is None else np.array(agent),
    )


class Clock:
    """Seconds since 1970, half a second later each time it is read."""

    def __init__(self):
        self.now = START - 0.5

    def __call__(self):
        self.now += 0.5
        return self.now


def sink_at(path, **options):
    return MonitorSink(path / "monitor.csv", "ES-manage", ("ES", "NQ"), clock=Clock(), **options)


def updates_in(path):
    """By pandas, which takes a torn line for a row."""
    return pd.read_csv(path, skiprows=1)["update"].tolist()


def test_the_file_byte_by_byte(tmp_path):
    path, sink = tmp_path / "monitor.csv", sink_at(tmp_path)
    sink.episodes([episode(1)])
    sink.episodes([episode(2, 1, [7], symbol=1)])
    sink.close()
    assert path.read_bytes() == (
        b'#{"t_start": 1700000000.25, "env_id": "ES-manage"}\n'
        b"r,l,t,drawdown,turnover,sharpe_ratio,max_drawdown,symbol,agent,update\r\n"
        b"1,10,0.5,0.25,3.5,-0.125,0.5,ES,0,1\r\n"
        b"1.125,11,0.5,0.25,3.5,,0.5,ES,1,1\r\n"
        b"2,20,1.0,0.25,3.5,-0.125,0.5,NQ,7,2\r\n"
    )
    read = read_episodes(path)
    assert tuple(read.columns) == FIELDS
    assert (read["l"].tolist(), read["t"].tolist()) == ([10, 11, 20], [0.5, 0.5, 1.0])
    assert read["sharpe_ratio"].isna().tolist() == [False, True, False]


def test_figures_have_seven_digits_and_times_six_decimals():
    rows = np.array([[-0.123456789, 3, 1e-9, 12345.678, 0.5, 0, 0]], np.float32)
    assert text_of([Episodes(4, rows, np.array([2]))], ("ES",), 1.23456789) == (
        "-0.1234568,3,1.234568,1e-09,12345.68,0.5,0,ES,2,4\r\n"
    )


def test_rows_of_a_chunk_are_told_apart_by_update_and_agent():
    """Two updates, three agents in a stack of shape (3,), room for two rows each; a row of length 0
    is none.
    """
    rows = np.zeros((2, 3, 2, len(COLUMNS) + 1), np.float32)
    rows[0, 1, 0, :2] = 0.5, 7
    rows[1, 0, 0, :2] = 0.25, 3
    rows[1, 0, 1, :2] = 0.75, 4
    rows[1, 2, 0, :2] = -1, 5
    first, second = ended_episodes(rows, 40, 3)
    assert (first.update, second.update) == (41, 42)
    assert (first.agent.tolist(), second.agent.tolist()) == ([1], [0, 0, 2])
    assert second.rows[:, :2].tolist() == [[0.25, 3], [0.75, 4], [-1, 5]]
    alone = ended_episodes(rows[:, 0], 0, 1)
    assert [len(each.rows) for each in alone] == [0, 2]
    assert ended_episodes(None, 0, 1) == []


def test_a_resumed_file_goes_on_after_the_checkpoint_and_keeps_its_start(tmp_path):
    sink = sink_at(tmp_path)
    sink.episodes([episode(update) for update in (1, 2, 3)])
    sink.close()
    again = sink_at(tmp_path, resume_update=2)
    again.episodes([episode(3, 1), episode(4, 0), episode(5, 1)])
    again.close()
    assert f'"t_start": {START},' in (tmp_path / "monitor.csv").read_text()
    assert updates_in(tmp_path / "monitor.csv") == [1, 1, 2, 2, 3, 5]


def test_a_run_that_had_saved_nothing_begins_its_rows_again(tmp_path):
    sink_at(tmp_path).episodes([episode(1)])
    sink_at(tmp_path, resume_update=0).episodes([episode(1, 1)])
    assert updates_in(tmp_path / "monitor.csv") == [1]


def test_a_run_begins_its_file_anew(tmp_path):
    (tmp_path / "monitor.csv").write_bytes(b"something else\n" * 50)
    sink_at(tmp_path).episodes([episode(1)])
    assert updates_in(tmp_path / "monitor.csv") == [1, 1]


def test_rows_after_a_rollback_are_dropped(tmp_path):
    sink = sink_at(tmp_path)
    sink.episodes([episode(1), episode(2)])
    sink.episodes([episode(3), episode(4)])
    sink.rewind(2, 2000)
    assert updates_in(tmp_path / "monitor.csv") == [1, 1, 2, 2]
    sink.episodes([episode(3, 1)])
    assert updates_in(tmp_path / "monitor.csv") == [1, 1, 2, 2, 3]
    sink.rewind(0, 0)
    assert updates_in(tmp_path / "monitor.csv") == []


@pytest.mark.slow
def test_every_torn_end_is_dropped(tmp_path):
    """The file cut after each of its bytes: what stays are the whole lines, and the sink goes on
    after them.
    """
    path = tmp_path / "monitor.csv"
    sink = sink_at(tmp_path)
    sink.episodes([episode(1, 1), episode(2, 1)])
    sink.close()
    whole = path.read_bytes()
    heads = whole.index(b"\r\n") + 2
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size >= heads:
            read = read_episodes(path)["update"].tolist()
            assert read == [1, 2][: whole[heads:size].count(b"\n")]
        sink = sink_at(tmp_path, resume_update=9)
        sink.episodes([episode(3, 1)])
        sink.close()
        assert updates_in(path) == [*[1, 2][: whole[heads:size].count(b"\r\n")], 3]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (
            lambda data: data.replace(b"ES,0,1\r\n", b"ES,0\r\n"),
            ("monitor.csv: line 3 ", "10 columns"),
        ),
        (lambda data: data.replace(b"ES,0,1\r\n", b"ES,0,x\r\n"), ("line 3 is damaged",)),
        (
            lambda data: data.replace(b"t_start", b"t_begin"),
            ("first two lines", "t_start"),
        ),
        (lambda data: data.replace(b"r,l,t", b"r,t,l"), ("first two lines",)),
        (lambda data: b"\x00" + data, ("first two lines",)),
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, damage, text):
    sink_at(tmp_path).episodes([episode(1), episode(2)])
    path = tmp_path / "monitor.csv"
    path.write_bytes(damage(path.read_bytes()))
    damaged = path.read_bytes()
    with refused(*text, kind=DataError):
        sink_at(tmp_path, resume_update=9)
    assert path.read_bytes() == damaged


def test_a_file_that_vanished_cannot_be_rewound(tmp_path):
    sink = sink_at(tmp_path)
    (tmp_path / "monitor.csv").unlink()
    with refused("monitor.csv: gone", "resume", kind=DataError):
        sink.rewind(1, 1000)


def test_other_frames_are_no_episodes(tmp_path):
    path = tmp_path / "monitor.csv"
    path.write_bytes(b"#{}\na,b\r\n1,2\r\n")
    with refused("its columns are a, b; expected r, l, t", kind=DataError):
        read_episodes(path)
    with refused("cannot be read", kind=DataError):
        read_episodes(tmp_path / "none.csv")


# ---- a full disk


class FullDisk(io.FileIO):
    """A file on a disk with room for `left` further bytes."""

    left = 1 << 40

    def write(self, data):  # type: ignore[override]
        taken = bytes(data)[: self.left]
        if not taken and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= len(taken)
        return super().write(taken)


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """For each number of bytes that still fit: the rows of the chunk before stay, and the run can
    go on later.
    """
    opened = []

    def small(path, mode):
        opened.append(FullDisk(path, mode.replace("b", "")))
        return opened[-1]

    for left in range(0, 70, 3):
        sink = sink_at(tmp_path, opened=small)
        sink.episodes([episode(1)])
        opened[-1].left = left
        with refused("monitor.csv: ", "monitor.csv=false", kind=StorageError):
            sink.episodes([episode(2)])
        assert updates_in(tmp_path / "monitor.csv") == [1, 1]
        opened[-1].left = 1 << 40
        sink.episodes([episode(3)])
        sink.close()
        assert updates_in(tmp_path / "monitor.csv") == [1, 1, 3, 3]


def test_a_disk_without_room_for_the_first_lines(tmp_path):
    def full(path, mode):
        file = FullDisk(path, mode.replace("b", ""))
        file.left = 20
        return file

    with refused("No space left", kind=StorageError):
        sink_at(tmp_path, opened=full)
    assert (tmp_path / "monitor.csv").read_bytes() == b""
    assert place_after(tmp_path / "monitor.csv", 9) is None


# ---- kill -9

WRITER = """
import itertools, sys
from pathlib import Path
from tests.test_monitor_file import episode, sink_at
sink = sink_at(Path(sys.argv[1]))
print("ready", flush=True)
for update in itertools.count(1):
    sink.episodes([episode(update, 40)])
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_a_file_that_goes_on(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        path = tmp_path / "monitor.csv"
        while path.stat().st_size < 100_000 and writer.poll() is None:
            time.sleep(0.002)
    finally:
        writer.send_signal(signal.SIGKILL)
    assert writer.wait(60) == -signal.SIGKILL
    found = read_episodes(path)["update"]
    last = int(found.iloc[-1])
    assert last > 1
    assert found.value_counts().drop(last).eq(40).all()
    sink = sink_at(tmp_path, resume_update=last - 1)
    sink.episodes([episode(last, 40)])
    sink.close()
    assert updates_in(path) == [update for update in range(1, last + 1) for _ in range(40)]
