"""One decision bar of an evaluation: what happens after an agent has decided, with the `transition`
of training.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct

from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv, next_session
from jaxtrade.env.episode import end_reason
from jaxtrade.env.leg import select
from jaxtrade.env.reference import ObservationRef
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import Account, EndReason, EnvParams, EnvState, Order
from jaxtrade.evaluation.record import Leaf, Record
from jaxtrade.types import Array

RULE_ENDS = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


class Start(NamedTuple):
    """An account at the start of a session, int32[]: mills from the start balance, its high-water
    mark, trade dates with a fill, and the number of accounts before it. On the host int64[n], of n
    sessions."""

    balance: Leaf
    high_water: Leaf
    days: Leaf
    number: Leaf


class Progress(struct.PyTreeNode):
    """Where an evaluation stands between two bars."""

    state: EnvState
    first: Array  # bool[]: an episode starts at this bar
    over: Array  # bool[]: the account has ended, and the rest of its session is stepped flat
    number: Array  # int32[]: number of accounts before this one


def begin(env: TradingEnv, params: EnvParams, slot: Array, start: Start | None = None) -> Progress:
    """At the first decision bar of session `slot` of the set. start: of its account; default: a new
    one, the first.
    """
    state = env.reset_at(params, slot, params.market.sessions.first[params.sessions.ids[slot]])
    if start is None:
        return Progress(state, jnp.bool_(True), jnp.bool_(False), jnp.int32(0))
    account = state.account.replace(
        balance=start.balance,
        equity=start.balance,
        session_equity=start.balance,
        high_water=start.high_water,
        days=start.days,
    )
    return Progress(state.replace(account=account), jnp.bool_(True), jnp.bool_(False), start.number)


def at_last_bar(state: EnvState, params: EnvParams) -> Array:
    """bool[]: whether the decision at `state` is the last one of its session."""
    return state.row >= params.market.sessions.last[params.sessions.ids[state.slot]]


def joint(at: Progress) -> Any:
    """All of a progress on which later bars of the record depend. It leaves out how long the
    episode has lasted and its statistics, which an evaluation neither reads nor records, and the
    seed of starts, from which it never draws."""
    state = at.state
    return (
        state.row,
        state.slot,
        state.sessions_left,
        state.position,
        state.account,
        state.record,
        at.first,
        at.over,
        at.number,
    )


def order_is_legal(state: EnvState, order: Order, params: EnvParams) -> Array:
    """bool[]: True if the order stays within the contract cap, and if it opens (or flips) a
    position only where the calendar and the account permit it."""
    opens = (order.quantity != 0) & (jnp.sign(order.quantity) != jnp.sign(state.position.quantity))
    within = jnp.abs(order.quantity) <= params.account.max_contracts
    return (~opens | rules.may_open(state, params)) & within


def _account_end(state: EnvState, params: EnvParams) -> Array:
    """int32[] EndReason if the account's rules end it (bust, daily loss, target), else NONE."""
    reason = end_reason(state, params)
    by_rule = functools.reduce(jnp.logical_or, [reason == end for end in RULE_ENDS])
    return jnp.where(by_rule, reason, EndReason.NONE).astype(jnp.int32)


def settle_bar(
    env: TradingEnv,
    rewarded: bool,
    params: EnvParams,
    renew: Array,
    at: Progress,
    ref: ObservationRef,
    order: Order,
    action: Array,
) -> tuple[Progress, Record]:
    """Step one decision bar; after the last one of a session also jump to the next session.

    ref: of `at.state`. order, action: what the agent decided there. renew: bool[], whether money is
        counted per
    session.
    """
    state = at.state
    moved, event = env.transition(state, order, params)
    end = jnp.where(at.over, EndReason.NONE, _account_end(moved, params)).astype(jnp.int32)
    over = at.over | (end != EndReason.NONE)
    legal = (action < 0) | ref.mask[jnp.maximum(action, 0)]
    step = StepEvent(action, ~legal, event, env.actions)
    reward = total(weighted_terms(state, moved, step, params)) if rewarded else None
    record = Record(
        row=state.row,
        ref=ref,
        action=jnp.asarray(action, jnp.int32),
        legal=legal & order_is_legal(state, order, params),
        carried=state.position.quantity,
        quantity=moved.position.quantity,
        stop=moved.position.stop,
        event=event,
        equity=moved.account.equity,
        high_water=moved.account.high_water,
        account=at.number,
        active=~at.over,
        end=end,
        target=rules.target_reached(moved.position, moved.account, params.account) & ~at.over,
        reward=None if reward is None else jnp.where(at.over, 0.0, reward),
        target_level=moved.position.target,
    )
    # After an account's end the session goes on without entries, so that both passes visit every
    # decision bar.
    locked = moved.replace(account=moved.account.replace(locked=moved.account.locked | over))
    jumped = next_session(
        moved.replace(account=select(over | renew, Account.new(), moved.account)), params
    )
    session_over = at_last_bar(state, params)
    episode_over = over | (jumped.sessions_left < 0)
    jumped = jumped.replace(
        sessions_left=jnp.where(episode_over, params.episode_sessions - 1, jumped.sessions_left),
        record=select(episode_over, env.new_record(), jumped.record),
    )
    return Progress(
        state=select(session_over, jumped, locked),
        first=session_over & episode_over,
        over=over & ~session_over,
        number=at.number + (over & session_over).astype(jnp.int32),
    ), record
