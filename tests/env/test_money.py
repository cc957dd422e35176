"""Exact integer arithmetic against Python's integers."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from jaxtrade.env.rules import ceil_div, money_of, muldiv, muldiv_host, ticks_within
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
@settings(max_examples=600)
@given(st.one_of(ints, edges), st.one_of(ints, edges), divisors)
@example(LOW, 1, 1)
@example(LOW, LOW, HIGH)
@example(HIGH, HIGH, HIGH)
@example(HIGH, HIGH - 1, HIGH)
@example(LOW, HIGH, HIGH)
def test_muldiv_is_exact(a, b, c):
    wanted = half_even(a, b, c)
    assume(LOW <= wanted <= HIGH)
    assert int(compiled(a, b, c)) == wanted


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        (1, 1, 2, 0),  # ties go to the even neighbour
        (3, 1, 2, 2),
        (-1, 1, 2, 0),
        (-3, 1, 2, -2),
        (1, -3, 2, -2),
        (2**30 + 1, 2, 4, 2**29),
        (2**30 + 3, 2, 4, 2**29 + 2),
    ],
)
def test_ties_are_half_even(a, b, c, wanted):
    assert int(compiled(a, b, c)) == wanted


@pytest.mark.slow
@settings(max_examples=400)
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


def test_muldiv_compiles_without_a_loop_and_without_64_bits():
    lanes = jax.ShapeDtypeStruct((128,), jnp.int32)
    text = jax.jit(muldiv).lower(lanes, lanes, lanes).compile().as_text()
    assert "while" not in text
    assert "s64" not in text
    assert "u64" not in text


@settings(max_examples=300)
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


@settings(max_examples=400)
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


@settings(max_examples=300)
@given(st.integers(LOW + 1, HIGH), st.integers(1, HIGH))
def test_ceil_div_is_the_smallest_integer_not_below(a, b):
    assert int(ceil_div(jnp.int32(a), b)) == -(-a // b)
