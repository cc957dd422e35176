"""NautilusTrader's simulated exchange fills the same orders at the same prices, but where a
declared rule says otherwise."""

import json
import shutil
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.data.bars import Side
from jaxtrade.data.sources import bars_of, write_bars
from jaxtrade.env.state import KEEP_STOP, NO_LEVEL
from jaxtrade.errors import ConfigError
from jaxtrade.paper.broker import BrokerFill, HaltError, TradedBar
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.nautilus import NautilusBroker, differences
from tests.paper.made import begin, source, world
from tests.paper.moves import random_moves
from tests.reading import OLD

OFF = {"account": {"preset": "rules_off_50k"}}
FX = {"data": {"market": "EURUSD"}}  # two-sided, hours


pytestmark = pytest.mark.skipif(
    find_spec("nautilus_trader") is None,
    reason="nautilus_trader is not installed: pip install -e '.[nautilus]' (Python 3.13)",
)


def bar(minute, *sides):
    quotes = [Side(*(np.array([price]) for price in side)) for side in sides]
    return SimpleNamespace(time=np.array([60 * minute + 600]), quotes=quotes)


def order(quantity=0, stop=0, target=0, move=KEEP_STOP):
    return SimpleNamespace(
        quantity=quantity, stop_ticks=stop, target_ticks=target, move_stop=move, trail=-1
    )


def at(quantity=0, stop=NO_LEVEL, target=NO_LEVEL):
    return SimpleNamespace(quantity=quantity, stop=stop, target=target)


def replay(moves, slippage, intrabar):
    """The fills of each bar there. A bar that comes again has its earlier fills as well."""
    broker, found = NautilusBroker(slippage, intrabar), []
    try:
        for moved in moves:
            broker.follow(moved)
            found.append(list(broker.poll()))
    finally:
        broker.close()
    return found


def filled(found):
    return [[(fill.quantity, fill.price, fill.why) for fill in fills] for fills in found]


ENTRY = BrokerFill(1, 401, "entry")  # of one contract, one tick above an open of 400
LONG = TradedBar(
    bar(0, (400, 402, 399, 401)), order(1, stop=5, target=8), at(), at(1, 395), [ENTRY]
)


def then(*fills, prices, order=order(1), stop=395):  # noqa: B008
    return TradedBar(
        bar(1, prices), order, at(1, stop, 408), at(0 if fills else 1, stop), list(fills)
    )


CASES = {
    # a gap through the stop fills at the open, slipped; inside a bar at the level, slipped
    "stop": (then(BrokerFill(-1, 394, "stop"), prices=(400, 401, 390, 392)), "stop_first", []),
    "stop_gap": (then(BrokerFill(-1, 389, "stop"), prices=(390, 401, 390, 392)), "stop_first", []),
    "target": (then(BrokerFill(-1, 408, "target"), prices=(400, 408, 396, 400)), "stop_first", []),
    "target_gap": (
        then(BrokerFill(-1, 412, "target"), prices=(412, 413, 411, 412)),
        "stop_first",
        ["target_gap"],
    ),
    # both lie in the bar
    "both_stop": (then(BrokerFill(-1, 394, "stop"), prices=(406, 410, 390, 392)), "stop_first", []),
    "both_near": (then(BrokerFill(-1, 408, "target"), prices=(406, 410, 390, 392)), "nearer_extreme", []),
    "both_path": (then(BrokerFill(-1, 408, "target"), prices=(406, 410, 390, 392)), "path", ["order_in_bar"]),
    "wrong": (then(BrokerFill(-1, 393, "stop"), prices=(400, 401, 390, 392)), "stop_first", ["other"]),
    "missing": (then(prices=(400, 401, 390, 392)), "stop_first", ["other"]),
    # the account is liquidated at 398, before its stop
    "liquidation": (
        then(BrokerFill(-1, 397, "liquidation"), prices=(400, 401, 390, 392)),
        "stop_first",
        [],
    ),
    "moved": (
        then(BrokerFill(-1, 398, "breakeven"), prices=(400, 401, 390, 392), order=order(1, move=399)),
        "stop_first",
        [],
    ),
    "flat": (then(BrokerFill(-1, 396, "flat"), prices=(400, 401, 396, 397)), "stop_first", []),
    "close": (then(BrokerFill(-1, 399, "order"), prices=(400, 401, 390, 397), order=order()), "stop_first", []),
}  # fmt: skip


@pytest.fixture(scope="module")
def child():
    broker = NautilusBroker(1, "stop_first")
    yield broker
    broker.close()


@pytest.mark.parametrize("case", CASES)
def test_one_exit(case, child):
    moved, child.intrabar, expected = CASES[case]
    child.found.clear()
    child.follow(LONG)
    assert filled([child.poll()]) == [[(1, 401, "market")]]
    child.follow(moved)
    assert differences(moved.fills, child.poll(), child.intrabar) == expected
    assert child.snapshot().quantity == 0


def test_a_spread_as_wide_as_the_stop_closes_the_entry_at_its_open():
    entry = TradedBar(
        bar(0, (400, 404, 399, 401), (406, 410, 405, 407)),
        order(1, stop=5),
        at(),
        at(),
        [BrokerFill(1, 406, "entry"), BrokerFill(-1, 400, "stop")],
    )
    short = TradedBar(
        bar(1, (400, 401, 390, 392), (403, 404, 393, 395)),
        order(-2, stop=9, target=6),
        at(),
        at(),
        [BrokerFill(-2, 400, "entry"), BrokerFill(2, 394, "target")],
    )
    found = replay([entry, short], 0, "stop_first")
    assert filled(found) == [
        [(1, 406, "market"), (-1, 400, "stop_market")],
        [(-2, 400, "market"), (2, 394, "limit")],
    ]


def test_a_bar_that_turns_out_to_be_the_last_comes_again():
    """The position leaves at its close."""
    again = LONG._replace(fills=[ENTRY, BrokerFill(-1, 400, "end_of_data")], after=at())
    broker = NautilusBroker(1, "stop_first")
    broker.follow(LONG)  # of a journal
    broker.connect()
    assert broker.snapshot().quantity == 1
    broker.follow(again)
    assert [fill.price for fill in broker.poll()] == [401, 400]
    assert broker.snapshot().quantity == 0
    assert broker.counts() == {"fills": 2}
    broker.close()


def test_a_process_that_was_killed_halts():
    broker = NautilusBroker(1, "stop_first")
    broker._child.kill()
    broker._child.wait()
    with pytest.raises(HaltError):
        broker.follow(LONG)
    broker.close()


@pytest.mark.parametrize(
    ("values", "sessions", "trade"),
    [
        pytest.param({**OFF, "costs": {"slippage": 3}}, 2, 0.2, id="ES"),
        pytest.param({"account": {"drawdown": 400.0}, **FX}, 25, 0.3, id="FX", marks=pytest.mark.slow),
        pytest.param({**OFF, **FX, "env": {"task": "entry"}}, 60, 0.3, id="entry", marks=pytest.mark.slow),
        pytest.param(
            {"account": {"drawdown": 400.0}, "env": {"intrabar": "nearer_extreme"}},
            5, 0.1, id="near", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_real_bars(values, sessions, trade):
    moves, slippage = random_moves(values, 1, sessions, trade)
    order = values.get("env", {}).get("intrabar", "stop_first")
    found = replay(moves, slippage, order)
    for moved, there in zip(moves, found, strict=True):
        assert differences(moved.fills, there, order) == []
    assert sum(map(len, found)) > 100
    assert replay(moves, slippage, order) == found


def test_the_command_compares_every_fill(tmp_path, capsys):
    bars = bars_of(make_config({}))
    feed = write_bars(bars.rows(slice(len(bars) - 300, None)), tmp_path)
    run = shutil.copytree(OLD, tmp_path / "run")
    flags = ["--feed", feed, "--set", "data.stamp=open", "--engine", "nautilus", "--json"]
    assert main(["paper", str(run), *map(str, flags)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"] == {"fills": 2 * found["trades"]}
    assert found["trades"] > 10
    assert "nautilus_trader" not in sys.modules


@pytest.mark.slow
def test_sessions_that_end_early_and_a_restart(tmp_path):
    """Only later bars show which bar was the last; recorded bars are played again."""
    made, counts = world("free"), []
    order, slippage = made.config.env.intrabar, int(made.params.contract.slippage)
    for _ in range(2):
        broker = NautilusBroker(slippage, order)
        session = begin("free", tmp_path, sinks=[broker])
        found = session.trade(source(bars_messages(made.feed), first=int(made.feed.time[0])))
        session.close()
        counts.append(broker.counts())
    assert counts == [{"fills": 2 * found["trades"]}] * 2
    assert found["trades"] > 10


def test_absent(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"jaxtrade\[nautilus\]"):
        NautilusBroker(1, "stop_first")
