"""The only evaluator. It steps every decision bar of a session set in time order, with the `transition` of training.

There are two passes, and every figure says from which one it comes. ACCOUNT: the account rules are on. After a bust, a
failed daily loss or a target, entries are locked and the rest of the session is stepped flat. A new account opens at
the next session. STRATEGY: the same agent with drawdown, daily loss and target off. Return, Sharpe ratio, drawdown and
trades come from this pass.

A policy's memory is reset where an episode would start in training: with each new account, and every
`episode.sessions` sessions. The trade record that the task `advised` shows is reset there too.
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
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Array, MarketData, PyTree, SessionSet

MONEY_LIMIT = OFF // 2  # beyond this |equity| one more bar could overflow int32
Leaf = Any  # jax.Array inside the scan, np.ndarray on the host
Pass = Literal["account", "strategy"]
RULE_ENDS = (EndReason.BUST, EndReason.DAILY_LOSS, EndReason.TARGET)


class Record(struct.PyTreeNode):
    """One row per decision bar, L in all. The decision is at the close of bar `row`; its effects happen in `row + 1`.

    row: int32[L] market row.
    ref: reference of the observation at the decision, ObservationRef with leaves [L, ...].
    action: int32[L] id of the action, or NO_ACTION.
    legal: bool[L] True if the mask allowed the action, and calendar and account permitted the order.
    carried, quantity: int32[L] position before and after bar `row + 1`, in contracts. stop: int32[L] its stop after it.
    event: Event with leaves [L].
    equity, high_water: mills after the bar; int32[L] in the scan, int64[L] on the host. `high_water` is the level that
        the drawdown floor follows, by the account's `Trailing`. A mark at the end of a session appears from the next
        session on.
    account: int32[L] number of the account, from 0. active: bool[L] True if it was still open when the bar began.
    end: int32[L] EndReason if the account ended in this bar, else NONE.
    target: bool[L] True if the realised profit has reached the target.
    reward: float32[L] as in training, 0 where not active. None (static) if it was not requested.
    target_level: int32[L] the position's target after bar `row + 1`, as `Position.target`.
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
    target_level: Leaf = None

    @property
    def mask(self) -> Leaf:
        """bool[L, A] legal actions at each decision."""
        return self.ref.mask


class _Loop(struct.PyTreeNode):
    state: EnvState
    carry: PyTree
    first: Array  # bool[]: an episode starts at this bar
    over: Array  # bool[]: the account has ended, and the rest of its session is stepped flat
    number: Array  # int32[]: number of accounts before this one


@dataclass(frozen=True)
class DecisionBars:
    """The L decision bars of a set of n sessions, on the host.

    rows: int64[L] market rows in time order. session: int64[L] number of each bar's session in the set, 0..n-1. ids:
    int64[n] rows of the session table. date: datetime64[D][n] trade dates. steps: number of bars that the compiled
    program steps, L or more. What it does beyond L is left out of the record. None: L.
    """

    rows: np.ndarray
    session: np.ndarray
    ids: np.ndarray
    date: np.ndarray
    steps: int | None = None

    @property
    def length(self) -> int:
        """The number of bars that the compiled program steps."""
        return len(self.rows) if self.steps is None else self.steps

    @property
    def last(self) -> np.ndarray:
        """int64[n] index (0..L-1) of the last decision bar of each session."""
        return np.append(np.flatnonzero(np.diff(self.session)), len(self.rows) - 1)


def decision_bars(market: MarketData, sessions: SessionSet, steps: int | None = None) -> DecisionBars:
    """Every decision bar of `sessions`. Raises DataError if the set is empty, repeats a session or is out of order.

    steps: see `DecisionBars`. The symbols of a set have the same number, so that one program serves them all.
    """
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
    if steps is not None and steps < len(rows):
        raise DataError(f"evaluation: steps={steps}, but the sessions have {len(rows)} decision bars; give as many")
    number = np.repeat(np.arange(len(ids)), last - first + 1)
    return DecisionBars(rows, number, ids, days.astype("datetime64[D]"), steps)


def without_rules(account: AccountParams) -> AccountParams:
    """The account rules of the STRATEGY pass: drawdown, daily loss and target off.

    The contract cap and the reward unit stay. The high-water mark follows live equity.
    """
    off, no = np.int32(OFF), np.bool_(False)
    return account.replace(drawdown=off, daily_loss=off, target=off, floor_cap=off, min_days=np.int32(0),
                           stop_at_target=no, fail_on_daily_loss=no, trailing=np.int32(Trailing.INTRADAY))


def order_is_legal(state: EnvState, order: Order, params: EnvParams) -> Array:
    """bool[]: True if the order stays within the contract cap, and if it opens (or flips) a position only where the
    calendar and the account permit it."""
    opens = (order.quantity != 0) & (jnp.sign(order.quantity) != jnp.sign(state.position.quantity))
    within = jnp.abs(order.quantity) <= params.account.max_contracts
    return (~opens | rules.may_open(state, params)) & within


def _account_end(state: EnvState, params: EnvParams) -> Array:
    """int32[] EndReason if the account's rules end it (bust, daily loss, target), else NONE."""
    reason = end_reason(state, params)
    by_rule = functools.reduce(jnp.logical_or, [reason == end for end in RULE_ENDS])
    return jnp.where(by_rule, reason, EndReason.NONE).astype(jnp.int32)


def _advance(
    env: TradingEnv, act: Act, forget: Forget, rewarded: bool, params: EnvParams, key: Array, renew: Array, loop: _Loop
) -> tuple[_Loop, Record]:
    """Step one decision bar; after the last one of a session also jump to the next session."""
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
        target_level=moved.position.target,
    )
    # After an account's end the session goes on without entries, so that both passes visit every decision bar.
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
    rewarded: bool = False, programs: Programs | None = None
) -> Record:
    """Run one pass over all decision bars. The leaves of the record are NumPy arrays.

    Args:
        params: its `sessions` must be the set from which `decisions` were made. The step limit is ignored. The length
            of an episode only determines when a policy's memory is reset.
        which: "account" or "strategy".
        key: typed key. Each bar draws from `fold_in(key, row)`, so both passes and repeated calls draw the same.
        rewarded: also record rewards, by `params.reward_weights`.
        programs: holds the program if `begin_backtest` was called for it. Else it is compiled here.
    Raises:
        ConfigError: equity came near the int32 limit of mills.
        RuntimeError: a decision bar was missed, or an account or a session ended with a position (a bug of this
            package, never the user's fault).
    """
    params, renew = _of_pass(params, which)
    static = (env, agent.act, agent.forget, decisions.length, rewarded)
    args = (agent.carry, params, key, np.bool_(renew))
    begun = None if programs is None else programs.begun(_scan, args, static)
    record = jax.device_get(_scan(*static, *args) if begun is None else begun.wait()(*args))
    return _checked(_cut(record, decisions), agent.name, decisions, renew)


def begin_backtest(
    programs: Programs, env: TradingEnv, agent: Agent, params: EnvParams, decisions: DecisionBars,
    rewarded: bool = False
) -> None:
    """Begin to compile the program of `backtest`, which serves both passes, with any random key.

    Agents with one `act` share a program, which is begun once. agent: its carry may be abstract
    (`jax.ShapeDtypeStruct`). It must be an agent that the configuration determines, because its name stands for what
    it does in the key of a kept program.
    """
    params, renew = _of_pass(params, "account")
    length = decisions.length
    static = (env, agent.act, agent.forget, length, rewarded)
    args = (agent.carry, params, jax.random.key(0), np.bool_(renew))
    if programs.begun(_scan, args, static) is None:
        name = f"evaluation of {agent.name}, {length} bars" + (", with rewards" if rewarded else "")
        programs.begin(name, _scan, args, static, later=True)


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
    """`backtest` of n agents as one program. They differ only by their carries: `agent.carry` is stacked [n, ...].

    Each record is that of the agent alone, up to the rounding of float sums. A policy that is almost undecided between
    two actions may therefore act differently. Raises as `backtest`.
    """
    params, renew = _of_pass(params, which)
    records = jax.device_get(_scans(env, agent.act, agent.forget, decisions.length, agent.carry, params, key,
                                    jnp.bool_(renew)))
    count = len(records.row)
    each = [_cut(jax.tree.map(lambda x, i=i: x[i], records), decisions) for i in range(count)]
    return [_checked(record, f"{agent.name} {i + 1} of {count}", decisions, renew) for i, record in enumerate(each)]


def _of_pass(params: EnvParams, which: Pass) -> tuple[EnvParams, bool]:
    """(parameters of a pass, whether the device counts money per session).

    If no rule looks back beyond the session, each session starts from 0 on device, and the host adds the sessions up in
    int64. Years of trading then fit int32.
    """
    account = params.account if which == "account" else without_rules(params.account)
    renew = bool(np.asarray(account.drawdown) >= OFF and np.asarray(account.target) >= OFF)
    return params.replace(account=account, max_steps=np.int32(0), monitor=False), renew


def _cut(record: Record, decisions: DecisionBars) -> Record:
    """The record without what the program stepped beyond the last decision bar. No bar depends on a later one."""
    count = len(decisions.rows)
    return record if decisions.length == count else jax.tree.map(lambda x: x[:count], record)


def _checked(record: Record, name: str, decisions: DecisionBars, renew: bool) -> Record:
    """Check the invariants of a record, and return it with its money in int64. Raises as `backtest`."""
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
    """Turn money that was counted per session into running totals over the sessions of each account."""
    record = _int64_money(record)
    number, change = record.account[decisions.last], record.equity[decisions.last]
    before = np.cumsum(change) - change
    offset = (before - before[np.searchsorted(number, number)])[decisions.session]
    high_water = record.high_water + offset
    for account in np.unique(number):
        rows = record.account == account
        high_water[rows] = np.maximum.accumulate(high_water[rows])
    return record.replace(equity=record.equity + offset, high_water=high_water)


def _check_money(record: Record, name: str, decisions: DecisionBars) -> None:
    large = np.flatnonzero(np.abs(record.equity.astype(np.int64)) >= MONEY_LIMIT)
    if len(large):
        date = decisions.date[decisions.session[large[0]]]
        money = record.equity[large[0]] / 1000
        raise ConfigError(f"evaluation of '{name}': an account's equity moved by ${money:,.0f} by {date}, near the "
                          f"int32 limit of mills (${MONEY_LIMIT // 1000:,}); evaluate fewer sessions at a time or "
                          "lower env.quantity")
