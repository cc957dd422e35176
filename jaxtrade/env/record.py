"""The trade record of an episode, and the five risk slots that the task `advised` shows of it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.env.money import money_of
from jaxtrade.env.rewards import DOLLARS
from jaxtrade.env.state import AccountParams, ContractParams, EnvState, Event, TradeRecord
from jaxtrade.types import Array

RISK_SLOTS = (
    "unrealised_profit",
    "balance_drawdown",
    "losses_in_a_row",
    "recent_win_rate",
    "excursion_ratio",
)
RECENT = 10  # closed trades in the win rate; in relative scaling also the cap of losses in a row


class Close(NamedTuple):
    """A possible close of a round turn in a bar.

    closed: bool[], True if a round turn ended. won: bool[], True if its profit exceeds its two
        commissions.
    """

    closed: Array
    won: Array


def closes(event: Event, entry: Array, contract: ContractParams) -> tuple[Close, Close]:
    """The round turns that one bar closed, in time order: first by an order, then in any other way.

    entry: fill price of the position that was carried into the bar (ticks). contract: that of the
        bar.
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
    """The record at the start of an episode, without trades."""
    zero = jnp.int32(0)
    return TradeRecord(zero, zero, zero, zero, zero, zero, zero)


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
    """The record after the bar that led from `prev` to `next`. contract: that of the bar."""
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
    """The part of account and record that a reference stores (26 bytes). Both scalings are computed
    from it.

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
    """The visible part of the account and its record at `state`."""
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
    """float32[5] in the order of RISK_SLOTS. Their units depend on the scaling:

                         seed                                       relative
    unrealised_profit    dollars                                    risk units
    balance_drawdown     share of the peak, with start balance      risk units
    losses_in_a_row      count                                      count / 10, at most 1
    recent_win_rate      share, 0.5 before the first trade          as seed
    excursion_ratio      adverse / favourable, 1 if favourable      adverse / (adverse + favourable), 0.5 if
                         is 0 (flat, or never in favour)            both are 0 (flat, or never moved)
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
    """over / under, or `neutral` if `under` is 0."""
    return jnp.where(under > 0, over / jnp.maximum(under, 1.0), neutral)
