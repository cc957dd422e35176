"""Play wanted positions over bars given by hand, in the engine of one symbol and in that of
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import KEEP_STOP, Order
from tests.env import worlds
from tests.oracle.portfolio import Settings, Side, Symbol, join
from tests.oracle.portfolio_worlds import portfolio_env, portfolio_params

TICK = 12_500  # mills of a tick, of every symbol here
Rows = Sequence[tuple[int, int, int, int]]
ENGINES = ("single", "joint")


class Step(NamedTuple):
    """A bar after its decision. equity, cost: mills. profit: mills per symbol. fills: (symbol,
    signed change, price).
    quantity: contracts per symbol at the close."""

    equity: int
    cost: int
    profit: list[int]
    fills: list[tuple[int, int, int]]
    quantity: list[int]


def play(
    engine,
    bars,
    wants,
    commission=0,
    slippage=0,
):
    """bars: per symbol (open, high, low, close), one session. wants[t]: contracts from the open of
    bar t + 1 on. The last bar is the flat bar. Account rules are off."""
    return (
        _single(bars[0], wants, commission, slippage)
        if engine == "single"
        else _joint(bars, wants, commission, slippage)
    )


@jax.jit
def _one_bar(state, want, params):
    zero = jnp.int32(0)
    return TradingEnv(EnvConfig(task="entry")).transition(
        state, Order(want, zero, zero, jnp.int32(KEEP_STOP), jnp.int32(-1)), params
    )


def _single(rows, wants, commission, slippage):
    bars, count = worlds.bars_of(rows), len(rows)
    market = worlds.make_market(bars, [worlds.Session(0, count, 0, count - 2)], tr_sum=100)
    params = worlds.make_params(market, costs=worlds.contract(commission, slippage, TICK))
    state = TradingEnv(EnvConfig(task="entry")).reset_at(params, 0, 0)
    steps = []
    for want in wants:
        before = int(state.account.equity)
        state, event = _one_bar(state, jnp.int32(want[0]), params)
        fills = [
            (0, -int(event.order_exit_quantity), int(event.order_exit_price)),
            (0, int(event.entry_quantity), int(event.entry_price)),
            (0, -int(event.exit_quantity), int(event.exit_price)),
        ]
        equity = int(state.account.equity)
        steps.append(
            Step(
                equity,
                int(event.commission),
                [equity - before],
                [fill for fill in fills if fill[1]],
                [int(state.position.quantity)],
            )
        )
    return steps


def symbol_of(rows):
    side, count = Side(*(list(column) for column in zip(*rows, strict=True))), len(rows)
    return Symbol(
        [60 * i for i in range(count)],
        side,
        side,
        [(TICK, 1)] * count,
        [count - 1 - i for i in range(count)],
        [True] * count,
        {0: (0, count - 1)},
    )


def _joint(bars, wants, commission, slippage):
    settings = Settings(
        actions="increment", max_units=9, commission=(commission,), slippage=(slippage,)
    )
    env = portfolio_env(settings, [f"S{i}" for i in range(len(bars))])
    params = portfolio_params(join([symbol_of(rows) for rows in bars]), settings)
    step = jax.jit(env.transition)
    state, steps = env.reset_at(params, 0, 0), []
    for want in wants:
        state, event = step(state, jnp.asarray(want, jnp.int32), params)
        event = jax.tree.map(np.asarray, event)
        fills = [
            (s, int(getattr(event, f"{kind}_quantity")[s]), int(getattr(event, f"{kind}_price")[s]))
            for kind in ("close", "open", "exit")
            for s in range(len(bars))
        ]
        steps.append(
            Step(
                int(state.account.equity),
                int(event.cost.sum()),
                event.profit.tolist(),
                [fill for fill in fills if fill[1]],
                state.legs.quantity.tolist(),
            )
        )
    return steps


def walk(seed, count, price=20_000):
    """A random walk as (open, high, low, close)."""
    return [
        tuple(int(x) for x in row)
        for row in zip(*worlds.random_bars(seed, count, price=price), strict=True)
    ]
