"""Independent learners in a shared market: one update of each learner, permuted agents, a run and
its resumption.
"""

from __future__ import annotations

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.runs.train import resume, run
from jaxtrade.training.population import Stack

AGENTS = 3
SMALL = (
    "shared.on=true",
    f"train.num_seeds={AGENTS}",
    "shared.kappa=900",
    "shared.eta=800",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "train.total_timesteps=1024",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)
LEARNERS = {
    "ppo": ("ppo.num_minibatches=2", "ppo.num_epochs=2"),
    "dqn": (
        "algorithm=dqn",
        "dqn.buffer_size=2048",
        "dqn.learning_starts=256",
        "dqn.batch_size=32",
    ),
    "pqn": ("algorithm=pqn", "pqn.num_minibatches=2"),
}
OWN = ("crowding_profit", "impact_paid")
FIGURES = (
    *OWN,
    "crowding_return_spread",
    "crowding_position_correlation",
    "maker_profit",
    "offset_low",
    "offset_high",
)
ORDER = np.array([2, 0, 1])


def config(learner, *more):
    return load_config("quickstart", (*SMALL, *LEARNERS[learner], *more))


def updated(setup, keys):
    """All agents after two updates, and the metrics of the second."""
    algorithm = setup.stack.wrap(setup.algorithm)

    def both(state, params):
        state, _ = algorithm.update(state, params, None)
        return algorithm.update(state, params, None)

    init, update = jax.jit(algorithm.init), jax.jit(both)
    first = init(keys, setup.params), init(keys[ORDER], setup.params)
    return tuple(jax.device_get(update(state, setup.params)) for state in first)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(config("ppo"), tmp_path_factory.mktemp("runs") / "shared")


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_same_bits(whole, tmp_path):
    stopped = tmp_path / "stopped"
    shutil.copytree(whole.path, stopped)
    shutil.rmtree(stopped / "checkpoints" / "update-00000004")
    again = resume(stopped)
    for a, b in zip(
        jax.tree.leaves(whole.training.state), jax.tree.leaves(again.training.state), strict=True
    ):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def test_agents_meet_only_if_they_share_a_market():
    assert Stack.of_run(load_config("quickstart", ["train.num_seeds=3"])) == Stack((3,))
    assert Stack.of_run(config("ppo")) != Stack((3,))
