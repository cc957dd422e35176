"""Orders of users and baselines, which no action can give: flips, missing stops or targets, free
stops, any trail.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import KEEP_STOP, NO_LEVEL
from jaxtrade.env.state import Order as JaxOrder
from tests import compiling
from tests.env.worlds import ints
from tests.oracle.agreement import EVENTS, INTS, columns, differing, jax_ints, oracle_ints, stack
from tests.oracle.engines import env_config
from tests.oracle.markets import env_params
from tests.oracle.model import Order
from tests.oracle.oracle import OracleEnv
from tests.oracle.test_agreement import PRESETS, markets

STEPS = 45  # the longest session has fewer decision bars


def draw(lanes, seed):
    """int32[STEPS, lanes] each: what is wanted, contracts, bracket distances, where to move the
    stop, the trail.
    """
    rng, shape = np.random.default_rng(seed), (STEPS, lanes)

    def some(values, share, otherwise):
        return np.where(rng.random(shape) < share, values, otherwise).astype(np.int32)

    return {
        "choice": rng.choice(4, shape, p=[0.7, 0.06, 0.12, 0.12]).astype(np.int32),
        "size": rng.integers(1, 4, shape, dtype=np.int32),
        "stop": some(rng.integers(1, 40, shape), 0.7, 0),
        "target": some(rng.integers(1, 60, shape), 0.7, 0),
        "offset": some(rng.integers(-4, 25, shape), 0.1, KEEP_STOP),
        "trail": some(rng.integers(0, 2, shape), 0.2, -1),
    }


def make_rollout(settings):
    env = TradingEnv(env_config(settings))

    def one(state, params, x):
        held = state.position.quantity
        wanted = jnp.stack([held, jnp.int32(0), x["size"], -x["size"]])[x["choice"]]
        close, side = params.market.close[state.row], jnp.sign(held)
        level = jnp.where(x["offset"] == KEEP_STOP, KEEP_STOP, close - side * x["offset"])
        order = JaxOrder(wanted, x["stop"], x["target"], level, x["trail"])
        following, event = env.transition(state, order, params)
        return following, (state, order, event)

    def rollout(states, params, inputs):
        return jax.lax.scan(lambda s, x: jax.vmap(one)(s, params, x), states, inputs)[1]

    return jax.jit(rollout, compiler_options=compiling.fast())


def replay(env, slot, states, orders, events):
    """-> (first disagreement or None, bars compared) of one lane, until its session or account
    ends.
    """
    env.reset(slot, env.bars.sessions[slot].first)
    for i in range(STEPS):
        p = env.position
        levels = [
            0 if p.side == 0 else (-p.side * NO_LEVEL if p.stop is None else p.stop),
            0 if p.side == 0 else (p.side * NO_LEVEL if p.target is None else p.target),
        ]
        mine = oracle_ints(env)
        mine[INTS.index("stop") : INTS.index("target") + 1] = levels
        fault = differing(f"step {i} state", INTS, states[i], mine)
        if fault:
            return fault, i
        quantity, stop, target, move, trail = (int(x) for x in orders[i])
        result = env.step_order(
            Order(
                quantity,
                stop,
                target,
                None if move == KEEP_STOP else move,
                None if trail < 0 else bool(trail),
            )
        )
        fault = differing(
            f"step {i} event",
            EVENTS,
            events[i],
            ints(result.event, *EVENTS),
        )
        if fault or env.done:
            return fault, i + 1
    return f"no end after {STEPS} bars", STEPS


@pytest.mark.slow
def test_random_orders_agree():
    cases = [
        (
            dataclasses.replace(
                preset, mark="extreme", fill="next_open", intrabar="path", episode_sessions=1
            ),
            bars,
            slot,
        )
        for preset in PRESETS.values()
        for bars in markets()[:3]
        for slot in range(len(bars.sessions))
    ]
    params = stack([env_params(bars, settings) for settings, bars, _ in cases])
    env = TradingEnv(env_config(cases[0][0]))
    slots = jnp.asarray([slot for *_, slot in cases])
    firsts = jnp.asarray([bars.sessions[slot].first for _, bars, slot in cases])
    states = jax.jit(jax.vmap(env.reset_at))(params, slots, firsts)
    states, orders, events = jax.device_get(
        make_rollout(cases[0][0])(states, params, draw(len(cases), 5))
    )
    rows = jax_ints(states)
    wishes = columns(orders, ("quantity", "stop_ticks", "target_ticks", "move_stop", "trail"))
    reported = columns(events, EVENTS)
    compared = 0
    for e, (settings, bars, slot) in enumerate(cases):
        fault, bars_played = replay(
            OracleEnv(bars, settings), slot, rows[:, e], wishes[:, e], reported[:, e]
        )
        assert fault is None, f"case {e}: {fault}"
        compared += bars_played
    assert compared > 5_000
