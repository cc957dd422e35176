"""A policy on bars that arrive one at a time: what it sees, what it may do, and what it does."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.data.bars import Bars
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import load_rates
from jaxtrade.data.splits import session_set
from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.execution import (
    LegBar,
    LegInBar,
    amend,
    empty_event,
    enter,
    exit_by_order,
    quote_at,
    select,
)
from jaxtrade.env.params import make_env, make_params
from jaxtrade.env.state import NO_LEVEL, OFF, EnvParams, EnvState, Event, Order
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import check_market
from jaxtrade.evaluation.side_by_side import WIDTH
from jaxtrade.stream.rows import StreamRow, StreamRows
from jaxtrade.types import Array


class ReportedPosition(NamedTuple):
    """What a broker reports of one symbol: int32 numbers, prices in ticks.

    Money is in mills from the start balance, as in `env.state.Account`; `OFF` stands for money
    that is not reported.

    quantity: signed contracts; 0 is flat, and what belongs to a position is then ignored.
    entry: fill price.
    stop, target: levels, 0 for none.
    trailing: 1 while the stop trails.
    bars: bars closed since the entry, the bar of the entry included.
    equity: open profit included. Unknown: that of an account which has only this position.
    high_water: the highest equity. Unknown: the equity now, or the start balance.
    session_equity: equity when the session began. Unknown: the equity now, so that no loss of
        today counts against the daily limit.
    """

    quantity: int = 0
    entry: int = 0
    stop: int = 0
    target: int = 0
    trailing: int = 0
    bars: int = 1
    equity: int = OFF
    high_water: int = OFF
    session_equity: int = OFF


FLAT = ReportedPosition()


class Seen(NamedTuple):
    """A state of the environment at the newest bar, and what the agent sees of it.

    observation: float32[D]. mask: bool[A].
    """

    state: EnvState
    observation: np.ndarray
    mask: np.ndarray


class Decision(NamedTuple):
    """What a policy decides at the close of the newest bar.

    action: its name.
    probabilities: float32[A] with which the policy would draw each action; None if its learner does
        not tell.
    order: of `env.decode`.
    stop, target: levels in ticks while or after the order is filled, None for none. Those of a new
        position are as if it were filled at this close; its bracket is set from its fill.
    """

    action: str
    probabilities: np.ndarray | None
    order: Order
    stop: int | None
    target: int | None
    seen: Seen


class Stream:
    """A market that grows bar by bar, and a policy on it.

        stream = Stream(run.config, history, run.policy)
        row = stream.push(bar)
        if row.decides:
            decision = stream.decide(ReportedPosition(quantity=1, entry=..., stop=..., target=...))

    Every row has the bytes of that row of `build_market` over all bars. `see` and `decide` compile
    once, whatever bar comes.

    A simulated broker needs `step` besides: it is the environment's `transition` from the bar before
    to the newest one. `params.market` holds the last `env.window + 2` bars, the newest in its last
    row; so a state of the bar before moves to the row before the last, and its order is filled in
    the newest bar:

        seen = stream.see()  # a new account, flat
        while bar := feed():
            order = stream.decide_at(seen).order
            stream.push(bar)
            state, event = stream.step(seen.state, order)
            seen = stream.see_state(state)

    Raises ConfigError for env.task=allocate, several symbols, or data.calendar=infer, and what
    `build_market` raises, such as DataError for a history with too few bars for one decision.

    config: of one symbol.
    history: the bars so far.
    policy: may be None if nothing is decided here.
    """

    def __init__(
        self, config: RunConfig, history: Bars, policy: LoadedPolicy | None = None
    ) -> None:
        if config.env.joint or len(config.data.markets) > 1:
            raise ConfigError(
                "a stream is of one symbol: env.task=allocate holds several, and of data.markets one has "
                "to be chosen (--symbol; in Python, data.members.member_configs)"
            )
        if config.env.intrabar == "path":  # it orders the fills inside a bar, and shows in no row
            config = changed_config(config, {"env.intrabar": "stop_first"}, stored=True)
        if not len(history):
            raise DataError(f"{history.source}: no bar; a stream begins with a history")
        rates = load_rates(config.data, history.contract)
        market = build_market(history, config, rates=rates, on_device=False)
        self.env: TradingEnv = make_env(config)
        if policy and len(policy.symbols) == 1:
            check_market(self.env, market, policy.schema, history.source)
        self.config, self.contract, self.policy = config, market.contract, policy
        self.has_volume = market.has_volume
        self.rows = StreamRows(market, config, config.env.window + 2)
        params: EnvParams = make_params(market, session_set(np.array([0]), 1), config)
        self.params = params.replace(market=self.rows.kept)
        self.carry: Any = None

    def push(self, bar: Bars) -> StreamRow:
        """Add one bar (`StreamRows.push`). Raises DataError for a bar that cannot follow."""
        before = self.rows.bar.trade_dates
        row = self.rows.push(bar)
        self.params = self.params.replace(market=self.rows.kept)
        if bar.trade_dates != before:
            self.carry = None
        return row

    def see(self, holding: ReportedPosition = FLAT) -> Seen:
        """Return what the policy sees at the newest bar with a position that a broker reports.

        The trade record that the task `advised` shows is that of a new account.
        """
        given = jax.tree.map(np.int32, holding)
        return self.see_state(_state(self.env, self.params, given))

    def see_state(self, state: EnvState) -> Seen:
        """Return what the policy sees in a state of `step`."""
        return Seen(state, *map(np.asarray, _look(self.env, self.params, state)))

    def step(self, state: EnvState, order: Order) -> tuple[EnvState, Event]:
        """Fill an order of the bar before in the newest bar.

        The state after it is at the newest bar; where a session begins, `rules.open_session` of its
        account is due.

        state: at the bar before, from `see` or `step`.
        """
        return _step(self.env, self.params, state, order)

    def decide(self, holding: ReportedPosition = FLAT) -> Decision:
        """Return what the policy does at the newest bar. Raises ConfigError without a policy."""
        return self.decide_at(self.see(holding))

    def decide_at(self, seen: Seen) -> Decision:
        """Return what the policy does with what it sees.

        A policy with a memory remembers the decisions of this trade date.
        """
        if self.policy is None:
            raise ConfigError(
                "this stream has no policy; give one: Stream(config, history, policy)"
            )
        # The policy decides in blocks of `WIDTH` rows, as in an evaluation.
        observation, mask = (np.repeat(x[None], WIDTH, 0) for x in (seen.observation, seen.mask))
        if self.carry is None:
            self.carry = self.policy.first_carry(WIDTH)
        self.carry, actions, chances = self.policy.decide(self.carry, observation, mask)
        order, levels = jax.device_get(
            _order(self.env, self.params, seen.state, np.int32(actions[0]))
        )
        stop, target = (int(x) if 0 < x < NO_LEVEL else None for x in levels)
        return Decision(
            self.env.actions[actions[0]],
            None if chances is None else chances[0],
            order,
            stop,
            target,
            seen,
        )


def _last(params: EnvParams) -> Array:
    return jnp.int32(params.market.close.shape[0] - 1)


@functools.partial(jax.jit, static_argnums=0)
def _look(env: TradingEnv, params: EnvParams, state: EnvState) -> tuple[Array, Array]:
    ref = env.ref(state, params)
    return env.observe(ref, params), ref.mask


@functools.partial(jax.jit, static_argnums=0)
def _state(env: TradingEnv, params: EnvParams, holding: Any) -> EnvState:
    """Make the state at the last row of a market from a `ReportedPosition` of int32[] each."""
    row, side = _last(params), jnp.sign(holding.quantity)
    state = env.reset_at(params, 0, row)
    reported = state.position.replace(
        quantity=holding.quantity,
        entry=holding.entry,
        stop=jnp.where(holding.stop > 0, holding.stop, -side * NO_LEVEL),
        target=jnp.where(holding.target > 0, holding.target, side * NO_LEVEL),
        trailing=holding.trailing,
        opened=row - holding.bars + 1,
    )
    position = select(side != 0, reported, state.position)
    close = quote_at(params.market, row).leaving(side).close
    profit = rules.compute_unrealised(position, close, rules.contract_at(params, row))

    def value_or(value: Array, other: Array) -> Array:
        return jnp.where(value == OFF, other, value)

    equity = value_or(holding.equity, profit)
    account = state.account.replace(
        balance=equity - profit,
        equity=equity,
        high_water=jnp.maximum(value_or(holding.high_water, equity), 0),
        session_equity=value_or(holding.session_equity, equity),
    )
    limits = params.account
    ended = rules.at_drawdown_floor(account, limits) | rules.at_daily_floor(account, limits)
    return state.replace(position=position, account=account.replace(locked=ended))


@functools.partial(jax.jit, static_argnums=0)
def _step(
    env: TradingEnv, params: EnvParams, state: EnvState, order: Order
) -> tuple[EnvState, Event]:
    row, position = _last(params) - 1, state.position
    moved = position.opened - (state.row - row)
    position = position.replace(opened=jnp.where(position.quantity != 0, moved, 0))
    return env.transition(state.replace(row=row, position=position), order, params)


@functools.partial(jax.jit, static_argnums=0)
def _order(
    env: TradingEnv, params: EnvParams, state: EnvState, action: Array
) -> tuple[Order, tuple[Array, Array]]:
    """Return an order, and (stop, target) as if it were filled at this close."""
    order, row = env.decode(action, state, params), state.row
    quote = quote_at(params.market, row)
    price = quote.entering(jnp.sign(order.quantity)).close
    zero, contract = jnp.int32(0), rules.contract_at(params, row)
    leg = LegInBar(amend(state.position, order), zero, None, empty_event(price), contract)
    size = jnp.abs(order.quantity)
    bar = LegBar(row, quote, None, jnp.bool_(True), size, zero, zero, None)
    filled = enter(exit_by_order(leg, order, price), order, bar, price).position
    return order, (filled.stop, filled.target)
