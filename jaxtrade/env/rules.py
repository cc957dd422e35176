"""Account rules in exact integers: money, floors, liquidation level, permissions.

The environment, the evaluation and the reports use them.

Floors and limits are mills relative to the start balance. `OFF` switches a limit off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import AccountPreset, contract_cap
from jaxtrade.data.contracts import Contract, whole_mills
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.env.state import (
    NO_LEVEL,
    OFF,
    Account,
    AccountParams,
    ContractParams,
    EnvParams,
    Position,
    Trailing,
)
from jaxtrade.types import Array, JointMarket, MarketData

# The rules of an account, and the figures of contracts, as numbers.


def _limit(dollars: float | None, key: str) -> int:
    return OFF if dollars is None else whole_mills(dollars, key)


def account_params(preset: AccountPreset, micro: bool) -> AccountParams:
    """Return the rules of a preset in mills.

    `risk_unit` is the drawdown, or 1 % of the start balance without a drawdown. Without a drawdown
    no rule uses the high-water mark, and it simply follows live equity.

    Args:
        micro: True for a micro contract, of which the cap allows ten times as many.
    """
    drawdown = _limit(preset.drawdown, "account.drawdown")
    trailing = Trailing[preset.trailing.upper()] if drawdown < OFF else Trailing.INTRADAY
    start = whole_mills(preset.start_balance, "account.start_balance")
    target = _limit(preset.profit_target, "account.profit_target")
    caps = {"never": OFF, "at_start_plus_100": 100_000, "at_target": target - drawdown}
    risk_unit = drawdown if drawdown < OFF else start // 100
    return AccountParams(
        drawdown=jnp.int32(drawdown),
        daily_loss=jnp.int32(_limit(preset.daily_loss, "account.daily_loss")),
        target=jnp.int32(target),
        floor_cap=jnp.int32(caps[preset.freeze]),
        min_days=jnp.int32(preset.min_days),
        stop_at_target=jnp.bool_(preset.on_target == "terminate"),
        fail_on_daily_loss=jnp.bool_(preset.on_daily_loss == "fail"),
        max_contracts=jnp.int32(contract_cap(preset, micro)),
        risk_unit=jnp.float32(risk_unit),
        start_balance=jnp.float32(start),
        trailing=jnp.int32(trailing),
    )


def breakeven_ticks(contract: Contract, config: RunConfig) -> int:
    """Return `brackets.be_ticks` if set, else 1 tick.

    With `scaling=seed` a future has 0.25 points, rounded up to ticks.
    """
    if config.brackets.be_ticks is not None:
        return config.brackets.be_ticks
    if config.env.scaling == "seed" and contract.kind == "future":
        return math.ceil(Decimal("0.25") / contract.tick_size)
    return 1


def contract_params(contract: Contract, config: RunConfig) -> ContractParams:
    """Return the contract's parameters, with the configured costs in place of its own.

    If profits are converted, `tick_mills` is left out, because the market's `tick_value` holds the
    value of a tick.
    """
    chosen = contract.under(config)
    return ContractParams(
        tick_mills=None if contract.currency != ACCOUNT else jnp.int32(chosen.tick_mills),
        commission=jnp.int32(chosen.commission_mills),
        slippage=jnp.int32(chosen.slippage_ticks),
        min_stop=jnp.int32(chosen.min_stop_ticks),
        be_ticks=jnp.int32(breakeven_ticks(chosen, config)),
        tick_size=jnp.float32(chosen.tick_size),
    )


def stack_contracts(
    contracts: Sequence[ContractParams], data: MarketData | JointMarket
) -> ContractParams:
    """Stack the contracts of several symbols, each leaf with a leading axis of symbols.

    `tick_mills` is left out where the market has the value of a tick in each bar.
    """
    if data.tick_value is not None:
        contracts = [contract.replace(tick_mills=None) for contract in contracts]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *contracts)


def largest_ticks(data: MarketData | JointMarket, own: Any) -> np.ndarray:
    """Return the largest value of one tick of one contract in any bar.

    It is int64[...] mills, rounded up.

    Args:
        own: its value where profits are not converted.
    """
    value = data.tick_value
    if value is None:
        return np.asarray(own, np.int64)
    return (-(-np.asarray(value.times, np.int64) // np.asarray(value.over, np.int64))).max(axis=0)


# Exact integer arithmetic. Money is int32 mills, so sums do not depend on their order and tests
# can compare for equality.

_LARGEST_FLOAT = 2147483520.0  # the largest float32 below 2^31


def ceil_div(a: Array, b: Array | int) -> Array:
    """Return the smallest integer >= a / b for int32 a and b > 0."""
    return -((-a) // jnp.int32(b))


def _wide_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a * b for uint32 a and b, as two uint32 words (high, low).

    The product is formed from 16-bit halves.
    """
    mask = jnp.uint32(0xFFFF)
    a_low, a_high = a & mask, a >> 16
    b_low, b_high = b & mask, b >> 16
    low = a_low * b_low
    middle = a_high * b_low + (low >> 16)
    middle2 = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> 16) + (middle2 >> 16), (middle2 << 16) | (low & mask)


def muldiv(a: Array, b: Array, c: Array) -> Array:
    """Compute round_half_even(a * b / c) without 64-bit integers.

    Args:
        a, b: int32, any sign.
        c: int32, > 0. The product may exceed 2^31; the result must fit int32.

    Returns:
        int32, broadcast shape.
    """
    a, b, c = jnp.broadcast_arrays(jnp.int32(a), jnp.int32(b), jnp.int32(c))
    quotient, rest = _divide(a, b, c)
    twice, divisor = jnp.abs(rest).astype(jnp.uint32) * 2, c.astype(jnp.uint32)
    away = (twice > divisor) | ((twice == divisor) & ((quotient & 1) == 1))
    return quotient + jnp.where(away, jnp.sign(rest), 0)


def _divide(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return (q, e) with a * b = q c + e and |e| <= 0.51 c, for int32 a, b of any sign and c > 0.

    q is exact modulo 2^32.

    Long division with two digits, in which float32 estimates each digit. Both estimates may err by
    a share of 2^-12; float32 errs by less than 2^-21, on every device. The first leaves a remainder
    below 2^42, the second one below 0.51 c, which fits one word. There is no loop and no integer
    division, so XLA fuses and vectorises all of it.
    """
    negative = (a < 0) ^ (b < 0)
    # abs(-2^31) wraps to itself, which as uint32 is the right magnitude
    divisor, divisor_float = c.astype(jnp.uint32), c.astype(jnp.float32)
    high, low = _wide_product(jnp.abs(a).astype(jnp.uint32), jnp.abs(b).astype(jnp.uint32))

    ratio = jnp.abs(a.astype(jnp.float32) * b.astype(jnp.float32)) / divisor_float
    first = jnp.minimum(ratio, _LARGEST_FLOAT).astype(jnp.int32).astype(jnp.uint32)
    taken_high, taken_low = _wide_product(first, divisor)
    rest_low = low - taken_low
    rest_high = high - taken_high - (low < taken_low).astype(jnp.uint32)
    over = (
        rest_high.astype(jnp.int32) < 0
    )  # the first digit is too large: divide the magnitude of the remainder
    rest_high = jnp.where(over, ~rest_high + (rest_low == 0).astype(jnp.uint32), rest_high)
    rest_low = jnp.where(over, -rest_low, rest_low)

    rest = rest_high.astype(jnp.int32).astype(jnp.float32) * 2.0**32 + _float_of(rest_low)
    second = jnp.floor(rest / divisor_float + 0.5).astype(jnp.int32).astype(jnp.uint32)
    last = (rest_low - second * divisor).astype(
        jnp.int32
    )  # the low words suffice: |last| <= 0.51 c
    quotient = (first + jnp.where(over, -second, second)).astype(jnp.int32)
    return jnp.where(negative, -quotient, quotient), jnp.where(over ^ negative, -last, last)


def _float_of(word: Array) -> Array:
    """Convert uint32 to float32, from 16-bit halves.

    CPUs convert only signed integers in one instruction.
    """
    return (word >> 16).astype(jnp.int32).astype(jnp.float32) * 65536.0 + (word & 0xFFFF).astype(
        jnp.int32
    ).astype(jnp.float32)


def muldiv_host(a: Any, b: Any, c: Any) -> np.ndarray:
    """Compute `muldiv` on the host in int64.

    |a| < 2^31 and 0 < b, c < 2^31, so no product exceeds 2^63.
    """
    a, b, c = (np.asarray(x, np.int64) for x in (a, b, c))
    quotient, remainder = np.divmod(np.abs(a) * b, c)
    up = (2 * remainder > c) | ((2 * remainder == c) & (quotient % 2 == 1))
    return np.sign(a) * (quotient + up)


def tick_mills(contract: ContractParams) -> Array:
    """Return the numerator `tick_mills` of the value of one tick.

    The value is `tick_mills / tick_over` mills.

    Raises TypeError (a bug) if profits are converted and the contract is not
    from `rules.contract_at`.
    """
    if contract.tick_mills is None:
        raise TypeError(
            "this market's profits are converted bar by bar: take the contract from rules.contract_at"
        )
    return contract.tick_mills


def money_of(ticks: Array, contract: ContractParams) -> Array:
    """Return the value of `ticks` in the account's currency (mills).

    `ticks` is price change times signed contracts, int32.

    This is the only function that converts ticks to money.

    Args:
        contract: that of the bar, from `rules.contract_at`.
    """
    if contract.tick_over is None:
        return ticks * tick_mills(contract)
    return muldiv(ticks, tick_mills(contract), contract.tick_over)


def ticks_within(room: Array, size: Array, contract: ContractParams) -> Array:
    """Return the largest whole number of ticks whose value is at most `room` mills.

    The value is that for `size` contracts (int32, > 0).

    If a tick is worth times / over >= 1 mills, n ticks round to at most `room` if 2 n times <= (2
    room + 1) over; where both sides are equal, only if `room` is even (half to even). The largest
    such n is floor(room over / times), or one more.
    """
    size = jnp.maximum(size, 1)
    if contract.tick_over is None:
        return room // (size * tick_mills(contract))
    times, over = tick_mills(contract), contract.tick_over
    near, rest = _divide(room, over, times)
    missing = jnp.where(
        rest < 0, -rest, times - rest
    )  # of one tick more than the floor, in mills times `over`
    twice, half = missing.astype(jnp.uint32) * 2, over.astype(jnp.uint32)
    one_more = (twice < half) | ((twice == half) & ((room & 1) == 0))
    return (near - (rest < 0) + one_more) // size


NO_FLOOR = -OFF
COMPARED = 8  # symbols up to which a figure is found by comparisons


def drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """Return min(high_water - drawdown, floor_cap) (mills).

    The floor follows the high-water mark and never falls.

    `floor_cap` is the point at which the floor freezes (`account.freeze`).
    """
    floor = jnp.minimum(account.high_water - rules.drawdown, rules.floor_cap)
    return jnp.where(rules.drawdown >= OFF, NO_FLOOR, floor)


def daily_floor(account: Account, rules: AccountParams) -> Array:
    """Return the equity at which the daily loss limit of this session is reached (mills)."""
    return jnp.where(rules.daily_loss >= OFF, NO_FLOOR, account.session_equity - rules.daily_loss)


def at_drawdown_floor(account: Account, rules: AccountParams) -> Array:
    """Return whether equity is at or below the drawdown floor (bool[]).

    Always False if the limit is off.
    """
    return (rules.drawdown < OFF) & (account.equity <= drawdown_floor(account, rules))


def at_daily_floor(account: Account, rules: AccountParams) -> Array:
    """Return whether equity is at or below the daily floor (bool[]).

    Always False if the limit is off.
    """
    return (rules.daily_loss < OFF) & (account.equity <= daily_floor(account, rules))


def highest_floor(account: Account, rules: AccountParams) -> Array:
    """Return the higher of the two floors, which equity would reach first (int32[] mills).

    It is NO_FLOOR if both limits are off.
    """
    return jnp.maximum(drawdown_floor(account, rules), daily_floor(account, rules))


def of_symbol(params: EnvParams, row: Array) -> EnvParams:
    """Return the parameters with the contract of the symbol of bar `row`.

    Every leaf of the contract is then a scalar.

    Parameters of one symbol are returned as they are, and so are those that this
    function has returned.
    """
    symbol, contract = params.market.symbol, params.contract
    if symbol is None or contract.commission.ndim == 0:
        return params
    own = symbol[row].astype(jnp.int32)
    return params.replace(contract=jax.tree.map(lambda leaf: entry_of(leaf, own), contract))


def entry_of(table: Array, number: Array) -> Array:
    """Return `table[number]` for a table of one entry per symbol and int32[].

    A few symbols are compared instead of looked up: a compiler computes that for many environments
    at once.
    """
    if table.shape[0] > COMPARED:
        return table[number]
    found = table[0]
    for i in range(1, table.shape[0]):
        found = jnp.where(number == i, table[i], found)
    return found


def contract_at(params: Any, row: Array) -> ContractParams:
    """Return the parameters of the contract in bar `row`, as scalars.

    This is the only way to a contract of a set of symbols. Those of several symbols in one account
    have leaves [S].

    If profits are converted, the value of a tick depends on the bar.
    """
    contract, value = of_symbol(params, row).contract, params.market.tick_value
    if value is None:
        return contract
    return contract.replace(tick_mills=value.times[row], tick_over=value.over[row])


def compute_unrealised(position: Position, price: Array, contract: ContractParams) -> Array:
    """Return the open profit of the position at `price` (ticks), 0 when flat (mills).

    Args:
        contract: that of the bar.
    """
    return money_of((price - position.entry) * position.quantity, contract)


def liquidation_level(
    position: Position, account: Account, rules: AccountParams, contract: ContractParams
) -> Array:
    """Return the price nearest to the market at which equity is at or below a floor (ticks).

    Equity is net of the exit commission, and the floor is the highest one.

    It acts as a second stop. It is rounded to the losing side: down for a long, up for a short.
    Without a floor it is `-side * NO_LEVEL`.
    """
    size, side = jnp.abs(position.quantity), jnp.sign(position.quantity)
    floor = highest_floor(account, rules)
    room = floor + size * contract.commission - account.balance
    ticks = ticks_within(room, size, contract)
    ticks = jnp.where(floor == NO_FLOOR, -NO_LEVEL, jnp.clip(ticks, -NO_LEVEL, NO_LEVEL))
    return jnp.where(floor == NO_FLOOR, side * ticks, position.entry + side * ticks)


def high_water_at(account: Account, equity: Array, rules: AccountParams) -> Array:
    """Return the high-water mark after live equity was `equity` (any shape; mills).

    It never falls. Inside a session it rises only with `Trailing.INTRADAY`.
    """
    live = rules.trailing == Trailing.INTRADAY
    return jnp.where(live, jnp.maximum(account.high_water, equity), account.high_water)


def may_open(state: Any, params: Any) -> Array:
    """Return whether a decision at the close of `state.row` may open a position (bool[]).

    It depends on the calendar, the account and data up to `state.row`, never on a future bar.

    Args:
        state, params: of any environment.
    """
    market = params.market
    in_time = (
        market.bars_to_flat[state.row] >= 2
    )  # the bar after the next one must still close by flat time
    warm = market.tr_sum[state.row] >= 0
    return in_time & warm & ~state.account.locked


def target_reached(position: Position, account: Account, rules: AccountParams) -> Array:
    """Return whether the account has reached its target (bool[]).

    The position must be flat, the balance at the target, and there must be enough trading days.

    Open profit never counts.
    """
    return (
        (rules.target < OFF)
        & (position.quantity == 0)
        & (account.balance >= rules.target)
        & (account.days >= rules.min_days)
    )


def open_session(account: Account, rules: AccountParams) -> Account:
    """Open a session: the account is unlocked and has no fill yet. The balance carries over.

    With `Trailing.END_OF_DAY` the high-water mark rises here, to the closing equity of the session
    before. The floor is therefore fixed during a session.
    """
    no = jnp.zeros_like(account.locked)
    closed = jnp.maximum(account.high_water, account.equity)
    high_water = jnp.where(rules.trailing == Trailing.END_OF_DAY, closed, account.high_water)
    return account.replace(
        session_equity=account.equity, high_water=high_water, locked=no, traded=no
    )
