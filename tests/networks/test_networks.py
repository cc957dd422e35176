"""Initialisation and shapes of torsos and heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.networks.heads import ActorCritic


@functools.cache
def make(hidden=(16, 8), activation="tanh"):
    network = ActorCritic(5, hidden, activation)
    return network, jax.jit(network.init)(jax.random.key(0), None, jnp.zeros(11))


def test_torsos_are_separate():
    network, variables = make()
    x = jnp.ones(11)
    grads = jax.grad(lambda v: network.apply(v, None, x)[2])(variables)["params"]
    assert all(np.all(np.asarray(g) == 0) for g in jax.tree.leaves(grads["policy_torso"]))
    assert any(np.any(np.asarray(g) != 0) for g in jax.tree.leaves(grads["value_torso"]))


def test_orthogonal_with_the_published_gains():
    _, variables = make(hidden=(11, 11))
    params = variables["params"]
    kernel = params["policy_torso"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(kernel.T @ kernel, 2.0 * np.eye(11), atol=1e-5)
    head = params["policy_head"]["kernel"]
    np.testing.assert_allclose(head.T @ head, 1e-4 * np.eye(5), atol=1e-8)
    head = params["value_head"]["kernel"]
    np.testing.assert_allclose(head.T @ head, [[1.0]], atol=1e-6)
    assert all(
        np.all(np.asarray(leaf) == 0)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
        if "bias" in str(path[-1])
    )


@pytest.mark.slow
def test_activation_is_the_configured_one():
    network, variables = make(hidden=(4,), activation="relu")
    x = jax.random.normal(jax.random.key(2), (11,))
    layer, head = variables["params"]["value_torso"]["Dense_0"], variables["params"]["value_head"]
    expected = (np.maximum(x @ layer["kernel"] + layer["bias"], 0) @ head["kernel"] + head["bias"])[
        0
    ]
    np.testing.assert_allclose(network.apply(variables, None, x)[2], expected, rtol=1e-6)
