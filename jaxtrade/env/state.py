"""The environment's pytrees: state, parameters, orders, events.

Units: prices int32 ticks; money int32 mills relative to the start balance; quantities signed
    contracts.
"""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct

from jaxtrade.advisor.table import AdviceView
from jaxtrade.text import short_repr
from jaxtrade.types import Array, MarketData, PyTree, SessionSet
from jaxtrade.types import (
    EndReason as EndReason,
)  # defined in `types`, because the training loop needs it too

NO_LEVEL = 1 << 29  # further than any price: `-side * NO_LEVEL` is a stop that is never touched
OFF = 1 << 30  # a money limit that is switched off
KEEP_STOP = -(1 << 31)  # Order.move_stop: leave the stop where it is


class ExitReason(enum.IntEnum):
    """Why a position was closed. NONE in an event means that no position was closed."""

    NONE = 0
    ORDER = 1  # by an order (CLOSE, or the old side of a flip)
    STOP = 2
    BREAKEVEN = 3  # a stop that was moved to break-even
    TRAIL = 4  # a stop that was tightened by the trail
    TARGET = 5
    LIQUIDATION = 6  # drawdown or daily-loss floor
    FLAT = 7  # the session's flat bar
    END_OF_DATA = 8


class StopKind(enum.IntEnum):
    """How a stop was last moved. ExitReason.STOP plus this value is the reason of the exit."""

    INITIAL = 0
    BREAKEVEN = 1
    TRAIL = 2


class Trailing(enum.IntEnum):
    """When the high-water mark may rise. The drawdown floor follows it."""

    STATIC = 0  # never: the floor stays at start - drawdown
    END_OF_DAY = 1  # when a session ends, to its closing equity
    INTRADAY = 2  # at every mark of live equity, open profit included


class Position(struct.PyTreeNode):
    """The open position in one symbol; all int32[].

    `quantity` 0 means flat; all other fields are then 0.

    entry: fill price (slippage included).
    stop, target: levels, or -/+ side * NO_LEVEL for none.
    stop_kind: StopKind.
    trailing: 0 or 1.
    opened: row of the entry bar.
    """

    quantity: Array
    entry: Array
    stop: Array
    target: Array
    stop_kind: Array
    trailing: Array
    opened: Array

    @classmethod
    def flat(cls) -> Position:
        """Return no position."""
        return cls(*[jnp.int32(0)] * 7)


class Account(struct.PyTreeNode):
    """The account. Money is mills relative to the start balance, int32[]; flags are bool[].

    balance: realised profit less all commissions so far.
    equity: balance plus the open position marked at the last close, without exit costs.
    high_water: highest marked equity (>= 0); `Trailing` says which marks count.
    session_equity: equity at the start of this session.
    locked: no new entries until the next session.
    days: number of trade dates with a fill.
    traded: True if this session had a fill.
    """

    balance: Array
    equity: Array
    high_water: Array
    session_equity: Array
    locked: Array
    days: Array
    traded: Array

    @classmethod
    def new(cls) -> Account:
        """Open a new account at the start balance, without fills or locks."""
        zero, no = jnp.int32(0), jnp.bool_(False)
        return cls(zero, zero, zero, zero, no, zero, no)


class Marks(NamedTuple):
    """Marks of one leg or of all legs of an account, in one bar.

    int32[] mills, without exit costs.

    high: highest mark of the profit realised in the bar plus open profit.
    close: open profit at the close.
    """

    high: Array
    close: Array


class EpisodeMonitor(struct.PyTreeNode):
    """What the episode monitor counts besides; float32[] (`env.monitor`).

    notional: mills traded, the sum over fills of quantity x price x value of a tick.
    mean, squares: of the changes of equity per step in mills, their mean and the sum of squared
        differences from it.
    """

    notional: Array
    mean: Array
    squares: Array


class EpisodeStats(struct.PyTreeNode):
    """Running metrics of one episode. Money is mills.

    reward: float32[] undiscounted sum. All others are int32[]: length (steps), trades (closed round
        turns), wins (round turns with a net profit), sides (contract sides filled), commission,
        breaches, illegal (illegal actions received), max_drawdown (largest drop of equity at closes
        below its peak), peak (highest equity at a close).
    terms: name -> float32[] sum of each weighted reward term.
    monitor: None (static) unless `EnvParams.monitor`.
    """

    reward: Array
    length: Array
    trades: Array
    wins: Array
    sides: Array
    commission: Array
    breaches: Array
    illegal: Array
    max_drawdown: Array
    peak: Array
    terms: dict[str, Array]
    monitor: EpisodeMonitor | None = None


class TradeRecord(struct.PyTreeNode):
    """The trade record of this episode, which the task `advised` shows; int32[], money in mills.

    balance: realised profit since the start of the episode.
    peak: its highest value at the end of a bar, at least 0.
    losses: length of the current run of closed trades without a win.
    recent: results of the last ten closed trades as bits, 1 for a win, the latest in bit 0.
    closed: number of trades in `recent`, at most ten.
    adverse, favourable: largest move against and in favour of the open position, in ticks from its
        entry fill; 0 when flat.
    """

    balance: Array
    peak: Array
    losses: Array
    recent: Array
    closed: Array
    adverse: Array
    favourable: Array


class EnvState(struct.PyTreeNode):
    """The whole state of one environment between two bars.

    row: int32[] bar at whose close the next decision is taken.
    slot: int32[] index into the session set.
    sessions_left: int32[] sessions of this episode after the current one.
    time: int32[] steps of the episode so far.
    seed: uint32[], episode: int32[]. Episode starts are `draw(seed, episode)`, so a reset is a
        table look-up.
    record: the task's own record (`Task.record`; a `TradeRecord` for `advised`). None (static) if
        the task has none.
    """

    row: Array
    slot: Array
    sessions_left: Array
    time: Array
    position: Position
    account: Account
    stats: EpisodeStats
    seed: Array
    episode: Array
    record: PyTree = None


class Order(struct.PyTreeNode):
    """An order of a task, a baseline or a user for the next bar; all int32[].

    quantity: wanted position, signed. The current quantity keeps the position. A change of side
        closes, then opens.
    stop_ticks, target_ticks: distances of the bracket of a *new* position from the price without
        slippage; 0 for none.
    move_stop: new stop level of the current position, or KEEP_STOP.
    trail: 1 on, 0 off, -1 unchanged.
    """

    quantity: Array
    stop_ticks: Array
    target_ticks: Array
    move_stop: Array
    trail: Array


class Event(struct.PyTreeNode):
    """Fills and marks of one bar.

    int32[], prices in ticks, quantities with the sign of the position.

    order_exit_*: position closed by an order.
    entry_*: position opened.
    exit_*: position closed by a stop, a target, a liquidation or a forced exit.
    commission: mills, over all sides filled in this bar.
    favourable, adverse: best and worst price at which the position was marked in this bar; the
        bar's open if there was none.
    floor: drawdown floor after this bar (mills).
    breach: bool[], True if equity reached a floor (drawdown or daily loss).
    """

    order_exit_quantity: Array
    order_exit_price: Array
    entry_quantity: Array
    entry_price: Array
    exit_quantity: Array
    exit_price: Array
    exit_reason: Array
    commission: Array
    favourable: Array
    adverse: Array
    floor: Array
    breach: Array


class StepInfo(struct.PyTreeNode):
    """Further results of a step.

    They cost nothing if unused, because XLA removes what nothing reads.

    forced: bool[], True if a new episode starts after this step, with a forced entry. None (static)
        if without `EnvParams.forced_start`.
    """

    event: Any  # an `Event` or a `PortfolioEvent`
    stats: EpisodeStats  # those of the step's own episode, this step included
    equity: Array  # int32[] mills at this bar's close, before any reset
    end: Array  # int32[] EndReason
    terms: dict[str, Array]  # name -> float32[] weighted reward terms of this step
    illegal: Array  # bool[] True if the environment's own mask forbade the action
    forced: Array | None = None


class ContractParams(struct.PyTreeNode):
    """Traced parameters of one contract; int32[] except tick_size.

    tick_mills, tick_over: one tick of one contract is worth tick_mills / tick_over mills. A
        tick_over of None means 1. In a market that converts profits, tick_mills is absent until
        `rules.contract_at` sets both for a bar.
    commission: mills per side and contract.
    slippage: ticks.
    min_stop: ticks.
    be_ticks: distance of a break-even stop beyond the entry fill, ticks.
    tick_size: float32[] points.

    In a set of symbols each leaf has a leading axis of symbols, and `rules.contract_at` picks that
    of a bar.

    cap: the largest number of contracts of an entry. None (static) for one symbol, where
        `AccountParams.max_contracts` is it.
    """

    tick_mills: Array | None
    commission: Array
    slippage: Array
    min_stop: Array
    be_ticks: Array
    tick_size: Array
    tick_over: Array | None = None
    cap: Array | None = None


class AccountParams(struct.PyTreeNode):
    """Traced rules of an account; mills, int32[] and bool[].

    drawdown: distance from the high-water mark.
    daily_loss: distance from the equity at the start of the session.
    target: distance from the start balance. OFF switches a limit off.
    floor_cap: upper limit of the drawdown floor (OFF: none).
    min_days: trade dates with a fill that the target needs.
    risk_unit: float32[] mills per unit of reward.
    start_balance: float32[] mills, for reward terms that are shares of it.
    trailing: int32[] `Trailing`.
    """

    drawdown: Array
    daily_loss: Array
    target: Array
    floor_cap: Array
    min_days: Array
    stop_at_target: Array
    fail_on_daily_loss: Array
    max_contracts: Array
    risk_unit: Array
    start_balance: Array
    trailing: Array


class BracketParams(struct.PyTreeNode):
    """Bracket of a new position, int32[].

    Stop and trail in thousandths of an ATR, target as a multiple of the stop.
    """

    stop_atr: Array
    target_multiple: Array
    trail_atr: Array


class EnvParams(struct.PyTreeNode):
    """The traced part of the environment: market, split, contract, account, brackets, weights.

    reward_weights: reward term -> float32[]. The names are static, so only these terms are
        compiled; the weights are traced.
    episode_sessions: int32[] sessions per episode.
    max_steps: int32[] step limit of an episode, 0 for none.
    forced_start: float32[] probability that a drawn episode starts in a position. None (static) in
        evaluation, and in training without this stage.
    advice: an advisor's advice on the bars. None (static) without an advisor.
    symbol_weights: float32[M], the share of each symbol that the learner wants. None (static)
        without such shares.
    impact: of a shared market, an `env.shared.ImpactParams`. None (static) if each agent has a
        market of its own.
    monitor: whether episodes count what the episode monitor shows (static).
    """

    market: MarketData
    sessions: SessionSet
    contract: ContractParams
    account: AccountParams
    brackets: BracketParams
    reward_weights: dict[str, Array]
    episode_sessions: Array
    max_steps: Array
    forced_start: Array | None = None
    advice: AdviceView | None = None
    symbol_weights: Array | None = None
    impact: PyTree = None
    monitor: bool = struct.field(pytree_node=False, default=False)

    def __repr__(self) -> str:
        """Shapes only: the leaves may be of any type, as inside of jit."""
        weights = self.reward_weights
        return short_repr(
            "EnvParams",
            f"market of {_size(self.market, 'close')} bars",
            f"split padded to {_size(self.sessions, 'ids')} sessions",
            *([f"reward: {', '.join(weights)}"] if isinstance(weights, dict) else []),
            "with advice" if self.advice is not None else "without advice",
        )


def _size(part: object, name: str) -> str:
    shape = getattr(getattr(part, name, None), "shape", None)
    return f"{shape[-1]:,}" if shape else "?"


# What a rollout stores of an observation, and the names of its slots. Tasks and observations are
# built on both.


class ObservationRef(struct.PyTreeNode):
    """The form in which a rollout stores an observation.

    row: int32[S] market row.
    legs: int32[S, 5] quantity, entry, stop, target, bars in position.
    legal: uint8[ceil(A / 8)], bits of the mask.
    account: the visible part of the task's record (an `AccountSeen` for `advised`), None (static)
        without a record.
    aux: the visible advice (`AdviceSeen`), None (static) without an advisor.
    num_actions: A (static).
    """

    row: Array
    legs: Array
    account: Any
    legal: Array
    aux: Any
    num_actions: int = struct.field(pytree_node=False)

    @property
    def mask(self) -> Array:
        """bool[..., A]: the legal actions of one reference or of stacked references."""
        return jnp.stack([self.allows(i) for i in range(self.num_actions)], axis=-1)

    def allows(self, action: int) -> Array:
        """Return whether one action is legal (bool[...])."""
        return ((self.legal[..., action // 8] >> (action % 8)) & 1).astype(bool)


def bits_of(mask: Array) -> Array:
    """Pack a mask bool[..., A] into uint8[..., ceil(A / 8)]. Action 8 i + j is bit j of byte i."""

    def byte(first: int) -> Array:
        bits = [
            mask[..., i].astype(jnp.uint8) << (i - first)
            for i in range(first, min(first + 8, mask.shape[-1]))
        ]
        return functools.reduce(jnp.bitwise_or, bits)

    return jnp.stack([byte(first) for first in range(0, mask.shape[-1], 8)], axis=-1)


@dataclass(frozen=True)
class Slot:
    """One entry of the observation vector.

    warm_up: bars of data before its first valid value.
    minimum, maximum: bounds that no value passes.
    """

    name: str
    unit: str
    warm_up: int
    meaning: str = ""
    minimum: float = -math.inf
    maximum: float = math.inf
