"""The network's input in training on several symbols: every symbol has observation statistics of
its own.
"""

from collections import namedtuple
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.normalize import RunningStats, init_stats
from jaxtrade.rl.acting import (
    add_observations,
    first_statistics,
    group_count,
    network_input,
    prepare_statistics,
    select_group,
    update_statistics,
)
from jaxtrade.rl.state import Policy

PER_SYMBOL, POOLED = NetworkConfig(), NetworkConfig(normalise_per_symbol=False)
RAW = NetworkConfig(normalise_observations=False)


Seen = namedtuple("Seen", "row")  # a reference: its row of the market below
Market = namedtuple("Market", "values symbol")  # float32[T, D], int32[T]; as traced parameters


class TwoSymbols:
    """An environment of two symbols whose prices differ a hundredfold."""

    num_actions, observation_size = 2, 2

    def observe(self, ref, params):
        return params.values[ref.row]

    def action_mask(self, ref):
        return jnp.ones(2, bool)

    def groups(self, params):
        return 2

    def group(self, ref, params):
        return params.symbol[ref.row]


class OneSymbol:
    """The same without groups, as environments that know no symbols are."""

    num_actions, observation_size = 2, 2
    observe, action_mask = TwoSymbols.observe, TwoSymbols.action_mask


@pytest.fixture(scope="module")
def market():
    rng = np.random.default_rng(0)
    euro, yen = rng.normal(1.1, 0.02, (40, 2)), rng.normal(110.0, 2.0, (40, 2))
    return Market(
        jnp.asarray(np.concatenate([euro, yen]), jnp.float32), jnp.repeat(jnp.arange(2), 40)
    )


def refs(*rows):
    return Seen(jnp.array(rows))


def input_of(env, settings, normaliser, row, market):
    ctx = SimpleNamespace(env=env, settings=settings)
    return network_input(ctx, Policy(None, normaliser), Seen(jnp.int32(row)), market)


def test_each_symbol_has_the_moments_of_its_own_rows(market):
    env, rows = TwoSymbols(), np.arange(80).reshape(8, 10)[:, ::-1]
    seen = Seen(jnp.asarray(rows).reshape(4, 20))  # [T, N]
    stats = jax.jit(lambda: update_statistics(env, init_stats(2, 2), seen, market, rows=20))()
    exact = np.asarray(market.values, np.float64).reshape(2, 40, 2)
    np.testing.assert_array_equal(stats.count, np.full((2, 2), 40.0))
    np.testing.assert_allclose(stats.mean, exact.mean(1), rtol=1e-6)
    np.testing.assert_allclose(stats.variance, exact.var(1), rtol=1e-4)


def test_the_row_of_a_reference_chooses_the_statistics(market):
    env = TwoSymbols()
    stats = RunningStats(
        jnp.ones((2, 2)),
        jnp.array([[1.0, 1.0], [100.0, 100.0]]),
        jnp.array([[0.25] * 2, [4.0] * 2]),
    )
    fast = prepare_statistics(PER_SYMBOL, stats)
    for row, (mean, deviation) in ((3, (1.0, 0.5)), (60, (100.0, 2.0))):
        expected = np.clip((np.asarray(market.values[row], np.float64) - mean) / deviation, -10, 10)
        for normaliser in (stats, fast):
            found = input_of(env, PER_SYMBOL, normaliser, row, market)
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_symbol_without_rows_keeps_its_statistics_to_the_bit(market):
    env = TwoSymbols()
    before = add_observations(env, init_stats(2, 2), refs(0, 1, 2, 41, 42), market)
    after = add_observations(env, before, refs(5, 6, 7), market)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old[1], new[1])
        assert (old[0] != new[0]).all()


def test_groups_of_the_first_statistics(market):
    first = refs(0, 1, 50, 51)
    assert first_statistics(TwoSymbols(), PER_SYMBOL, first, market).mean.shape == (2, 2)
    assert first_statistics(TwoSymbols(), POOLED, first, market).mean.shape == (1, 2)
    assert group_count(OneSymbol(), PER_SYMBOL, market) == 1
    np.testing.assert_array_equal(
        first_statistics(TwoSymbols(), RAW, first, market).count, np.zeros((2, 2))
    )


def test_common_statistics_serve_every_symbol(market):
    env = TwoSymbols()
    common = add_observations(env, init_stats(2), Seen(jnp.arange(80)), market)
    one = add_observations(OneSymbol(), init_stats(2), Seen(jnp.arange(80)), market)
    np.testing.assert_array_equal(common.mean, one.mean)
    ours, theirs = (input_of(e, POOLED, common, 70, market) for e in (env, OneSymbol()))
    np.testing.assert_array_equal(ours, theirs)


def test_statistics_of_several_symbols_do_not_fit_a_market_of_one(market):
    stats = init_stats(2, 2)
    with pytest.raises(ValueError, match=r"2 groups .*environment 1"):
        input_of(OneSymbol(), PER_SYMBOL, stats, 0, market)
    with pytest.raises(IndexError, match=r"group 2 .* 2 groups"):
        select_group(stats, 2)


def test_one_group_of_each_agent():
    stats = RunningStats(
        *(jnp.arange(12.0).reshape(3, 2, 2) for _ in range(3))
    )  # three agents, two groups
    np.testing.assert_array_equal(
        select_group(stats, 1).mean, np.arange(12.0).reshape(3, 2, 2)[:, 1:]
    )
    assert select_group(None, 1) is None
