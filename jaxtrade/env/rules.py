"""Account rules: floors, liquidation level, permissions. Environment, evaluation and reports all take them from here.

Floors and limits are mills relative to the start balance; `OFF` switches a limit off.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.env.money import money_of, ticks_within
from jaxtrade.env.state import (
    NO_LEVEL,
    OFF,
    Account,
    AccountParams,
    ContractParams,
    EnvParams,
    EnvState,
    Position,
    Trailing,
)
from jaxtrade.types import Array

NO_FLOOR = -OFF


def drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """min(high_water - drawdown, floor_cap): follows the high-water mark, never falls, stops where the freeze says."""
    floor = jnp.minimum(account.high_water - rules.drawdown, rules.floor_cap)
    return jnp.where(rules.drawdown >= OFF, NO_FLOOR, floor)


def daily_floor(account: Account, rules: AccountParams) -> Array:
    """Equity at which this session's loss limit is reached."""
    return jnp.where(rules.daily_loss >= OFF, NO_FLOOR, account.session_equity - rules.daily_loss)


def at_drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """bool[]: equity is at or below the drawdown floor; False where the limit is off, however low equity is."""
    return (rules.drawdown < OFF) & (account.equity <= drawdown_floor(account, rules))


def at_daily_floor(account: Account, rules: AccountParams) -> Array:
    """bool[]: this session has lost its limit; False where the limit is off."""
    return (rules.daily_loss < OFF) & (account.equity <= daily_floor(account, rules))


def highest_floor(account: Account, rules: AccountParams) -> Array:
    """int32[] mills: the floor that equity would reach first; NO_FLOOR where both limits are off."""
    return jnp.maximum(drawdown_floor(account, rules), daily_floor(account, rules))


def contract_at(params: EnvParams, row: Array) -> ContractParams:
    """The contract's figures in bar `row`: what a tick is worth changes with the rate where profits are converted."""
    value = params.market.tick_value
    if value is None:
        return params.contract
    return params.contract.replace(tick_mills=value.times[row], tick_over=value.over[row])


def unrealised(position: Position, price: Array, contract: ContractParams) -> Array:
    """Mills that the open position has made at `price` (ticks); 0 when flat. contract: the bar's own."""
    return money_of((price - position.entry) * position.quantity, contract)


def liquidation_level(position: Position, account: Account, rules: AccountParams, contract: ContractParams) -> Array:
    """Price (ticks) nearest the market at which equity net of exit commission is at or below the highest floor.

    A second stop: floored to the losing side for a long, ceiled for a short. `-side * NO_LEVEL` with no floor.
    """
    size, side = jnp.abs(position.quantity), jnp.sign(position.quantity)
    floor = highest_floor(account, rules)
    room = floor + size * contract.commission - account.balance
    ticks = ticks_within(room, size, contract)
    ticks = jnp.where(floor == NO_FLOOR, -NO_LEVEL, jnp.clip(ticks, -NO_LEVEL, NO_LEVEL))
    return jnp.where(floor == NO_FLOOR, side * ticks, position.entry + side * ticks)


def high_water_at(account: Account, equity: Array, rules: AccountParams) -> Array:
    """Mills: the high-water mark once live equity was `equity` (any shape); it never falls, and inside a session only
    `Trailing.INTRADAY` lets it rise."""
    live = rules.trailing == Trailing.INTRADAY
    return jnp.where(live, jnp.maximum(account.high_water, equity), account.high_water)


def may_open(state: EnvState, params: EnvParams) -> Array:
    """bool[]: may a decision at the close of `state.row` open a position? Calendar and account only, no future bar."""
    market = params.market
    in_time = market.bars_to_flat[state.row] >= 2  # the bar after the next one must still close by flat time
    warm = market.tr_sum[state.row] >= 0
    return in_time & warm & ~state.account.locked


def target_reached(position: Position, account: Account, rules: AccountParams) -> Array:
    """Realised balance at the target while flat, after the minimum trading days; open profit never counts."""
    return (
        (rules.target < OFF)
        & (position.quantity == 0)
        & (account.balance >= rules.target)
        & (account.days >= rules.min_days)
    )


def open_session(account: Account, rules: AccountParams) -> Account:
    """What resets when a session begins; balance, high-water mark and floor carry over.

    `Trailing.END_OF_DAY` marks the closing equity of the session before, here: the floor is fixed while a session runs.
    """
    no = jnp.zeros_like(account.locked)
    closed = jnp.maximum(account.high_water, account.equity)
    high_water = jnp.where(rules.trailing == Trailing.END_OF_DAY, closed, account.high_water)
    return account.replace(session_equity=account.equity, high_water=high_water, locked=no, traded=no)
