"""The GRU against its equations in NumPy; memory over a sequence against one step
after the other.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.networks.heads import ActorCritic
from jaxtrade.networks.torso import FLOAT32, GRU, cell, forget, recall, run_gru
from tests.rl.test_train import assert_close

WIDTH, SIZE = 3, 5
STEPS, SEQUENCES = 7, 4


@pytest.fixture(scope="module")
def network():
    """A small recurrent network with lively weights, biases too."""
    network = ActorCritic(4, (6,), memory=WIDTH)
    variables = jax.jit(network.init)(jax.random.key(0), network.first_carry(), jnp.zeros(SIZE))
    rng = np.random.default_rng(0)
    lively = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), variables["params"]
    )
    return network, lively


@pytest.fixture(scope="module")
def sequences():
    """Observations [T, S, D], first [T, S] with episodes beginning inside, and the carries of
    before.
    """
    rng = np.random.default_rng(1)
    first = np.zeros((STEPS, SEQUENCES), bool)
    first[0, :2], first[3, 0], first[6, 3] = True, True, True
    return (
        rng.normal(size=(STEPS, SEQUENCES, SIZE)).astype(np.float32),
        first,
        rng.normal(size=(SEQUENCES, WIDTH)).astype(np.float32),
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(parameters, carry, x):
    """One step of the equations in the docstring, in NumPy float64."""
    own, seen = (
        np.split(x @ np.asarray(part["kernel"], np.float64) + np.asarray(part["bias"]), 3, axis=-1)
        for part, x in ((parameters["recurrent"], carry), (parameters["input"], x))
    )
    r, z = sigmoid(seen[0] + own[0]), sigmoid(seen[1] + own[1])
    n = np.tanh(seen[2] + r * own[2])
    return (1 - z) * n + z * carry


def test_a_step_by_the_equations(network, sequences):
    net, parameters = network
    observations, _, carry = sequences
    made = net.apply({"params": parameters}, carry, observations[0], method="remember")
    np.testing.assert_allclose(
        made, by_hand(parameters["gru"], carry, observations[0]), rtol=1e-5, atol=1e-6
    )


def test_every_gate_begins_orthogonal():
    made = GRU(WIDTH).init(jax.random.key(0), jnp.zeros(WIDTH), jnp.zeros(SIZE))["params"][
        "recurrent"
    ]["kernel"]
    gates = np.split(np.asarray(made), 3, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(WIDTH), atol=1e-6)
    assert not np.allclose(gates[0], gates[1])


def test_forget_where_an_episode_begins():
    carry = {"a": jnp.ones((2, 3, 4))}
    first = jnp.array([[True, False, False], [False, False, True]])
    np.testing.assert_array_equal(forget(carry, first)["a"][..., 0], [[0, 1, 1], [1, 1, 0]])
    assert forget(None, first) is None


def test_recall_is_one_step_after_the_other(network, sequences):
    net, parameters = network
    observations, first, carry = sequences
    rows = recall(net, parameters, carry, observations.reshape(-1, SIZE), first.reshape(-1))
    expected = []
    for t in range(STEPS):
        carry = by_hand(parameters["gru"], np.where(first[t][:, None], 0, carry), observations[t])
        expected.append(carry)
    np.testing.assert_allclose(
        np.reshape(rows, (STEPS, SEQUENCES, WIDTH)), expected, rtol=1e-4, atol=1e-5
    )
    assert recall(net, parameters, None, observations.reshape(-1, SIZE), first.reshape(-1)) is None


def test_torsos_read_observation_and_memory(network, sequences):
    net, parameters = network
    x = jnp.asarray(sequences[0][0, 0])
    carry, logits, value = net.apply({"params": parameters}, net.first_carry(), x)
    again = net.apply({"params": parameters}, carry, x, method="heads")
    np.testing.assert_array_equal(logits, again[0])
    np.testing.assert_array_equal(value, again[1])
    for torso in ("policy_torso", "value_torso"):
        assert parameters[torso]["Dense_0"]["kernel"].shape == (SIZE + WIDTH, 6)
    other = net.apply({"params": parameters}, carry + 1, x, method="heads")
    assert not np.allclose(logits, other[0])
    assert not np.allclose(value, other[1])


def test_the_gradient_by_hand_is_that_of_autodiff(network, sequences):
    """`run_gru` against the same steps differentiated by JAX, for weights, carry and gates."""
    _, parameters = network
    weights = parameters["gru"]["recurrent"]
    _, first, carry = sequences
    rng = np.random.default_rng(2)
    gates = jnp.asarray(rng.normal(size=(STEPS, SEQUENCES, 3 * WIDTH)), jnp.float32)
    factors = jnp.asarray(rng.normal(size=(STEPS, SEQUENCES, WIDTH)), jnp.float32)

    def by_steps(weights, carry, gates):
        def step(carry, now):
            gates, first = now
            carry = forget(carry, first)
            carry = cell(carry @ weights[0] + weights[1], gates, carry)
            return carry, carry

        return jax.lax.scan(step, carry, (gates, jnp.asarray(first)))[1]

    def ours(weights, carry, gates):
        return run_gru(FLOAT32, weights, carry, gates, jnp.asarray(first))

    given = ((weights["kernel"], weights["bias"]), jnp.asarray(carry), gates)
    np.testing.assert_allclose(ours(*given), by_steps(*given), rtol=1e-6, atol=1e-6)
    expected, found = (
        jax.jit(jax.grad(lambda *x, run=run: (factors * run(*x)).sum(), argnums=(0, 1, 2)))(*given)
        for run in (by_steps, ours)
    )
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_network_without_run_is_stepped(network, sequences):
    """A network of one's own may have `read` and `step` alone."""
    net, parameters = network

    class Stepping:
        def apply(self, variables, *arguments, method):
            return net.apply(variables, *arguments, method=method)

    observations, first, carry = sequences
    rows = jnp.asarray(observations.reshape(-1, SIZE)), jnp.asarray(first.reshape(-1))
    np.testing.assert_allclose(
        recall(Stepping(), parameters, jnp.asarray(carry), *rows),
        recall(net, parameters, jnp.asarray(carry), *rows),
        rtol=1e-5,
        atol=1e-6,
    )
