"""Order files for NinjaTrader, against a fake of its folder. NinjaTrader itself never ran them."""

import os
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.env.state import KEEP_STOP
from jaxtrade.errors import ConfigError
from jaxtrade.paper.broker import BrokerFill, HaltError, Intent, TradedBar
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.ninjatrader import NinjaTraderFiles
from jaxtrade.paper.rails import PaperConfig, read_paper
from jaxtrade.paper.session import open_sinks
from jaxtrade.storage import digests
from tests.paper.made import NAMED, RAILS, Fake, begin, world

ES = SimpleNamespace(tick_size=Decimal("0.25"))


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path)


def sink(fake):
    made = NinjaTraderFiles(fake.folder, RAILS, ES)
    made.connect()
    return made


def intent(name, quantity, stop=0, target=0, move=KEEP_STOP, close=8000, held=0):
    order = SimpleNamespace(stop_ticks=stop, target_ticks=target, move_stop=move)
    return Intent(name, 0, quantity, order, close, held)


def moved(before, after, old=7990, new=7990):
    at = SimpleNamespace(quantity=before, stop=old), SimpleNamespace(quantity=after, stop=new)
    return TradedBar(SimpleNamespace(time=np.array([60])), None, *at, [])


GOLDEN = [
    "PLACE;Sim101;ES 12-26;BUY;2;MARKET;;;DAY;;a;;",
    "PLACE;Sim101;ES 12-26;SELL;2;STOPMARKET;;1997.50;DAY;a;as;;",
    "CHANGE;;;;0;;0;1998.00;;;as;;",
    "PLACE;Sim101;ES 12-26;SELL;2;LIMIT;2005.50;;DAY;a;at;;",
    "CHANGE;;;;0;;0;2000.75;;;as;;",
    "CHANGE;;;;0;;0;2001.25;;;as;;",
    "CLOSEPOSITION;Sim101;ES 12-26;;;;;;;;;;",
    "PLACE;Sim101;ES 12-26;SELL;2;MARKET;;;DAY;;c;;",
    "PLACE;Sim101;ES 12-26;BUY;2;STOPMARKET;;2002.00;DAY;c;cs;;",
    "CLOSEPOSITION;Sim101;ES 12-26;;;;;;;;;;",
]


def test_a_position_from_entry_to_flip(fake):
    """Entry and provisional stop in one file; the bracket around the fill; break-even; trail."""
    lines, made = [], sink(fake)
    made.submit([intent("a", 2, stop=10, target=20)])
    assert [path.name for path in (fake.folder / "incoming").iterdir()] == ["oif00000001a.txt"]
    assert made.poll() == []  # not filled yet
    lines += fake.run(2000.50)
    assert made.snapshot() == (2, {"a"}, 2)
    assert made.poll() == [BrokerFill(2, 8002, "entry")]
    assert made.poll() == []
    lines += fake.run(0)
    made.submit([intent("b", 2, move=8003, held=2)])
    lines += fake.run(0)
    made.follow(moved(2, 2, 8003, 8005))
    made.follow(moved(2, 2, 8003, 8005))  # the bar comes again
    lines += fake.run(0)
    made.submit([intent("c", -2, stop=8)])
    lines += fake.run(2000.0)
    assert fake.held == -2
    made.follow(moved(-2, 0))  # the account is flat, so this is
    lines += fake.run(0)
    assert (fake.held, fake.orders) == (0, {})
    assert lines == GOLDEN


def test_a_restart_goes_on_and_sends_nothing_twice(fake):
    sink(fake).submit([intent("a", 1, stop=10, target=20)])
    fake.run(2000.0)
    made = sink(fake)
    with pytest.raises(HaltError, match="twice"):
        made.submit([intent("a", 1, stop=10)])
    assert made.poll()
    for path in (fake.folder / "outgoing").iterdir():  # NinjaTrader restarts
        path.unlink()
    made = sink(fake)
    assert made.snapshot() == (0, {"a", "ab"}, 1)
    assert made.poll() == []
    made.submit([intent("b", 1, held=1)])  # a held position is not doubled
    assert fake.run(0)[2:] == []
    made.submit([intent("k", 0)])  # the kill
    assert fake.run(0)[-1].startswith("CLOSEPOSITION;")
    assert (fake.held, fake.orders) == (0, {})


def test_an_order_is_taken_back_where_its_session_is_none(fake):
    made = sink(fake)
    made.submit([intent("a", 1, stop=10)])
    made.follow(moved(0, 0))
    assert fake.run(2000.0)[-1].startswith("CLOSEPOSITION;")
    assert (fake.held, fake.orders) == (0, {})


def test_a_rejected_entry_takes_its_stop_along(fake):
    made = sink(fake)
    made.submit([intent("a", 1, stop=10)])
    fake.run(2000.0)
    (fake.folder / "outgoing" / "a.txt").write_text("REJECTED;0;0")
    assert made.poll() == []
    assert fake.run(0) == ["CANCEL;;;;;;;;;;as;;"]


@pytest.mark.parametrize("place", ["part", "noted"])
def test_what_never_left_is_forgotten(fake, place, monkeypatch):
    """Killed before the note, or before the rename: the exit is not known, so it comes again."""
    made = sink(fake)
    made.submit([intent("a", 2)])
    fake.run(2000.5)
    with monkeypatch.context() as patch:

        def stop(*_):
            raise KeyboardInterrupt

        patch.setattr(*((NinjaTraderFiles, "_note") if place == "part" else (os, "replace")), stop)
        if place == "noted":  # as that of sent.json succeeds
            patch.setattr(digests, "write_whole", lambda path, text, **_: path.write_text(text))
        with pytest.raises(KeyboardInterrupt):
            made.submit([intent("x", 0, held=2)])
    made = sink(fake)
    assert made.snapshot() == (2, {"a"}, 2)
    assert [path.name for path in (fake.folder / "jaxtrade").iterdir()] == ["sent.json"]
    made.submit([intent("x", 0, held=2)])
    assert fake.run(0) == GOLDEN[-1:]
    assert sink(fake).snapshot() == (0, {"a", "x"}, 0)


def test_what_leaves_is_on_disk_before(fake, monkeypatch):
    """The note and its lines are synced before the rename into NinjaTrader's folder."""
    done = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), sync(file)))
    monkeypatch.setattr(
        os, "replace", lambda old, new: (done.append(str(new.name)), replace(old, new))
    )
    sink(fake).submit([intent("a", 2)])
    first, note = done.index("a.part"), done.index("sent.json")
    assert first < note < done.index("oif00000001a.txt")
    assert done[first - 1] == done[first + 1] == done[note - 1] == done[note + 1] == "fsync"


@pytest.mark.parametrize("text", ["", "FILLED", "FILLED;2", "FILLED;2;", "LONG", "LONG;x;1", None])
def test_a_file_that_is_not_whole_is_not_known_yet(fake, text, monkeypatch):
    made = sink(fake)
    made.submit([intent("a", 2, stop=10)])
    fake.run(2000.5)
    whole = {path: path.read_text() for path in (fake.folder / "outgoing").iterdir()}
    for path in whole:
        path.unlink()
        path.write_text(text) if text is not None else path.mkdir()  # which cannot be read
    assert made.poll() == []
    assert made.snapshot().quantity == 0
    for path, old in whole.items():
        path.rmdir() if text is None else path.unlink()
        path.write_text(old.replace(".", ","))
    assert made.snapshot().quantity == 2
    assert made.poll() == [BrokerFill(2, 8002, "entry")]


def test_positions_of_other_accounts_are_not_ours(fake):
    for name in ("ES 12-26 Globex_X_Sim101", "ES 12-26 Globex_Sim1011", "ES 12-260 Globex_Sim101"):
        (fake.folder / "outgoing" / f"{name}_Position.txt").write_text("LONG; 7; 2000")
    made = sink(fake)
    assert made.snapshot().quantity == 0
    rails = PaperConfig.model_validate(NAMED | {"accounts": ("Sim[1]",), "instrument": "ES [*]"})
    made = NinjaTraderFiles(fake.folder, rails, ES)
    (fake.folder / "outgoing" / "ES [*] Globex_Sim[1]_Position.txt").write_text("SHORT; 2; 2000")
    assert made.snapshot().quantity == -2


def test_a_position_that_is_not_there_is_not_opened_late(fake):
    sink(fake).submit([intent("b", 2, stop=10, move=8003, held=2)])
    assert fake.run(0) == []


def test_a_policy_trades(fake, tmp_path):
    """Whole sessions: every entry goes out once, and it is flat when the account is."""
    made = world("free")
    session = begin("free", tmp_path / "session", RAILS, sinks=[sink(fake)])
    stream = session.engine.stream
    for message in bars_messages(made.feed):
        session.take(message)
        fake.run(float(stream.rows.bar.close[0] * stream.contract.tick_size))
        if int(session.engine.now.order.quantity if session.engine.open else 0) == 0:
            assert fake.held == 0
    assert session.summary()["trades"] > 10
    session.close()
    assert any("b.txt" in name for name in fake.seen)


@pytest.mark.parametrize(
    "others",
    [
        {"simulation": False},
        {"accounts": ()},
        {"accounts": ("Sim101", "Sim102")},
        {"accounts": ("a;b",)},
        {"instrument": ""},
        {"broker": "simulated"},
    ],
)
def test_nothing_is_sent_to_an_account_that_is_not_named(fake, others):
    with pytest.raises(ConfigError, match="accounts"):
        NinjaTraderFiles(fake.folder, PaperConfig.model_validate(NAMED | others), ES)


def test_flags_and_rails_agree(fake, tmp_path):
    path = tmp_path / "rails.yaml"
    path.write_text('broker: ninjatrader\naccounts: [Sim101]\ninstrument: "ES 12-26"\n')
    with pytest.raises(ConfigError, match="simulation: true"):
        read_paper(path)
    path.write_text(path.read_text() + "simulation: true\n")
    assert read_paper(path) == RAILS
    folder = f"ninjatrader:{fake.folder}"
    assert len(open_sinks(None, folder, RAILS, ES, "")) == 1
    assert open_sinks(None, None, PaperConfig(), ES, "") == []
    for flag, rails in (
        (None, RAILS),
        (folder, PaperConfig()),
        ("ninjatrader", RAILS),
        ("x:y", RAILS),
        (f"ninjatrader:{tmp_path / 'no'}", RAILS),
    ):
        with pytest.raises(ConfigError, match="--sink"):
            open_sinks(None, flag, rails, ES, "")
