"""`compute.eager`: training without jit computes the numbers of the compiled program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.runs.setup import Setup, prepare
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.eager import EagerPrograms
from jaxtrade.training.loop import TrainResult, train

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


def trained(setup: Setup, programs: Programs) -> TrainResult:
    with programs:
        return train(
            setup.algorithm,
            setup.params,
            config=setup.config.train,
            key=jax.random.key(3),
            programs=programs,
        )


def plain(leaf: Any) -> np.ndarray:
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)


@pytest.mark.slow
def test_the_same_run_with_and_without_jit() -> None:
    setup = prepare(load_config("quickstart", TINY))
    compiled, eager = trained(setup, Programs()), trained(setup, EagerPrograms())
    assert len(eager.history) == 2
    assert eager.program_bytes is None
    assert eager.health["recompiles"] == (True, 0.0), (
        "operations that run by themselves are no recompilation"
    )
    unequal = []
    for (path, ours), theirs in zip(
        jax.tree.leaves_with_path(eager.state), jax.tree.leaves(compiled.state), strict=True
    ):
        ours, theirs = plain(ours), plain(theirs)
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-4, atol=1e-6, err_msg=jax.tree_util.keystr(path)
            )
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=jax.tree_util.keystr(path))
        unequal += [] if np.array_equal(ours, theirs) else [jax.tree_util.keystr(path)]
    assert not [name for name in unequal if "env_state" in name], (
        "the market's state has the same bits"
    )
    for ours, theirs in zip(eager.history, compiled.history, strict=True):
        for name in ours.keys() - {"seconds", "steps_per_second", "eta_seconds"}:
            np.testing.assert_allclose(
                np.asarray(ours[name], float),
                np.asarray(theirs[name], float),
                rtol=1e-3,
                atol=1e-6,
                err_msg=name,
            )
