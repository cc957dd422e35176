"""Figures over environments in two halves, one for each place on a mapped axis, are those of all
environments.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.networks.normalize import init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.returns import explained_variance

HALVES = Reduce("envs")
in_halves = partial(jax.vmap, axis_size=2, axis_name="envs")


def test_one_place_changes_nothing():
    x = jnp.arange(6.0)
    assert LOCAL.sum_of_parts(x) is LOCAL.mean_of_parts(x) is LOCAL.max_of_parts(x) is x
    assert (LOCAL.offset(8), LOCAL.count(8)) == (0, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "of",
    [
        lambda x, reduce: reduce.standardise(x),
        lambda x, reduce: explained_variance(x, 2 * x + jnp.square(x), reduce),
        lambda x, reduce: (reduce.sum(x), reduce.mean(x), reduce.variance(x), reduce.moments(x)),
        lambda x, reduce: reduce.max_of_parts(x.max()),
        lambda x, reduce: merge(
            merge(init_stats(3), x.reshape(-1, 3), reduce=reduce),
            5 * x.reshape(-1, 3),
            reduce=reduce,
        ),
        # Both rows of group 1 are in the second half; group 3 has none.
        lambda x, reduce: merge(
            init_stats(1, 4),
            x[:, None],
            jnp.where(jnp.abs(x - 4.5) > 4.5, 1, 2 * (x > 5.0)),
            reduce,
        ),
    ],
    ids=[
        "standardised",
        "explained variance",
        "moments",
        "largest",
        "normaliser",
        "groups of the normaliser",
    ],
)
def test_moments_of_two_halves(of):
    x = jnp.asarray(np.random.default_rng(0).normal(5.0, 3.0, 24), jnp.float32)
    whole = jax.jit(lambda x: of(x, LOCAL))(x)
    parts = jax.jit(in_halves(lambda x: of(x, HALVES)))(x.reshape(2, -1))
    for one, both in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        # What is reduced is the same in both halves; what is not is theirs side by side.
        for each in both.reshape(1, *one.shape) if both.size == one.size else both:
            np.testing.assert_allclose(
                each, one, rtol=1e-5, atol=5e-7
            )  # x - mean cancels: an ulp of x is left


def test_a_slot_that_never_varies_keeps_its_mean_to_the_bit():
    x = jnp.full((2, 5, 1), 0.1, jnp.float32)
    stats = jax.jit(in_halves(lambda x: merge(init_stats(1), x, reduce=HALVES)))(x)
    np.testing.assert_array_equal(stats.mean, np.full((2, 1, 1), np.float32(0.1)))
    np.testing.assert_array_equal(stats.variance, np.zeros((2, 1, 1)))
