"""Exact integer arithmetic. Money is int32 mills, so sums do not depend on their order and tests can
compare for equality."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.state import ContractParams
from jaxtrade.types import Array


def ceil_div(a: Array, b: Array | int) -> Array:
    """Smallest integer >= a / b for int32 a and b > 0."""
    return -((-a) // jnp.int32(b))


def _wide_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b for uint32 a and b, as two uint32 words (high, low). The product is formed from 16-bit halves."""
    mask = jnp.uint32(0xFFFF)
    a_low, a_high = a & mask, a >> 16
    b_low, b_high = b & mask, b >> 16
    low = a_low * b_low
    middle = a_high * b_low + (low >> 16)
    middle2 = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> 16) + (middle2 >> 16), (middle2 << 16) | (low & mask)


def muldiv(a: Array, b: Array, c: Array) -> Array:
    """round_half_even(a * b / c) without 64-bit integers.

    Args:
        a, b: int32, any sign. c: int32, > 0. The product may exceed 2^31; the result must fit int32.
    Returns:
        int32, broadcast shape.

    The product is kept as two 32-bit words and divided bit by bit (restoring division). JAX has no int64 by default.
    """
    a, b, c = jnp.broadcast_arrays(jnp.int32(a), jnp.int32(b), jnp.int32(c))
    negative = (a < 0) ^ (b < 0)
    # abs(-2^31) wraps to itself, which as uint32 is the right magnitude
    high, low = _wide_product(jnp.abs(a).astype(jnp.uint32), jnp.abs(b).astype(jnp.uint32))
    divisor = c.astype(jnp.uint32)

    def shift_in(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        quotient, remainder = carry
        word = jnp.where(i < 32, high, low)
        bit = (word >> (jnp.uint32(31) - (i.astype(jnp.uint32) & 31))) & 1
        remainder = (remainder << 1) | bit  # < 2 * divisor <= 2^32, never wraps since divisor < 2^31
        fits = remainder >= divisor
        return (quotient << 1) | fits.astype(jnp.uint32), jnp.where(fits, remainder - divisor, remainder)

    zero = jnp.zeros_like(divisor)
    quotient, remainder = jax.lax.fori_loop(0, 64, shift_in, (zero, zero))
    rest = divisor - remainder
    up = (remainder > rest) | ((remainder == rest) & ((quotient & 1) == 1))
    result = (quotient + up.astype(jnp.uint32)).astype(jnp.int32)
    return jnp.where(negative, -result, result)


def muldiv_host(a: Any, b: Any, c: Any) -> np.ndarray:
    """`muldiv` on the host in int64. |a| < 2^31 and 0 < b, c < 2^31, so no product exceeds 2^63."""
    a, b, c = (np.asarray(x, np.int64) for x in (a, b, c))
    quotient, remainder = np.divmod(np.abs(a) * b, c)
    up = (2 * remainder > c) | ((2 * remainder == c) & (quotient % 2 == 1))
    return np.sign(a) * (quotient + up)


def tick_mills(contract: ContractParams) -> Array:
    """The numerator `tick_mills` of the value of one tick. The value is `tick_mills / tick_over` mills.

    Raises TypeError (a bug) if profits are converted and the contract is not from `rules.contract_at`.
    """
    if contract.tick_mills is None:
        raise TypeError("this market's profits are converted bar by bar: take the contract from rules.contract_at")
    return contract.tick_mills


def money_of(ticks: Array, contract: ContractParams) -> Array:
    """Mills: value of `ticks` (price change times signed contracts, int32) in the account's currency.

    This is the only function that converts ticks to money. contract: that of the bar, from `rules.contract_at`.
    """
    if contract.tick_over is None:
        return ticks * tick_mills(contract)
    return muldiv(ticks, tick_mills(contract), contract.tick_over)


def ticks_within(room: Array, size: Array, contract: ContractParams) -> Array:
    """The largest whole number of ticks whose value for `size` contracts (int32, > 0) is at most `room` mills.

    The result is exact. `money_of` increases with the ticks, and one tick is worth at least one mill. The rounded
    quotient is therefore at most one away from the result, and the last lines correct it.
    """
    size = jnp.maximum(size, 1)
    if contract.tick_over is None:
        return room // (size * tick_mills(contract))
    near = muldiv(room, contract.tick_over, tick_mills(contract))
    within = near + (money_of(near + 1, contract) <= room) - (money_of(near, contract) > room)
    return within // size
