"""A shared market: money is conserved, agents are exchangeable, and without impact they are
alone.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import EnvConfig, load_config
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.shared import (
    ImpactParams,
    SharedEnv,
    World,
    in_ticks,
    next_offset,
    opening_ticks,
    shift_position,
    table_of,
    with_impact,
)
from jaxtrade.env.state import NO_LEVEL, EnvState, Position
from jaxtrade.errors import ConfigError
from jaxtrade.types import AGENTS
from tests import compiling
from tests.env import worlds
from tests.env.worlds import COMMISSION, TICK_MILLS, i32

CONFIG = EnvConfig(quantity=2)
ENV = SharedEnv(CONFIG)
A, E, T = 5, 6, 200  # agents, worlds, steps
STRICT = worlds.rules(drawdown=700_000, daily_loss=500_000, target=600_000, fail_on_daily_loss=True)
WORLD_FIELDS = ("row", "slot", "sessions_left", "seed", "episode")


def impact(kappa, eta, decay):
    return ImpactParams(i32(kappa), i32(decay), jnp.asarray(table_of(eta, 2 * 2 * A)))


@functools.cache
def parameters():
    """A random walk without impact; accounts often end inside a session."""
    market = worlds.walk_market(3, sessions=6, length=110, step=8)
    params = worlds.make_params(market, account=STRICT, episode_sessions=2)
    return params.replace(impact=impact(0, 0, 1000))


class Seen(NamedTuple):
    """One step, leaves [T, A, E]."""

    state: Any
    action: Any
    outcome: Any


def act(env, params, state, uniform):
    """One step of an agent in all its worlds; state [E], uniform float32[E]."""
    action = jax.vmap(worlds.pick)(jax.vmap(env.mask, (0, None))(state, params), uniform)
    following, _, outcome = jax.vmap(env.step, (None, 0, 0, None))(
        jax.random.key(0), state, action, params
    )
    return following, Seen(state, action, outcome)


def together(params, state, uniform):
    """One step of all agents, in the same worlds; state [A, E], uniform [A, E]."""
    return jax.vmap(functools.partial(act, ENV, params), axis_name=AGENTS)(state, uniform)


def historical(params, state, uniform):
    """The same in `TradingEnv`, which knows no other agents."""
    return jax.vmap(functools.partial(act, TradingEnv(CONFIG), params))(state, uniform)


def _play(step, params, state, uniform):
    return jax.lax.scan(lambda state, now: step(params, state, now), state, uniform)[1]


play = jax.jit(_play, static_argnums=0, compiler_options=compiling.fast())


@jax.jit
def begin(params, keys):
    """States [A, E] of agents with these keys."""

    def one(key):
        return jax.vmap(ENV.reset, (0, None))(jax.random.split(key, E), params)[0]

    return jax.vmap(one, axis_name=AGENTS)(keys)


def keys_and_uniform(seed):
    key, drawn = jax.random.split(jax.random.key(seed))
    return jax.random.split(key, A), jax.random.uniform(drawn, (T, A, E))


def played(kappa, eta, decay, seed=0):
    """Random legal actions, as numpy arrays."""
    params = parameters().replace(impact=impact(kappa, eta, decay))
    keys, uniform = keys_and_uniform(seed)
    return jax.device_get(play(together, params, begin(params, keys), uniform))


run = functools.cache(played)


# --- money ------------------------------------------------------------------------------------------------------------


def assert_conserved(seen):
    """Every agent's change of equity, as its account books it, plus commissions, is what the market
    maker lost.
    """
    event, info = seen.outcome.info.event, seen.outcome.info
    change = np.int64(info.equity) - seen.state.account.equity
    np.testing.assert_array_equal(change, event.profit)
    total = change.sum(1) + np.int64(event.commission).sum(1)
    for agent in range(change.shape[1]):
        np.testing.assert_array_equal(total + event.maker[:, agent], 0)
        np.testing.assert_array_equal(
            seen.state.world.inventory[:, agent], -seen.state.position.quantity.sum(1)
        )


@pytest.mark.slow
@settings(max_examples=5)
@given(
    kappa=st.integers(0, 3_000),
    eta=st.integers(0, 3_000),
    decay=st.integers(0, 1000),
    seed=st.integers(0, 1000),
)
def test_money_is_conserved_in_every_step(kappa, eta, decay, seed):
    seen = played(kappa, eta, decay, seed)
    assert_conserved(seen)
    moved = bool(seen.outcome.info.event.offset.any())
    assert (
        moved if kappa >= 250 else not (moved and kappa == 0)
    )  # two contracts of 250 make half a tick


# --- exchangeable agents ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_permuted_agents_give_permuted_results_bit_for_bit():
    params = parameters().replace(impact=impact(700, 900, 930))
    keys, uniform = keys_and_uniform(0)
    assert_one_world(run(700, 900, 930).state)
    order = np.array([3, 0, 4, 1, 2])
    permuted = jax.device_get(play(together, params, begin(params, keys[order]), uniform[:, order]))
    assert (
        worlds.leaves_differ(permuted, jax.tree.map(lambda x: x[:, order], run(700, 900, 930)))
        == []
    )


def assert_one_world(state):
    """Leaves [..., A, E]: agents see the same, and every world is another."""
    for part in (*(getattr(state, name) for name in WORLD_FIELDS), *jax.tree.leaves(state.world)):
        assert (part == part[..., :1, :]).all()
    assert len(np.unique(state.seed)) == E


def test_a_world_is_the_same_for_all_its_agents_and_differs_from_the_others():
    assert_one_world(begin(parameters(), keys_and_uniform(0)[0]))


# --- without impact ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_impact_the_market_is_the_historical_one_bit_for_bit():
    """Accounts without limits end with their session, so `TradingEnv` draws the same ones too."""
    params = parameters().replace(account=worlds.rules())
    keys, uniform = keys_and_uniform(1)
    state = begin(params, keys)
    crowd = _without_crowd(jax.device_get(play(together, params, state, uniform)))
    plain = EnvState(**{name: value for name, value in vars(state).items() if name != "world"})
    alone = jax.device_get(play(historical, params, plain, uniform))
    assert worlds.leaves_differ(crowd, alone) == []


def _without_crowd(seen):
    """The step without what only a shared market has."""

    def plain(part, names, kind):
        return kind(**{name: value for name, value in vars(part).items() if name not in names})

    info = seen.outcome.info
    event = plain(info.event, ("offset", "impact", "profit", "maker"), type(info.event).__mro__[1])
    return Seen(
        plain(seen.state, ("world",), EnvState),
        seen.action,
        seen.outcome.replace(info=info.replace(event=event)),
    )


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_two_buyers_and_a_seller_by_hand():
    """On bars that stand still at 20,000, so that only the agents move the price. Slippage is one
    tick.

    Two buy 2 contracts, one sells 2: net +2. The open fills 0.6 x 2 + sqrt 2 = 2.61, three ticks,
    higher: buyers pay 20,004 and the seller gets 20,002. From the next bar on the offset is 0.6 x 2
    = 1.2, a tick; then 1.2 x 0.9 = 1.08.
    """
    market = worlds.make_market(
        worlds.bars_of([(20_000,) * 4] * 60), [worlds.Session(0, 60, 40, 55)], tr_sum=140
    )
    params = worlds.make_params(market).replace(impact=impact(600, 1000, 900))
    buy, sell, hold, close = Action.BUY, Action.SELL, Action.HOLD, Action.CLOSE
    state = jax.tree.map(lambda x: jnp.stack([x] * 3), ENV.reset_at(params, 0, 40))
    step = jax.jit(
        jax.vmap(ENV.step, (None, 0, 0, None), axis_name=AGENTS), compiler_options=compiling.fast()
    )
    seen = []
    for actions in ((buy, buy, sell), (hold, hold, hold), (hold, hold, close), (hold, hold, hold)):
        state, _, outcome = step(jax.random.key(0), state, i32(actions), params)
        seen.append(outcome.info)
    cost, tick = 2 * COMMISSION, 2 * TICK_MILLS  # of both contracts
    assert seen[0].event.entry_price.tolist() == [20_004, 20_004, 20_002]
    assert [info.event.offset.tolist()[0] for info in seen] == [
        0,
        1,
        1,
        2,
    ]  # 1.08 x 0.9 + 1.2 = 2.172 in the last
    assert [info.event.impact.tolist()[0] for info in seen] == [
        3,
        0,
        3,
        0,
    ]  # 1.08 + 2.61 = 3.69 is 3 above the offset
    assert seen[0].equity.tolist() == [-4 * tick - cost, -4 * tick - cost, 2 * tick - cost]
    assert seen[1].equity.tolist() == [
        -3 * tick - cost,
        -3 * tick - cost,
        tick - cost,
    ]  # marked at 20,001
    assert seen[2].event.order_exit_price.tolist() == [
        0,
        0,
        20_004,
    ]  # and one tick of offset: 20,005
    assert seen[2].equity.tolist() == [-3 * tick - cost, -3 * tick - cost, -3 * tick - 2 * cost]
    assert seen[3].equity.tolist() == [-2 * tick - cost, -2 * tick - cost, -3 * tick - 2 * cost]
    # The maker sells 4 at 20,004 and buys 2 at 20,002, is then short 2 in a rise of a tick, and
    # sells 2 at 20,005.
    assert [info.event.maker.tolist()[0] for info in seen] == [6 * tick, -tick, 4 * tick, -2 * tick]
    assert state.world.inventory.tolist() == [-4] * 3
    stop = (
        20_000 - 15
    )  # 1.5 ATR of 10 ticks, around the open without impact; two ticks lower under the offset
    assert state.position.stop.tolist() == [stop - 2, stop - 2, 0]


@settings(max_examples=30)
@given(
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.integers(0, 1000),
    st.integers(-16, 16),
    st.integers(1, 40),
)
def test_no_round_trip_gains_from_its_own_impact(kappa, eta, decay, net, bars):
    """All agents enter at one open and leave at another: on still bars neither the mark nor the
    exit is a gain.
    """
    rules, offset = impact(kappa, eta, decay), i32(0)
    side = 1 if net > 0 else -1
    entry = int(opening_ticks(offset, i32(net), rules))
    offset = next_offset(World(offset, i32(net), i32(0)), rules)
    for _ in range(bars):
        assert side * (int(in_ticks(offset)) - entry) <= 0
        leaves = int(in_ticks(offset)) + int(opening_ticks(offset, i32(-net), rules))
        assert side * (leaves - entry) <= 0
        offset = next_offset(World(offset, i32(0), i32(0)), rules)


# --- integers ---------------------------------------------------------------------------------------------------------


def test_offsets_are_rounded_once_and_return_to_zero():
    assert [int(in_ticks(i32(x))) for x in (0, 499, 500, 1499, 1500, -499, -500, -1500)] == [
        0,
        0,
        1,
        1,
        2,
        0,
        -1,
        -2,
    ]
    assert table_of(1000, 4).tolist() == [0, 1000, 1414, 1732, 2000]
    assert int(opening_ticks(i32(0), i32(-9), impact(0, 1000, 0))) == -3
    assert (
        int(opening_ticks(i32(400), i32(1), impact(100, 0, 0))) == 1
    )  # 0.5 is a tick, and 0.4 was none
    rules = impact(600, 0, 999)
    for start in (2_000_000, -2_000_000):
        world = World(i32(start), i32(0), i32(0))
        path = jax.lax.fori_loop(
            0,
            20_000,
            lambda _, x, world=world: next_offset(world.replace(offset=x), rules),
            world.offset,
        )
        assert int(path) == 0
    assert int(next_offset(World(i32(-1_001), i32(3), i32(0)), impact(600, 0, 500))) == -500 + 1800


def test_levels_that_do_not_exist_stay_where_they_are():
    held = Position(i32(-2), i32(100), i32(NO_LEVEL), i32(90), i32(0), i32(0), i32(7))
    assert [int(x) for x in jax.tree.leaves(shift_position(held, i32(3)))] == [
        -2,
        97,
        NO_LEVEL,
        87,
        0,
        0,
        7,
    ]
    flat = Position.flat()
    assert worlds.leaves_differ(shift_position(flat, i32(3)), flat) == []


# --- refused ----------------------------------------------------------------------------------------------------------


def test_what_a_shared_market_cannot_be():
    shared = load_config("quickstart", ["shared.on=true", "train.num_seeds=2"])
    rated = parameters().replace(market=worlds.with_rates(parameters().market))
    with pytest.raises(ConfigError, match=r"shared\.on=true: .*ES"):
        with_impact(rated, shared)
    assert with_impact(rated, load_config("quickstart")) is rated
    with pytest.raises(ConfigError, match="needs parameters from"):
        ENV.transition(ENV.reset_at(parameters(), 0, 40), None, parameters().replace(impact=None))  # type: ignore
    with pytest.raises(NameError, match=AGENTS):
        ENV.reset(jax.random.key(0), parameters())
