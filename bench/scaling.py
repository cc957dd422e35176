"""What an update costs as one size grows: environments, steps of a rollout, bars of the market.

Whole PPO updates (64x64 network, four epochs, minibatches of 1,024) from one state. The other sizes
stay as they are, so that a flat line means a cost per step that does not depend on the size.
"""

from __future__ import annotations

from typing import Any

import jax

from . import harness, programs, setting
from .catalogue import Options

NUM_ENVS = (64, 256, 1024, 4096, 16384)
NUM_STEPS = (16, 64, 256, 1024)
SESSIONS = {
    10_000: 8,
    100_000: 73,
    1_000_000: 730,
}  # synthetic NQ sessions of 1,380 bars, nearly so many in all
MINIBATCH = 1024
LEFT_OUT = {
    "symbols": "an environment trades one symbol; what a set of them costs is in `converted`"
}


def points(quick: bool) -> dict[str, dict[str, int]]:
    """Name -> num_envs, num_steps and sessions; each list varies one of them."""
    base = {"num_envs": 1024, "num_steps": 16, "sessions": 8 if quick else setting.SESSIONS}
    envs, steps, bars = (
        (NUM_ENVS[:2], NUM_STEPS[:1], [8]) if quick else (NUM_ENVS, NUM_STEPS, SESSIONS.values())
    )
    return (
        {f"num_envs={n}": base | {"num_envs": n} for n in envs}
        | {f"num_steps={n}": base | {"num_envs": 64, "num_steps": n} for n in steps}
        | {f"sessions={n}": base | {"sessions": n} for n in bars}
    )


def update_side(
    num_envs: int, num_steps: int, sessions: int
) -> tuple[harness.Side, dict[str, Any]]:
    """One update, and what is known of it without running."""
    steps = num_envs * num_steps
    world = setting.world(
        sessions,
        ppo={
            "num_envs": num_envs,
            "num_steps": num_steps,
            "num_minibatches": max(1, steps // MINIBATCH),
        },
    )
    algorithm = programs.learner(world, 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), world.params)
    program = programs.compiled(
        lambda s, params: algorithm.update(s, params, None), state, world.params
    ).program
    return harness.side(lambda: program(state, world.params), steps), {
        "num_envs": num_envs,
        "num_steps": num_steps,
        "sessions": sessions,
        "bars": len(world.market.bars),
        "market_bytes": programs.tree_bytes(world.params),
        "temporary_bytes": programs.temporaries(program),
    }


def run(options: Options) -> dict[str, Any]:
    made = {name: update_side(**point) for name, point in points(options.quick).items()}
    measured = harness.compare({name: side for name, (side, _) in made.items()}, options.repeats)
    return {
        "config": {
            "num_minibatches": f"of {MINIBATCH} rows (fewer where an update has fewer)",
            "num_epochs": 4,
            "hidden": [64, 64],
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "sides": {name: about | measured[name] for name, (_, about) in made.items()},
        "ratios": {},
        "left_out": LEFT_OUT,
    }
