"""The environment's pytrees: state, parameters, orders, events.

Units: prices int32 ticks; money int32 mills relative to the start balance; quantities signed contracts.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import jax.numpy as jnp
from flax import struct

from jaxtrade.advisor.table import AdviceView
from jaxtrade.types import Array, MarketData, PyTree, SessionSet
from jaxtrade.types import EndReason as EndReason  # its home for everything above the environment

NO_LEVEL = 1 << 29  # further than any price: `-side * NO_LEVEL` is a stop that is never touched
OFF = 1 << 30  # a money limit that is switched off
KEEP_STOP = -(1 << 31)  # Order.move_stop: leave the stop where it is


class ExitReason(enum.IntEnum):
    """Why a position was closed. 0 in an event: none was closed."""

    NONE = 0
    ORDER = 1  # CLOSE, or the old side of a flip: at the open
    STOP = 2
    BREAKEVEN = 3  # stop that had been moved to break-even
    TRAIL = 4  # stop that the trail had ratcheted
    TARGET = 5
    LIQUIDATION = 6  # drawdown or daily-loss floor
    FLAT = 7  # the session's flat bar
    END_OF_DATA = 8


class StopKind(enum.IntEnum):
    """What last moved a stop. ExitReason.STOP plus this is the reason of the exit."""

    INITIAL = 0
    BREAKEVEN = 1
    TRAIL = 2


class Trailing(enum.IntEnum):
    """When the high-water mark may rise. The drawdown floor follows it."""

    STATIC = 0  # never: the floor stays at start - drawdown
    END_OF_DAY = 1  # when a session ends, to its closing equity
    INTRADAY = 2  # at every mark of live equity, open profit included


class Position(struct.PyTreeNode):
    """One symbol's open position; all int32[]. `quantity` 0 means flat, and then the rest is 0.

    entry: fill price (slippage included). stop, target: levels, or -/+ side * NO_LEVEL for none.
    stop_kind: StopKind. trailing: 0 or 1. opened: row of the entry bar.
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
        """No position."""
        zero = jnp.int32(0)
        return cls(zero, zero, zero, zero, zero, zero, zero)


class Account(struct.PyTreeNode):
    """Money in mills relative to the start balance, int32[]; flags bool[].

    balance: realised, all commissions paid so far included. equity: balance plus the open position marked at the last
    close (no exit costs). high_water: highest equity marked so far (>= 0), by what `Trailing` marks. session_equity:
    equity when this session opened. locked: no new entries until the next session. days: trade dates with a fill.
    traded: this session had one.
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
        """At the start balance, nothing filled, nothing locked."""
        zero, no = jnp.int32(0), jnp.bool_(False)
        return cls(zero, zero, zero, zero, no, zero, no)


class Marks(NamedTuple):
    """What a leg, or all of an account's legs together, was worth in a bar, apart from what it began with; int32[]
    mills, no exit costs.

    high: the most that profit realised in the bar plus open profit was marked at. close: open profit at the close.
    """

    high: Array
    close: Array


class EpisodeStats(struct.PyTreeNode):
    """Running figures of one episode, reset with it. Money in mills.

    reward: float32[] undiscounted sum. Others int32[]: length (steps), trades (round turns closed), wins (closed with
    net profit), sides (contract sides filled), commission, breaches, illegal (illegal actions received),
    max_drawdown (largest fall of close-marked equity from its highest close). peak: that highest close (mills).
    terms: name -> float32[] sum of each weighted reward term.
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


class TradeRecord(struct.PyTreeNode):
    """How the account has traded in this episode, as the task `advised` shows it; int32[], money in mills.

    balance: realised profit since the episode began. peak: its highest at a bar's end, at least 0. losses: closed
    trades in a row, up to now, that did not win. recent: results of the last ten closed trades, the latest in bit 0, 1
    for a win. closed: how many of the ten there are. adverse, favourable: ticks that the open position has been marked
    against and for it at most, from its entry fill; 0 when flat.
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

    row: int32[] bar at whose close the next decision is taken. slot: int32[] index into the session set.
    sessions_left: int32[] sessions of this episode after the current one. time: int32[] steps taken in the episode.
    seed: uint32[] and episode: int32[]: episode starts are `draw(seed, episode)`, so a reset is a table look-up.
    record: what the task remembers (`Task.record`; of `advised` a `TradeRecord`), None (static) where it keeps none.
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
    """What a task, baseline or user wants to hold from the open of the next bar on; all int32[].

    quantity: signed position wanted; the present one to keep it. A change of side closes, then opens.
    stop_ticks, target_ticks: distances of the bracket of a *new* position from the unslipped open; 0 for none.
    move_stop: new stop level of the present position, or KEEP_STOP. trail: 1 on, 0 off, -1 as it is.
    """

    quantity: Array
    stop_ticks: Array
    target_ticks: Array
    move_stop: Array
    trail: Array


class Event(struct.PyTreeNode):
    """Fills and marks of one bar; int32[], prices in ticks, quantities with the sign of the position.

    order_exit_*: position closed by order at the open. entry_*: position opened. exit_*: position left by a stop,
    target, liquidation or forced exit. commission: mills, all sides filled in this bar. favourable, adverse: extreme
    prices at which the position held in this bar was marked (the bar's open where nothing was held).
    floor: drawdown floor after this bar (mills). breach: bool[], equity reached a floor (drawdown or daily).
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
    """What a step reports beside reward and ends. XLA removes the parts that nothing reads.

    forced: bool[] a new episode begins after this step, and it begins with a forced entry; None (static) where
    `EnvParams.forced_start` is.
    """

    event: Event
    stats: EpisodeStats  # of the episode this step belonged to, this step included
    equity: Array  # int32[] mills at this bar's close, before any reset
    end: Array  # int32[] EndReason
    terms: dict[str, Array]  # name -> float32[] weighted reward terms of this step
    illegal: Array  # bool[] the action was not in the environment's own mask
    forced: Array | None = None


class ContractParams(struct.PyTreeNode):
    """Traced figures of one contract; int32[] but tick_size.

    tick_mills: money of one tick of one contract; None where the market converts profits, until `rules.contract_at`
    puts a bar's fraction tick_mills / tick_over there. commission: mills per side per contract. slippage: ticks.
    min_stop: ticks. be_ticks: break-even stop beyond the entry fill, ticks. tick_size: float32[] points.
    tick_over: None is 1.
    """

    tick_mills: Array | None
    commission: Array
    slippage: Array
    min_stop: Array
    be_ticks: Array
    tick_size: Array
    tick_over: Array | None = None


class AccountParams(struct.PyTreeNode):
    """Traced rules of an account, mills; int32[] and bool[].

    drawdown, daily_loss, target: distances from the high-water mark, the session's opening equity, the start balance;
    OFF where there is none. floor_cap: the drawdown floor never rises above it (OFF: no cap).
    risk_unit: float32[] mills per unit of reward. start_balance: float32[] mills, for rewards that are shares of it.
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
    """int32[]: stop and trail in thousandths of ATR, target as a multiple of the stop."""

    stop_atr: Array
    target_multiple: Array
    trail_atr: Array


class EnvParams(struct.PyTreeNode):
    """The traced half of the environment: market, split, contract, account, brackets, weights.

    reward_weights: reward term -> float32[]; the names are static (they decide what is compiled), the weights are not.
    episode_sessions, max_steps: int32[] (0: no step limit).
    forced_start: float32[] probability that a drawn episode starts in a position; None (static: not compiled) in
    evaluation, and in training without that stage.
    advice: an advisor's advice on the market's bars; None (static) where there is no advisor.
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
