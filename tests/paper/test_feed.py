"""A feed that is at fault: every fault of the catalogue, the clock, and thousands at random.
`python -m tests.paper.test_feed 10000` draws as many."""

import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from jaxtrade.paper.feed import live, open_feed
from jaxtrade.paper.rails import PaperConfig
from jaxtrade.paper.session import JOURNAL
from tests.messages import refused
from tests.paper.made import HOUR, NAME, Clock, begin, messages, recorded, short, world
from tests.reading import ROOT


def line(at, **others):
    found = {**messages()[at], **others}
    return json.dumps({key: value for key, value in found.items() if value is not None})


def at_close(at):
    return messages()[at]["time"] + HOUR


class Desk:
    """A session with a clock, which has had some bars in time."""

    def __init__(self, folder, bars=0):
        self.folder, self.clock = folder, Clock()
        self.clock.now = at_close(0)
        self.session = begin(NAME, folder, None, short(NAME), clock=self.clock)
        self.engine, self.close = self.session.engine, self.session.close
        self.good(*range(bars))

    def take(self, item, now=None):
        self.clock.now = self.clock.now if now is None else now
        self.session.take(item)
        return dict(self.engine.faults)

    def good(self, *rows):
        for at in rows:
            self.take(line(at), at_close(at))

    def of_kind(self, kind):
        return [each for each in recorded(self.folder) if each["kind"] == kind]


@pytest.fixture
def desk(tmp_path):
    with closing(Desk(tmp_path, 3)) as made:
        yield made


# Fault -> what is other than in the next bar; of the time how many hours.
FAULTY = {
    "text": None,
    "value": {"bid_close": "NaN"},
    "symbol": {"symbol": "GBPUSD"},
    "length": {"bar_seconds": 60},
    "unfinished": {"complete": False},
    "older": {"time": -2},
    "duplicate": None,
    "revision": {"time": -1},
    "calendar": {"time": 24 * 365 * 80},
}


def faulty(kind, at):
    """The line of a fault before bar `at` came."""
    others = FAULTY[kind]
    if others is None:
        return "{half a li" if kind == "text" else line(at - 1)
    moved = {"time": messages()[at]["time"] + HOUR * others["time"]} if "time" in others else {}
    return line(at, **others | moved)


@pytest.mark.parametrize("kind", FAULTY)
def test_each_fault_of_a_message_is_refused_and_recorded(kind, desk):
    """Nothing changes, and the bar itself is traded on afterwards."""
    before = desk.engine.now
    desk.engine.config = PaperConfig(early_seconds=1e10)  # else a bar of the future is unfinished
    assert desk.take(faulty(kind, 3), at_close(3)) == {kind: 1}
    assert desk.engine.now is before
    assert recorded(desk.folder)[-1]["fault"] == kind
    assert len(desk.of_kind("bar")) == 3
    desk.good(3)
    assert desk.engine.now.decisions == before.decisions + 1


def test_the_catalogue_is_whole():
    page = (ROOT / "docs" / "deploy.md").read_text()
    table = page.partition("| fault | what it is | what is done |\n")[2].partition("\n\n")[0]
    kinds = {row.split()[1] for row in table.splitlines()[1:]}
    assert kinds == {*FAULTY, "late", "stale"}


WRONG = {
    "time": (None, "2018-12-21T03:00:00", True, 1e30, 10**30),
    "bid_open": ("Infinity", -1, "1.1444213"),  # the last is between two ticks
    "bid_low": ("1.9",),
    "ask_open": (None,),
    "volume": (-1, "much", 1e999, 1e308),
    "symbol": (None, ["EURUSD"]),
    "bar_seconds": ("3600",),
    "complete": ("no",),
}
KINDS = {"symbol": "symbol", "bar_seconds": "length", "complete": "unfinished"}


@pytest.mark.parametrize(("key", "value"), [(key, x) for key in WRONG for x in WRONG[key]])
def test_values_that_are_none(key, value, desk):
    assert desk.take(line(3, **{key: value}), at_close(3)) == {KINDS.get(key, "value"): 1}


def test_lines_that_are_no_object_and_a_bar_off_the_grid(desk):
    for text in ("", "[]", "3", "null", "{}x", "\x00", '{"time": ' * 3000):
        desk.take(text)
    later = messages()[3]["time"] + 1800
    assert desk.take(line(3, time=later), later + HOUR) == {"text": 7, "calendar": 1}


def test_the_first_version_of_a_bar_stays_as_traded(desk):
    desk.take(line(2, volume=9.0))
    assert desk.of_kind("bar")[-1]["bar"] == json.loads(line(2))
    assert desk.take(line(2)) == {"revision": 1, "duplicate": 1}


def test_a_clock_that_is_behind_refuses_and_one_that_jumps_ahead_blocks(desk):
    """Two seconds early is a clock that is behind; three, or a day, are a bar that goes on."""
    desk.take(line(3), at_close(3) - 86_400)
    desk.take(line(3), at_close(3) - 3)
    assert desk.take(line(3), at_close(3) - 2) == {"unfinished": 2}
    assert desk.engine.now.decisions == 4
    desk.take(line(4), at_close(4) + 86_400)
    assert abs(desk.of_kind("decision")[-1]["quantity"]) <= abs(desk.of_kind("step")[-1]["held"])


def test_a_feed_that_is_silent_blocks_entries_until_a_bar_comes_in_time(tmp_path):
    """Bars that come three hours late open nothing; those in time do."""
    desk = Desk(tmp_path)
    for at in range(15):
        desk.take(line(at), at_close(at) + 3 * HOUR)
    late = desk.of_kind("decision")
    assert any(each["wanted"] for each in late)
    assert not any(each["quantity"] for each in late)
    assert all(each["rails"] == ["stale_bars"] for each in late if each["wanted"])
    desk.take(None, at_close(14) + 3 * HOUR)
    desk.take(None, at_close(14) + 4 * HOUR)
    assert desk.engine.faults == {"stale": 1}  # once, however long it lasts
    desk.good(*range(15, 22))
    assert any(each["quantity"] for each in desk.of_kind("decision")[len(late) :])
    desk.close()


def test_a_timer_and_a_later_bar_end_a_session_alike(tmp_path):
    times, found = [each["time"] for each in messages()], []
    last = next(  # of a session whose flat bar is missing
        at
        for at in count(3)
        if times[at + 1] - times[at] > 9 * HOUR and at_close(at) % 86_400 < 18 * HOUR
    )
    for timed in (False, True):
        desk = Desk(tmp_path / str(timed), last + 1)
        before = desk.engine.sessions
        if timed:
            desk.take(None, times[last + 1])
            assert desk.engine.sessions == before + 1
            assert not desk.engine.open
            late = line(last, time=times[last] + HOUR)
            assert desk.take(late, times[last + 1]) == {"late": 1}
        desk.good(last + 1)
        assert desk.engine.sessions == before + 1
        found.append(desk.engine.now.equity)
        desk.close()
    assert found[0] == found[1]


def damage(rng, at):
    """A message as a bad feed may send it."""
    kind = rng.choice([*FAULTY, "key", "cut", "noise", "good"])
    if kind in FAULTY and kind != "calendar":
        return faulty(kind, at)
    text = line(at)
    place = rng.randrange(len(text))
    if kind == "key":
        values = [None, "", "x", -1, 0, 1e308, [], {}, True, "NaN", 10**25, "1e9999"]
        return line(at, **{rng.choice([*messages()[at]]): rng.choice(values)})
    noise = {"cut": "", "noise": chr(rng.randrange(1, 0x2FFF)) + text[place + 1 :]}
    return text[:place] + noise.get(kind, text[place:])


def play(folder, faults, seed=0):
    """Random faults and silences between the bars: nothing crashes, and no entry is on stale data."""
    rng, desk, at, sent = random.Random(seed), Desk(folder, 3), 3, 0
    while sent < faults and at < len(messages()):
        for _ in range(rng.randrange(12)):
            sent += 1
            late = rng.choice([0, 0, 5, HOUR, 2 * HOUR, 9 * HOUR, -HOUR])
            desk.take(rng.choice([None, damage(rng, at)]), at_close(at) + late)
        if messages()[at]["time"] > int(desk.engine.stream.rows.bar.time[0]):
            desk.take(line(at), at_close(at) + rng.choice([0, 0, 0, 3 * HOUR]))
        at += 1
    opened, age, held = 0, 0.0, 0
    for each in recorded(folder):
        if each["kind"] == "bar":
            age = (each["now"] - each["bar"]["time"] - HOUR) / HOUR
        if each["kind"] == "decision" and each["quantity"] and each["quantity"] * held <= 0:
            opened += 1
            assert age < 2
        held = each.get("held", held)
    desk.close()
    begin(NAME, folder, None, short(NAME), clock=desk.clock).close()  # and all of it runs again
    return sent, opened


def test_random_faults(tmp_path):
    sent, opened = play(tmp_path, 300)
    assert sent >= 300
    assert opened > 3


# --- where bars come from


def test_lines_of_a_pipe_and_of_a_web_socket_arrive():
    websockets = pytest.importorskip("websockets.sync.server")
    code = "from jaxtrade.paper.feed import live\nfor x in live('-', 9.0): print(ascii(x))"
    lines = subprocess.check_output([sys.executable, "-c", code], input=b"{}\n\xff\nb\n")
    assert lines.decode().splitlines() == [r"'{}\n'", r"'\ufffd\n'", r"'b\n'"]

    def serve(connection):
        for each in ("one", "two"):
            connection.send(each)

    with websockets.serve(serve, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        got = [each for each in live(f"ws://127.0.0.1:{port}", 5.0) if each is not None]
        server.shutdown()
    assert got == ["one", "two"]


def test_a_feed_that_is_none_is_refused(monkeypatch):
    for source, fact in (("nothing.csv", "ws://"), ("ws://127.0.0.1:9", "cannot connect")):
        with refused(fact):
            next(live(source))
    pytest.importorskip("websockets")
    with refused("ws://:", "cannot connect"):
        next(live("ws://:"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with refused("cannot connect"):
            next(live(f"ws://127.0.0.1:{server.getsockname()[1]}"))
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with refused("jaxtrade[paper]"):
        next(live("ws://127.0.0.1:9"))


def test_a_file_of_lines_begins_with_its_first_bar(tmp_path):
    path = tmp_path / "bars.jsonl"
    path.write_text("\n".join(["nothing", line(0), line(1)]))
    found = open_feed(str(path), world(NAME).config)
    assert found == (["nothing", line(0), line(1)], messages()[0]["time"])


if __name__ == "__main__":
    total = opened = 0
    for seed in count():
        with tempfile.TemporaryDirectory() as place:
            sent, entries = play(Path(place), 900, seed)
            total, opened = total + sent, opened + entries
        if total >= int(sys.argv[1]):
            break
    print(f"{total} faults, {opened} entries, {seed + 1} sessions of {JOURNAL}")
