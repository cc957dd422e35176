"""Bytes: what an environment and a rollout keep, what compiled programs need beside it, and peak
resident memory.

Sizes follow from the programs that are compiled, not from a run; only `peak_resident` runs
something, in a process of its own. `stored` are the leaves of `Transition` that an update still
reads once dead code is removed, from the traced program; `temporary_growth_per_step` is the same
question to the compiled one: how much more it needs for one more step of one environment,
advantages, targets and row numbers included. Peers are asked for the temporaries of their training
programs with 4,096 environments x 128 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from . import harness, peers, programs, setting
from .catalogue import Options
from .learning import learning_of
from .worker import Worker

ENVS = 65_536  # of the row about `env_step`
TRAINING = {
    "default": {"num_envs": 256, "num_steps": 128},
    "4096x128": {"num_envs": 4096, "num_steps": 128},
}
PEER: dict[str, Any] = {
    "num_envs": 4096,
    "num_steps": 128,
    "num_minibatches": 8,
    "normalise_observations": False,
}
TARGETS = {
    "env_state_bytes_per_env": 256,
    "stored_bytes_per_step": 72,
    "env_step_temporary_bytes_per_env": 1500,
}


def _shapes(world: setting.World, algorithm: Any) -> Any:
    return jax.eval_shape(algorithm.init, jax.random.key(0), world.params)


def _update(world: setting.World) -> Any:
    """One compiled update, which takes the state over as the training loop's does."""
    algorithm = programs.learner(world, 100)
    return programs.compiled(
        lambda state, params: algorithm.update(state, params, None),
        _shapes(world, algorithm),
        world.params,
        donate=(0,),
    ).program


def state_bytes(world: setting.World) -> dict[str, Any]:
    """What the train state carries of each environment, in bytes per environment."""
    state, num_envs = (
        _shapes(world, programs.learner(world, 100)),
        learning_of(world.config).num_envs,
    )
    carried = {
        "env_state": state.env_state,
        "ref": state.ref,
        "first": state.first,
        "episodes": state.episodes,
    }
    leaves = {
        jax.tree_util.keystr(path).lstrip("."): programs.tree_bytes(leaf) // num_envs
        for path, leaf in jax.tree_util.tree_flatten_with_path(state.env_state)[0]
    }
    return {name: programs.tree_bytes(tree) / num_envs for name, tree in carried.items()} | {
        "env_state_leaves": leaves
    }


def env_step_temporaries(world: setting.World, num_envs: int) -> int:
    """Of two fused steps of `num_envs` environments, every observation consumed."""
    program = programs.compiled(
        programs.stepping(world.env, num_envs, 2), world.params, jax.random.key(0)
    ).program
    return programs.temporaries(program)


def growth_per_step(sessions: int, ppo: dict[str, Any]) -> float:
    """Bytes of temporaries that an update needs more for each further step of each environment."""
    longer = ppo | {"num_steps": 2 * ppo["num_steps"]}
    first, second = (
        programs.temporaries(_update(setting.world(sessions, ppo=each))) for each in (ppo, longer)
    )
    return (second - first) / (ppo["num_envs"] * ppo["num_steps"])


def trainer(ppo: dict[str, Any], sessions: int) -> Callable[[], None]:
    """In a child: one update. Its peak is that of import, market, compilation and the update
    together.
    """
    world = setting.world(sessions, ppo=ppo)
    algorithm = programs.learner(world, 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), world.params)
    program = _update(world)

    def work() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(program(state, world.params))

    return work


def peak_resident(ppo: dict[str, Any], sessions: int) -> int:
    with Worker("memory", "trainer", {"ppo": ppo, "sessions": sessions}) as worker:
        return worker.run().peak_bytes


def beside_peers(ppo: dict[str, Any], sessions: int, options: Options) -> dict[str, Any]:
    """Compiled training programs of the JAX peers and ours, same batch and network;
    `X_over_jaxtrade`: how many times as many bytes of temporaries."""
    world = setting.world(sessions, ppo=ppo)
    found, missing = peers.compiled_temporaries(world.config, world, options)
    ours = found["jaxtrade"]["temporaries"]
    over = {
        f"{name}_over_jaxtrade": {"temporaries": harness.rounded(each["temporaries"] / ours)}
        for name, each in found.items()
        if name != "jaxtrade"
    }
    return over | {"peers": found, "left_out": missing}


def run(options: Options) -> dict[str, Any]:
    sessions = 8 if options.quick else setting.SESSIONS
    training = {"small": {"num_envs": 64, "num_steps": 16}} if options.quick else TRAINING
    world = setting.world(sessions, ppo=next(iter(training.values())))
    algorithm = programs.learner(world, 100)
    state = state_bytes(world)
    stored = programs.stored(
        algorithm, _shapes(world, algorithm), world.params, world.config.rollout.num_steps
    )
    ppo = (
        {"num_envs": 64, "num_steps": 16} if options.quick else {"num_envs": 1024, "num_steps": 32}
    )
    peer = PEER | (ppo if options.quick else {})
    stepping = env_step_temporaries(world, ENVS)
    measured = {
        "env_state_bytes_per_env": state["env_state"],
        "stored_bytes_per_step": sum(stored.values()),
        "env_step_temporary_bytes_per_env": harness.rounded(stepping / ENVS),
    }
    updates = {}
    for name, each in training.items():
        program = _update(setting.world(sessions, ppo=each))
        steps = each["num_envs"] * each["num_steps"]
        updates[name] = {
            "temporary_bytes": programs.temporaries(program),
            "temporary_bytes_per_step": harness.rounded(programs.temporaries(program) / steps),
            "peak_resident_bytes": peak_resident(each, sessions),
        }
    return {
        "config": {
            "training": training,
            "env_step_envs": ENVS,
            "growth": ppo,
            "peers": peer,
            "sessions": sessions,
        },
        "targets": {
            name: {"measured": measured[name], "at_most": limit} for name, limit in TARGETS.items()
        },
        "carried_bytes_per_env": state,
        "stored_leaves": stored,
        "temporary_growth_per_step": harness.rounded(growth_per_step(sessions, ppo)),
        "market_bytes": programs.tree_bytes(world.params),
        "training": updates,
        "observation_bytes": 4 * world.env.observation_size,
        "sides": {},
        "ratios": {},
    } | beside_peers(peer, sessions, options)
