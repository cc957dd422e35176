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
from jaxtrade.env.execution import quote_at
from jaxtrade.env.params import make_env, make_params
from jaxtrade.env.state import NO_LEVEL, OFF, EnvParams, EnvState, Event, Order
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.side_by_side import WIDTH
from jaxtrade.stream.rows import StreamRow, StreamRows
from jaxtrade.types import Array, SessionTable


class ReportedPosition(NamedTuple):
    """What a broker reports of one symbol: int32 numbers, prices in ticks.

    Money is in mills from the start balance, as in `env.state.Account`; `UNKNOWN` stands for money
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
    locked: 1 if no new position may be opened.
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
    locked: int = 0


FLAT, UNKNOWN = ReportedPosition(), OFF


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
        rates = load_rates(config.data, history.contract)
        market = build_market(history, config, rates=rates, on_device=False)
        self.env: TradingEnv = make_env(config)
        self.policy = policy
        self.config, self.contract = config, market.contract
        self.rows = StreamRows(market, config, config.env.window + 2)
        params = make_params(market, session_set(np.array([0]), 1), config)
        self._params = params.replace(market=None)
        self.carry: Any = None
        self._date = None
        self.row: StreamRow | None = None
        self._renew(flat=False)

    def push(self, bar: Bars) -> StreamRow:
        """Add one bar (`StreamRows.push`). Raises DataError for a bar that cannot follow."""
        self.row = self.rows.push(bar)
        self._renew(self.row.flat)
        if self.policy and bar.trade_dates[0] != self._date:
            self._date, self.carry = bar.trade_dates[0], self.policy.first_carry(WIDTH)
        return self.row

    def _renew(self, flat: bool) -> None:
        kept, base = self.rows.kept, self.rows.base
        count = len(kept.close)
        # One session of all these bars; after its row `last` comes the flat bar.
        table = [
            np.array([x], np.int32) for x in (0, count, 0, count - 2 if flat else count - 1, 0)
        ]
        market = kept.replace(
            sessions=SessionTable(*table, complete=np.array([True])),  # type: ignore[arg-type]
            fingerprint=np.zeros(8, np.uint32),
            view=kept.view.replace(base=np.int32(base) if base else None),
        )
        self.params: EnvParams = self._params.replace(market=market)

    def see(self, holding: ReportedPosition = FLAT) -> Seen:
        """Return what the policy sees at the newest bar with a position that a broker reports.

        The trade record that the task `advised` shows is that of a new account.
        """
        given = jax.tree.map(np.int32, holding)
        return _fetch(_see(self.env, self.params, given))

    def see_state(self, state: EnvState) -> Seen:
        """Return what the policy sees in a state of `step`."""
        return _fetch(_look(self.env, self.params, state))

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


def _fetch(found: tuple[EnvState, Array, Array]) -> Seen:
    state, observation, mask = found
    return Seen(state, np.asarray(observation), np.asarray(mask))


def _last(params: EnvParams) -> Array:
    return jnp.int32(params.market.close.shape[0] - 1)


@functools.partial(jax.jit, static_argnums=0)
def _look(env: TradingEnv, params: EnvParams, state: EnvState) -> tuple[EnvState, Array, Array]:
    ref = env.ref(state, params)
    return state, env.observe(ref, params), ref.mask


@functools.partial(jax.jit, static_argnums=0)
def _see(env: TradingEnv, params: EnvParams, holding: Any) -> tuple[EnvState, Array, Array]:
    return _look(env, params, state_of(env, params, holding))


def state_of(env: TradingEnv, params: EnvParams, holding: Any) -> EnvState:
    """Make the environment's state at the last row of a market from what a broker reports.

    holding: int32[] each.
    """
    row, side = _last(params), jnp.sign(holding.quantity)
    held = side != 0
    state = env.reset_at(params, 0, row)

    def where_held(value: Array) -> Array:
        return jnp.where(held, value, 0).astype(jnp.int32)

    position = state.position.replace(
        quantity=holding.quantity,
        entry=where_held(holding.entry),
        stop=where_held(jnp.where(holding.stop > 0, holding.stop, -side * NO_LEVEL)),
        target=where_held(jnp.where(holding.target > 0, holding.target, side * NO_LEVEL)),
        trailing=where_held(holding.trailing),
        opened=where_held(row - holding.bars + 1),
    )
    close = quote_at(params.market, row).leaving(side).close
    profit = rules.compute_unrealised(position, close, rules.contract_at(params, row))

    def value_or(value: Array, other: Array) -> Array:
        return jnp.where(value == UNKNOWN, other, value).astype(jnp.int32)

    equity = value_or(holding.equity, profit)
    account = state.account.replace(
        balance=equity - profit,
        equity=equity,
        high_water=jnp.maximum(value_or(holding.high_water, equity), 0),
        session_equity=value_or(holding.session_equity, equity),
    )
    limits = params.account
    ended = rules.at_drawdown_floor(account, limits) | rules.at_daily_floor(account, limits)
    account = account.replace(locked=ended | (holding.locked != 0))
    return state.replace(position=position, account=account)


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
    order, position = env.decode(action, state, params), state.position
    opens = (order.quantity != 0) & (jnp.sign(order.quantity) != jnp.sign(position.quantity))
    side = jnp.sign(order.quantity)
    price = quote_at(params.market, state.row).entering(side).close
    kept = jnp.where(order.move_stop > 0, order.move_stop, position.stop)

    def level(distance: Array, sign: int, old: Array) -> Array:
        new = jnp.where(distance > 0, price + sign * side * distance, 0)
        return jnp.where(opens, new, jnp.where(order.quantity == 0, 0, old))

    return order, (
        level(order.stop_ticks, -1, kept),
        level(order.target_ticks, 1, position.target),
    )
