"""One agent after the other, one session after the other: what the side-by-side evaluation has to
equal, bit by bit.

It is the plain scan that the evaluator once was, kept as its reference.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.env.state import OFF
from jaxtrade.evaluation.record import checked, without_rules
from jaxtrade.evaluation.side_by_side import Progress, begin, settle_bar
from jaxtrade.types import PyTree


class Loop(struct.PyTreeNode):
    at: Progress
    carry: PyTree


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def scan(
    env,
    act,
    forget,
    length,
    rewarded,
    carry,
    params,
    key,
    renew,
):
    def step(loop, _):
        state = loop.at.state
        ref = env.ref(state, params)
        carry = forget(loop.carry, loop.at.first)
        carry, order, action = act(carry, state, ref, params, jax.random.fold_in(key, state.row))
        at, record = settle_bar(
            env, rewarded, params, renew, loop.at, ref, order, jnp.int32(action)
        )
        return Loop(at, carry), record

    return jax.lax.scan(step, Loop(begin(env, params, jnp.int32(0)), carry), None, length=length)[1]


def in_sequence(
    env,
    agent,
    params,
    decisions,
    which,
    key,
    rewarded=False,
):
    """As `backtest`, by the plain scan."""
    account = params.account if which == "account" else without_rules(params.account)
    renew = bool(np.asarray(account.drawdown) >= OFF and np.asarray(account.target) >= OFF)
    params = params.replace(account=account, max_steps=np.int32(0), monitor=False)
    record = jax.device_get(
        scan(
            env,
            agent.act,
            agent.forget,
            len(decisions.rows),
            rewarded,
            agent.carry,
            params,
            key,
            np.bool_(renew),
        )
    )
    return checked(record, agent.name, decisions, renew)
