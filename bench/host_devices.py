"""The quickstart's training over two devices of this CPU against one device with two threads.

Each side is a process of its own, which compiles the run's chunk and then trains chunk after chunk.
A CPU's compute threads (`NPROC`) serve all of its devices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from . import harness
from .catalogue import Options
from .worker import Worker

CONFIG, QUICK_KEYS = (
    "quickstart",
    ["rollout.num_envs=16", "rollout.num_steps=8", "network.hidden=[8]"],
)
UPDATES = 20  # of a chunk
SIDES = {  # devices, compute threads
    "one device, one thread": (1, 1),
    "one device, two threads": (1, 2),
    "two devices, two threads": (2, 2),
    "two devices, one thread": (2, 1),
}


def trainer(devices: int, updates: int, keys: list[str]) -> Callable[[], Any]:
    """In a child: trains one chunk of `updates` updates of the quickstart on so many devices."""
    import jax

    from jaxtrade.config import load_config
    from jaxtrade.runs.setup import prepare
    from jaxtrade.storage.compiling import Programs
    from jaxtrade.training.chunk import compile_chunk

    setup = prepare(
        load_config(
            CONFIG, [*keys, f"parallel.devices={devices}", f"train.chunk_updates={updates}"]
        )
    )
    place = setup.place
    learner, params = place.wrap(setup.algorithm, setup.stack), place.put_params(setup.params)
    state = jax.jit(learner.init)(setup.stack.keys(0), params)
    with Programs() as programs:
        chunk = compile_chunk(programs, learner, updates, state, params, place=place)
        chunk.wait()
    held = [state]

    def work() -> dict[str, int]:
        held[0], _, _ = chunk(held[0], params)
        return {"steps": updates * setup.plan.steps_per_update}

    return work


def run(options: Options) -> dict[str, Any]:
    updates, keys = (2, QUICK_KEYS) if options.quick else (UPDATES, [])
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(
                Worker(
                    "host_devices",
                    "trainer",
                    {"devices": devices, "updates": updates, "keys": keys},
                    variables={
                        "NPROC": str(threads),
                        "JAX_NUM_CPU_DEVICES": str(devices),
                        "JAX_PLATFORMS": "cpu",
                    },
                )
            )
            for name, (devices, threads) in SIDES.items()
        }
        steps = {
            name: worker.run().answer["steps"] for name, worker in workers.items()
        }  # the first one warms up
        taken = harness.take_turns(
            {name: lambda worker=worker: worker.run().sample for name, worker in workers.items()},
            options.repeats,
        )
    found = {name: harness.summary(samples, steps[name]) for name, samples in taken.items()}
    two = [name for name, (devices, _) in SIDES.items() if devices == 2]
    return {
        "config": {"config": CONFIG, "updates_of_a_chunk": updates, "repeats": options.repeats},
        "sides": found,
        "ratios": {
            f"{name}/one device, two threads": harness.ratio(found, name, "one device, two threads")
            for name in (*two, "one device, one thread")
        },
    }
