"""Seconds until a train chunk is ready, cold and cached; recompiles and host transfers in it.

Every figure comes from a process of its own. Cold: an empty cache folder of its own. Cached: a new
process on the folder that the cold one filled. `lower` is tracing in Python and lowering, `compile`
XLA's part or loading; `chunk` is both, what `jaxtrade train` reports as compilation. `ready` is from
the start of the process, with imports, market and the first state, until the chunk could run.
"""

import tempfile
import time
from functools import partial

import jax

from jaxtrade.config import TrainConfig
from jaxtrade.training.loop import train

from . import harness, setting, worker
from .device import SIZES, kept_in

CHUNK = 5  # updates, the default of `train.chunk_updates`
SHAPES = {
    "default": ({}, setting.SESSIONS),
    "train --test": (SIZES["test"], 10),  # sessions
}


def on_device(ppo, sessions):
    """Measure the seconds of everything until the chunk could run. The part of `device`, too.

    It runs in a process that has compiled nothing and keeps what it compiles.
    """
    start = time.perf_counter()
    world = setting.world(sessions, ppo=ppo)
    algorithm = setting.learner(world, 100)
    made = time.perf_counter()
    state = jax.block_until_ready(jax.jit(algorithm.init)(jax.random.key(0), world.params))
    begun = time.perf_counter()
    chunk = setting.train_chunk(algorithm, state, world.params, CHUNK)
    lowered = time.perf_counter()
    chunk.compile()
    end = time.perf_counter()
    return {
        "market": made - start,
        "init": begun - made,
        "lower": lowered - begun,
        "compile": end - lowered,
        "chunk": end - begun,
    }


def both(ppo, sessions):
    """Run a cold process and one from the cache that it filled; `ready` by this process's clock."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        given = "compile.on_device", {"ppo": ppo, "sessions": sessions}
        for name in ("cold", "cached"):
            ready, parts = harness.of_children(worker.once, *given, variables=kept_in(cache))
            found[name] = parts | {"ready": ready.wall}
    return found


def health(ppo, sessions, chunks):
    """Count recompiles of a real run of some chunks, and host transfers in its chunk.

    Recompiles are counted by the training loop's own counter.
    """
    world = setting.world(sessions, ppo=ppo)
    algorithm = setting.learner(world, chunks * CHUNK)
    steps = chunks * CHUNK * algorithm.info.steps_per_update
    config = TrainConfig(total_timesteps=steps, chunk_updates=CHUNK)
    run = train(algorithm, world.params, key=jax.random.key(0), config=config)
    chunk = setting.train_chunk(algorithm, run.state, world.params, CHUNK)
    found = setting.host_transfers(chunk.compile())
    return {
        "chunks": chunks,
        "recompiles": int(run.health["recompiles"][1]),
        "host_transfers": sum(found.values()),
        "host_operations": found,
    }


def run(options):
    shapes = {"train --test": SHAPES["train --test"]} if options.quick else SHAPES
    work = {name: partial(both, *shape) for name, shape in shapes.items()}
    taken = harness.take_turns(work, options.repeats)
    return {
        "config": {
            "shapes": {name: {"ppo": ppo, "sessions": few} for name, (ppo, few) in shapes.items()},
            "chunk_updates": CHUNK,
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "seconds": {
            f"{name} {kind}": {
                part: harness.middle("seconds", [each[kind][part] for each in taken[name]])
                for part in taken[name][0][kind]
            }
            for name in shapes
            for kind in ("cold", "cached")
        },
        "health": health(SIZES["test"], 10, 3),
    }
