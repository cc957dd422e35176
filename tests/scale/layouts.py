"""A process that trains one small learner in several layouts, and prints what each computed.

    JAX_NUM_CPU_DEVICES=8 python -m tests.scale.layouts LEARNER CASE...        a JSON object: case -> figures of `Found`

A case is `one` (no mesh), or DEVICES with `p` (psum) or `s` (strict) before it, such as s8;
`AGENTSxCASE` trains a population, such as 2xp4; `CASE>CASE` stops in the first layout after half of
the run, and goes on in the second one;
`fault` is p2 with the shares of the devices weighted unequally.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import jax
import numpy as np

from jaxtrade.config import make_config
from jaxtrade.networks.reductions import Reduce
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.parts import part_of
from jaxtrade.rl.sharding import Spread, layout_of, mesh_of
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from jaxtrade.training.placing import ONE_DEVICE
from jaxtrade.training.population import Stack
from tests.rl.probes import Probe, probe_params

ENV = Probe((lambda ref, action: ref.cue * action + 0.1 * ref.time,))
PARAMS = probe_params(length=5)
ENVS, STEPS, GROUPS, UPDATES, CHUNK = 16, 8, 8, 4, 2
LEARNERS: dict[str, dict[str, Any]] = {
    "ppo": {"ppo": {"num_minibatches": 2, "num_epochs": 2}},
    "gru": {
        "network": {"kind": "gru", "rnn_width": 4},
        "ppo": {"num_minibatches": 2, "num_epochs": 1},
    },
    "pqn": {"pqn": {"num_minibatches": 2, "num_epochs": 2}},
    "dqn": {
        "dqn": {
            "buffer_size": 256,
            "batch_size": 32,
            "learning_starts": 128,
            "replay_ratio": 0.5,
            "target_every": 200,
        }
    },
    "prioritised": {
        "dqn": {
            "buffer_size": 256,
            "batch_size": 32,
            "learning_starts": 128,
            "replay_ratio": 0.5,
            "target_every": 200,
            "replay": "prioritised",
        }
    },
}


def config_of(learner, agents):
    own = LEARNERS[learner]
    return make_config(
        {
            "algorithm": next(name for name in own if name != "network"),
            **own,
            "network": {"hidden": [8]} | own.get("network", {}),
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
    found = layout_of(devices, stack.count, config.rollout.shards, layout[0] == "s")
    part = make_algorithm(part_of(config, found.parts), ENV, UPDATES, reduce=found.reduce)
    return Spread(found, mesh_of(found), part, stack, ENVS)


def trained(learner, case):
    agents, _, layouts = case.rpartition("x")
    config, state = config_of(learner, int(agents or 1)), None
    stack = Stack.of(config.train.num_seeds)
    whole, first, *rest = make_algorithm(config, ENV, UPDATES), *layouts.split(">")
    for number, layout in enumerate([first, *rest]):
        start: dict[str, Any] = {"key": stack.keys(0)} if state is None else {"state": state}
        hooks = (
            []
            if number == len(rest)
            else [lambda state, update: Change(stop=update >= UPDATES // 2)]
        )
        result = train(
            whole,
            PARAMS,
            config=config.train,
            num_seeds=stack,
            place=place_of(config, layout),
            hooks=hooks,
            **start,
        )
        state = result.state
    return result


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


def unequal(reduce, mean, most):
    """`Reduce.joined` with a mistake: the share of the first device counts three times that of the
    second.
    """
    weight = jax.numpy.where(jax.lax.axis_index(reduce.axis) == 0, 1.5, 0.5)
    return jax.tree.map(
        lambda x: jax.lax.pmean(weight * x, reduce.axis), mean
    ), reduce.max_of_parts(most)


def main(learner, *cases):
    found = {}
    for case in cases:
        if case == "fault":
            correct, Reduce.joined = Reduce.joined, unequal  # type: ignore[method-assign]
            found[case] = figures(trained(learner, "p2"))
            Reduce.joined = correct  # type: ignore[method-assign]
        else:
            found[case] = figures(trained(learner, case))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
