"""One shape of one version: `versions_child.py SHAPE SESSIONS`. It answers a line on stdin by the seconds of a repeat.

SHAPE is JSON: keys of the learner, or of the environment alone (`num_envs`, `num_steps`). The package and its benches
are those that PYTHONPATH finds first. Only functions that both versions have are used.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def work_of(shape: dict[str, Any], sessions: int) -> Callable[[], Any]:
    """What one repeat does: an update from the state that the last one left, or steps of the environment."""
    import jax

    setting, programs, stepping = (importlib.import_module(f"bench.{name}")
                                   for name in ("setting", "programs", "stepping"))
    if "hidden" not in shape:
        world = setting.world(sessions)
        return stepping.Loop(world.env, world.params, shape["num_envs"], shape["num_steps"], stepping.WRITTEN)
    world = setting.world(sessions, ppo=shape | {"hidden": tuple(shape["hidden"])})
    algorithm = programs.learner(world, 1_000)
    state = jax.tree.map(jax.numpy.copy, jax.jit(algorithm.init)(jax.random.key(0), world.params))
    update = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    update = update.lower(state, world.params).compile()

    def work() -> Any:
        nonlocal state
        state, metrics = update(state, world.params)
        return state, metrics

    return work


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    work = work_of(json.loads(sys.argv[1]), int(sys.argv[2]))
    import jax

    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(work())
        answers.write(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
