"""One shape of one version: `versions_child.py SHAPE SESSIONS` answers each line on stdin.

The answer is the seconds of a repeat, by the clock and those of the CPU.

SHAPE is JSON: keys of the learner, or of the environment alone (`num_envs`, `num_steps`). The package
and its benches are those that PYTHONPATH finds first. Only functions that both versions have are
used, under the names of this one and of those before.
"""

import importlib
import importlib.util
import json
import os
import sys
import time

import jax


def module(old, new):
    """Return a module of the benches that was called otherwise in earlier versions."""
    known = importlib.util.find_spec(f"bench.{old}") is not None
    return importlib.import_module(f"bench.{old if known else new}")


def work_of(shape, sessions):
    """Return what one repeat does.

    It is an update from the state that the last one left, or steps of the environment.
    """
    setting = importlib.import_module("bench.setting")
    if "hidden" not in shape:
        stepping, world = module("stepping", "env_step"), setting.world(sessions)
        counts = shape["num_envs"], shape["num_steps"]
        return stepping.Loop(world.env, world.params, *counts, stepping.WRITTEN)
    world = setting.world(sessions, ppo=shape | {"hidden": tuple(shape["hidden"])})
    algorithm, params = module("programs", "setting").learner(world, 1_000), world.params
    state = jax.jit(algorithm.init)(jax.random.key(0), params)
    state = jax.tree.map(jax.numpy.copy, state)
    update = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    program = update.lower(state, params).compile()

    def work():
        nonlocal state
        state, metrics = program(state, params)
        return state, metrics

    return work


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    work = work_of(*map(json.loads, sys.argv[1:]))
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(work())
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(took), file=answers, flush=True)


if __name__ == "__main__":
    main()
