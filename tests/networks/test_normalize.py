"""Running statistics, against NumPy in float64."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.networks.normalize import CLIP, RunningStats, init_stats, merge, normalise

ADD = jax.jit(merge)


def test_prices_keep_their_shape_after_many_updates():
    """Raw prices N(24000, 300): 200 batches later the network must still see mean 0, standard
    deviation 1.
    """
    rng = np.random.default_rng(0)
    stats = init_stats(1)
    for _ in range(200):
        stats = ADD(stats, jnp.asarray(rng.normal(24_000, 300, (512, 1)), jnp.float32))
    seen = np.asarray(
        normalise(stats, jnp.asarray(rng.normal(24_000, 300, (10_000, 1)), jnp.float32))
    )
    assert abs(seen.mean()) < 0.05
    assert abs(seen.std() - 1) < 0.05


@pytest.mark.parametrize("constant", [0.0, 24_000.123, -1e-30, 3.3e7])
def test_a_slot_that_never_varies_gives_zero(constant):
    stats, groups = init_stats(2), init_stats(2, groups=2)
    rng = np.random.default_rng(1)
    for size in (1, 7, 33):
        batch = np.stack([np.full(size, constant), rng.normal(size=size)], axis=1).astype(
            np.float32
        )
        stats = ADD(stats, jnp.asarray(batch))
        both = jnp.concatenate([batch, batch[:, ::-1]])
        groups = ADD(groups, both, jnp.repeat(jnp.arange(2), size))
    assert stats.variance[0, 0] == groups.variance[0, 0] == 0.0 < groups.variance[1, 0]
    assert normalise(stats, jnp.array([constant, 0.5]))[0] == 0.0
    assert normalise(stats, jnp.array([constant + 1e6, 0.5]))[0] == 0.0
    assert np.isfinite(normalise(stats, jnp.array([constant, 0.5]))).all()


def test_clips_at_ten():
    stats = RunningStats(jnp.ones((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1)))
    np.testing.assert_array_equal(
        normalise(stats, jnp.array([[1e6], [-1e6], [3.0]])), [[CLIP], [-CLIP], [3.0]]
    )


def test_slots_with_different_counts_merge_independently():
    """A slot added later starts its own statistics: with count 0 it takes the batch's moments
    whole.
    """
    stats = RunningStats(
        jnp.array([[100.0, 0.0]]), jnp.array([[2.0, 0.0]]), jnp.array([[4.0, 1.0]])
    )
    batch = jnp.array([[3.0, 10.0], [5.0, 14.0]])
    merged = merge(stats, batch)
    np.testing.assert_allclose(merged.count, [[102.0, 2.0]])
    # slot 0: mean (100*2 + 3 + 5)/102; variance from second moments (100*(4 + 2^2) + 9 + 25)/102 -
    # mean^2
    mean = 208 / 102
    np.testing.assert_allclose(merged.mean, [[mean, 12.0]], rtol=1e-6)
    np.testing.assert_allclose(merged.variance, [[834 / 102 - mean**2, 4.0]], rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(0, 2**31 - 1),
)
def test_groups_are_the_statistics_of_their_rows_alone(batches, seed):
    """Any mix of groups in batches of six rows: each group has the moments of its own rows, as
    NumPy computes them. Without groups all rows are of one.
    """
    rng = np.random.default_rng(seed)
    scale = np.array([1.0, 300.0, 1e-3, 5.0])
    rows = [
        ((np.array(ids)[:, None] + rng.normal(size=(len(ids), 2))) * scale[ids][:, None]).astype(
            np.float32
        )
        for ids in batches
    ]
    stats, whole = init_stats(2, groups=4), init_stats(2)
    for ids, batch in zip(batches, rows, strict=True):
        stats = ADD(stats, jnp.asarray(batch), jnp.array(ids))
        whole = ADD(whole, jnp.asarray(batch))
    ids, data = np.concatenate(batches), np.concatenate(rows).astype(np.float64)
    found = [(stats, group, data[ids == group], scale[group]) for group in range(4)]
    for made, group, own, size in [*found, (whole, 0, data, 300.0)]:
        np.testing.assert_array_equal(made.count[group], np.full(2, len(own), np.float32))
        mean, variance = (own.mean(0), own.var(0)) if len(own) else (np.zeros(2), np.ones(2))
        np.testing.assert_allclose(made.mean[group], mean, rtol=1e-5, atol=1e-6 * size)
        np.testing.assert_allclose(made.variance[group], variance, rtol=1e-3, atol=1e-5 * size**2)


def test_several_groups_need_to_be_told_apart():
    with pytest.raises(AssertionError):
        merge(init_stats(2, groups=3), jnp.ones((4, 2)))
    with pytest.raises(AssertionError):
        normalise(init_stats(2, groups=3), jnp.ones(2))


@pytest.mark.parametrize(
    "groups", [None, jnp.array([0, 2, 2, 1])], ids=["one group", "three groups"]
)
def test_nothing_in_it_is_empty(groups):
    """An empty array becomes an input of a program for several devices, and JAX 0.11's compiler
    crashes at it.
    """
    stats = init_stats(3, 1 if groups is None else 3)
    text = str(
        jax.make_jaxpr(lambda stats, batch: merge(stats, batch, groups))(stats, jnp.ones((4, 3)))
    )
    assert "f32[4,3]" in text
    assert re.search(r"\b[a-z]\w*\[0\]", text) is None
