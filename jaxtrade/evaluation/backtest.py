"""The one evaluator: every decision bar of a session set, in time order, through the training `transition`.

Two passes, always labelled. ACCOUNT: the account's rules are on; after a bust, a failing daily loss or a target the
rest of that session is stepped flat with entries locked, and a new account opens at the next session. STRATEGY: the
same orders' logic with drawdown, daily loss and target off; return, Sharpe, drawdown and trades come from it.

A policy forgets where an episode would begin in training: with each new account, and every `episode.sessions` sessions.
So does the record of trades that `advised` shows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv, next_session
from jaxtrade.env.episode import end_reason
from jaxtrade.env.leg import select
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import OFF, Account, AccountParams, EndReason, EnvParams, EnvState, Order, Trailing
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.agents import Act, Agent, Forget
from jaxtrade.types import Array, MarketData, PyTree, SessionSet

MONEY_LIMIT = OFF // 2  # |equity| beyond it could pass int32 within one more bar
Leaf = Any  # jax.Array inside the scan, np.ndarray once on the host
Pass = Literal["account", "strategy"]
RULE_ENDS = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


class Record(struct.PyTreeNode):
    """One row per decision bar, L of them; the bar decided at is `row`, what follows happened in bar `row + 1`.

    row: int32[L] market row. ref: what was decided from, ObservationRef of [L, ...] leaves. action: int32[L]
    (NO_ACTION: none of the table's). legal: bool[L], the action was in the mask and the order asked for nothing that
    is not permitted. carried, quantity: int32[L] position before and after the bar. stop: int32[L] the stop after it.
    event: Event of [L] leaves. equity, high_water (what the drawdown floor follows, by the account's `Trailing`): mills
    after the bar, int64[L] once on the host; a mark made at a session's end shows from the next session on. account:
    int32[L] number of the account, from 0. active: bool[L], that account still lived when the bar began. end: int32[L]
    EndReason where the account ended in this bar, else NONE. target: bool[L], realised profit at the target. reward:
    float32[L] as in training, 0 where not active; None where it was not asked for (static).
    """

    row: Leaf
    ref: Any  # ObservationRef
    action: Leaf
    legal: Leaf
    carried: Leaf
    quantity: Leaf
    stop: Leaf
    event: Any  # Event
    equity: Leaf
    high_water: Leaf
    account: Leaf
    active: Leaf
    end: Leaf
    target: Leaf
    reward: Leaf = None

    @property
    def mask(self) -> Leaf:
        """bool[L, A] actions that were legal."""
        return self.ref.mask


class _Loop(struct.PyTreeNode):
    state: EnvState
    carry: PyTree
    first: Array  # bool[]: an episode begins at this bar
    over: Array  # bool[]: the account has ended, its session is being stepped to its flat bar
    number: Array  # int32[]: accounts opened before this one


@dataclass(frozen=True)
class DecisionBars:
    """The decision bars of a session set on the host.

    rows: int64[L] market rows in time order. session: int64[L] position in the set (0..n-1) of each. ids: int64[n]
    rows of the session table. date: datetime64[D][n] trade dates.
    """

    rows: np.ndarray
    session: np.ndarray
    ids: np.ndarray
    date: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """int64[n] index, in 0..L-1, of each session's last decision bar."""
        return np.append(np.flatnonzero(np.diff(self.session)), len(self.rows) - 1)


def decision_bars(market: MarketData, sessions: SessionSet) -> DecisionBars:
    """Every decision bar of `sessions`. Raises DataError where the set is empty or not in time order."""
    ids = np.asarray(sessions.ids, np.int64)[: int(sessions.count)]
    if not len(ids):
        raise DataError("evaluation: the session set is empty; hold out at least one session "
                        "(split.test_sessions or split.validation_sessions)")
    first = np.asarray(market.sessions.first, np.int64)[ids]
    last = np.asarray(market.sessions.last, np.int64)[ids]
    if np.any(first[1:] <= last[:-1]):
        raise DataError("evaluation: sessions must be in time order and must not repeat")
    rows = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
    days = np.asarray(market.sessions.date, np.int64)[ids]
    return DecisionBars(rows, np.repeat(np.arange(len(ids)), last - first + 1), ids, days.astype("datetime64[D]"))


def without_rules(account: AccountParams) -> AccountParams:
    """Drawdown, daily loss and target off; contract cap and reward unit stay. High water is that of live equity."""
    off, no = jnp.int32(OFF), jnp.bool_(False)
    return account.replace(drawdown=off, daily_loss=off, target=off, floor_cap=off, min_days=jnp.int32(0),
                           stop_at_target=no, fail_on_daily_loss=no, trailing=jnp.int32(Trailing.INTRADAY))


def order_is_legal(state: EnvState, order: Order, params: EnvParams) -> Array:
    """bool[]: the order opens (or flips) only where calendar and account permit it, within the contract cap."""
    opens = (order.quantity != 0) & (jnp.sign(order.quantity) != jnp.sign(state.position.quantity))
    within = jnp.abs(order.quantity) <= params.account.max_contracts
    return (~opens | rules.may_open(state, params)) & within


def _account_end(state: EnvState, params: EnvParams) -> Array:
    """int32[] EndReason of an account: the ends of an episode that come from its rules."""
    reason = end_reason(state, params)
    by_rule = functools.reduce(jnp.logical_or, [reason == end for end in RULE_ENDS])
    return jnp.where(by_rule, reason, EndReason.NONE).astype(jnp.int32)


def _advance(
    env: TradingEnv, act: Act, forget: Forget, rewarded: bool, params: EnvParams, key: Array, renew: Array, loop: _Loop
) -> tuple[_Loop, Record]:
    """One decision bar, and the jump to the next session after the last one."""
    state = loop.state
    ref = env.ref(state, params)
    carry = forget(loop.carry, loop.first)
    carry, order, action = act(carry, state, ref, params, jax.random.fold_in(key, state.row))
    moved, event = env.transition(state, order, params)
    end = jnp.where(loop.over, EndReason.NONE, _account_end(moved, params)).astype(jnp.int32)
    over = loop.over | (end != EndReason.NONE)
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
        account=loop.number,
        active=~loop.over,
        end=end,
        target=rules.target_reached(moved.position, moved.account, params.account) & ~loop.over,
        reward=None if reward is None else jnp.where(loop.over, 0.0, reward),
    )
    locked = moved.replace(account=moved.account.replace(locked=moved.account.locked | over))
    jumped = next_session(moved.replace(account=select(over | renew, Account.new(), moved.account)), params)
    session_over = moved.row > params.market.sessions.last[params.sessions.ids[moved.slot]]
    episode_over = over | (jumped.sessions_left < 0)
    jumped = jumped.replace(sessions_left=jnp.where(episode_over, params.episode_sessions - 1, jumped.sessions_left),
                            record=select(episode_over, env.new_record(), jumped.record))
    return _Loop(
        state=select(session_over, jumped, locked),
        carry=carry,
        first=session_over & episode_over,
        over=over & ~session_over,
        number=loop.number + (over & session_over).astype(jnp.int32),
    ), record


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _scan(
    env: TradingEnv, act: Act, forget: Forget, length: int, rewarded: bool, carry: PyTree, params: EnvParams,
    key: Array, renew: Array
) -> Record:
    first = params.market.sessions.first[params.sessions.ids[0]]
    state = env.reset_at(params, 0, first)
    loop = _Loop(state, carry, jnp.bool_(True), jnp.bool_(False), jnp.int32(0))
    _, record = jax.lax.scan(
        lambda loop, _: _advance(env, act, forget, rewarded, params, key, renew, loop), loop, None, length=length)
    return record


def backtest(
    env: TradingEnv, agent: Agent, params: EnvParams, decisions: DecisionBars, which: Pass, key: Array,
    rewarded: bool = False
) -> Record:
    """Run one pass over all decision bars; leaves of the record are NumPy arrays.

    Args:
        params: its `sessions` must be the set that `decisions` were made from; the step limit does not count, and
            the episode's length only says when a policy forgets.
        key: typed; a bar draws from `fold_in(key, row)`, so both passes and repeated calls draw the same.
        rewarded: record rewards too, those of `params.reward_weights`.
    Raises:
        ConfigError: equity came near the int32 limit of mills.
        RuntimeError: a decision bar was missed or an account ended with a position (a bug, never the user's fault).
    """
    params, renew = _of_pass(params, which)
    record = jax.device_get(
        _scan(env, agent.act, agent.forget, len(decisions.rows), rewarded, agent.carry, params, key,
              jnp.bool_(renew)))
    return _checked(record, agent.name, decisions, renew)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _scans(
    env: TradingEnv, act: Act, forget: Forget, length: int, carries: PyTree, params: EnvParams, key: Array, renew: Array
) -> Record:
    def scan(carry: PyTree) -> Record:
        return _scan(env, act, forget, length, False, carry, params, key, renew)

    return jax.vmap(scan)(carries)


def backtests(
    env: TradingEnv, agent: Agent, params: EnvParams, decisions: DecisionBars, which: Pass, key: Array
) -> list[Record]:
    """`backtest` of several agents side by side as one program: those of `agent.carry`, stacked [n, ...].

    Each record is its agent's own, within the order of float sums (a policy that is undecided may then decide
    otherwise). Raises as `backtest`.
    """
    params, renew = _of_pass(params, which)
    records = jax.device_get(_scans(env, agent.act, agent.forget, len(decisions.rows), agent.carry, params, key,
                                    jnp.bool_(renew)))
    count = len(records.row)
    return [_checked(jax.tree.map(lambda x, i=i: x[i], records), f"{agent.name} {i + 1} of {count}", decisions, renew)
            for i in range(count)]


def _of_pass(params: EnvParams, which: Pass) -> tuple[EnvParams, bool]:
    """The parameters of a pass, and whether money is counted per session: where no rule looks back beyond the session,
    it is counted so on device and added up on the host, so that years of trading fit int32."""
    account = params.account if which == "account" else without_rules(params.account)
    renew = bool((account.drawdown >= OFF) & (account.target >= OFF))
    return params.replace(account=account, max_steps=jnp.int32(0)), renew


def _checked(record: Record, name: str, decisions: DecisionBars, renew: bool) -> Record:
    """The record with its money in int64, after what must hold of it was checked."""
    if not np.array_equal(record.row, decisions.rows):
        missed = len(np.setdiff1d(decisions.rows, record.row))
        raise RuntimeError(f"{name}: {missed} of {len(decisions.rows)} decision bars not visited in order")
    if np.any(record.quantity[record.end != EndReason.NONE]) or np.any(record.quantity[decisions.last]):
        raise RuntimeError(f"{name}: a position outlived its account or its session's flat bar")
    _check_money(record, name, decisions)
    return _added_up(record, decisions) if renew else _int64_money(record)


def _int64_money(record: Record) -> Record:
    return record.replace(equity=record.equity.astype(np.int64), high_water=record.high_water.astype(np.int64))


def _added_up(record: Record, decisions: DecisionBars) -> Record:
    """Money counted per session, carried on over the sessions of each account."""
    record = _int64_money(record)
    number, change = record.account[decisions.last], record.equity[decisions.last]
    before = np.cumsum(change) - change
    offset = (before - before[np.searchsorted(number, number)])[decisions.session]
    high_water = record.high_water + offset
    for account in np.unique(number):
        mine = record.account == account
        high_water[mine] = np.maximum.accumulate(high_water[mine])
    return record.replace(equity=record.equity + offset, high_water=high_water)


def _check_money(record: Record, name: str, decisions: DecisionBars) -> None:
    large = np.flatnonzero(np.abs(record.equity.astype(np.int64)) >= MONEY_LIMIT)
    if len(large):
        date = decisions.date[decisions.session[large[0]]]
        money = record.equity[large[0]] / 1000
        raise ConfigError(f"evaluation of '{name}': an account's equity moved by ${money:,.0f} by {date}, near the "
                          f"int32 limit of mills (${MONEY_LIMIT // 1000:,}); evaluate fewer sessions at a time or "
                          "lower env.quantity")
