"""Environment steps without a policy: our compiled loop by number of environments, SB3's vector
environments over the NumPy twin, the twin alone, and gymnax's own rollout over our gymnax
interface. Random legal actions on every side (gymnax's rollout draws from all of them, and the
environment plays an illegal one as HOLD).

Observations: see `stepping`. The sweep is of `WRITTEN` ones; at a few sizes the loop is also run
    with observations
`SUMMED` and `UNSEEN`, and confined to one core. Every side of SB3 gives its observations to the caller.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
from gymnax.experimental.rollout import RolloutWrapper

from jaxtrade.interop.gymnax_env import to_gymnax

from . import harness, setting, stepping, tape
from .catalogue import Options
from .stepping import SUMMED, UNSEEN, WRITTEN
from .worker import Worker

PACKAGES = {
    "stable_baselines3": "stable-baselines3",
    "sb3_contrib": "sb3-contrib",
    "psutil": "psutil",
}
INSTALL = 'pip install "jaxtrade[bench]"'


class Scale:
    """How much is run: `steps` environment steps of ours per repeat, whatever the number of
    environments.
    """

    def __init__(self, quick: bool) -> None:
        self.sessions = 4 if quick else setting.SESSIONS
        self.steps = 1 << (16 if quick else 20)
        self.sweep = (1_024,) if quick else (64, 256, 1_024, 4_096, 16_384, 65_536)
        self.looked_at = (1_024,) if quick else (1_024, 4_096)  # in the other modes and on one core
        self.modes = (UNSEEN,) if quick else (SUMMED, UNSEEN)
        self.core_modes = (WRITTEN,) if quick else (WRITTEN, SUMMED)
        self.dummy, self.subproc = ((1, 16), (2,)) if quick else ((1, 4, 8, 16), (2, 8))
        self.bare_steps, self.dummy_steps, self.subproc_steps = (
            (10_000, 300, 50) if quick else (100_000, 3_000, 500)
        )  # of each environment
        self.gymnax = (256, 32) if quick else (1_024, 64)


Sides = dict[
    str, tuple[harness.Side, dict[str, Any]]
]  # name -> side, and what it is: kind, num_envs, ...


def run(options: Options) -> dict[str, Any]:
    """See `catalogue`. Ratios are of the best of the sweep, by wall seconds."""
    scale = Scale(options.quick)
    world = setting.world(scale.sessions)
    repeats = min(options.repeats, 2) if options.quick else options.repeats
    found: Sides = ours(world, scale)
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for part in (one_core(scale, stack), sb3(world, scale, Path(folder), stack)):
            found |= part[0]
            left_out |= part[1]
        compared = harness.compare({name: side for name, (side, _) in found.items()}, repeats)
    results = {
        name: about | compared[name] | {"cores_used": cores_used(compared[name])}
        for name, (_, about) in found.items()
    }
    best = max(
        (name for name in results if results[name]["kind"] == "ours"),
        key=lambda name: results[name]["steps_per_second"],
    )
    return {
        "config": {
            "task": "manage, relative scaling",
            "observation_size": world.env.observation_size,
            "sessions": scale.sessions,
            "repeats": repeats,
            "tape_bytes": tape_bytes(world),
        },
        "sides": results,
        "best": best,
        "ratios": {
            f"{best} / {name}": harness.ratio(results, best, name)
            for name in results
            if results[name]["kind"] in ("dummy", "subproc", "bare", "gymnax")
        },
        "left_out": left_out,
    }


def ours(world: setting.World, scale: Scale) -> Sides:
    """Our loop by number of environments and by what becomes of its observations, and gymnax's
    rollout.
    """
    found: Sides = {}
    for num_envs in scale.sweep:
        found[f"ours_{num_envs}"] = loop_side(world, scale.steps, num_envs, WRITTEN, "ours")
    for mode in scale.modes:
        for num_envs in scale.looked_at:
            found[f"ours_{mode}_{num_envs}"] = loop_side(
                world, scale.steps, num_envs, mode, f"ours_{mode}"
            )
    num_envs, num_steps = scale.gymnax
    wrapper = RolloutWrapper(env=to_gymnax(world.env, world.params), num_env_steps=num_steps)
    keys = jax.random.split(jax.random.key(0), num_envs)
    found[f"gymnax_rollout_{num_envs}"] = (
        harness.side(lambda: wrapper.batch_rollout(keys, None), num_envs * num_steps),
        {"kind": "gymnax", "num_envs": num_envs, "num_steps": num_steps, "observations": WRITTEN},
    )
    return found


def loop_side(
    world: setting.World, steps: int, num_envs: int, mode: str, kind: str
) -> tuple[harness.Side, dict[str, Any]]:
    """`steps` environment steps of ours in a repeat, whatever the number of environments."""
    num_steps = steps // num_envs
    work = stepping.Loop(world.env, world.params, num_envs, num_steps, mode)
    return harness.side(work, steps), {
        "kind": kind,
        "num_envs": num_envs,
        "num_steps": num_steps,
        "observations": mode,
        "per_env_step": work.cost,
    }


def one_core(scale: Scale, stack: ExitStack) -> tuple[Sides, dict[str, str]]:
    """Our loop in processes that may use one core: steps per core-second."""
    sizes = [(mode, num_envs) for mode in scale.core_modes for num_envs in scale.looked_at]
    names = [f"ours_one_core_{mode}_{num_envs}" for mode, num_envs in sizes]
    if missing := not_confined():
        return {}, dict.fromkeys(names, missing)
    found: Sides = {}
    for name, (mode, num_envs) in zip(names, sizes, strict=True):
        num_steps = scale.steps // 2 // num_envs
        arguments = {
            "sessions": scale.sessions,
            "num_envs": num_envs,
            "num_steps": num_steps,
            "observations": mode,
        }
        side = worker_side(stack, "stepping", "one_core", arguments, num_envs * num_steps)
        found[name] = (
            side,
            {
                "kind": "ours_one_core",
                "num_envs": num_envs,
                "num_steps": num_steps,
                "observations": mode,
            },
        )
    return found, {}


def not_confined() -> str:
    """Why a side cannot be confined to one core; empty where it can."""
    if missing := not_installed("psutil"):
        return missing
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot confine a process to a core (no sched_setaffinity)"
    return (
        ""
        if jax.default_backend() == "cpu"
        else f"the environment runs on {jax.default_backend()}, not on a core"
    )


def sb3(
    world: setting.World, scale: Scale, folder: Path, stack: ExitStack
) -> tuple[Sides, dict[str, str]]:
    """SB3's vector environments over the twin, each in a process of its own, and the twin without
    them.
    """
    vectors = [("dummy", n, scale.dummy_steps) for n in scale.dummy] + [
        ("subproc", n, scale.subproc_steps) for n in scale.subproc
    ]
    path = folder / "tape.npz"
    tape.save(tape.make_tape(world.config.env, world.params), path)
    found: Sides = {}
    left_out: dict[str, str] = {}
    if missing := not_installed("psutil"):
        left_out["twin"] = missing
    else:
        side = worker_side(
            stack,
            "vector",
            "bare",
            {"path": str(path), "steps": scale.bare_steps},
            scale.bare_steps,
        )
        found["twin"] = (side, {"kind": "bare", "num_envs": 1})
    missing = not_installed(*PACKAGES)
    for kind, num_envs, steps in vectors:
        name = f"sb3_{kind}_{num_envs}"
        if missing:
            left_out[name] = missing
            continue
        arguments = {"path": str(path), "kind": kind, "num_envs": num_envs, "steps": steps}
        found[name] = (
            worker_side(stack, "vector", "vector", arguments, num_envs * steps),
            {"kind": kind, "num_envs": num_envs, "num_steps": steps},
        )
    return found, left_out


def worker_side(
    stack: ExitStack,
    module: str,
    function: str,
    arguments: Mapping[str, Any],
    steps: int,
    variables: Mapping[str, str] | None = None,
) -> harness.Side:
    worker = stack.enter_context(
        Worker(module, function, arguments, threads=1, variables=variables)
    )
    return harness.Side(lambda: worker.run().sample, steps)


def cores_used(summary: Mapping[str, Any]) -> float:
    """CPU seconds per wall second: what shows that a side confined to one core was."""
    return harness.rounded(summary["steps_per_second"] / summary["steps_per_cpu_second"])


def not_installed(*modules: str) -> str:
    """What is missing of `PACKAGES` and how to get it; empty where nothing is."""
    missing = [PACKAGES[module] for module in modules if importlib.util.find_spec(module) is None]
    return f"{', '.join(missing)} not installed: {INSTALL}" if missing else ""


def tape_bytes(world: setting.World) -> int:
    """Of the observations that the twin has ready, in each process that steps it."""
    sessions = world.params.market.sessions
    bars = int(
        (sessions.last - sessions.first + 2)[world.sessions.ids[: int(world.sessions.count)]].sum()
    )
    return 4 * world.env.observation_size * bars
