"""Accounts of the environment itself over sessions in any order: what simulated accounts have to
equal.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import next_session
from jaxtrade.env.episode import end_reason
from jaxtrade.env.execution import select
from jaxtrade.env.state import Account, EndReason
from jaxtrade.types import SessionSet

BY_RULE = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _ends(
    env,
    act,
    forget,
    length,
    carry,
    params,
    key,
    orders,
):
    def one(ids):
        own = params.replace(sessions=SessionSet(ids, jnp.int32(len(ids))))

        def bar(at, _):
            state, carry, was_over, first = at
            ref, now = env.ref(state, own), jax.random.fold_in(key, state.row)
            memory, order, _ = act(forget(carry, first), state, ref, own, now)
            moved, _ = env.transition(state, order, own)
            reason = end_reason(moved, own)
            by_rule = jnp.isin(reason, jnp.array(BY_RULE))
            end = jnp.where(by_rule & ~was_over, reason, EndReason.NONE)
            over = was_over | (end != EndReason.NONE)
            locked = moved.replace(
                account=moved.account.replace(locked=moved.account.locked | over)
            )
            opened = next_session(
                moved.replace(account=select(over, Account.new(), moved.account)), own
            )
            renewed = over | (opened.sessions_left < 0)
            opened = opened.replace(
                record=select(renewed, env.task.record.new(), opened.record),
                sessions_left=jnp.where(renewed, own.episode_sessions - 1, opened.sessions_left),
            )
            closed = moved.row > own.market.sessions.last[ids[moved.slot]]
            following = select(closed, opened, locked), memory, over & ~closed, closed & renewed
            return following, (end, state.slot)

        start = env.reset_at(own, 0, own.market.sessions.first[ids[0]])
        begun = start, carry, jnp.bool_(False), jnp.bool_(True)
        return jax.lax.scan(bar, begun, None, length=length)[1]

    return jax.vmap(one)(orders)


def environment_ends(env, agent, params, orders, key):
    """int[n, N]: by which EndReason an account of the environment ended in each session of n
    orders, else NONE.

    orders: int[n, N] rows of the session table; each order has the same sessions. After an end the
        rest of the session
    is stepped flat, and a new account opens at the next session.
    """
    table = params.market.sessions
    length = int(np.sum(np.asarray(table.last)[orders[0]] - np.asarray(table.first)[orders[0]] + 1))
    params = params.replace(max_steps=np.int32(0), monitor=False)
    end, slot = _ends(
        env,
        agent.act,
        agent.forget,
        length,
        agent.carry,
        params,
        key,
        jnp.asarray(orders, jnp.int32),
    )
    ends = np.zeros(orders.shape, np.int64)
    order, bar = np.nonzero(np.asarray(end))
    ends[order, np.asarray(slot)[order, bar]] = np.asarray(end)[order, bar]
    return ends
