"""What a kill leaves goes on as if there had been none. `python -m tests.paper.test_recovery 20`
kills 20 times at each place."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.errors import RunLockedError
from jaxtrade.paper.broker import BrokerState, HaltError
from jaxtrade.paper.engine import Engine
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.session import JOURNAL, KILL, STATUS
from jaxtrade.storage import digests
from jaxtrade.stream.live import Stream
from tests.messages import refused
from tests.paper.made import begin, short, world

# Place -> a function, and whether a process is killed at its end, else at its begin; and of which
# kind, where its first argument says it.
PLACES = {
    "read": (Engine, "on_bar", False),
    "pushed": (Stream, "push", True),
    "bar": (PaperJournal, "add", True, "bar"),
    "opened": (Engine, "_begin_session", True),
    "stepped": (Stream, "step", True),
    "step": (PaperJournal, "add", True, "step"),
    "ended": (Engine, "_end", True),
    "decided": (Stream, "decide_at", True),
    "intent": (Engine, "_send", False),
    "synced": (PaperJournal, "sync", True),
    "submitted": (Engine, "_send", True),
    "status": (digests, "write_whole", False),
}
NAME, BARS = "short", 60


class FileBroker:
    """A broker that outlives this process, and takes every order it is sent, even twice."""

    def __init__(self, folder, extra=0):
        self.folder, self.file, self.extra = folder, folder / "orders", extra

    def connect(self):
        pass

    close = poll = connect

    def follow(self, moved):
        pass

    def submit(self, intents):
        with self.file.open("a") as file:
            file.writelines(f"{intent.id} {intent.time} {intent.quantity}\n" for intent in intents)

    @property
    def orders(self):
        return self.file.read_text().splitlines() if self.file.exists() else []

    def snapshot(self):
        steps = [line for line in recorded(self.folder) if line["kind"] == "step"]
        held = steps[-1]["held"] if steps else 0
        return BrokerState(held + self.extra, frozenset(line.split()[0] for line in self.orders))


def recorded(folder):
    return [json.loads(line) for line in (folder / JOURNAL).read_bytes().split(b"\n")[:-1]]


def trade(folder, bars=BARS, extra=0):
    """(summary, orders) of a session on the first bars of the feed."""
    feed = world(NAME).feed.rows(slice(0, bars))
    clock = Clock()
    sink = FileBroker(folder, extra)
    session = begin(NAME, folder, None, short(NAME), sinks=[sink], clock=clock)
    try:
        newest = int(session.engine.stream.rows.bar.time[0])
        for message in bars_messages(feed):
            if message["time"] > newest:
                clock.now = message["time"] + 3600
                session.take(message)
        session.save("ended")
        return session.summary(), sink.orders
    finally:
        session.close()


class Clock:
    now = 0

    def __call__(self):
        return self.now


def stop_at(place, count, stop, patch=setattr):
    """Call `stop` when a place is reached for the count-th time."""
    owner, name, at_end, *kinds = PLACES[place]
    whole, left = getattr(owner, name), [count]

    def reached(*args, **fields):
        found = whole(*args, **fields) if at_end else None
        left[0] -= not kinds or args[1] in kinds
        if left[0] == 0:
            stop()
        return found if at_end else whole(*args, **fields)

    patch(owner, name, reached)


def child(folder, place, count):
    """Trade, and kill this process when a place is reached for the count-th time."""
    stop_at(place, count, lambda: os.kill(os.getpid(), signal.SIGKILL))
    trade(folder)


def killed(folder, place, count):
    """Whether a child process was killed there."""
    folder.mkdir(exist_ok=True)
    words = ["-c", "import sys; from tests.paper.test_recovery import child, Path; "
             "child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))"]  # fmt: skip
    done = subprocess.run([sys.executable, *words, str(folder), place, str(count)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def check_kill(folder, place, count, whole):
    was = killed(folder, place, count)
    if place == "intent" and count % 2:  # half of the line is on disk
        path = folder / JOURNAL
        os.truncate(path, path.stat().st_size - 9)
    assert trade(folder) == whole
    orders = [line.split()[0] for line in whole[1]]
    assert len({*orders}) == len(orders) > 5
    return was


def most(place):
    """How often a place is reached, about."""
    return {"opened": 3, "ended": 1, "intent": 20, "synced": 20, "submitted": 20}.get(place, 45)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(summary, orders) without a kill."""
    return trade(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_changes_nothing(place, whole, tmp_path):
    assert check_kill(tmp_path / place, place, 1 if most(place) == 1 else most(place) // 2, whole)


class StopError(BaseException):
    pass


@pytest.mark.parametrize("place", PLACES)
def test_what_a_process_leaves_goes_on(place, whole, tmp_path, monkeypatch):
    """As above, in one process: everything but the files is forgotten."""

    def stop():
        raise StopError

    stop_at(place, 1 if most(place) == 1 else 2, stop, monkeypatch.setattr)
    with pytest.raises(StopError):
        trade(tmp_path)
    monkeypatch.undo()
    assert trade(tmp_path) == whole


def test_a_journal_that_was_edited_halts(tmp_path):
    trade(tmp_path, bars=20)
    path, lines = tmp_path / JOURNAL, (tmp_path / JOURNAL).read_bytes().splitlines(True)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b"1", b"2", 1), *lines[5:]]))
    with refused("line 5", kind=HaltError):
        trade(tmp_path)
    path.write_bytes(b"".join(lines[:-3]))  # whole lines are missing at the end
    with refused(f"line {len(lines) - 2}", STATUS, kind=HaltError):
        trade(tmp_path)
    path.write_bytes(b"".join(lines))
    trade(tmp_path)


def test_a_position_that_nothing_explains_halts(tmp_path):
    trade(tmp_path, bars=20)
    with refused("holds", kind=HaltError):
        trade(tmp_path, extra=2)


def test_other_figures_than_recorded_halt(tmp_path):
    """A history that was changed since: the states that are computed again differ."""
    trade(tmp_path, bars=20)
    history = short(NAME)
    history.close[-1] += 1
    with refused("history", kind=HaltError):
        begin(NAME, tmp_path, None, history)
    history.close[-1] -= 1


def test_one_process_at_a_time(tmp_path):
    first = begin(NAME, tmp_path, None, short(NAME))
    with refused("--name", kind=RunLockedError):
        begin(NAME, tmp_path, None, short(NAME))
    first.close()
    begin(NAME, tmp_path, None, short(NAME)).close()


def test_a_kill_is_flat_within_one_bar(tmp_path):
    """Whether a position is held or an order is on its way; a start without KILL goes on."""
    messages = list(bars_messages(world(NAME).feed))
    session = begin(NAME, tmp_path, None, short(NAME))
    taken = iter(messages)
    while not session.engine.now.held:
        session.take(next(taken))
    (tmp_path / KILL).touch()
    session.take(next(taken))
    assert session.engine.now.held == 0
    session.close()
    (tmp_path / KILL).unlink()
    again = begin(NAME, tmp_path, None, short(NAME))
    assert not again.engine.killed
    found = again.trade(messages)
    again.close()
    assert found["decisions"] > 60
    assert found["faults"] == {}


def test_sigterm_flattens_and_stops(tmp_path):
    messages = list(bars_messages(world(NAME).feed))

    def feed(session):
        for message in messages:
            if session.engine.now.held:
                os.kill(os.getpid(), signal.SIGTERM)
            yield message

    session = begin(NAME, tmp_path, None, short(NAME))
    found = session.trade(feed(session))
    session.close()
    assert found["position"] == 0
    assert 0 < found["trades"] <= 2
    assert json.loads((tmp_path / STATUS).read_text())["state"] == "killed"


if __name__ == "__main__":
    times, folder = int(sys.argv[1]), Path(sys.argv[2])
    (folder / "whole").mkdir(parents=True)
    expected, kills = trade(folder / "whole"), 0
    rng = np.random.default_rng(0)
    for name in PLACES:
        for i in range(times):
            at = int(rng.integers(1, most(name) + 1))
            kills += check_kill(folder / f"{name}{i}", name, at, expected)
        print(name, kills, flush=True)
