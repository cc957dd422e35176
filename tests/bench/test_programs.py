"""What is said of compiled programs: operations counted, what a rollout stores, what reaches the
host.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench import harness, ppo_update, products, programs, setting
from bench.learning import Learning, learning_of
from bench.rollout import Storing
from tests.rl.test_train import KEY, PARAMS, PPO

SMALL = {"num_envs": 8, "num_steps": 8, "num_minibatches": 2, "num_epochs": 3, "hidden": (16, 8)}


@pytest.fixture(scope="module")
def world():
    return setting.world(4, env={"window": 3}, ppo=SMALL)


@pytest.fixture(scope="module")
def state(world):
    return jax.eval_shape(programs.learner(world, 4).init, KEY, world.params)


def test_matrix_products_are_counted_through_loops_and_functions():
    a, b = jnp.zeros((3, 5)), jnp.zeros((5, 7))

    def once(a, b):
        return jax.jit(jnp.dot)(a, b)

    def often(a, b):
        return jax.lax.scan(
            lambda total, _: (total + once(a, b), None), jnp.zeros((3, 7)), None, length=11
        )

    assert programs.matmul_flops(once, a, b) == 2 * 3 * 5 * 7
    assert programs.matmul_flops(often, a, b) == 11 * 2 * 3 * 5 * 7
    batched = jax.vmap(once, (0, None))
    assert programs.matmul_flops(batched, jnp.zeros((4, 3, 5)), b) == 4 * 2 * 3 * 5 * 7


@pytest.mark.slow
def test_epochs_have_the_operations_that_the_shapes_say(world, state):
    """The rule for a network's shapes, against the products of the traced update; and against XLA's
    own count.
    """
    config, size, actions = (
        learning_of(world.config),
        world.env.observation_size,
        world.env.num_actions,
    )
    counted = []
    for epochs in (config.num_epochs, 2 * config.num_epochs):
        longer = world._replace(
            config=setting.config(4, env={"window": 3}, ppo=SMALL | {"num_epochs": epochs})
        )
        algorithm = programs.learner(longer, 4)
        counted.append(
            programs.matmul_flops(lambda s, p, a=algorithm: a.update(s, p, ()), state, world.params)
        )
    assert counted[1] - counted[0] == products.learn_flops(config, size, actions)
    wide = Learning(num_envs=16, num_steps=16, num_minibatches=1, hidden=(64, 64))
    found = ppo_update.gradient_flops(wide, 228, 7)
    assert 1.0 <= found["xla"] / found["from_shapes"] < 1.05  # elementwise operations come on top


def test_a_chain_of_products_keeps_its_values_and_counts_them():
    _, flops = products.chain(4, 6, 3, 10)
    assert flops == 10 * 2 * (2 * 4 * 6 * 3)
    for shape in ((4, 3, 6), (5, 5, 5)):  # the way there and back is the identity
        x = jax.random.normal(jax.random.key(1), (shape[0], shape[1]))
        np.testing.assert_allclose(products.chain(*shape, 10)[0](), x, rtol=1e-4, atol=1e-5)


def test_parts_of_an_update_add_up():
    samples = {
        name: [harness.Sample(wall, 2 * wall)]
        for name, wall in {
            "update": 10.0,
            "update_twice": 17.0,
            "rollout": 2.0,
            "normaliser": 0.5,
            "shuffle": 0.25,
        }.items()
    }
    found = ppo_update.parts(samples)
    assert {name: part["seconds"] for name, part in found.items()} == {
        "rollout": 2.0,
        "normaliser": 0.5,
        "shuffle": 0.25,
        "learn": 7.0,
        "rest": 0.5,
    }
    assert found["learn"] == {"seconds": 7.0, "cpu_seconds": 14.0, "share": 0.7}


def test_what_a_rollout_stores(world, state):
    """References of the step and of its end have a row and five numbers of the position, 24 bytes
    each. Reward, value, log-probability and action have 4 each. One word has the mask and the flag
    `first`, one the mask of the end and two flags."""
    kept = programs.stored(
        programs.learner(world, 4), state, world.params, world.config.rollout.num_steps
    )
    assert kept == {"words": 2 * 24 + 4 * 4 + 2 * 4}
    with pytest.raises(ValueError, match="no loop of the update"):
        programs.stored(programs.learner(world, 4), state, world.params, 9)


def test_stored_observations_are_those_of_the_references(world):
    storing = Storing(world.env)

    def both(params):
        state, ref = world.env.reset(KEY, params)
        return state, world.env.observe(ref, params), ref.mask, storing.reset(KEY, params)[1]

    state, observation, mask, seen = jax.jit(both)(world.params)
    np.testing.assert_array_equal(seen.observation, observation)
    np.testing.assert_array_equal(seen.mask, mask)
    _, after, outcome = jax.eval_shape(storing.step, KEY, state, jnp.int32(0), world.params)
    assert (after.observation.shape, outcome.final_ref) == ((world.env.observation_size,), None)


def transfers(algorithm, state):
    return programs.host_transfers(programs.train_chunk(algorithm, state, PARAMS, 2).program)


def test_a_chunk_never_calls_the_host():
    assert transfers(PPO, jax.eval_shape(PPO.init, KEY, PARAMS)) == {}


def test_a_planted_callback_is_found():
    def update(state, params, inputs):
        jax.debug.callback(lambda x: None, state)
        return state + 1, {"state": state}

    found = transfers(PPO._replace(update=update), jnp.int32(0))
    assert sum(found.values()) >= 1
    assert all(name.startswith("callback ") for name in found)


class Module:
    """A compiled program that consists of its text."""

    def __init__(self, text):
        self.as_text = lambda: text


def test_every_operation_that_reaches_the_host_is_found():
    lines = [
        f"  %{name}.1 = (f32[2]{{0}}, token[]) {name}(token[] %x), channel_id=1"
        for name in programs.HOST_OPERATIONS
    ]
    assert programs.host_transfers(Module("\n".join(lines))) == dict.fromkeys(
        programs.HOST_OPERATIONS, 1
    )
    harmless = '  %send = f32[2] add(%recv, %infeed), metadata={op_name="send (callback)"}'
    assert programs.host_transfers(Module(harmless)) == {}


@pytest.mark.skipif(
    jax.default_backend() != "gpu", reason="on a CPU the host's memory is the device's: no transfer"
)
def test_a_chunk_runs_under_a_transfer_guard():
    state = jax.jit(PPO.init)(KEY, PARAMS)
    chunk = programs.train_chunk(PPO, state, PARAMS, 2).program
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(chunk(state, PARAMS))
