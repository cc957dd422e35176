"""The action table: ids, legality by hand, and what each action asks for."""

import jax.numpy as jnp
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import start
from jaxtrade.env.state import KEEP_STOP, Position
from tests.env import worlds
from tests.env.worlds import i32, ints, make_market, make_params

MANAGE = EnvConfig()
HOLD, BUY, SELL, BE, ON, OFF_TRAIL, CLOSE = Action


def world(close):
    """Flat bars at `close`; S = 112: a stop of 12 ticks."""
    bars = worlds.bars_of([(close,) * 4] * 40)
    return make_params(make_market(bars, [worlds.Session(0, 40, 21, 37)], tr_sum=112))


def state_with(params, position, row=25):
    return start(params, i32(0), i32(row), jnp.uint32(0), i32(0)).replace(position=position)


def position(side, entry, stop, trailing=0, quantity=1):
    return Position(*map(i32, (side * quantity, entry, stop, entry + side * 40, 0, trailing, 22)))


def legal(close, held, config=MANAGE, row=25):
    params = world(close)
    mask = TradingEnv(config).mask(state_with(params, held, row), params)
    return {Action(i) for i, yes in enumerate(mask.tolist()) if yes}


@pytest.mark.parametrize(
    ("task", "actions", "count"),
    [
        ("entry", "full", 3),
        ("entry", "seed6", 3),
        ("manage", "seed6", 6),
        ("manage", "full", 7),
        ("advised", "seed6", 6),
        ("advised", "full", 7),
    ],
)
def test_a_task_has_a_prefix_of_the_actions(task, actions, count):
    env = TradingEnv(EnvConfig(task=task, actions=actions))
    assert env.actions == tuple(Action.__members__)[:count]


def test_ids_never_change():
    """Saved policies rest on them."""
    assert {a.name: int(a) for a in Action} == {
        "HOLD": 0,
        "BUY": 1,
        "SELL": 2,
        "MOVE_STOP_TO_BREAKEVEN": 3,
        "ENABLE_TRAIL": 4,
        "DISABLE_TRAIL": 5,
        "CLOSE": 6,
    }


def test_flat():
    assert legal(100, Position.flat()) == {HOLD, BUY, SELL}
    assert legal(100, Position.flat(), EnvConfig(task="entry")) == {HOLD, BUY, SELL}


def test_the_last_bars_before_the_flat_bar():
    """Flat bar 38: a decision at 36 fills at 37, one at 37 would fill in the flat bar itself."""
    assert BUY in legal(100, Position.flat(), row=36)
    assert legal(100, Position.flat(), row=37) == {HOLD}
    assert legal(100, Position.flat(), row=38) == {HOLD}


@pytest.mark.parametrize(
    ("side", "close", "stop", "allowed"),
    [
        # long at 101: the break-even stop is 102 and must be at least a tick below the close
        (1, 103, 90, True),
        (1, 102, 90, False),
        (1, 95, 90, False),
        (1, 120, 90, True),
        (1, 120, 101, True),
        (1, 120, 102, False),
        (1, 120, 110, False),  # it may only tighten
        # short at 101: break-even 100
        (-1, 99, 112, True),
        (-1, 100, 112, False),
        (-1, 107, 112, False),
        (-1, 80, 101, True),
        (-1, 80, 100, False),
        (-1, 80, 90, False),
    ],
)
def test_break_even(side, close, stop, allowed):
    assert (BE in legal(close, position(side, 101, stop))) is allowed


@pytest.mark.parametrize(
    ("side", "close", "stop", "trailing", "allowed"),
    [
        (1, 110, 101, 0, True),
        (1, 110, 102, 0, True),
        (1, 110, 100, 0, False),  # the stop must be at the entry or past it
        (1, 101, 101, 0, False),
        (1, 110, 102, 1, False),  # no open profit; trail on already
        (-1, 90, 101, 0, True),
        (-1, 90, 100, 0, True),
        (-1, 90, 102, 0, False),
        (-1, 101, 101, 0, False),
    ],
)
def test_enable_trail(side, close, stop, trailing, allowed):
    found = legal(close, position(side, 101, stop, trailing))
    assert (ON in found) is allowed
    assert (OFF_TRAIL in found) is bool(trailing)


def test_in_position_nothing_new_opens_and_close_is_there_unless_seed6():
    found = legal(100, position(1, 101, 90))
    assert found == {HOLD, CLOSE}
    assert legal(100, position(1, 101, 90), EnvConfig(actions="seed6")) == {HOLD}
    assert legal(100, position(1, 101, 90), EnvConfig(task="entry")) == {HOLD}


LONG, SHORT = position(1, 101, 90, quantity=2), position(-1, 101, 112, quantity=2)


@pytest.mark.parametrize(
    ("action", "held", "wanted"),
    [
        # (quantity, move_stop, trail)
        (HOLD, Position.flat(), (0, KEEP_STOP, -1)),
        (BUY, Position.flat(), (2, KEEP_STOP, -1)),
        (SELL, Position.flat(), (-2, KEEP_STOP, -1)),
        (HOLD, SHORT, (-2, KEEP_STOP, -1)),
        (BUY, SHORT, (-2, KEEP_STOP, -1)),
        (CLOSE, LONG, (0, KEEP_STOP, -1)),
        (BE, LONG, (2, 102, -1)),
        (BE, SHORT, (-2, 100, -1)),
        (ON, position(1, 101, 102, quantity=2), (2, KEEP_STOP, 1)),
        (OFF_TRAIL, position(1, 101, 102, 1, quantity=2), (2, KEEP_STOP, 0)),
    ],
)
def test_what_an_action_asks_for(action, held, wanted):
    params = world(100)
    order = TradingEnv(EnvConfig(quantity=2)).decode(i32(action), state_with(params, held), params)
    assert (int(order.quantity), int(order.move_stop), int(order.trail)) == wanted
    assert ints(order, "stop_ticks", "target_ticks") == [12, 36]
