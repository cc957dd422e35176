"""Orthogonal starts never wait for each other: a batch of QR decompositions can hang jaxlib's CPU
thread pool.
"""

import flax.linen as nn
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.networks.heads import ActorCritic
from jaxtrade.networks.torso import orthogonal

QR = ("geqrf", "qr", "householder_product", "geqp3")


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def decompositions(init):
    """Numbers of axes of the matrices that are decomposed."""
    jaxpr = jax.make_jaxpr(jax.vmap(init))(jax.random.split(jax.random.key(0), 3)).jaxpr
    return [
        equation.invars[0].aval.ndim
        for equation in equations(jaxpr)
        if equation.primitive.name in QR
    ]


def test_several_agents_are_made_one_matrix_at_a_time():
    network = ActorCritic(num_actions=5, hidden=(8,), memory=8)
    made = decompositions(lambda key: network.init(key, network.first_carry(), jnp.zeros(11)))
    assert len(made) >= 5
    assert set(made) == {2}
    assert 3 in decompositions(
        lambda key: nn.initializers.orthogonal()(key, (4, 4))
    )  # the check can fail


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(11, 4), (4, 11), (4, 4)])
def test_agents_get_what_each_would_get_alone(shape):
    keys = jax.random.split(jax.random.key(1), 3)
    made = jax.jit(jax.vmap(lambda key: orthogonal(0.5)(key, shape)))(keys)
    for key, matrix in zip(keys, made, strict=True):
        np.testing.assert_allclose(matrix, nn.initializers.orthogonal(0.5)(key, shape), atol=1e-6)
