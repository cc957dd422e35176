"""On the martingale nothing but costs can be made or lost, and the test of it would notice an
edge.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.data.read.bars import Bars
from jaxtrade.env import actions
from jaxtrade.env.actions import Action
from jaxtrade.env.state import ExitReason
from jaxtrade.evaluation.baselines import Agent, random_masked
from tests.optimum.forced import forced, martingale, null_of, trades_of

SEEDS = range(8)
LEAST = 200  # trades per seed
SESSIONS = "data.synthetic_sessions=8"
EXITS = {  # of agents that act at random: they close long before a stop or a target is near
    ExitReason.ORDER,
    ExitReason.BREAKEVEN,
    ExitReason.TRAIL,
    ExitReason.FLAT,
}
LEAN = ("env.features=[close]", "env.window=1")  # random entries look at nothing


def check(nulls, pooled):
    assert min(null.trades for null in nulls) >= LEAST
    assert pooled.half_width <= pooled.cost
    assert abs(pooled.net + pooled.cost) <= pooled.half_width
    assert (
        max(abs(null.z) for null in nulls) < 3.3
    )  # eight draws of a standard normal: 1 in 130 to be past it


@pytest.mark.slow
def test_forced_random_trades_cost_their_costs():
    runs = [
        martingale(seed, "env.task=manage", SESSIONS, *LEAN, "env.intrabar=stop_first")
        for seed in SEEDS
    ]
    made = [
        trades_of(setup, forced(random_masked(setup.env)), seed) for seed, setup in enumerate(runs)
    ]
    check([null_of([t]) for t in made], null_of(made))
    assert set(np.concatenate([t.reason for t in made])) >= EXITS


def test_every_bar_is_one_tick_from_the_last_close():
    bars: Bars = martingale(0, SESSIONS, *LEAN).market.bars
    assert np.array_equal(bars.open[1:], bars.close[:-1])
    assert np.array_equal(bars.high - bars.low, np.ones(len(bars)))
    assert np.array_equal(np.abs(bars.close - bars.open), np.ones(len(bars)))


def _peek(carry, state, ref, params, key):
    """Knows the bar after next: buys (sells) before two rises (falls) in a row, and leaves after
    them.
    """
    close = params.market.close
    two = close[state.row + 2] - close[state.row]
    flat = state.position.quantity == 0
    action = jnp.where(
        flat & ref.mask[Action.BUY], jnp.where(two > 0, Action.BUY, Action.SELL), Action.HOLD
    )
    action = jnp.where(flat, action, Action.CLOSE).astype(jnp.int32)
    quantity = jnp.where(action == Action.CLOSE, 0, jnp.where(action == Action.BUY, 1, -1))
    return (
        carry,
        actions.bracket(state, jnp.where(action == Action.HOLD, 0, quantity), params),
        action,
    )


@pytest.mark.slow
def test_a_look_into_the_future_is_noticed():
    setup = martingale(0, "env.task=manage", SESSIONS, *LEAN)
    null = null_of([trades_of(setup, Agent("peek", _peek, None, "looks ahead"))])
    assert null.trades >= LEAST
    assert null.z > 10
