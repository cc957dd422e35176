"""PQN's program for a device, and on several devices, computes what that of one CPU does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.networks.reductions import Reduce
from jaxtrade.rl.pqn import make_pqn
from tests.rl.probes import probe_params
from tests.rl.test_pqn import ASKED, ENV, config

PARAMS = probe_params(ASKED, length=3)
KEYS = ("pqn.learning_rate=1e-3", "pqn.num_epochs=2", "pqn.dueling=true")


def updated(algorithm, key):
    return algorithm.update(algorithm.init(key, PARAMS), PARAMS, None)


@pytest.fixture(scope="module")
def alone():
    return jax.jit(lambda key: updated(make_pqn(config(*KEYS), ENV, 4), key))(jax.random.key(2))


@pytest.mark.slow
def test_the_form_of_a_device_agrees_up_to_rounding(alone):
    device = make_pqn(config(*KEYS), ENV, 4, platform="gpu")
    state, metrics = jax.jit(lambda key: updated(device, key))(jax.random.key(2))
    for ours, theirs in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(alone[0].params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert float(metrics["td_loss"]) == pytest.approx(float(alone[1]["td_loss"]), rel=1e-4)


@pytest.mark.slow
def test_two_parts_of_the_environments_learn_as_one(alone):
    """Each part holds half of the environments and of the groups; figures and gradients are over
    both.
    """
    half = make_pqn(
        config(*KEYS, "rollout.num_envs=16", "rollout.num_shards=4"), ENV, 4, reduce=Reduce("parts")
    )
    parts = jax.jit(jax.vmap(lambda _, key: updated(half, key), (0, None), axis_name="parts"))
    state, metrics = parts(jnp.arange(2), jax.random.key(2))
    for ours, theirs in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(alone[0].params), strict=True
    ):
        np.testing.assert_allclose(ours[0], theirs, atol=2e-6)
        np.testing.assert_array_equal(ours[0], ours[1])
    np.testing.assert_array_equal(metrics["illegal"], [0, 0])
    assert float(metrics["q_max"][0]) == pytest.approx(float(alone[1]["q_max"]), rel=1e-5)
