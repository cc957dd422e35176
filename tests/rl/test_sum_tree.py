"""The sum tree: parents are the sums of their children, bit for bit, and a leaf of value 0 is never
drawn.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.rl import replay
from jaxtrade.rl.replay import tree_of

draw, with_leaves = jax.jit(replay.draw_leaves), jax.jit(replay.with_leaves)


def numpy_levels(leaves):
    """The levels by another route: explicit loops in NumPy's float32."""
    levels = [np.asarray(leaves, np.float32)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        half = -(-len(below) // 2)
        levels.append(
            np.array(
                [
                    below[i] + (below[i + half] if i + half < len(below) else np.float32(0))
                    for i in range(half)
                ],
                np.float32,
            )
        )
    return levels


def assert_sums(tree):
    for level, expected in zip(tree.levels, numpy_levels(tree.leaves), strict=True):
        np.testing.assert_array_equal(level, expected)


def test_a_draw_by_hand():
    """Leaves in the order of the descent: 0, 3, 2, 1, 4. The five ranges of the total 31 begin at
    0, 6.2, ..., 24.8.
    """
    tree = tree_of(jnp.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert draw(tree, jnp.zeros(5)).tolist() == [0, 3, 2, 4, 4]
    assert draw(tree, jnp.full(5, 0.99)).tolist() == [3, 2, 4, 4, 4]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 3, 7, 12]), st.data())
def test_set_leaves_make_the_tree_of_those_leaves(count, data):
    """Also with one leaf set twice: the largest value counts."""
    values = st.floats(0, 100, width=32, allow_subnormal=False)  # XLA takes them for 0
    leaves = data.draw(st.lists(values, min_size=count, max_size=count))
    index = data.draw(st.lists(st.integers(0, count - 1), min_size=4, max_size=4))
    value = data.draw(st.lists(values, min_size=4, max_size=4))
    tree = with_leaves(
        tree_of(jnp.array(leaves, jnp.float32)), jnp.array(index), jnp.array(value, jnp.float32)
    )
    expected = np.array(leaves, np.float32)
    for i in set(index):
        expected[i] = max(v for j, v in zip(index, value, strict=True) if i == j)
    np.testing.assert_array_equal(tree.leaves, expected)
    assert_sums(tree)


@pytest.mark.slow
def test_a_million_updates_do_not_drift():
    """250 batches of 4,000 random updates, values over nine orders of magnitude, a third of them 0;
    64 draws after each. Then all leaves but one are 0, where any drift in a parent would be
    drawn."""
    count = 1001

    @jax.jit
    def run(tree, key):
        def step(tree, key):
            keys = jax.random.split(key, 5)
            index = jax.random.randint(keys[0], (4000,), 0, count)
            value = 10.0 ** jax.random.uniform(keys[1], (4000,), minval=-6.0, maxval=3.0)
            tree = with_leaves(
                tree, index, jnp.where(jax.random.bernoulli(keys[2], 1 / 3, (4000,)), 0.0, value)
            )
            drawn = draw(tree, jax.random.uniform(keys[3], (64,)))
            return tree, (tree.leaves[drawn] > 0).all()

        return jax.lax.scan(step, tree, jax.random.split(key, 250))

    tree, positive = run(tree_of(jnp.zeros(count)), jax.random.key(0))
    assert positive.all()
    assert_sums(tree)
    alone = with_leaves(tree, jnp.arange(count), jnp.where(jnp.arange(count) == 7, 1e-6, 0.0))
    assert_sums(alone)
    assert draw(alone, jnp.linspace(0, 0.999, 64)).tolist() == [7] * 64


def test_an_empty_tree_draws_leaf_zero():
    assert draw(tree_of(jnp.zeros(6)), jnp.array([0.0, 0.9])).tolist() == [0, 0]
