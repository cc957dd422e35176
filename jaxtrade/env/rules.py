"""Account rules: floors, liquidation level, permissions. The environment, the evaluation and the
reports use them.

Floors and limits are mills relative to the start balance. `OFF` switches a limit off.
"""

from __future__ import annotations

import jax
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
COMPARED = 8  # symbols up to which a figure is found by comparisons


def drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """Mills: min(high_water - drawdown, floor_cap). The floor follows the high-water mark and never
    falls.

    `floor_cap` is the point at which the floor freezes (`account.freeze`).
    """
    floor = jnp.minimum(account.high_water - rules.drawdown, rules.floor_cap)
    return jnp.where(rules.drawdown >= OFF, NO_FLOOR, floor)


def daily_floor(account: Account, rules: AccountParams) -> Array:
    """Mills: the equity at which the daily loss limit of this session is reached."""
    return jnp.where(rules.daily_loss >= OFF, NO_FLOOR, account.session_equity - rules.daily_loss)


def at_drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """bool[]: True if equity is at or below the drawdown floor. Always False if the limit is
    off.
    """
    return (rules.drawdown < OFF) & (account.equity <= drawdown_floor(account, rules))


def at_daily_floor(account: Account, rules: AccountParams) -> Array:
    """bool[]: True if equity is at or below the daily floor. Always False if the limit is off."""
    return (rules.daily_loss < OFF) & (account.equity <= daily_floor(account, rules))


def highest_floor(account: Account, rules: AccountParams) -> Array:
    """int32[] mills: the higher of the two floors, which equity would reach first. NO_FLOOR if both
    limits are off.
    """
    return jnp.maximum(drawdown_floor(account, rules), daily_floor(account, rules))


def of_symbol(params: EnvParams, row: Array) -> EnvParams:
    """The parameters with the contract of the symbol of bar `row`, in which every leaf is a scalar.

    Parameters of one symbol are returned as they are, and so are those that this function has
    returned.
    """
    symbol, contract = params.market.symbol, params.contract
    if symbol is None or contract.commission.ndim == 0:
        return params
    own = symbol[row].astype(jnp.int32)
    return params.replace(contract=jax.tree.map(lambda leaf: entry_of(leaf, own), contract))


def entry_of(table: Array, number: Array) -> Array:
    """`table[number]` for a table of one entry per symbol and int32[].

    A few symbols are compared instead of looked up: a compiler computes that for many environments
    at once.
    """
    if table.shape[0] > COMPARED:
        return table[number]
    found = table[0]
    for i in range(1, table.shape[0]):
        found = jnp.where(number == i, table[i], found)
    return found


def contract_at(params: EnvParams, row: Array) -> ContractParams:
    """The figures of the contract in bar `row`, scalars. This is the only way to a contract of a
    set of symbols.

    If profits are converted, the value of a tick depends on the bar.
    """
    contract, value = of_symbol(params, row).contract, params.market.tick_value
    if value is None:
        return contract
    return contract.replace(tick_mills=value.times[row], tick_over=value.over[row])


def unrealised(position: Position, price: Array, contract: ContractParams) -> Array:
    """Mills: open profit of the position at `price` (ticks), 0 when flat. contract: that of the
    bar.
    """
    return money_of((price - position.entry) * position.quantity, contract)


def liquidation_level(
    position: Position, account: Account, rules: AccountParams, contract: ContractParams
) -> Array:
    """Ticks: the price nearest to the market at which equity, net of the exit commission, is at or
    below the highest floor.

    It acts as a second stop. It is rounded to the losing side: down for a long, up for a short.
    Without a floor it is
    `-side * NO_LEVEL`.
    """
    size, side = jnp.abs(position.quantity), jnp.sign(position.quantity)
    floor = highest_floor(account, rules)
    room = floor + size * contract.commission - account.balance
    ticks = ticks_within(room, size, contract)
    ticks = jnp.where(floor == NO_FLOOR, -NO_LEVEL, jnp.clip(ticks, -NO_LEVEL, NO_LEVEL))
    return jnp.where(floor == NO_FLOOR, side * ticks, position.entry + side * ticks)


def high_water_at(account: Account, equity: Array, rules: AccountParams) -> Array:
    """Mills: the high-water mark after live equity was `equity` (any shape). It never falls.

    Inside a session it rises only with `Trailing.INTRADAY`.
    """
    live = rules.trailing == Trailing.INTRADAY
    return jnp.where(live, jnp.maximum(account.high_water, equity), account.high_water)


def may_open(state: EnvState, params: EnvParams) -> Array:
    """bool[]: True if a decision at the close of `state.row` may open a position.

    It depends on the calendar, the account and data up to `state.row`, never on a future bar.
    """
    market = params.market
    in_time = (
        market.bars_to_flat[state.row] >= 2
    )  # the bar after the next one must still close by flat time
    warm = market.tr_sum[state.row] >= 0
    return in_time & warm & ~state.account.locked


def target_reached(position: Position, account: Account, rules: AccountParams) -> Array:
    """bool[]: True if the position is flat, the balance has reached the target, and there were
    enough trading days.

    Open profit never counts.
    """
    return (
        (rules.target < OFF)
        & (position.quantity == 0)
        & (account.balance >= rules.target)
        & (account.days >= rules.min_days)
    )


def open_session(account: Account, rules: AccountParams) -> Account:
    """The account at the start of a session: it is unlocked and has no fill yet. The balance
    carries over.

    With `Trailing.END_OF_DAY` the high-water mark rises here, to the closing equity of the session
    before. The floor is therefore fixed during a session.
    """
    no = jnp.zeros_like(account.locked)
    closed = jnp.maximum(account.high_water, account.equity)
    high_water = jnp.where(rules.trailing == Trailing.END_OF_DAY, closed, account.high_water)
    return account.replace(
        session_equity=account.equity, high_water=high_water, locked=no, traded=no
    )
