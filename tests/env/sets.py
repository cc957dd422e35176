"""Sets of symbols for tests: their members, and trajectories in a set and alone."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import make_config
from jaxtrade.data.markets import MarketSet, load_markets
from jaxtrade.data.splits import session_set
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EndReason, EnvParams, EnvState
from jaxtrade.types import SessionSet
from tests import compiling
from tests.env import worlds

# Unequal lengths; dollars and other currencies, minis and a micro, three tick sizes.
SYNTHETIC = {"NQ": 3, "USDJPY": 5, "ES": 2, "MES": 2}


def synthetic(symbols, **sections):
    """A configuration of generated bars of these symbols, each with its own length and seed."""
    own = {
        symbol: {
            "synthetic_sessions": SYNTHETIC[symbol],
            "synthetic_seed": 10 + list(SYNTHETIC).index(symbol),
        }
        for symbol in symbols
    }
    return make_config(
        {
            "data": {"source": "synthetic", "markets": list(symbols), "per_market": own},
            "split": {"test_sessions": 0},
        }
        | sections
    )


class World(NamedTuple):
    """An environment over some sessions, and where the rows and slots of each symbol begin."""

    env: TradingEnv
    params: EnvParams
    sessions: SessionSet
    offsets: np.ndarray  # int64[M + 1] rows
    slots: np.ndarray  # int64[M + 1]


def world(config):
    """The environment over all sessions, whether the symbols share their dates or not."""
    market = load_markets(config)
    several = isinstance(market, MarketSet)
    sessions = session_set(
        np.arange(market.num_sessions),
        market.num_sessions,
        market.session_parts if several else None,
    )
    slots = np.asarray(sessions.offsets) if several else np.array([0, int(sessions.count)])
    offsets = market.offsets if several else np.array([0, market.num_bars])
    return World(
        TradingEnv(config.env), make_params(market, sessions, config), sessions, offsets, slots
    )


class Walk(NamedTuple):
    """What one step left, [steps, ...] each. All rows are counted from the first bar of the
    symbol.
    """

    state: EnvState
    mask: jax.Array
    observation: jax.Array
    outcome: Any


def _walk(
    env,
    params,
    slot,
    row,
    first,
    first_slot,
    uniforms,
):
    """Random legal actions from one bar on, without auto-reset: after its end, an episode stays
    where it ended.
    """
    start = env.reset_at(params, slot + first_slot, row + first)

    def body(carry, uniform):
        state, over = carry
        mask = env.mask(state, params)
        seen = env.observe(env.ref(state, params), params)
        after, outcome = env.advance(state, worlds.pick(mask, uniform), params)
        left = jax.tree.map(lambda now, then: jnp.where(over, then, now), after, state)
        done = over | (outcome.info.end != EndReason.NONE)
        opened = jnp.where(left.position.quantity != 0, left.position.opened - first, 0)
        local = left.replace(
            row=left.row - first,
            slot=left.slot - first_slot,
            position=left.position.replace(opened=opened),
        )
        final = outcome.final_ref.replace(row=outcome.final_ref.row - first)
        shown = outcome.replace(final_ref=final)
        empty = jax.tree.map(jnp.zeros_like, shown)
        return (left, done), Walk(
            local,
            mask,
            jnp.where(over, 0.0, seen),
            jax.tree.map(lambda now, none: jnp.where(over, none, now), shown, empty),
        )

    return jax.lax.scan(body, (start, jnp.bool_(False)), uniforms)[1]


@partial(jax.jit, static_argnums=0, compiler_options=compiling.fast())
def walks(
    env,
    params,
    slots,
    rows,
    first,
    first_slot,
    uniforms,
):
    """B walks at once. slots, rows: int32[B], counted from the first of the symbol. uniforms:
    float32[B, steps].
    """
    return jax.vmap(partial(_walk, env, params))(slots, rows, first, first_slot, uniforms)


def starts(world, number, count, seed):
    """(slots, rows) of `count` decision bars of symbol `number`, counted from its first. One is in
    its last session.
    """
    rng = np.random.default_rng([seed, number])
    begin, end = world.slots[number : number + 2]
    slots = rng.integers(begin, end, count)
    slots[0] = end - 1
    ids = np.asarray(world.sessions.ids)[slots]
    table = world.params.market.sessions
    first, last = np.asarray(table.first)[ids], np.asarray(table.last)[ids]
    rows = first + (rng.random(count) * (last - first + 1)).astype(np.int64)
    rows[0] = last[0] - 20
    return (slots - begin).astype(np.int32), (rows - world.offsets[number]).astype(np.int32)


def walk_symbols(
    world,
    numbers,
    at,
    uniforms,
):
    """Walks of the symbols `numbers`, [symbols x starts, steps, ...]. at: their starts. uniforms:
    [symbols, starts, steps]."""
    count = len(at[0][0])
    first = np.repeat(world.offsets[list(numbers)], count).astype(np.int32)
    first_slot = np.repeat(world.slots[list(numbers)], count).astype(np.int32)
    slots, rows = (np.concatenate(parts) for parts in zip(*at, strict=True))
    return walks(
        world.env,
        world.params,
        slots,
        rows,
        first,
        first_slot,
        np.asarray(uniforms, np.float32).reshape(len(slots), -1),
    )
