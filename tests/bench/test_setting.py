"""What is said of compiled programs: what a rollout stores, what reaches the
host.
"""

import jax
import jax.numpy as jnp
import pytest

from bench import setting
from tests.messages import refused
from tests.rl.test_train import KEY, PARAMS, PPO

SMALL = {"num_envs": 8, "num_steps": 8, "num_minibatches": 2, "num_epochs": 3, "hidden": (16, 8)}


@pytest.fixture(scope="module")
def world():
    return setting.world(4, env={"window": 3}, ppo=SMALL)


@pytest.fixture(scope="module")
def state(world):
    return jax.eval_shape(setting.learner(world, 4).init, KEY, world.params)


@pytest.mark.slow
def test_what_a_rollout_stores(world, state):
    """References of the step and of its end have a row and five numbers of the position, 24 bytes
    each. Reward, value, log-probability and action have 4 each. One word has the mask and the flag
    `first`, one the mask of the end and two flags."""
    kept = setting.stored(
        setting.learner(world, 4), state, world.params, world.config.rollout.num_steps
    )
    assert kept == {"words": 2 * 24 + 4 * 4 + 2 * 4}
    with refused("no loop", kind=ValueError):
        setting.stored(setting.learner(world, 4), state, world.params, 9)


def transfers(algorithm, state):
    return setting.host_transfers(setting.train_chunk(algorithm, state, PARAMS, 2).compile())


@pytest.mark.slow
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
        for name in setting.HOST_OPERATIONS
    ]
    assert setting.host_transfers(Module("\n".join(lines))) == dict.fromkeys(
        setting.HOST_OPERATIONS, 1
    )
    harmless = '  %send = f32[2] add(%recv, %infeed), metadata={op_name="send (callback)"}'
    assert setting.host_transfers(Module(harmless)) == {}


@pytest.mark.skipif(
    jax.default_backend() != "gpu", reason="on a CPU the host's memory is the device's: no transfer"
)
def test_a_chunk_runs_under_a_transfer_guard():
    state = jax.jit(PPO.init)(KEY, PARAMS)
    chunk = setting.train_chunk(PPO, state, PARAMS, 2).compile()
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(chunk(state, PARAMS))
