"""`allocate` on real bars: the join of two pairs, agreement with the plain-Python engine, and the
single-leg engine.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig, make_config
from jaxtrade.data.markets import join_bars, load_markets
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.data.splits import split_sessions
from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.params import make_portfolio_params
from jaxtrade.env.state import KEEP_STOP, Order
from tests.oracle.portfolio import Settings, Side, Symbol, join
from tests.oracle.portfolio_worlds import PRICES, compare, run

pytestmark = pytest.mark.slow

STEPS = 5_000
DATA = {"source": "bundled", "start": "2014-01-02", "end": "2015-06-30"}
RULES = {"preset": "rules_off_50k", "drawdown": 900.0, "daily_loss": 500.0, "freeze": "never"}


def config_of(actions, **allocate):
    return make_config(
        {
            "data": DATA | {"markets": ["EURUSD", "USDJPY"]},
            "account": RULES,
            "env": {"task": "allocate"},
            "episode": {"sessions": 5},
            "allocate": {"actions": actions} | allocate,
        },
        "test",
    )


def side_of(bars):
    return Side(*(getattr(bars, name).tolist() for name in PRICES))


def symbol_of(market):
    """A symbol's own bars, as the oracle is given them."""
    data, sessions = market.data, market.data.sessions
    bid, ask = market.bars.sides
    count = len(market.bars)
    rates = (
        [(market.contract.tick_mills, 1)] * count
        if market.contract.currency == ACCOUNT
        else list(
            zip(
                data.tick_value.times.tolist(),
                data.tick_value.over.tolist(),
                strict=True,
            )
        )
    )
    dates = market.trade_dates.astype(int).tolist()
    return Symbol(
        market.bars.time.tolist(),
        side_of(bid),
        side_of(ask),
        rates,
        data.bars_to_flat.tolist(),
        (data.tr_sum >= 0).tolist(),
        {date: (int(sessions.first[i]), int(sessions.last[i]) + 1) for i, date in enumerate(dates)},
    )


@pytest.fixture(scope="module")
def pairs():
    return load_markets(config_of("product"))


def test_shared_bars_are_those_of_the_semantics(pairs):
    """Every price, rate and row of the device against a join that knows nothing of NumPy."""
    shared, data = join([symbol_of(member) for member in pairs.members]), pairs.data
    assert data.ask is not None
    for s, symbol in enumerate(shared.symbols):
        for name in PRICES:
            assert getattr(data, name)[:, s].tolist() == getattr(symbol.bid, name)
            assert getattr(data.ask, name)[:, s].tolist() == getattr(symbol.ask, name)
        assert list(
            zip(
                data.tick_value.times[:, s].tolist(),
                data.tick_value.over[:, s].tolist(),
                strict=True,
            )
        ) == (symbol.rates)
        assert data.rows[:, s].tolist() == shared.rows[s]
    first, last = data.sessions.first.tolist(), data.sessions.last.tolist()
    assert [(a, b + 1) for a, b in zip(first, last, strict=True)] == list(shared.sessions)
    own = [np.diff(rows) for rows in shared.rows]
    assert any((d > 1).any() for d in own), (
        "no bar was skipped: the test shows nothing about joined bars"
    )


def played(pairs, config, seed, steps):
    """Random actions, and the oracle's bars and settings."""
    chosen, costs = config.allocate, {"cost_hundredths": 37, "impact_tenths": 6, "fee": 250}
    settings = Settings(
        actions=chosen.actions,
        max_contracts=1000,
        episode_sessions=5,
        risk_unit=900_000.0,
        commission=[c.commission_mills for c in pairs.contracts],
        slippage=[c.slippage_ticks for c in pairs.contracts],
        drawdown=900_000,
        daily_loss=500_000,
        **(costs if chosen.fee else {}),
    )
    params = make_portfolio_params(pairs, split_sessions(pairs, config.split)["all"], config)
    trace = run(PortfolioEnv(config.env, chosen, pairs.symbols), params, seed, steps)
    return trace, join([symbol_of(member) for member in pairs.members]), settings


def test_real_bars_agree_in_every_mill(pairs):
    """A two-sided pair in dollars and a one-sided pair in yen, every cost on, floors reached."""
    config = config_of("product", cost_bp=0.37, impact_bp=0.6, fee=0.25)
    counts = compare(*played(pairs, config, 11, STEPS))
    assert min(counts[what] for what in ("liquidation", "breach", "bust", "orders")) > 0, counts


def test_a_planted_difference_is_found(pairs):
    """The comparison sees one mill: an oracle with another commission disagrees."""
    trace, shared, right = played(pairs, config_of("table"), 2, 300)
    compare(trace, shared, right)
    first, second = right.commission
    with pytest.raises(AssertionError, match="cost"):
        compare(trace, shared, replace(right, commission=[first + 1, second]))


class Seen(NamedTuple):
    """The same facts of a bar in both engines."""

    fills: Any
    cash: Any
    account: Any
    breach: Any
    floor: Any
    end: Any


def played_by(env, params, play, orders, first, slot):
    """What `play(state, want)` shows of each bar, a new account at each session."""

    def body(state, seen):
        want, opens, number = seen
        row = params.market.sessions.first[params.sessions.ids[number]]
        state = jax.tree.map(
            lambda a, b: jnp.where(opens, a, b), env.reset_at(params, number, row), state
        )
        return play(state, want)

    return jax.lax.scan(body, env.reset_at(params, 0, 0), (orders, first, slot))[1]


def single_leg(env, params, *seen):
    """Bracket-free orders in the engine of one symbol."""

    def play(state, want):
        zero = jnp.int32(0)
        opening = (want != 0) & (want != state.position.quantity)
        keep = jnp.where(opening & ~rules.may_open(state, params), state.position.quantity, want)
        moved, event = env.transition(
            state, Order(keep, zero, zero, jnp.int32(KEEP_STOP), jnp.int32(-1)), params
        )
        fills = (
            event.order_exit_quantity,
            event.order_exit_price,
            event.entry_quantity,
            event.entry_price,
            event.exit_quantity,
            event.exit_price,
            event.exit_reason,
        )
        cash = moved.account.balance - state.account.balance
        return moved, Seen(fills, cash, moved.account, event.breach, event.floor, keep)

    return played_by(env, params, play, *seen)


def joint_leg(env, params, leg, *seen):
    """The same positions wanted in one leg of the joint engine; the other one stays flat."""

    def play(state, want):
        both = jnp.zeros(len(env.symbols), jnp.int32).at[leg].set(want)
        moved, event = env.transition(state, both, params)
        fills = (
            -event.close_quantity[leg],
            event.close_price[leg],
            event.open_quantity[leg],
            event.open_price[leg],
            -event.exit_quantity[leg],
            event.exit_price[leg],
            event.exit_reason[leg],
        )
        cash = event.cash.sum()
        return moved, Seen(fills, cash, moved.account, event.breach, event.floor, want)

    return played_by(env, params, play, *seen)


def test_one_leg_alone_is_the_single_leg_engine():
    """Same fills, cash, floors, liquidations and account as TradingEnv with bracket-free orders, on
    real bars.
    """
    symbol, leg = "USDJPY", 1
    account = RULES | {"drawdown": 400.0, "daily_loss": 300.0}
    values = {"data": DATA | {"market": symbol}, "account": account}
    alone = make_config(values | {"env": {"task": "entry", "features": [], "window": 1}}, "test")
    twice = make_config(values | {"env": {"task": "allocate"}}, "test")
    market = load_markets(twice).members[0]
    pair = join_bars([market, market])
    single = make_params(market, split_sessions(pair, alone.split)["all"], alone)
    # The sessions of `market` have the warm-up of allocate's features; `single` plays the same
    # rows.
    joint = make_portfolio_params(pair, split_sessions(pair, twice.split)["all"], twice)
    length = np.asarray(market.data.sessions.last) - np.asarray(market.data.sessions.first) + 1
    first = np.concatenate([np.arange(n) == 0 for n in length])
    slot = np.repeat(np.arange(len(length)), length).astype(np.int32)
    rng = np.random.default_rng(3)
    orders = np.where(rng.random(len(slot)) < 0.3, rng.integers(-1, 2, len(slot)), 2).astype(
        np.int32
    )
    held = orders.copy()
    for i in range(1, len(held)):  # 2: as before, 0 at the start of a session
        held[i] = (0 if first[i] else held[i - 1]) if held[i] == 2 else held[i]
    env = TradingEnv(EnvConfig(task="entry", features=(), window=1))
    one = jax.jit(single_leg, static_argnums=0)(env, single, jnp.asarray(held), first, slot)
    both = PortfolioEnv(twice.env, twice.allocate, (symbol, f"{symbol}2"))
    two = jax.jit(joint_leg, static_argnums=(0, 2))(both, joint, leg, one.end, first, slot)
    assert len(slot) > 5_000
    names = ("order exit", "price", "entry", "price", "exit", "price", "reason")
    for name, a, b in zip(names, one.fills, two.fills, strict=True):
        np.testing.assert_array_equal(a, b, name)
    jax.tree.map(np.testing.assert_array_equal, one._replace(fills=None), two._replace(fills=None))
    assert int(one.breach.sum()) > 20
    assert set(np.unique(one.fills[-1])) >= {0, 6, 7}, "no liquidation, or no flat bar, was reached"
