"""Exact integer arithmetic (contract C1): money is int32 mills, so sums are associative and equality is a test."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.types import Array


def ceil_div(a: Array, b: Array | int) -> Array:
    """Smallest integer >= a / b for int32 a and b > 0."""
    return -((-a) // jnp.int32(b))


def _wide_product(a: Array, b: Array) -> tuple[Array, Array]:
    """uint32 a * b as two uint32 words (high, low), by 16-bit halves."""
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
        a, b: int32, any sign. c: int32, > 0. The product may pass 2^31; the result must fit int32.
    Returns:
        int32, broadcast shape.

    The product is held as two 32-bit words and divided bit by bit (restoring division).
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
