"""Compile one update over described devices and write its figures: `mesh_child.py TARGET DEVICES
OUT [FLAGS]`.

TARGET: h200, v5e or v5p, or `cpu` for as many devices of this machine's CPU. FLAGS: `quick`
    compiles a
small shape, `population` divides agents instead of environments, `strict` adds by groups.

A process of its own, because the environment variables of each platform must be set before JAX
starts.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

# The work is the same for any number of devices: 4,096 environments in 256 groups, or 256 agents
# with 16 each.
REFERENCE = {
    "num_envs": 4096,
    "num_steps": 128,
    "num_minibatches": 16,
    "hidden": (256, 256, 128),
    "num_shards": 256,
}
AGENTS, AGENT = 256, {"num_envs": 16, "num_steps": 128, "num_minibatches": 8, "hidden": (64, 64)}
QUICK = {"num_envs": 64, "num_steps": 8, "num_minibatches": 2, "hidden": (16,), "num_shards": 16}
QUICK_AGENTS = 8
SESSIONS = 8
TOPOLOGIES = {
    ("cuda", 1): "1x1x1",
    ("cuda", 8): "1x1x8",
    ("cuda", 256): "1x32x8",
    ("v5e", 1): "v5e:2x2",
    ("v5e", 8): "v5e:2x4",
    ("v5e", 256): "v5e:16x16",
    ("v5p", 1): "v5p:2x2x1",
    ("v5p", 8): "v5p:2x2x2",
    ("v5p", 64): "v5p:4x4x4",
}


def other(name: str) -> Any:
    """A module of this folder by its file: this process is started without the benches' package."""
    spec = importlib.util.spec_from_file_location(
        f"jaxtrade_mesh_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def devices_of(target: str, count: int) -> Any:
    """`count` devices of a target, in the order of the compiler."""
    import jax
    from jax.experimental import topologies

    if target == "cpu":
        return jax.devices("cpu")[:count]
    if target != "h200":
        return topologies.get_topology_desc(
            platform="tpu", topology_name=TOPOLOGIES[target, count]
        ).devices[:count]
    name = TOPOLOGIES["cuda", count]
    return topologies.get_topology_desc(
        topology_name=name,
        platform="cuda",
        topology=name,
        target_config=other("described").DEVICES[target].target,
    ).devices


def program_of(world: Any, platform: str, devices: Any, agents: int, strict: bool) -> Any:
    """The program of one update of PPO on a mesh of devices, lowered."""
    import jax

    from jaxtrade.env.summary import summarise
    from jaxtrade.rl.parts import part_of
    from jaxtrade.rl.ppo import make_ppo
    from jaxtrade.rl.sharding import Spread, layout_of, mesh_of
    from jaxtrade.training.chunk import chunk_program
    from jaxtrade.training.placing import ONE_DEVICE
    from jaxtrade.training.population import Stack

    config, stack = world.config, Stack.of(agents)
    whole = make_ppo(config, world.env, 100, summarise=summarise, platform=platform)
    layout = layout_of(len(devices), stack.count, config.rollout.shards, strict)
    place: Any = ONE_DEVICE
    if len(devices) > 1 or strict or next(iter(devices)).platform != "cpu":
        part = make_ppo(
            part_of(config, layout.parts),
            world.env,
            100,
            summarise=summarise,
            reduce=layout.reduce,
            platform=platform,
        )
        place = Spread(layout, mesh_of(layout, devices), part, stack, config.rollout.num_envs)
    keys = jax.eval_shape(lambda: stack.keys(0))
    state = jax.eval_shape(stack.wrap(whole).init, keys, world.params)
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), world.params)
    chunk = chunk_program(place.wrap(whole, stack), 1, None, place, state, params)
    return chunk.lower(state, params, None)


def minibatch(module: Any, chosen: dict[str, Any]) -> Any:
    """The loop over the minibatches of an epoch: of all loops with as many rounds, the one that
    starts most.
    """
    loops = [
        loop for loop in module.loops() if loop.trips == chosen["num_minibatches"] and loop.path
    ]
    return max(loops, key=lambda loop: loop.own)


def report(target: str, count: int, flags: list[str]) -> dict[str, Any]:
    """Figures of the compiled program of one device.

    memory: bytes of arguments, results that are not arguments, and temporaries. collectives:
        operations of several
    devices, in an update and in a minibatch; bytes: of their results. launches: of an update.
    """
    hlo, child = other("hlo"), other("accelerator_child")
    quick, population = "quick" in flags, "population" in flags
    chosen = (
        (QUICK if quick else REFERENCE)
        if not population
        else (QUICK | {"num_shards": 8} if quick else AGENT)
    )
    agents = (QUICK_AGENTS if quick else AGENTS) if population else 1
    platform = {"cpu": "cpu", "h200": "cuda"}.get(target, "tpu")
    setting = (
        importlib.import_module("jaxtrade.bench.setting")
        if importlib.util.find_spec("jaxtrade.bench")
        else (importlib.import_module("bench.setting"))
    )
    world = child._with_tables(setting.world(SESSIONS, ppo=chosen), platform)
    start = time.perf_counter()
    program = program_of(
        world, platform, devices_of(target, count), agents, "strict" in flags
    ).compile()
    seconds = time.perf_counter() - start
    used, text = program.memory_analysis(), program.as_text()
    memory = {
        "arguments": used.argument_size_in_bytes,
        "temporaries": used.temp_size_in_bytes - hlo.scratch(text),
        "results": used.output_size_in_bytes - used.alias_size_in_bytes,
    }
    return {
        "devices": count,
        "memory": memory,
        "compile_seconds": round(seconds, 1),
        **figures(hlo.parse(text), chosen),
    }


def figures(module: Any, chosen: dict[str, Any]) -> dict[str, Any]:
    """The counts of a program: see `report`."""
    body = module.body_of(minibatch(module, chosen).name)
    return {
        "collectives": {
            "update": module.collectives(),
            "minibatch": module.collectives(body),
            "bytes_of_minibatch": module.collective_bytes(body),
        },
        "launches": module.launches(),
        "row_loops": sum(not loop.scope.endswith("while") for loop in module.loops()),
    }


if __name__ == "__main__":
    result = report(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
    Path(sys.argv[3]).write_text(json.dumps(result), encoding="utf-8")
