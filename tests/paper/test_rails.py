"""Rails only shrink what the policy wants, or flatten it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.rails import BLOCK, FLATTEN, PaperConfig, limit, read_paper
from tests.messages import refused
from tests.paper.made import begin, short, world

COUNTS = ("max_position", "trades_per_day", "bars_between_trades", "bars_after_loss")
COUNTS += ("orders_per_minute", "price_jump_ticks")
COUNT, MONEY = st.none() | st.integers(1, 5), st.none() | st.floats(1, 1e4)
FLOATS = ("daily_loss", "total_loss", "price_jump_atr", "stale_bars")
RAILS = st.builds(PaperConfig, **dict.fromkeys(COUNTS, COUNT), **dict.fromkeys(FLOATS, MONEY))
QUIET = dict.fromkeys((*BLOCK, *FLATTEN), 0.0)
QUIET |= dict.fromkeys(("bars_between_trades", "bars_after_loss"), inf)
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
    ("rail", "most", "acts", "not_yet"),
    [
        ("orders_per_minute", 2, 2, 1),
        ("trades_per_day", 4, 4, 3),
        ("bars_between_trades", 3, 2, 3),
        ("bars_after_loss", 3, 1, 9),
        ("price_jump_atr", 2.0, 2.1, 1.9),
        ("price_jump_ticks", 20, 20, 19),
        ("stale_bars", 2.0, 2.0, 1.9),
        ("daily_loss", 500.0, 500.0, 499.9),
        ("total_loss", 500.0, 500.0, 499.9),
        ("kill", None, True, False),
    ],
)
def test_each_rail(rail, most, acts, not_yet):
    """An entry, a reversal, a position that is held, and an exit, which is never held back."""
    rails = PaperConfig() if most is None else PaperConfig(**{rail: most})
    for wanted, held in ((1, 0), (-1, 1), (1, 1), (0, 1)):
        acted = (rail,) if wanted and (rail in FLATTEN or wanted != held) else ()
        left = 0 if acted else wanted
        assert limit(rails, wanted, held, QUIET | {rail: acts}) == (left, acted)
        assert limit(rails, wanted, held, QUIET | {rail: not_yet}) == (wanted, ())
        assert limit(PaperConfig(stale_bars=None), wanted, held, QUIET) == (wanted, ())


@pytest.mark.parametrize(
    ("wanted", "held", "left"), [(-3, 0, -2), (3, 3, 0), (3, -1, 2), (2, 0, 2)]
)
def test_the_largest_position(wanted, held, left):
    acted = ("max_position",) if left != wanted else ()
    assert limit(PaperConfig(max_position=2), wanted, held, QUIET) == (left, acted)


def test_a_broker_that_is_not_named_and_said_to_be_a_simulation_is_refused(tmp_path):
    file = tmp_path / "rails.yaml"
    for text in (
        "broker: ninjatrader",
        "broker: ninjatrader\naccounts: [SIM1]",
        "broker: ninjatrader\nsimulation: true",
        "broker: ninjatrader\naccounts: ['SIM*']\nsimulation: true",
    ):
        file.write_text(text)
        with refused("accounts", "simulation"):
            read_paper(file)
    file.write_text("broker: folder\naccounts: [SIM1]\nsimulation: true")
    with refused("broker", "folder"):
        read_paper(file)
    file.write_text("max_position: 2\naccounts: [SIM1]\nsimulation: true")
    assert read_paper(file).max_position == 2
    file.write_text("max_positions: 2")
    with refused("max_positions"):
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
