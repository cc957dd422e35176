"""One shape of one version.

    versions_child.py SHAPE SESSIONS            answers each line on stdin by the seconds of a repeat
    versions_child.py SHAPE SESSIONS UPDATES    prints the seconds until that many updates are compiled as one program

SHAPE is JSON: keys of the learner, or of the environment alone (`num_envs`, `num_steps`). Seconds
are those by the clock and those of the CPU. The package and its benches are those that PYTHONPATH
finds first. Only functions that both versions have are used.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def learner_of(shape: dict[str, Any], sessions: int) -> tuple[Any, Any, Any]:
    """(learner, its first state, environment parameters)."""
    import jax

    setting, programs = (
        importlib.import_module(f"bench.{name}") for name in ("setting", "programs")
    )
    world = setting.world(sessions, ppo=shape | {"hidden": tuple(shape["hidden"])})
    algorithm = programs.learner(world, 1_000)
    return algorithm, jax.jit(algorithm.init)(jax.random.key(0), world.params), world.params


def work_of(shape: dict[str, Any], sessions: int) -> Callable[[], Any]:
    """What one repeat does: an update from the state that the last one left, or steps of the
    environment.
    """
    import jax

    if "hidden" not in shape:
        setting, stepping = (
            importlib.import_module(f"bench.{name}") for name in ("setting", "stepping")
        )
        world = setting.world(sessions)
        return stepping.Loop(
            world.env, world.params, shape["num_envs"], shape["num_steps"], stepping.WRITTEN
        )
    algorithm, state, params = learner_of(shape, sessions)
    state = jax.tree.map(jax.numpy.copy, state)
    update = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    update = update.lower(state, params).compile()

    def work() -> Any:
        nonlocal state
        state, metrics = update(state, params)
        return state, metrics

    return work


def compile_chunk(shape: dict[str, Any], sessions: int, updates: int) -> list[float]:
    """Seconds to trace, lower and compile: by the clock, and of the CPU."""
    import jax

    algorithm, state, params = learner_of(shape, sessions)

    def chunk(state: Any, params: Any) -> Any:
        return jax.lax.scan(
            lambda state, _: algorithm.update(state, params, None), state, None, length=updates
        )

    jax.block_until_ready(state)
    wall, cpu = time.perf_counter(), time.process_time()
    jax.jit(chunk, donate_argnums=0).lower(state, params).compile()
    return [time.perf_counter() - wall, time.process_time() - cpu]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    shape, sessions, *updates = (json.loads(word) for word in sys.argv[1:])
    if updates:
        answers.write(json.dumps(compile_chunk(shape, sessions, *updates)))
        answers.close()
        return
    work = work_of(shape, sessions)
    import jax

    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(work())
        answers.write(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
