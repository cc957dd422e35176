"""Exact integer arithmetic against Python's integers."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from jaxtrade.env.money import ceil_div, money_of, muldiv, muldiv_host, ticks_within
from tests.env import worlds

LOW, HIGH = -(2**31), 2**31 - 1
ints = st.integers(LOW, HIGH)
edges = st.sampled_from(
    [LOW, LOW + 1, -65_536, -65_535, -3, -2, -1, 0, 1, 2, 3, 65_535, 65_536, HIGH - 1, HIGH]
)
divisors = st.one_of(st.integers(1, HIGH), st.sampled_from([1, 2, 3, 65_535, 65_536, 2**30, HIGH]))
compiled = jax.jit(muldiv)


def half_even(a, b, c):
    """round() of a Fraction rounds half to even."""
    return round(Fraction(a * b, c))


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(st.one_of(ints, edges), st.one_of(ints, edges), divisors)
@example(LOW, 1, 1)
@example(LOW, LOW, HIGH)
@example(HIGH, HIGH, HIGH)
@example(HIGH, HIGH - 1, HIGH)
@example(LOW, HIGH, HIGH)
@example(3, 1, 2)
@example(-3, 1, 2)
@example(5, 1, 2)
@example(-5, 1, 2)
def test_muldiv_is_exact(a, b, c):
    wanted = half_even(a, b, c)
    assume(LOW <= wanted <= HIGH)
    assert int(compiled(a, b, c)) == wanted


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        (1, 1, 2, 0),
        (3, 1, 2, 2),
        (5, 1, 2, 2),
        (7, 1, 2, 4),  # ties go to the even neighbour
        (-1, 1, 2, 0),
        (-3, 1, 2, -2),
        (-5, 1, 2, -2),
        (1, -3, 2, -2),
        (-1, -3, 2, 2),
        (2**30, 2, 4, 2**29),
        (2**30 + 1, 2, 4, 2**29),
        (2**30 + 3, 2, 4, 2**29 + 2),
    ],
)
def test_ties_are_half_even(a, b, c, wanted):
    assert int(compiled(a, b, c)) == wanted


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, HIGH), st.integers(1, 2**30 - 1), st.integers(-2, 2), st.sampled_from([-1, 1])
)
def test_ties_and_their_neighbours_are_exact(whole, half, away, sign):
    """a / 2 with a = 2 whole + 1 is a tie; `away` moves it by up to two units of the last place of
    a large product.
    """
    c = 2 * half
    a, b = sign * max(min(2 * whole + 1, HIGH), 1), half  # a * b / c = a / 2
    assume(LOW <= a + away <= HIGH)
    assert int(compiled(a, b, c)) == half_even(a, b, c)
    wanted = half_even(a + away, b, c)
    assert int(compiled(a + away, b, c)) == wanted


def numpy_half_even(a, b, c):
    """Independent reference in uint64, which holds every product of magnitudes up to 2^31."""
    product, divisor = (
        np.abs(a).astype(np.uint64) * np.abs(b).astype(np.uint64),
        c.astype(np.uint64),
    )
    quotient = product // divisor
    twice = 2 * (product - quotient * divisor)
    quotient += (twice > divisor) | ((twice == divisor) & (quotient % 2 == 1))
    return np.where((a < 0) ^ (b < 0), -quotient.astype(np.int64), quotient.astype(np.int64))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["any size", "near int32's ends", "quotient near 2^31", "small divisor", "half"]
)
def test_a_million_quotients_equal_those_in_64_bits(kind):
    rng = np.random.default_rng(len(kind))
    n = 1_000_000

    def sized():
        """Magnitudes whose number of bits is drawn evenly from 0 to 31."""
        return rng.integers(0, 2**31, n) >> rng.integers(0, 32, n)

    a, b, c = (sized() * rng.choice([-1, 1], n) for _ in range(3))
    if kind == "near int32's ends":
        a, b = rng.integers(HIGH - 40, HIGH + 1, n), rng.integers(LOW, LOW + 40, n)
        c = rng.integers(HIGH - 40, HIGH + 1, n)
    elif kind == "quotient near 2^31":
        b = np.clip(np.abs(c) + rng.integers(-3, 4, n), 1, HIGH)
        a = rng.integers(HIGH - 60, HIGH + 1, n)
    elif kind == "small divisor":
        c = rng.integers(1, 8, n)
    elif kind == "half":
        b = np.maximum(np.abs(b) >> 1, 1)
        c = 2 * b
    c = np.maximum(np.abs(c), 1)
    wanted = numpy_half_even(a, b, c)
    fits = (wanted >= LOW) & (wanted <= HIGH)
    assert fits.mean() > 0.3
    found = np.asarray(compiled(*(jnp.asarray(x, jnp.int32) for x in (a, b, c))))
    np.testing.assert_array_equal(found[fits], wanted[fits])


def test_muldiv_compiles_without_a_loop_and_without_64_bits():
    lanes = jax.ShapeDtypeStruct((128,), jnp.int32)
    text = jax.jit(muldiv).lower(lanes, lanes, lanes).compile().as_text()
    assert "while" not in text
    assert "s64" not in text
    assert "u64" not in text


def test_products_far_past_int32():
    assert int(compiled(2_000_000_000, 1_999_999_999, 2_000_000_000)) == 1_999_999_999
    assert int(compiled(-2_000_000_000, 2_000_000_000, 2_000_000_001)) == -1_999_999_999
    assert int(compiled(LOW, 1, 1)) == LOW
    assert int(compiled(HIGH, HIGH, HIGH)) == HIGH


@settings(max_examples=300, deadline=None)
@given(st.integers(LOW + 1, HIGH), st.integers(1, HIGH), divisors)
def test_muldiv_on_the_host_is_exact(a, b, c):
    assert int(muldiv_host(a, b, c)) == half_even(a, b, c)


def converted(times, over):
    return worlds.contract().replace(tick_mills=jnp.int32(times), tick_over=jnp.int32(over))


def test_money_is_a_product_or_a_rounded_quotient():
    assert int(money_of(jnp.int32(-3), worlds.contract())) == -37_500
    # 153 ticks of USDJPY at 110.000: 153 x 100 JPY = 15,300 JPY = $139.0909...
    assert int(money_of(jnp.int32(153), converted(100_000_000, 110_000))) == 139_091
    with pytest.raises(TypeError, match="contract_at"):
        money_of(jnp.int32(1), worlds.contract().replace(tick_mills=None))


WITHIN = jax.jit(
    lambda room, size, times, over: ticks_within(
        room, size, worlds.contract().replace(tick_mills=times, tick_over=over)
    )
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.one_of(st.integers(-3_000_000, 3_000_000), st.integers(-(2**30), 2**30)),
    st.integers(1, 12),
    st.one_of(
        st.tuples(st.integers(2**20, HIGH), st.integers(1, 2**20)),
        st.just((1, 1)),
        st.just((4, 3)),
        st.tuples(st.just(100_000_000), st.integers(75_000, 160_000)),
        st.tuples(st.just(HIGH), st.integers(2**30, HIGH)),
        st.tuples(st.just(2**30), st.just(2**30)),
    ),
)
@example(0, 1, (1, 1))
@example(1, 1, (3, 2))  # 1.5 mills a tick: one tick is 2 mills, and too much
@example(-1, 1, (3, 2))
@example(-2, 3, (5, 4))
def test_the_last_tick_within_a_sum_by_brute_force(room, size, rate):
    """Every neighbour is tried: the answer makes at most `room`, the next tick more."""
    times, over = rate
    found = int(WITHIN(room, size, times, over))
    assert half_even(found * size, times, over) <= room < half_even((found + 1) * size, times, over)


@pytest.mark.slow
def test_muldiv_broadcasts_and_keeps_int32():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-(10**6), 10**6, (5, 1)), rng.integers(-(10**6), 10**6, (1, 7))
    out = muldiv(jnp.asarray(a, jnp.int32), jnp.asarray(b, jnp.int32), 1_000_003)
    assert (out.shape, out.dtype) == ((5, 7), jnp.int32)
    wanted = [[half_even(int(x), int(y), 1_000_003) for y in b[0]] for x in a[:, 0]]
    np.testing.assert_array_equal(out, wanted)


@settings(max_examples=300, deadline=None)
@given(st.integers(LOW + 1, HIGH), st.integers(1, HIGH))
def test_ceil_div_is_the_smallest_integer_not_below(a, b):
    assert int(ceil_div(jnp.int32(a), b)) == -(-a // b)


@pytest.mark.parametrize(
    ("sum_of_ranges", "stop"), [(0, 0), (1, 1), (9, 1), (10, 2), (28, 3), (29, 4), (280, 30)]
)
def test_ceil_div_gives_one_and_a_half_atr(sum_of_ranges, stop):
    """1500 S / 14000 rounded up is ceil(3 S / 28)."""
    assert (
        int(ceil_div(jnp.int32(1_500 * sum_of_ranges), 14_000))
        == stop
        == -(-3 * sum_of_ranges // 28)
    )
