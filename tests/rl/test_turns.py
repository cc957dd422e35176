"""Groups of agents that take turns compute what all agents side by side compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.training.population import LARGEST, group_size, in_turns

TREE = {"a": jnp.arange(12.0).reshape(12, 1), "b": jnp.arange(12)}
SCALES = {"own": jnp.arange(12.0), "shared": jnp.float32(3)}


def scaled(tree, scales, shift):
    return {
        "sum": tree["a"].sum() * scales["own"] + scales["shared"],
        "b": tree["b"] + shift,
    }, scales["shared"] * 2


@pytest.mark.parametrize(
    ("count", "most", "size"), [(12, 8, 6), (16, 8, 8), (64, 8, 8), (7, 8, 7), (13, 8, 1)]
)
def test_groups_are_equal(count, most, size):
    assert group_size(count, most) == size


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 4, 5, 12, None])
def test_turns_are_the_map(most):
    axes = (0, {"own": 0, "shared": None}, None)
    expected = jax.vmap(scaled, axes)(TREE, SCALES, jnp.int32(5))
    found = jax.jit(in_turns(scaled, axes, most))(TREE, SCALES, jnp.int32(5))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_few_agents_at_a_time_unless_their_states_are_large():
    small, large = (jax.ShapeDtypeStruct((4, size), jnp.float32) for size in (8, LARGEST // 4 + 1))
    for state, loops in ((small, 1), (large, 0)):
        text = str(jax.make_jaxpr(in_turns(lambda x: x + 1, (0,), 2))(state))
        assert text.count("scan[") == loops
