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
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.session import JOURNAL, KILL, STATUS
from jaxtrade.storage import digests
from jaxtrade.stream.live import Stream
from tests.messages import refused
from tests.paper.made import HOUR, NAME, Clock, begin, messages, recorded, short

# Place -> a function, whether its end is meant, else its begin, and about how often it is reached;
# of which kind, where its first argument says it.
PLACES = {
    "read": (Engine, "on_bar", False, 45),
    "pushed": (Stream, "push", True, 45),
    "bar": (PaperJournal, "add", True, 45, "bar"),
    "opened": (Engine, "_begin_session", True, 3),
    "stepped": (Stream, "step", True, 45),
    "step": (PaperJournal, "add", True, 45, "step"),
    "ended": (Engine, "_end", True, 1),
    "decided": (Stream, "decide_at", True, 45),
    "intent": (Engine, "_send", False, 20),
    "synced": (PaperJournal, "sync", True, 20),
    "submitted": (Engine, "_send", True, 20),
    "status": (digests, "write_whole", False, 45),
}


class FileBroker:
    """A broker that outlives this process, and takes every order it is sent, even twice."""

    def __init__(self, folder, extra=0):
        self.folder, self.file, self.extra = folder, folder / "orders", extra
        self.file.touch()

    def connect(self, *_):
        pass

    close = poll = follow = connect

    def submit(self, intents):
        with self.file.open("a") as file:
            file.writelines(f"{intent.id} {intent.time} {intent.quantity}\n" for intent in intents)

    @property
    def orders(self):
        return [line.split() for line in self.file.read_text().splitlines()]

    def snapshot(self):
        held = [0, *(each["held"] for each in recorded(self.folder) if each["kind"] == "step")]
        return BrokerState(held[-1] + self.extra, frozenset(name for name, *_ in self.orders))


def trade(folder, bars=60, extra=0):
    """(summary, orders) of a session on the first bars of the feed."""
    clock, sink = Clock(), FileBroker(folder, extra)
    session = begin(NAME, folder, None, short(NAME), sinks=[sink], clock=clock)
    try:
        newest = int(session.engine.stream.rows.bar.time[0])
        for message in messages()[:bars]:
            if message["time"] > newest:
                clock.now = message["time"] + HOUR
                session.take(message)
        session.save("ended")
        return session.summary(), sink.orders
    finally:
        session.close()


def stop_at(place, count, stop, patch=setattr):
    """Call `stop` when a place is reached for the count-th time."""
    owner, name, at_end, _, *kinds = PLACES[place]
    whole, left = getattr(owner, name), [count]

    def reached(*args, **fields):
        found = whole(*args, **fields) if at_end else None
        left[0] -= not kinds or args[1] in kinds
        if left[0] == 0:
            stop()
        return found if at_end else whole(*args, **fields)

    patch(owner, name, reached)


def child(folder, place, count):
    """Trade, and kill this process at a place."""
    stop_at(place, int(count), lambda: os.kill(os.getpid(), signal.SIGKILL))
    trade(Path(folder))


def check_kill(folder, place, count, whole):
    """Kill a child process, go on, and return whether it was killed."""
    folder.mkdir(exist_ok=True)
    code = "import sys; from tests.paper.test_recovery import child; child(*sys.argv[1:])"
    words = [sys.executable, "-c", code, str(folder), place, str(count)]
    done = subprocess.run(words, check=False).returncode
    assert done in (0, -signal.SIGKILL)
    if place == "intent" and count % 2:  # half of the line is on disk
        path = folder / JOURNAL
        os.truncate(path, path.stat().st_size - 9)
    assert trade(folder) == whole
    names = [name for name, *_ in whole[1]]
    assert len({*names}) == len(names) > 5
    return done != 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(summary, orders) without a kill."""
    return trade(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_changes_nothing(place, whole, tmp_path):
    check_kill(tmp_path, place, (PLACES[place][3] + 1) // 2, whole)


class StopError(BaseException):
    pass


@pytest.mark.parametrize("place", PLACES)
def test_what_a_process_leaves_goes_on(place, whole, tmp_path, monkeypatch):
    """As above, in one process: everything but the files is forgotten."""

    def stop():
        raise StopError

    stop_at(place, min(PLACES[place][3], 2), stop, monkeypatch.setattr)
    with pytest.raises(StopError):
        trade(tmp_path)
    monkeypatch.undo()
    assert trade(tmp_path) == whole


def test_a_journal_or_a_history_that_was_edited_halts(tmp_path):
    trade(tmp_path, bars=20)
    path, lines = tmp_path / JOURNAL, (tmp_path / JOURNAL).read_bytes().splitlines(True)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b"1", b"2", 1), *lines[5:]]))
    with refused("line 5", kind=HaltError):
        trade(tmp_path)
    path.write_bytes(b"".join(lines[:-3]))  # whole lines are missing at the end
    with refused(f"line {len(lines) - 2}", STATUS, kind=HaltError):
        trade(tmp_path)
    path.write_bytes(b"".join(lines))
    history = short(NAME)
    history.close[-1] += 1
    with refused("history", kind=HaltError):
        begin(NAME, tmp_path, None, history)
    history.close[-1] -= 1
    trade(tmp_path)
    with refused("holds", kind=HaltError):  # a position that nothing explains
        trade(tmp_path, extra=2)


def test_one_process_at_a_time(tmp_path):
    first = begin(NAME, tmp_path, None, short(NAME))
    with refused("--name", kind=RunLockedError):
        begin(NAME, tmp_path, None, short(NAME))
    first.close()
    begin(NAME, tmp_path, None, short(NAME)).close()


def test_a_kill_is_flat_within_one_bar(tmp_path):
    """Whether a position is held or an order is on its way; a start without KILL goes on."""
    session, taken = begin(NAME, tmp_path, None, short(NAME)), iter(messages())
    while not session.engine.now.held:
        session.take(next(taken))
    (tmp_path / KILL).touch()
    session.take(next(taken))
    assert session.engine.now.held == 0
    session.close()
    (tmp_path / KILL).unlink()
    again = begin(NAME, tmp_path, None, short(NAME))
    assert not again.engine.killed
    found = again.trade(messages())
    again.close()
    assert found["decisions"] > 60
    assert found["faults"] == {}


def test_sigterm_flattens_and_stops(tmp_path):
    session = begin(NAME, tmp_path, None, short(NAME))

    def feed():
        for message in messages():
            if session.engine.now.held:
                os.kill(os.getpid(), signal.SIGTERM)
            yield message

    found = session.trade(feed())
    session.close()
    assert found["position"] == 0
    assert 0 < found["trades"] <= 2
    assert json.loads((tmp_path / STATUS).read_text())["state"] == "killed"


if __name__ == "__main__":
    times, folder = int(sys.argv[1]), Path(sys.argv[2])
    (folder / "whole").mkdir(parents=True)
    expected, kills, rng = trade(folder / "whole"), 0, np.random.default_rng(0)
    for place in PLACES:
        for i in range(times):
            at = int(rng.integers(1, PLACES[place][3] + 1))
            kills += check_kill(folder / f"{place}{i}", place, at, expected)
        print(place, kills, flush=True)
