"""Packing changes no bit of any number, whatever the leaves are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.rl.packing import WIDEST, packing_of

KINDS = (np.bool_, np.uint8, np.uint16, np.uint32, np.int32, np.float32, np.int8)
LEAVES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([(), (1,), (3,), (2, 2), (WIDEST + 1,)])),
    min_size=1,
    max_size=12,
)


def tree_of(leaves, lead, seed):
    rng = np.random.default_rng(seed)
    raw = [
        rng.integers(0, 256, (*lead, *shape, np.dtype(kind).itemsize), np.uint8)
        for kind, shape in leaves
    ]
    arrays = [
        (x[..., 0] > 127) if kind == np.bool_ else x.reshape(*x.shape[:-1], -1).view(kind)[..., 0]
        for x, (kind, _) in zip(raw, leaves, strict=True)
    ]
    return {f"leaf {i}": jnp.asarray(x) for i, x in enumerate(arrays)}


def bits_of(x):
    return np.asarray(x).view(np.uint32) if x.dtype == np.float32 else np.asarray(x)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(LEAVES, st.sampled_from([(5,), (2, 3)]), st.sampled_from([0, 1]), st.integers(0, 99))
def test_every_bit_comes_back(leaves, lead, axis, seed):
    tree = tree_of(leaves, lead, seed)
    packing = packing_of(tree, len(lead))
    if not packing.count:
        return
    packed = packing.pack(tree, axis)
    assert packed.words.shape[axis] == packing.count
    back = packing.unpack(packed, axis)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(bits_of(one), bits_of(other))


def test_small_numbers_share_words_by_hand():
    """Two flags, three bytes and a float: 2 + 24 bits in one word, 32 in the next."""
    tree = {
        "a": jnp.array([True]),
        "b": jnp.array([[1, 2, 3]], jnp.uint8),
        "c": jnp.array([1.0]),
        "d": jnp.array([True]),
    }
    packing = packing_of(tree)
    packed = packing.pack(tree)
    assert packing.count == 2
    # bit 0: a. bits 1 .. 24: the bytes. bit 25: d, which comes after the float but still fits.
    assert packed.words[:, 0].tolist() == [1 | 1 << 1 | 2 << 9 | 3 << 17 | 1 << 25, 0x3F800000]
    assert packing_of({"flags": jnp.zeros((4, 33), bool)}).count == 2


def test_wide_and_strange_arrays_stay_as_they_are():
    tree = {
        "wide": jnp.zeros((4, WIDEST + 1)),
        "key": jax.random.split(jax.random.key(0), 4),
        "x": jnp.ones(4),
    }
    packing = packing_of(tree)
    packed = packing.pack(tree)
    assert packing.count == 1
    assert [leaf.shape for leaf in packed.rest] == [(4,), (4, WIDEST + 1)]
    assert packing.unpack(packed)["wide"] is tree["wide"]


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -0.0, 1e-45])
def test_special_floats(value):
    tree = (jnp.full(3, value, jnp.float32),)
    packing = packing_of(tree)
    np.testing.assert_array_equal(bits_of(packing.unpack(packing.pack(tree))[0]), bits_of(tree[0]))
