"""`compute.eager`: training without jit computes the numbers of the compiled program."""

import jax
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.runs.setup import prepare
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.loop import train
from tests.rl.test_train import assert_close, assert_same, timeless

TINY = (
    "data.source=synthetic",
    "data.synthetic_sessions=3",
    "network.hidden=[4]",
    "rollout.num_envs=2",
    "rollout.num_steps=2",
    "ppo.num_minibatches=1",
    "ppo.num_epochs=1",
    "train.total_timesteps=8",
    "train.chunk_updates=1",
    "env.window=2",
    "env.features=[close]",
)


@pytest.mark.slow
def test_the_same_run_with_and_without_jit():
    made = prepare(load_config("quickstart", TINY))

    def trained(programs):
        with programs:
            return train(
                made.algorithm,
                made.params,
                config=made.config.train,
                key=jax.random.key(3),
                programs=programs,
            )

    compiled, eager = trained(Programs()), trained(Programs(eager=True))
    assert eager.program_bytes is None
    assert eager.health["recompiles"] == (True, 0.0)  # operations that run by themselves are none
    assert_close(eager.state, compiled.state, rtol=1e-4)
    assert_same(eager.state.env_state, compiled.state.env_state)
    rows = (timeless(each.history) for each in (eager, compiled))
    for ours, theirs in zip(*rows, strict=True):
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-6, err_msg=name)
