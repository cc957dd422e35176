"""Seconds until a train chunk is ready, cold and from JAX's cache; recompiles and host transfers in
it.

Every figure comes from a process of its own. Cold: an empty cache folder of its own. Cached: a new
process on the folder that the cold one filled, as the second start of `jaxtrade train`. `lower` is
tracing in Python and lowering, `compile` XLA's part or loading; `chunk` is both, what `jaxtrade
train` reports as compilation. `ready` is from the start of the process, with imports, market and
the first state, until the chunk could run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from jaxtrade.config import TrainConfig
from jaxtrade.training.loop import train

from . import harness, programs, setting
from .catalogue import Options
from .learning import learning_of
from .worker import Worker

CHUNK = 5  # updates, the default of `train.chunk_updates`
TEST = {
    "num_envs": 64,
    "num_steps": 64,
    "num_minibatches": 4,
}  # `jaxtrade train --test`, on 10 sessions
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, setting.SESSIONS),
    "train --test": (TEST, 10),
}
TARGETS = {"cold": 4.0, "cached": 1.0}


def compiler(cache: str, ppo: dict[str, Any], sessions: int) -> Callable[[], dict[str, float]]:
    """In a child: everything until the chunk could run."""
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    def work() -> dict[str, float]:
        start = time.perf_counter()
        world = setting.world(sessions, ppo=ppo)
        algorithm = programs.learner(world, 100)
        made = time.perf_counter()
        state = jax.block_until_ready(jax.jit(algorithm.init)(jax.random.key(0), world.params))
        begun = time.perf_counter()
        chunk = programs.train_chunk(algorithm, state, world.params, CHUNK)
        return {
            "market": made - start,
            "init": begun - made,
            "lower": chunk.lower_seconds,
            "compile": chunk.compile_seconds,
        }

    return work


def once(cache: str, ppo: dict[str, Any], sessions: int) -> dict[str, float]:
    """Part -> seconds in one fresh process; `ready` by this process's clock."""
    start = time.perf_counter()
    with Worker(
        "compile", "compiler", {"cache": cache, "ppo": ppo, "sessions": sessions}
    ) as worker:
        spent = worker.run().answer
        ready = time.perf_counter() - start
    return {"chunk": spent["lower"] + spent["compile"]} | spent | {"ready": ready}


def wall_seconds(values: list[float]) -> dict[str, Any]:
    """Median, least and greatest."""
    return {
        "repeats": len(values),
        "seconds": harness.rounded(statistics.median(values)),
        "seconds_range": [harness.rounded(min(values)), harness.rounded(max(values))],
    }


def every(ppo: dict[str, Any], sessions: int) -> dict[str, dict[str, float]]:
    """A cold process, and one from JAX's cache."""
    with tempfile.TemporaryDirectory() as cache:
        return {name: once(cache, ppo, sessions) for name in ("cold", "cached")}


def health(ppo: dict[str, Any], sessions: int, chunks: int) -> dict[str, Any]:
    """Recompiles of a real run of some chunks, by the training loop's own counter, and host
    transfers in its chunk.
    """
    updates = chunks * CHUNK
    world = setting.world(sessions, ppo=ppo)
    algorithm = programs.learner(world, updates)
    steps = learning_of(world.config).num_envs * learning_of(world.config).num_steps
    run = train(
        algorithm,
        world.params,
        key=jax.random.key(0),
        config=TrainConfig(total_timesteps=updates * steps, chunk_updates=CHUNK),
    )
    found = programs.host_transfers(
        programs.train_chunk(algorithm, run.state, world.params, CHUNK).program
    )
    return {
        "chunks": chunks,
        "recompiles": int(run.health["recompiles"][1]),
        "host_transfers": sum(found.values()),
        "host_operations": found,
    }


def run(options: Options) -> dict[str, Any]:
    shapes = {"train --test": SHAPES["train --test"]} if options.quick else SHAPES
    sets = harness.take_turns(
        {name: partial(every, *shape) for name, shape in shapes.items()}, options.repeats
    )
    taken = {
        f"{name} {kind}": [each[kind] for each in sets[name]] for name in shapes for kind in TARGETS
    }
    seconds = {
        name: {part: wall_seconds([each[part] for each in found]) for part in found[0]}
        for name, found in taken.items()
    }
    first = next(iter(shapes))
    return {
        "config": {
            "shapes": {
                name: {"ppo": ppo, "sessions": sessions} for name, (ppo, sessions) in shapes.items()
            },
            "chunk_updates": CHUNK,
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "seconds": seconds,
        "targets": {
            f"chunk, {kind}": {
                "measured": seconds[f"{first} {kind}"]["chunk"]["seconds"],
                "at_most": limit,
            }
            for kind, limit in TARGETS.items()
        },
        "health": health(TEST, 10, 3),
        "sides": {},
        "ratios": {},
    }
