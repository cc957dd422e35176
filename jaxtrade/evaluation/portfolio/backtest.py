"""Run one agent of `allocate` over every decision bar of a session set, as one compiled program.

As in `evaluation.backtest`: the strategy pass has the account rules off; in the account pass an
account that ends is followed by a new one at the next session.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.episode import end_reason
from jaxtrade.env.leg import select
from jaxtrade.env.portfolio.dynamics import PortfolioEnv, next_session
from jaxtrade.env.portfolio.state import PortfolioEvent, PortfolioParams
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation.backtest import DecisionBars, without_rules
from jaxtrade.evaluation.portfolio.agents import JointAgent
from jaxtrade.types import Array, PyTree

RULE_ENDS = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


class JointRecord(NamedTuple):
    """One pass, leaves [L] for L decision bars, or [L, S]. A bar after the end of an account counts
    as inactive.

    equity: int32 mills of the account of the bar. account: int32 its number, from 0. end: int32
        `EndReason` by rule.
    reward: float32. action: int32 id, or -1. mark: int32[L, S] open profit at the close.
    """

    event: PortfolioEvent
    equity: Any
    quantity: Any
    account: Any
    active: Any
    end: Any
    reward: Any
    illegal: Any
    action: Any
    trades: Any
    wins: Any


def backtest(
    env: PortfolioEnv,
    agent: JointAgent,
    params: PortfolioParams,
    decisions: DecisionBars,
    rules_on: bool,
    key: Array,
) -> JointRecord:
    """The record of one pass, NumPy leaves. `params.sessions` must be the set of `decisions`."""
    params = params.replace(monitor=False)  # an evaluation has no training episodes to count
    if not rules_on:
        params = params.replace(account=without_rules(params.account))
    first = np.append(True, decisions.session[1:] != decisions.session[:-1])
    found = _run(
        env,
        agent.act,
        agent.forget,
        agent.carry,
        params,
        jnp.asarray(decisions.rows, jnp.int32),
        jnp.asarray(first),
        jax.random.key_data(key),
    )
    return jax.device_get(found)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(
    env: PortfolioEnv,
    act: Any,
    forget: Any,
    carry: PyTree,
    params: PortfolioParams,
    rows: Array,
    first: Array,
    key_data: Array,
) -> JointRecord:
    key = jax.random.wrap_key_data(key_data)
    begin = env.reset_at(params, 0, rows[0]).replace(sessions_left=params.sessions.count)

    def body(
        now: tuple[Any, ...], seen: tuple[Array, Array]
    ) -> tuple[tuple[Any, ...], JointRecord]:
        state, carry, number, over, sessions = now
        row, opens = seen
        at_start = sessions == 0
        fresh = begin.replace(row=row, slot=sessions)
        renewed = opens & (over | at_start)
        state = select(
            renewed, fresh, select(opens & ~at_start, next_session(state, params), state)
        )
        number, over = number + (opens & over), over & ~opens
        sessions = sessions + opens
        episode = opens & ((sessions - 1) % params.episode_sessions == 0)
        carry = forget(carry, renewed | episode)
        carry, want = act(
            carry, state, env.ref(state, params), params, jax.random.fold_in(key, row)
        )
        moved, event = env.transition(want.state, want.quantity, params)
        alike: tuple[Any, Any, Any] = moved, params, event
        reason = end_reason(alike[0], alike[1])
        ended = functools.reduce(jnp.logical_or, [reason == each for each in RULE_ENDS]) & ~over
        step = StepEvent(want.action, want.illegal, alike[2], env.actions)
        terms = weighted_terms(state, alike[0], step, alike[1])  # type: ignore[arg-type]  # terms of several symbols
        nothing = jax.tree.map(jnp.zeros_like, event)
        after = select(over, state, moved)
        record = JointRecord(
            select(over, nothing, event),
            after.account.equity,
            after.legs.quantity,
            number,
            ~over,
            jnp.where(ended, reason, EndReason.NONE).astype(jnp.int32),
            jnp.where(over, 0.0, total(terms)),
            want.illegal & ~over,
            want.action,
            after.stats.trades - state.stats.trades,
            after.stats.wins - state.stats.wins,
        )
        return (after, carry, number, over | ended, sessions), record

    start = (begin, carry, jnp.int32(0), jnp.bool_(False), jnp.int32(0))
    return jax.lax.scan(body, start, (rows, first))[1]
