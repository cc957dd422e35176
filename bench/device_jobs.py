"""What each part of `device` does on the device: functions for `job`, each in a process of its own.

They measure our own sides with the functions of the benches whose names they bear, so that their
figures mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxtrade.config import RunConfig

from . import compile as compiling
from . import harness, memory, population, ppo_train, programs, setting, stepping
from .device_parts import side_name
from .env_step import loop_side
from .learning import learning_of
from .stamp import device_name

FLOAT32 = "float32"


def about() -> dict[str, Any]:
    """The device as JAX and the system call it; with the job's stamp it says what runs here."""
    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind, "name": device_name()}


def precisions() -> list[str]:
    """What `compute.precision` may be, float32 first."""
    section: Any = RunConfig.model_fields["compute"].annotation
    known = [str(value) for value in section.model_json_schema()["properties"]["precision"]["enum"]]
    return sorted(known, key=lambda name: name != FLOAT32)


# -------------------------------------------------------------------------------------------------------- the sides
def env_step(sizes: Sequence[int], steps: int, sessions: int, repeats: int) -> dict[str, Any]:
    """The environment alone by number of environments: observations written to memory and read, and
    summed.
    """
    world = setting.world(sessions)
    found = {}
    for mode, kind in ((stepping.WRITTEN, "ours"), (stepping.SUMMED, "ours_summed")):
        for size in sizes:
            found[f"{kind}_{size}"] = loop_side(world, steps, size, mode, kind)
    compared = harness.compare({name: side for name, (side, _) in found.items()}, repeats)
    sides = {name: each | compared[name] for name, (_, each) in found.items()}
    ours = [name for name in sides if sides[name]["kind"] == "ours"]
    return {
        "sides": sides,
        "ratios": {},
        "best": max(ours, key=lambda name: sides[name]["steps_per_second"]),
    }


def config_of(shape: Sequence[Any], precision: str = FLOAT32) -> RunConfig:
    """The configuration of a shape, with products of a precision."""
    own = ppo_train.Own(*shape)
    config = ppo_train.config_of(
        own.network, own.num_envs, own.num_steps, own.batch, num_epochs=own.num_epochs
    )
    return setting.config(
        ppo=learning_of(config).model_dump(mode="json"), compute={"precision": precision}
    )


def ppo(shapes: Sequence[Sequence[Any]], repeats: int) -> dict[str, Any]:
    """Whole updates of each shape."""
    sides = {side_name(shape): ppo_train.ours(config_of(shape)) for shape in shapes}
    return {"sides": harness.compare(sides, repeats), "ratios": {}}


def seeds(
    counts: Sequence[int], ppo: dict[str, Any], sessions: int, repeats: int
) -> dict[str, Any]:
    """Agents as one program."""
    found, ratios = population.steady(counts, ppo, sessions, repeats)
    return {"sides": {f"steady {name}": each for name, each in found.items()}, "ratios": ratios}


def precision(shapes: Sequence[Sequence[Any]], repeats: int) -> dict[str, Any]:
    """Whole updates by the precision of products; `distance`: of the first update from that in
    float32.
    """
    sides, firsts = {}, {}
    for shape in shapes:
        for name in precisions():
            config = config_of(shape, name)
            update = ppo_train.compiled_update(config)
            before = _row(update.state.params)
            state, _ = update.program(update.state, update.params)
            firsts[side_name(shape), name] = _row(state.params) - before
            sides[f"{side_name(shape)}/{name}"] = ppo_train.side_of(
                update._replace(state=state), ppo_train.update_steps(learning_of(config))
            )
    results = harness.compare(sides, repeats)
    others = [
        (side_name(shape), name) for shape in shapes for name in precisions() if name != FLOAT32
    ]
    return {
        "sides": results,
        "ratios": {
            f"{shape}: {name}/{FLOAT32}": harness.ratio(
                results, f"{shape}/{name}", f"{shape}/{FLOAT32}"
            )
            for shape, name in others
        },
        "distance": {
            f"{shape}: {name}": _apart(firsts[shape, name], firsts[shape, FLOAT32])
            for shape, name in others
        },
    }


def _row(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return harness.rounded(float(np.linalg.norm(one - other) / np.linalg.norm(other)))


# ------------------------------------------------------------------------------------------- compilation and memory
def chunk(cache: str, ppo: dict[str, Any], sessions: int) -> dict[str, float]:
    """Seconds of the parts of getting a train chunk ready, with the compilations kept in
    `cache`.
    """
    return compiling.compiler(cache, ppo, sessions)()


def health(ppo: dict[str, Any], sessions: int, chunks: int) -> dict[str, Any]:
    """Recompiles and host transfers of a real run."""
    return compiling.health(ppo, sessions, chunks)


def memory_of(shape: Sequence[Any]) -> dict[str, Any]:
    """Of one update: temporaries of the compiled program, and the device's own count of its
    greatest use, alone in the process."""
    config = config_of(shape)
    update = ppo_train.compiled_update(config)
    jax.block_until_ready(update.program(update.state, update.params))
    bytes_ = programs.temporaries(update.program)
    counted: Mapping[str, int] = jax.devices()[0].memory_stats() or {}
    peak = (
        {"peak_device_bytes": counted["peak_bytes_in_use"]}
        if "peak_bytes_in_use" in counted
        else {}
    )
    steps = ppo_train.update_steps(learning_of(config))
    return {
        "temporary_bytes": bytes_,
        "temporary_bytes_per_step": harness.rounded(bytes_ / steps),
        **peak,
    }


def env_memory(envs: int, sessions: int) -> float:
    """Temporaries of a step of the environment, in bytes per environment."""
    return harness.rounded(memory.env_step_temporaries(setting.world(sessions), envs) / envs)
