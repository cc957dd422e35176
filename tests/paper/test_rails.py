"""Rails only shrink what the policy wants, or flatten it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.errors import ConfigError
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.rails import BLOCK, FLATTEN, PaperConfig, limit, read_paper
from tests.messages import refused
from tests.paper.made import begin, short, world

COUNT = st.none() | st.integers(1, 5)
MONEY = st.none() | st.floats(1, 1e4)
RAILS = st.builds(
    PaperConfig,
    **dict.fromkeys(
        (
            "max_position",
            "orders_per_minute",
            "trades_per_day",
            "bars_between_trades",
            "bars_after_loss",
            "price_jump_ticks",
        ),
        COUNT,
    ),
    **dict.fromkeys(("daily_loss", "total_loss", "price_jump_atr", "stale_bars"), MONEY),
)
QUIET = dict.fromkeys((*BLOCK, *FLATTEN), 0.0) | dict.fromkeys(
    ("bars_between_trades", "bars_after_loss"), inf
)
FACTS = st.fixed_dictionaries(
    dict.fromkeys((*BLOCK, *FLATTEN[1:]), st.floats(-1e4, 1e4)) | {"kill": st.booleans()}
)
POSITION = st.integers(-20, 20)


@given(RAILS, POSITION, POSITION, FACTS)
def test_rails_never_add_to_a_position_or_turn_it(rails, wanted, held, facts):
    left, acted = limit(rails, wanted, held, facts)
    assert abs(left) <= abs(wanted)
    assert left * wanted >= 0
    assert (left == wanted) == (not acted)
    if wanted == held and left not in (wanted, 0):
        pytest.fail("a position is held or closed as a whole")
    if facts["kill"]:
        assert left == 0


@pytest.mark.parametrize(
    ("rails", "wanted", "held", "facts", "left", "acted"),
    [
        ({}, 3, 0, {}, 3, ()),
        ({"max_position": 2}, -3, 0, {}, -2, ("max_position",)),
        ({"max_position": 2}, 3, 3, {}, 0, ("max_position",)),
        ({"orders_per_minute": 2}, 1, 0, {"orders_per_minute": 2}, 0, ("orders_per_minute",)),
        (
            {"orders_per_minute": 2},
            0,
            1,
            {"orders_per_minute": 2},
            0,
            (),
        ),  # an exit is never held back
        ({"trades_per_day": 4}, -1, 1, {"trades_per_day": 4}, 0, ("trades_per_day",)),
        ({"trades_per_day": 4}, 1, 1, {"trades_per_day": 4}, 1, ()),
        ({"bars_between_trades": 3}, 1, 0, {"bars_between_trades": 2}, 0, ("bars_between_trades",)),
        ({"bars_between_trades": 3}, 1, 0, {"bars_between_trades": 3}, 1, ()),
        ({"bars_after_loss": 3}, 1, 0, {"bars_between_trades": 1, "bars_after_loss": 9}, 1, ()),
        ({"bars_after_loss": 3}, 1, 0, {"bars_after_loss": 1}, 0, ("bars_after_loss",)),
        ({"daily_loss": 500.0}, 1, 1, {"daily_loss": 500.0}, 0, ("daily_loss",)),
        ({"total_loss": 500.0}, 1, 1, {"total_loss": 499.9}, 1, ()),
        ({"price_jump_atr": 2.0}, 1, 0, {"price_jump_atr": 2.1}, 0, ("price_jump_atr",)),
        ({"price_jump_ticks": 20}, 1, 0, {"price_jump_ticks": 19}, 1, ()),
        ({}, 1, 0, {"stale_bars": 2.0}, 0, ("stale_bars",)),
        ({}, 1, 0, {"stale_bars": 1.9}, 1, ()),
        ({}, 1, 1, {"stale_bars": 9.0}, 1, ()),
        ({}, 1, 1, {"kill": 1}, 0, ("kill",)),
    ],
)
def test_each_rail(rails, wanted, held, facts, left, acted):
    assert limit(PaperConfig(**rails), wanted, held, QUIET | facts) == (left, acted)


def test_a_broker_that_is_not_named_and_said_to_be_a_simulation_is_refused(tmp_path):
    file = tmp_path / "rails.yaml"
    for text in (
        "broker: ninjatrader",
        "broker: ninjatrader\naccounts: [SIM1]",
        "broker: ninjatrader\nsimulation: true",
        "broker: ninjatrader\naccounts: ['SIM*']\nsimulation: true",
    ):
        file.write_text(text)
        with refused("accounts", "simulation", kind=ConfigError):
            read_paper(file)
    file.write_text("broker: folder\naccounts: [SIM1]\nsimulation: true")
    with refused("broker", "folder", kind=ConfigError):
        read_paper(file)
    file.write_text("max_position: 2\naccounts: [SIM1]\nsimulation: true")
    assert read_paper(file).max_position == 2
    file.write_text("max_positions: 2")
    with refused("max_positions", kind=ConfigError):
        read_paper(file)


def test_rails_act_on_an_account(tmp_path):
    """One trade a day: no session has two entries, and the summary says how often it was held back."""
    session = begin("short", tmp_path, PaperConfig(trades_per_day=1), short("short"))
    entries = []
    session.engine.say = lambda line: entries.append(line) if " closed: " in line else None
    found = session.trade(bars_messages(world("short").feed))
    each = [int(line.partition("entries ")[2][0]) for line in entries]
    assert max(each) == 1
    assert sum(each) == found["trades"] > 2
    assert len(each) == found["sessions"]
    assert found["rails"]["trades_per_day"] > 5
