"""Bars traded by random legal actions, each session with a new account, as sinks get them."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import make_config
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_env, make_params
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.paper.broker import TradedBar, fills_of


def random_moves(values, seed, sessions, trade=0.5):
    """(bars traded, slippage in ticks) over the last sessions.

    trade: how often an action other than HOLD is drawn, where one is legal.
    """
    config = make_config(values)
    bars = bars_of(config)
    market, env = build_market(bars, config), make_env(config)
    ids = np.arange(market.num_sessions - sessions, market.num_sessions)
    chosen = session_set(ids, market.num_sessions)
    params = make_params(market, chosen, config)
    decisions = decision_bars(market.data, chosen)

    @jax.jit
    def play(params, rows, slots, begins, key):
        def one(state, each):
            row, slot, begin, key = each
            new = env.reset_at(params, slot, row)
            state = jax.tree.map(lambda a, b: jnp.where(begin, a, b), new, state)
            key, coin = jax.random.split(key)
            mask = env.ref(state, params).mask.at[0].set(False)
            drawn = jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))
            acts = mask.any() & (jax.random.uniform(coin) < trade)
            order = env.decode(jnp.where(acts, drawn, 0).astype(jnp.int32), state, params)
            moved, event = env.transition(state, order, params)
            return moved, (order, state.position, moved.position, event)

        keys = jax.random.split(key, len(rows))
        return jax.lax.scan(one, env.reset_at(params, 0, rows[0]), (rows, slots, begins, keys))[1]

    rows, slots = decisions.rows, decisions.session
    begins = np.diff(slots, prepend=-1) > 0
    found = jax.device_get(play(params, rows, slots, begins, jax.random.key(seed)))
    moves = []
    for i, row in enumerate(rows.tolist()):
        order, before, after, event = jax.tree.map(lambda x, i=i: x[i], found)
        bar = bars.rows(slice(row + 1, row + 2))
        moves.append(TradedBar(bar, order, before, after, fills_of(event)))
    return moves, int(params.contract.slippage)
