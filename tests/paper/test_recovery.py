"""What a kill leaves goes on as if there had been none. `python -m tests.paper.test_recovery 20`
kills 20 times at each place."""

import json
import os
import signal
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.errors import RunLockedError
from jaxtrade.paper.broker import HaltError
from jaxtrade.paper.engine import Engine
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.ninjatrader import NinjaTraderFiles
from jaxtrade.paper.session import JOURNAL, KILL, STATUS
from jaxtrade.storage import digests
from jaxtrade.stream.live import Stream
from tests.messages import refused
from tests.paper.made import (
    HOUR,
    NAME,
    RAILS,
    Clock,
    Fake,
    begin,
    messages,
    recorded,
    short,
    world,
)

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
    "followed": (Engine, "_follow", False, 45),
    "part": (NinjaTraderFiles, "_note", False, 30),
    "noted": (NinjaTraderFiles, "_note", True, 30),
    "status": (digests, "write_whole", False, 90),
}


def open_desk(folder, clock):
    """(session, fake) of a session with order files, whose folder outlives this process."""
    fake = Fake(folder / "ninja")
    sink = NinjaTraderFiles(fake.folder, RAILS, world(NAME).bars.contract)
    if (folder / JOURNAL).exists():  # it goes on meanwhile
        times = [each["bar"]["time"] for each in recorded(folder) if each["kind"] == "bar"]
        fake.run(price_at(times[-1]) if times else 0)
    return begin(NAME, folder, RAILS, short(NAME), sinks=[sink], clock=clock), fake


def price_at(time):
    bars = world(NAME).feed
    return float(bars.close[bars.time == time][0] * bars.contract.tick_size)


def play(session, fake, messages, until=lambda: False):
    """Trade on what is new, until something is so. Returns whether it is."""
    for message in messages:
        newest = int(session.engine.stream.rows.bar.time[0])
        if message["time"] == newest:
            fake.run(price_at(newest))
        if message["time"] > newest:
            session.clock.now = message["time"] + HOUR
            session.take(message)
            if until():
                return True
            fake.run(price_at(message["time"]))
    return False


def trade(folder, bars=60):
    """(summary, lines for NinjaTrader) of a session on the first bars of the feed."""
    session, fake = open_desk(folder, Clock())
    try:
        play(session, fake, messages()[:bars])
        session.save("ended")
        return session.summary(), [line for line, _ in groupby(fake.lines)]  # closed twice, or once
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
    assert len(whole[1]) > 20
    return done != 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(summary, lines for NinjaTrader) without a kill."""
    return trade(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_changes_nothing(place, whole, tmp_path):
    check_kill(tmp_path, place, (PLACES[place][3] + 1) // 2, whole)


class StopError(BaseException):
    pass


def stop(*_):
    raise StopError


@pytest.mark.parametrize("place", PLACES)
def test_what_a_process_leaves_goes_on(place, whole, tmp_path, monkeypatch):
    """As above, in one process: everything but the files is forgotten."""

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
    Fake(tmp_path / "ninja").hold(2)
    with refused("holds", kind=HaltError):  # a position that nothing explains
        trade(tmp_path)


@pytest.mark.slow
def test_what_is_lost_after_any_bar_is_sent(tmp_path, monkeypatch):
    """Killed at each exit, at each order and at each trail, in turn."""
    sent = NinjaTraderFiles._send
    found = []

    def send(self, name, lines, position):
        if name not in found and name not in self._sent:
            found.append(name)
            raise StopError
        sent(self, name, lines, position)

    expected = trade(tmp_path / "whole", 40)
    monkeypatch.setattr(NinjaTraderFiles, "_send", send)
    for _ in range(99):
        try:
            assert trade(tmp_path / "again", 40) == expected
            break
        except StopError:
            pass
    assert len(found) > 20


@pytest.mark.parametrize(("later", "opens"), [(5, True), (4 * HOUR, False), (72 * HOUR, False)])
def test_an_old_entry_is_not_sent(tmp_path, monkeypatch, later, opens):
    """Killed before it is sent: within the bar it goes out, later not, and a closed session has none."""
    session, fake = open_desk(tmp_path, Clock())
    submit = NinjaTraderFiles.submit
    monkeypatch.setattr(
        NinjaTraderFiles,
        "submit",
        lambda sink, intents: stop() if intents[0].quantity else submit(sink, intents),
    )
    with pytest.raises(StopError):
        play(session, fake, messages())
    session.close()
    monkeypatch.undo()
    session.clock.now += later
    for _ in range(2):  # and all of it runs again
        session, fake = open_desk(tmp_path, session.clock)
        fake.run(0)
        assert any("MARKET" in line for line in fake.lines) == opens
        assert session.engine.open == (later < 72 * HOUR)
        wanted = session.engine.now.order
        assert bool(wanted is not None and int(wanted.quantity)) == opens
        assert not session.engine.killed
        session.close()


def test_a_stop_that_filled_first_is_warned_of(tmp_path, capsys):
    session, fake = open_desk(tmp_path, Clock())
    engine = session.engine
    held = lambda: engine.now.held and int(engine.now.order.quantity) == engine.now.held  # noqa: E731
    assert play(session, fake, messages(), held)
    session.close()
    fake.hold(0)
    session, fake = open_desk(tmp_path, session.clock)
    assert f"{session.engine.now.held:+d}" in capsys.readouterr().err
    session.close()


@pytest.mark.parametrize("held", [0, 1])
def test_a_kill_reaches_what_the_sink_alone_holds(tmp_path, held):
    """Whether it holds a position, or an entry that is on its way, and twice at one bar."""
    session, fake = open_desk(tmp_path, Clock())
    (tmp_path / KILL).touch()
    for _ in range(2):
        fake.run(0)
        fake.hold(held)
        assert not session.engine.open
        session.take(None)
        assert fake.run(0)[-1].startswith("CLOSEPOSITION;")
        session.close()
        session, fake = open_desk(tmp_path, session.clock)
    assert fake.held == 0
    session.close()


def test_lines_without_a_time_are_counted_once(tmp_path):
    for _ in range(3):
        session = begin(NAME, tmp_path, None, short(NAME))
        found = session.trade(["{", *messages()[:9], "}", "{"])
        session.close()
        assert found["faults"] == {"text": 3}


def test_a_refused_line_lets_the_time_pass(tmp_path):
    clock = Clock()
    session = begin(NAME, tmp_path, None, short(NAME), clock=clock)
    for message in messages():
        clock.now = message["time"] + HOUR
        session.take(message)
        if session.engine.now.held:
            break
    clock.now += 72 * HOUR
    session.take({**message, "complete": False})
    assert not session.engine.open
    session.close()


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
