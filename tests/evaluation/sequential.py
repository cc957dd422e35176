"""One agent after the other, one session after the other: what the side-by-side evaluation has to
equal, bit by bit.

It is the plain scan that the evaluator once was, kept as its reference.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.state import OFF
from jaxtrade.evaluation.record import check_record, without_rules
from jaxtrade.evaluation.side_by_side import begin, step_bar


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
        at, carry = loop
        state, carry = at.state, forget(carry, at.first)
        ref = env.ref(state, params)
        carry, order, action = act(carry, state, ref, params, jax.random.fold_in(key, state.row))
        at, record = step_bar(env, rewarded, params, renew, at, ref, order, jnp.int32(action))
        return (at, carry), record

    begun = begin(env, params, jnp.int32(0)), carry
    return jax.lax.scan(step, begun, None, length=length)[1]


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
    return check_record(record, agent.name, decisions, renew)
