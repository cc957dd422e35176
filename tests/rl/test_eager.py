"""`compute.eager`: training without jit computes the numbers of the compiled program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.runs.setup import Setup
from jaxtrade.storage.compiling import Programs
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
