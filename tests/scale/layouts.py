"""A process that trains a small PPO in several layouts, and prints what each computed.

    JAX_NUM_CPU_DEVICES=8 python -m tests.scale.layouts CASE...        a JSON object: case -> `figures`

A case is `one` (no mesh), or DEVICES with `p` (psum) or `s` (strict) before it, such as s8;
`AGENTSxCASE` trains a population, such as 2xp4.
"""

import hashlib
import json
import sys

import jax
import numpy as np

from jaxtrade.config import make_config
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.sharding import MeshDevices, mesh_of, plan_mesh
from jaxtrade.rl.train_state import part_of
from jaxtrade.training.loop import train
from jaxtrade.training.population import ONE_DEVICE, Stack
from tests.rl.probes import Probe, probe_params

ENV = Probe((lambda ref, action: ref.cue * action + 0.1 * ref.time,))
PARAMS = probe_params(length=5)
ENVS, STEPS, GROUPS, UPDATES, CHUNK = 16, 8, 8, 2, 1


def config_of(agents):
    return make_config(
        {
            "ppo": {"num_minibatches": 2, "num_epochs": 2},
            "network": {"hidden": [8]},
            "rollout": {"num_envs": ENVS, "num_steps": STEPS, "num_shards": GROUPS},
            "train": {
                "total_timesteps": ENVS * STEPS * UPDATES,
                "chunk_updates": CHUNK,
                "num_seeds": agents,
            },
        }
    )


def place_of(config, layout):
    if layout == "one":
        return ONE_DEVICE
    stack, devices = Stack.of(config.train.num_seeds), int(layout[1:])
    found = plan_mesh(devices, stack.count, config.rollout.shards, layout[0] == "s")
    part = make_algorithm(part_of(config, found.parts), ENV, UPDATES, reduce=found.reduce)
    return MeshDevices(found, mesh_of(found), part, stack, ENVS)


def trained(case):
    agents, _, layout = case.rpartition("x")
    config = config_of(int(agents or 1))
    stack = Stack.of(config.train.num_seeds)
    return train(
        make_algorithm(config, ENV, UPDATES),
        PARAMS,
        config=config.train,
        num_seeds=stack,
        place=place_of(config, layout),
        key=stack.keys(0),
    )


def digest(tree):
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        data = (
            jax.random.key_data(leaf)
            if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
        )
        found.update(jax.tree_util.keystr(path).encode() + np.asarray(data).tobytes())
    return found.hexdigest()


def figures(result):
    """state: digest of the whole state. parameters: after the run. rows: metrics of the updates,
    without times.
    """
    times = ("seconds", "steps_per_second", "eta_seconds")
    parameters = np.concatenate(
        [np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(result.state.params)]
    )
    return {
        "state": digest(result.state),
        "parameters": parameters.tolist(),
        "rows": [
            {name: value for name, value in row.items() if name not in times}
            for row in result.history
        ],
    }


def main(*cases):
    print(json.dumps({case: figures(trained(case)) for case in cases}))


if __name__ == "__main__":
    main(*sys.argv[1:])
