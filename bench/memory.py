"""Bytes: what an environment, a rollout and compiled programs need, and peak resident memory.

Sizes follow from the programs that are compiled, not from a run; only `peak_resident` runs
something, in a process of its own. Stored are the leaves of `Transition` that an update still reads
once dead code is removed, from the traced program. Peers are asked for the temporaries of their
training programs with 4,096 environments x 128 steps.
"""

import jax
import yaml

from jaxtrade.storage.sizes import tree_bytes

from . import peers, setting
from .worker import once, peak_resident

ENVS = 65_536  # of the row about the environment's step
SMALL = {"num_envs": 64, "num_steps": 16}
TRAINING = yaml.safe_load("""
default: {num_envs: 256, num_steps: 128}
4096x128: &large {num_envs: 4096, num_steps: 128}
peers: {<<: *large, num_minibatches: 8, normalise_observations: false}
""")
PEER = TRAINING.pop("peers")


def update_of(ppo, sessions):
    """One compiled update, and what it begins with."""
    world = setting.world(sessions, ppo=ppo)
    return setting.Update(setting.learner(world, 100), world.params)


def of_env_step(envs, sessions):
    """Return the temporaries of two fused steps of `envs` environments. A part of `device`, too.

    Every observation is consumed; the figure is bytes of one environment.
    """
    world = setting.world(sessions)
    stepping = jax.jit(setting.stepping(world.env, envs, 2))
    program = stepping.lower(world.params, jax.random.key(0)).compile()
    return setting.temporary_bytes(program, envs)["temporary_bytes_per_step"]


def peak(ppo, sessions):
    """Run one update in a child.

    Its peak is that of import, market, compilation and the update together.
    """
    jax.block_until_ready(update_of(ppo, sessions)())
    return peak_resident()


def training(**given):
    """Temporaries of an update, and the peak of a process that makes one."""
    update = update_of(**given)
    found = setting.temporary_bytes(update.program, update.steps)
    return found | {"peak_resident_bytes": once("memory.peak", given)}


def run(options):
    sessions = 8 if options.quick else setting.SESSIONS
    chosen = {"small": SMALL} if options.quick else TRAINING
    world = setting.world(sessions, ppo=next(iter(chosen.values())))
    algorithm, num_envs = setting.learner(world, 100), world.config.rollout.num_envs
    state = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    stored = setting.stored(algorithm, state, world.params, world.config.rollout.num_steps)
    peer = PEER | (SMALL if options.quick else {})
    beside = setting.world(sessions, ppo=peer)
    theirs, missing = peers.compiled_temporaries(beside.config, beside, options)
    ours = theirs["jaxtrade"]["temporaries"]
    over = {
        f"{name}_over_jaxtrade": {"temporaries": each["temporaries"] / ours}
        for name, each in theirs.items()
        if name != "jaxtrade"
    }
    return {
        "config": {"env_step_envs": ENVS, "peers": peer, "sessions": sessions, "training": chosen},
        "bytes": {
            "env_state_bytes_per_env": tree_bytes(state.env_state) / num_envs,
            "stored_bytes_per_step": sum(stored.values()),
            "env_step_temporary_bytes_per_env": of_env_step(ENVS, sessions),
            "observation_bytes": 4 * world.env.observation_size,
            "market_bytes": tree_bytes(world.params),
        },
        "training": {name: training(ppo=ppo, sessions=sessions) for name, ppo in chosen.items()},
        "peers": theirs,
        "left_out": missing,
        **over,
    }
