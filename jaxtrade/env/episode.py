"""Episodes: starts, ends, statistics, and the trade record that the task `advised` shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.env import monitor, rules
from jaxtrade.env.rewards import DOLLARS, total
from jaxtrade.env.rules import money_of
from jaxtrade.env.state import (
    Account,
    AccountParams,
    ContractParams,
    EndReason,
    EnvParams,
    EnvState,
    EpisodeStats,
    Event,
    Position,
    Slot,
    TradeRecord,
)
from jaxtrade.parts import SAMPLERS
from jaxtrade.types import Array

# The trade record of an episode, and the five risk slots that the task `advised` shows of it.

RISKS = (
    Slot("unrealised_profit", "account", 0, "open profit"),
    Slot("balance_drawdown", "account", 0, "realised profit below its peak", 0),
    Slot("losses_in_a_row", "account", 0, "closed trades since the last win", 0),
    Slot("recent_win_rate", "account", 0, "wins among the last ten trades, 0.5 before any", 0, 1),
    Slot("excursion_ratio", "account", 0, "worst against best move of the position", 0),
)
RISK_SLOTS = tuple(slot.name for slot in RISKS)
RECENT = 10  # closed trades in the win rate; in relative scaling also the cap of losses in a row


class Close(NamedTuple):
    """A possible close of a round turn in a bar.

    closed: bool[], True if a round turn ended.
    won: bool[], True if its profit exceeds its two commissions.
    """

    closed: Array
    won: Array


def closes(event: Event, entry: Array, contract: ContractParams) -> tuple[Close, Close]:
    """Return the round turns that one bar closed, in time order.

    The first was closed by an order, the second in any other way.

    Args:
        entry: fill price of the position that was carried into the bar (ticks).
        contract: that of the bar.
    """
    exit_entry = jnp.where(event.entry_quantity != 0, event.entry_price, entry)

    def close(quantity: Array, price: Array, paid: Array) -> Close:
        profit = (
            money_of((price - paid) * quantity, contract)
            - 2 * jnp.abs(quantity) * contract.commission
        )
        return Close(quantity != 0, profit > 0)

    return (
        close(event.order_exit_quantity, event.order_exit_price, entry),
        close(event.exit_quantity, event.exit_price, exit_entry),
    )


def new_record() -> TradeRecord:
    """Return the record at the start of an episode, without trades."""
    return TradeRecord(*[jnp.int32(0)] * 7)


def _count(record: TradeRecord, close: Close) -> TradeRecord:
    recent = ((record.recent << 1) | close.won.astype(jnp.int32)) & ((1 << RECENT) - 1)
    return record.replace(
        losses=jnp.where(close.closed, jnp.where(close.won, 0, record.losses + 1), record.losses),
        recent=jnp.where(close.closed, recent, record.recent),
        closed=jnp.minimum(record.closed + close.closed.astype(jnp.int32), RECENT),
    )


def add_bar(
    record: TradeRecord, prev: EnvState, next: EnvState, event: Event, contract: ContractParams
) -> TradeRecord:
    """Add the bar that led from `prev` to `next` to the record.

    Args:
        contract: that of the bar.
    """
    for close in closes(event, prev.position.entry, contract):
        record = _count(record, close)
    balance = record.balance + next.account.balance - prev.account.balance
    position = next.position
    side, opened = jnp.sign(position.quantity), event.entry_quantity != 0

    def furthest(before: Array, now: Array) -> Array:
        return jnp.where(side != 0, jnp.maximum(jnp.where(opened, 0, before), now), 0)

    return record.replace(
        balance=balance,
        peak=jnp.maximum(record.peak, balance),
        adverse=furthest(record.adverse, side * (position.entry - event.adverse)),
        favourable=furthest(record.favourable, side * (event.favourable - position.entry)),
    )


class AccountSeen(struct.PyTreeNode):
    """The part of account and record that a reference stores (26 bytes).

    Both scalings are computed from it.

    int32[]: unrealised (mills, at the close), drawdown (mills below the peak), peak (mills), losses
    (trades), adverse, favourable (ticks). uint8[]: won and closed, numbers among the last ten
    trades.
    """

    unrealised: Array
    drawdown: Array
    peak: Array
    losses: Array
    adverse: Array
    favourable: Array
    won: Array
    closed: Array


def account_seen(state: EnvState) -> AccountSeen:
    """Return the visible part of the account and its record at `state`."""
    record, account = state.record, state.account
    return AccountSeen(
        unrealised=account.equity - account.balance,
        drawdown=record.peak - record.balance,
        peak=record.peak,
        losses=record.losses,
        adverse=record.adverse,
        favourable=record.favourable,
        won=jax.lax.population_count(record.recent).astype(jnp.uint8),
        closed=record.closed.astype(jnp.uint8),
    )


def risk_slots(scaling: str, seen: AccountSeen, rules: AccountParams) -> Array:
    """Return the values of `RISKS` (float32[5]). Their units depend on the scaling.

                         seed                                 relative
    unrealised_profit    dollars                              risk units
    balance_drawdown     share of peak, with start balance    risk units
    losses_in_a_row      count                                count / 10, at most 1
    recent_win_rate      share, 0.5 before the first trade    as seed
    excursion_ratio      adverse / favourable, 1 if           adverse / (adverse + favourable), 0.5
                         favourable is 0 (flat, or never      if both are 0 (flat, or never moved)
                         in favour)
    """
    unrealised, drawdown, peak, losses, adverse, favourable, won, closed = (
        x.astype(jnp.float32)
        for x in (
            seen.unrealised,
            seen.drawdown,
            seen.peak,
            seen.losses,
            seen.adverse,
            seen.favourable,
            seen.won,
            seen.closed,
        )
    )
    win_rate = _quotient(won, closed, 0.5)
    if scaling == "seed":
        return jnp.stack(
            [
                unrealised * DOLLARS,
                drawdown / (rules.start_balance + peak),
                losses,
                win_rate,
                _quotient(adverse, favourable, 1.0),
            ]
        )
    unit = 1.0 / rules.risk_unit  # a factor, as in `rewards.equity_change`
    return jnp.stack(
        [
            unrealised * unit,
            drawdown * unit,
            jnp.minimum(losses, RECENT) * (1.0 / RECENT),
            win_rate,
            _quotient(adverse, adverse + favourable, 0.5),
        ]
    )


def _quotient(over: Array, under: Array, neutral: float) -> Array:
    """Return over / under, or `neutral` if `under` is 0."""
    return jnp.where(under > 0, over / jnp.maximum(under, 1.0), neutral)


def new_stats(params: Any) -> EpisodeStats:
    """Return statistics at the start of an episode.

    All are 0, with one sum for each reward term of `params`.
    """
    return EpisodeStats(
        jnp.float32(0),
        *[jnp.int32(0)] * 9,
        terms={name: jnp.float32(0) for name in params.reward_weights},
        monitor=monitor.start() if params.monitor else None,
    )


def count_fills(
    stats: EpisodeStats, event: Event, entry: Array, contract: ContractParams
) -> EpisodeStats:
    """Add the fills of one bar.

    A win is a round turn whose profit exceeds its two commissions.

    Args:
        entry: fill price of the position that was carried into the bar (ticks).
    """
    ordered, left = closes(event, entry, contract)
    quantity = (
        jnp.abs(event.order_exit_quantity)
        + jnp.abs(event.exit_quantity)
        + jnp.abs(event.entry_quantity)
    )
    return stats.replace(
        trades=stats.trades + ordered.closed.astype(jnp.int32) + left.closed.astype(jnp.int32),
        wins=stats.wins + ordered.won.astype(jnp.int32) + left.won.astype(jnp.int32),
        sides=stats.sides + quantity,
        commission=stats.commission + event.commission,
        breaches=stats.breaches + event.breach.astype(jnp.int32),
        monitor=stats.monitor
        and monitor.add_traded(stats.monitor, monitor.notional(event, contract)),
    )


def count_step(
    stats: EpisodeStats, equity: Array, terms: dict[str, Array], illegal: Array
) -> EpisodeStats:
    """Add the reward terms, the equity and the legality of one step."""
    return count_close(stats, equity).replace(
        reward=stats.reward + total(terms),
        length=stats.length + 1,
        illegal=stats.illegal + illegal.astype(jnp.int32),
        terms={name: stats.terms[name] + term for name, term in terms.items()},
    )


def count_change(stats: EpisodeStats, change: Array) -> EpisodeStats:
    """Add the change of equity in a step (mills) that `count_step` has counted.

    Nothing without the monitor.
    """
    if stats.monitor is None:
        return stats
    return stats.replace(monitor=monitor.add_change(stats.monitor, change, stats.length))


def count_close(stats: EpisodeStats, equity: Array) -> EpisodeStats:
    """Add the equity at a bar's close (mills), which updates the peak and the maximum drawdown."""
    peak = jnp.maximum(stats.peak, equity)
    return stats.replace(peak=peak, max_drawdown=jnp.maximum(stats.max_drawdown, peak - equity))


class CalendarEnd(NamedTuple):
    """What the calendar says after a bar, bool[] each.

    session: the session is over.
    last: it was the last one of the episode.
    incomplete: its data ended too early.
    """

    session: Array
    last: Array
    incomplete: Array


def calendar_end(state: EnvState, params: EnvParams) -> CalendarEnd:
    """Determine which ends the calendar alone brings after a bar, before any session jump.

    It reads no account.
    """
    sessions, session = params.market.sessions, params.sessions.ids[state.slot]
    over = state.row > sessions.last[session]
    last_session = (state.sessions_left == 0) | (state.slot + 1 >= _end_of_symbol(state, params))
    return CalendarEnd(over, over & last_session, over & ~sessions.complete[session])


def end_reason(state: Any, params: Any) -> Array:
    """Return the EndReason after a bar, before any session jump (int32[]).

    It is NONE if the episode goes on.

    If several reasons apply, the first of these counts: bust, daily loss, target, end of data, end
    of the last session, step limit.

    Args:
        state, params: of any environment.
    """
    account, calendar = state.account, calendar_end(state, params)
    bust = rules.at_drawdown_floor(account, params.account)
    daily = params.account.fail_on_daily_loss & rules.at_daily_floor(account, params.account)
    target = params.account.stop_at_target & rules.target_reached(
        state.position, account, params.account
    )
    limit = (params.max_steps > 0) & (state.time >= params.max_steps)
    reason = jnp.where(limit, EndReason.STEP_LIMIT, EndReason.NONE)
    reason = jnp.where(calendar.last, EndReason.SESSION_END, reason)
    reason = jnp.where(calendar.incomplete, EndReason.END_OF_DATA, reason)
    reason = jnp.where(target, EndReason.TARGET, reason)
    reason = jnp.where(daily, EndReason.DAILY_LOSS, reason)
    return jnp.where(bust, EndReason.BUST, reason).astype(jnp.int32)


def _end_of_symbol(state: EnvState, params: EnvParams) -> Array:
    """Return the slot after the last one of this state's symbol in the split (int32[])."""
    sessions, symbol = params.sessions, params.market.symbol
    if sessions.offsets is None or symbol is None:
        return sessions.count
    return rules.entry_of(sessions.offsets[1:], symbol[state.row].astype(jnp.int32))


def is_truncation(reason: Array) -> Array:
    """Return True for the step limit and the end of data (bool[]).

    All other reasons except NONE terminate.
    """
    return (reason == EndReason.STEP_LIMIT) | (reason == EndReason.END_OF_DATA)


def mix(value: Array) -> Array:
    """Hash uint32 to uint32 bijectively, with avalanche.

    This is `lowbias32` of C. Wellons, "Prospecting for hash functions" (2018).
    """
    value = value ^ (value >> 16)
    value = value * jnp.uint32(0x7FEB352D)
    value = value ^ (value >> 15)
    value = value * jnp.uint32(0x846CA68B)
    return value ^ (value >> 16)


def draw(seed: Array, counter: Array, stream: int) -> Array:
    """Draw random word number `counter` of a stream (uint32[]).

    It is a hash of the seed instead of a JAX key. With keys, auto-reset would need a key split in
    every step.
    """
    return mix(
        mix(seed ^ jnp.uint32(stream * 0x9E3779B9 & 0xFFFFFFFF)) + counter.astype(jnp.uint32)
    )


def below(word: Array, bound: Array) -> Array:
    """Return `word` modulo `bound` (int32[] in [0, bound)).

    The bias of each value is below bound / 2^32.
    """
    return (word % bound.astype(jnp.uint32)).astype(jnp.int32)


def start(params: EnvParams, slot: Array, row: Array, seed: Array, episode: Array) -> EnvState:
    """Return a state with a new account, flat.

    It is at the close of `row` in session number `slot` of the split.
    """
    return EnvState(
        row=jnp.int32(row),
        slot=jnp.int32(slot),
        sessions_left=params.episode_sessions - 1,
        time=jnp.int32(0),
        position=Position.flat(),
        account=Account.new(),
        stats=new_stats(params),
        seed=jnp.uint32(seed),
        episode=jnp.int32(episode),
    )


def start_drawn(
    params: EnvParams, seed: Array, episode: Array, random_row: bool, sampler: str = "uniform"
) -> EnvState:
    """Start episode number `episode` in a session of the split that the sampler draws.

    See `env.sampler`.

    The row is a random decision bar of the session if `random_row`, else its first one.
    """
    slot = SAMPLERS[sampler](params.symbol_weights, seed, episode, params.sessions)
    chex.assert_shape(slot, (), custom_message=f"sampler '{sampler}'")
    chex.assert_type(slot, jnp.int32, custom_message=f"sampler '{sampler}'")
    return start(params, slot, drawn_row(params, slot, seed, episode, random_row), seed, episode)


def drawn_row(params: Any, slot: Array, seed: Array, episode: Array, random_row: bool) -> Array:
    """Return a random decision bar of session number `slot` of the split (int32[]).

    Without `random_row` it is the first one.

    Args:
        params: as `EnvParams`.
    """
    session = params.sessions.ids[slot]
    first, last = params.market.sessions.first[session], params.market.sessions.last[session]
    return first + below(draw(seed, episode, 2), last - first + 1) if random_row else first


def forced_side(state: EnvState, probability: Array, params: EnvParams) -> Array:
    """Draw the side of the forced entry of a new episode at `state` (int32[]).

    It is 1 or -1 with equal probability, or 0 for none.

    It is 0 if `rules.may_open` forbids an entry. It is also 0 if the next bar is the flat bar of
    the session: with missing bars, the flat bar can come earlier than the calendar says.
    """
    # In [0, 1), so that probability 0 never forces an entry and probability 1 always does.
    chance = (draw(state.seed, state.episode, 3) >> 8).astype(jnp.float32) * 2.0**-24
    last = params.market.sessions.last[params.sessions.ids[state.slot]]
    forced = (chance < probability) & rules.may_open(state, params) & (state.row < last)
    side = 1 - 2 * below(draw(state.seed, state.episode, 4), jnp.int32(2))
    return jnp.where(forced, side, 0)
