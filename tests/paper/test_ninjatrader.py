"""Order files for NinjaTrader, against a fake of its folder. NinjaTrader itself never ran them."""

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
from tests.paper.made import begin, world

NAMED = {
    "broker": "ninjatrader",
    "accounts": ("Sim101",),
    "simulation": True,
    "instrument": "ES 12-26",
}
RAILS = PaperConfig.model_validate(NAMED)
ES = SimpleNamespace(tick_size=Decimal("0.25"))


class Fake:
    """A small NinjaTrader: reads incoming files at once, fills at `price`, answers in outgoing."""

    def __init__(self, folder):
        self.folder, self.held, self.orders, self.seen = folder, 0, {}, []
        for name in ("incoming", "outgoing"):
            (folder / name).mkdir()

    def run(self, price):
        """Take the files. Returns their lines."""
        new = []
        for path in sorted((self.folder / "incoming").iterdir()):
            assert path.match("oif*.txt")
            assert path.name not in self.seen
            *lines, end = path.read_text().split("\n")
            assert end == ""
            self.seen.append(path.name)
            path.unlink()
            for line in lines:
                self.take(line.split(";"), price)
            new += lines
        return new

    def take(self, fields, price):
        assert len(fields) == 13
        name, account, instrument, action, qty, kind, _, level, _, _, key, *_ = fields
        match name:
            case "PLACE":
                assert (account, instrument) == ("Sim101", "ES 12-26")
                assert key not in self.orders
                signed = int(qty) * (1 if action == "BUY" else -1)
                self.orders[key] = [kind, signed, level]
                if kind == "MARKET":
                    self.fill(key, price)
            case "CHANGE":
                self.orders[key][2] = level
            case "CANCEL":
                del self.orders[key]
            case "CLOSEPOSITION":
                self.orders, self.held = {}, 0
                self.report(0)
            case _:
                raise AssertionError(name)

    def fill(self, key, price):
        quantity = self.orders.pop(key)[1]
        self.held += quantity
        (self.folder / "outgoing" / f"{key}.txt").write_text(f"FILLED;{abs(quantity)};{price}")
        if not self.held:
            self.orders = {}
        self.report(price)

    def report(self, price):
        side = "LONG" if self.held > 0 else "SHORT" if self.held < 0 else "FLAT"
        path = self.folder / "outgoing" / "ES 12-26 Globex_Sim101_Position.txt"
        path.write_text(f"{side}; {abs(self.held)}; {price}")


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path)


def sink(fake):
    made = NinjaTraderFiles(fake.folder, RAILS, ES)
    made.connect()
    return made


def intent(name, quantity, stop=0, target=0, move=KEEP_STOP, close=8000):
    order = SimpleNamespace(stop_ticks=stop, target_ticks=target, move_stop=move)
    return Intent(name, 0, quantity, order, close)


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
    assert made.snapshot() == (2, {"a"})
    assert made.poll() == [BrokerFill(2, 8002, "entry")]
    assert made.poll() == []
    lines += fake.run(0)
    made.submit([intent("b", 2, move=8003)])
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
    assert made.snapshot() == (0, {"a", "ab"})  # so a held position is halted on, not doubled
    assert made.poll() == []
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
