"""Learning curves with matrix products in float32, TF32 and bfloat16, on a task of known optimum.

There are 8 seeds each.

Task and hyper-parameters are those of `time_to_reward`, with 64 environments. A curve is the mean
reward per step of each update, while the policy explores, as a share of the optimum. The seeds are
one program. Where a platform has no such products, their operands are rounded and the product is
float32 (`networks.torso`): `emulated` says where. A precision learns as well as float32 if the
interval of the difference holds 0: bootstrap over the seeds, paired because a seed begins with the
same network and the same episodes in all precisions.
"""

import typing

import jax
import numpy as np

from bench import setting
from bench import time_to_reward as chosen
from bench.time_to_reward import REWARD, config_of
from jaxtrade.config.running import Precision
from jaxtrade.interop.world import load_world
from jaxtrade.networks.torso import dot_general_of
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.training.population import Stack

from . import DRAWS, LEVEL, interval, main

PRECISIONS = typing.get_args(Precision)
# Environments of each seed; the last updates, whose mean is compared.
NUM_ENVS, UPDATES, LAST = 64, 150, 30
QUICK_UPDATES = 3


def curves_of(precision, seeds, updates):
    """Return curves and errors.

    Curves are shares of the optimum, float64[updates, seeds]; errors are the largest ratio error of
    each seed, float64[seeds].
    """
    config = config_of(NUM_ENVS, compute={"precision": precision})
    env, params = load_world(config)
    stack = Stack.of(seeds)
    agents = stack.wrap(make_ppo(config, env, updates, summarise=REWARD))
    state = jax.jit(agents.init)(stack.keys(0), params)
    step = setting.update_of(agents)
    rewards, errors = [], []
    for _ in range(updates):
        state, metrics = step(state, params)
        rewards.append(np.asarray(metrics["reward"], np.float64))
        errors.append(np.asarray(metrics["ratio_error"], np.float64))
    return np.stack(rewards) / chosen.OPTIMUM, np.stack(errors).max(axis=0)


def summary(shares, errors, reference, last):
    """Return the figures of one precision.

    shares, reference: float64[updates, seeds], the latter of float32.
    """
    ends, compared = shares[-last:].mean(axis=0), reference[-last:].mean(axis=0)
    found = {
        "mean": shares.mean(axis=1),
        "least": shares.min(axis=1),
        "greatest": shares.max(axis=1),
        "end_of_each_seed": ends,
        "end": ends.mean(),
        "end_minus_float32": (ends - compared).mean(),
        "interval": interval(np.mean, ends - compared),
        "largest_ratio_error": errors.max(),
    }
    return jax.tree.map(lambda x: np.asarray(x).tolist(), found)


def run(quick):
    seeds, updates = (2, QUICK_UPDATES) if quick else (len(chosen.SEEDS), UPDATES)
    last = min(LAST, updates)
    taken = {precision: curves_of(precision, seeds, updates) for precision in PRECISIONS}
    reference = taken["float32"][0]
    return {
        "config": {
            "seeds": seeds,
            "updates": updates,
            "steps_of_an_update": chosen.ROLLOUT,
            "num_envs": NUM_ENVS,
            "last_updates": last,
            "optimum": chosen.OPTIMUM,
            "ppo": chosen.PPO,
            "draws": DRAWS,
            "level": LEVEL,
        },
        "curves": {
            precision: summary(*found, reference, last) for precision, found in taken.items()
        },
        "emulated": [
            precision for precision in PRECISIONS if dot_general_of(precision).mantissa is not None
        ],
    }


if __name__ == "__main__":
    main("precision", __doc__ or "", run)
