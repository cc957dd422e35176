"""The parts of `device`: what each measures, at which sizes, and how its jobs make its result.
Imports no JAX.

A part is named after the bench whose sides it measures, and its result has that bench's keys, so
that a target finds its figure; `correctness`, `precision` and `command_buffers` are its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.storage.programs import use_determinism

from . import job

CACHE, CACHE_SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
NO_BUFFERS = (
    "--xla_gpu_enable_command_buffer="  # with nothing behind it: no operation is captured in one
)
COMPILED = Path(__file__).with_name("compiled") / "accelerator.json"
PASSED, FAILED, UNKNOWN = "passed", "failed", "not run"

# Fields of `ppo_train.Own`: network, environments, steps, batch, epochs, minutes an update on a
# CPU.
REFERENCE, SMALL = ("large", 4_096, 128, 32_768, 4, True), ("small", 4_096, 128, 32_768, 4)
DEFAULT = ("small", 256, 128, 4_096, 4)
SHAPES = (
    SMALL,
    REFERENCE,
    ("large", 4_096, 128, 32_768, 10, True),
    ("large", 256, 128, 8_192, 4),
    DEFAULT,
)
QUICK_SHAPES = (("small", 64, 16, 256, 4), ("large", 32, 16, 256, 4))
SEEDS_PPO = {
    "num_envs": 16,
    "num_steps": 128,
    "num_minibatches": 8,
    "num_epochs": 4,
    "hidden": (64, 64),
}
QUICK_PPO = {"num_envs": 8, "num_steps": 16, "num_minibatches": 2, "num_epochs": 2, "hidden": (16,)}
RESUMED_PPO = {
    "num_envs": 256,
    "num_steps": 64,
    "num_minibatches": 4,
    "num_epochs": 4,
    "hidden": (64, 64),
}
TEST = {"num_envs": 64, "num_steps": 64, "num_minibatches": 4}  # `jaxtrade train --test`
ROOFLINE = {  # bench -> shape of `accelerator` -> side of the same work
    "env_step": {"env": "ours_summed_4096"},
    "ppo_train": {
        "reference": "large/ours/4096x128/batch 32768/4 epochs",
        "default": "small/ours/256x128/batch 4096/4 epochs",
    },
}


class Machine(NamedTuple):
    """The device that is measured. folder: its name in paths (`device.folder_of`)."""

    platform: str
    name: str
    folder: str


class Context(NamedTuple):
    """What the jobs of a part share. sizes: as `Part.sizes` gave them; seconds_left: until the
    part's limit.
    """

    machine: Machine
    sizes: Mapping[str, Any]
    repeats: int
    seconds_left: Callable[[], float]
    done: list[job.Done]
    cache: str

    def job(self, name: str, variables: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """The answer of `MODULE.FUNCTION(**arguments)` in a process of its own."""
        kept = {CACHE: self.cache, CACHE_SECONDS: "0", "XLA_FLAGS": flags()}
        left = self.seconds_left()
        if left <= 0:
            raise job.LateError(f"{name}: no time was left for it")
        found = job.run(name, arguments, left, kept | dict(variables or {}))
        self.done.append(found)
        return found.answer


def flags(deterministic: bool = True) -> str:
    """XLA's flags of a job: this process's, and unless told otherwise those by which `jaxtrade
    train` has the same bits on a GPU (compute.deterministic)."""
    own = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    if deterministic:
        use_determinism(own)
    return own["XLA_FLAGS"]


class Part(NamedTuple):
    """about: what it measures. sizes: (quick, platform) -> what is run, as JSON. measure: its
    result, but for what every result has. seconds: its limit on an accelerator. absent: (platform)
    -> why it cannot be measured there, or empty."""

    about: str
    sizes: Callable[[bool, str], dict[str, Any]]
    measure: Callable[[Context], dict[str, Any]]
    seconds: float = 120.0
    absent: Callable[[str], str] = lambda platform: ""


# ------------------------------------------------------------------------------------------------------ correctness
def _correctness_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return {
        "trajectories": {"envs": 8, "steps": 200} if quick else {"envs": 32, "steps": 400},
        "resumed": {"ppo": QUICK_PPO if quick else RESUMED_PPO, "chunk": 1 if quick else 3},
        "seeds": {"count": 4, "ppo": QUICK_PPO, "sessions": 4, "updates": 2}
        if quick
        else {"count": 64, "ppo": SEEDS_PPO, "sessions": 78, "updates": 3},
    }


def _correctness(context: Context) -> dict[str, Any]:
    """Every check runs, whatever became of the others."""
    sizes = context.sizes
    checks = {
        "trajectories": _check(
            lambda: context.job("correctness.trajectories", **sizes["trajectories"])
        ),
        "update": _check(lambda: context.job("correctness.update")),
        "resumed": _check(lambda: _resumed(context)),
        "seeds": _check(lambda: context.job("correctness.seeds", **sizes["seeds"])),
    }
    return {
        "correctness": PASSED if all(each["passed"] for each in checks.values()) else FAILED,
        "checks": checks,
        "sides": {},
        "ratios": {},
    }


def _resumed(context: Context) -> dict[str, Any]:
    """Both processes compile anew: one that loads the programs of the other would not show that
    they compile to the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        context.job("correctness.straight", NO_CACHE, folder=folder, **context.sizes["resumed"])
        own = {
            CACHE: f"{folder}/programs"
        }  # not those of the first process; its two runs share them
        return context.job("correctness.resumed", own, folder=folder, **context.sizes["resumed"])


def _check(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a check found; one that fails on its way has failed. Raises LateError: time says nothing
    of correctness.
    """
    try:
        return run()
    except job.LateError:
        raise
    except job.JobError as error:
        return {"passed": False, "error": str(error)}


# ------------------------------------------------------------------------------------------------- benches' own sides
def _env_sizes(quick: bool, platform: str) -> dict[str, Any]:
    if quick:
        return {"sizes": (64, 256), "steps": 1 << 13, "sessions": 4}
    steps = 1 << (
        20 if platform == "cpu" else 24
    )  # an accelerator is done with fewer before the clock can tell
    return {"sizes": (1_024, 4_096, 16_384, 65_536, 262_144), "steps": steps, "sessions": 78}


def _env_step(context: Context) -> dict[str, Any]:
    found = context.job("device_jobs.env_step", repeats=context.repeats, **context.sizes)
    return found | estimates("env_step", context.machine.folder, found["sides"])


def _train_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return _feasible(QUICK_SHAPES if quick else SHAPES, platform)


def _precision_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return _feasible(QUICK_SHAPES[:1] if quick else (SMALL, REFERENCE), platform)


def _buffer_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return _feasible(QUICK_SHAPES[:1] if quick else (DEFAULT, REFERENCE), platform)


def _memory_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return _feasible(QUICK_SHAPES[:1] if quick else (SMALL, REFERENCE), platform) | {
        "envs": 256 if quick else 65_536,
        "sessions": 4 if quick else 78,
    }


def _feasible(shapes: tuple[tuple[Any, ...], ...], platform: str) -> dict[str, Any]:
    """Without those that take a CPU minutes; their names stay in the result."""
    slow = [shape for shape in shapes if platform == "cpu" and len(shape) > 5]
    return {"shapes": [shape for shape in shapes if shape not in slow], "slow": slow}


def _left_out(sizes: Mapping[str, Any]) -> dict[str, Any]:
    return (
        {"left_out": {side_name(shape): "minutes an update on a CPU" for shape in sizes["slow"]}}
        if sizes["slow"]
        else {}
    )


def _ppo_train(context: Context) -> dict[str, Any]:
    found = context.job("device_jobs.ppo", shapes=context.sizes["shapes"], repeats=context.repeats)
    return (
        found
        | estimates("ppo_train", context.machine.folder, found["sides"])
        | _left_out(context.sizes)
    )


def _seeds_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return (
        {"counts": (1, 4), "ppo": QUICK_PPO, "sessions": 4}
        if quick
        else {
            "counts": (1, 8, 64) if platform == "cpu" else (1, 16, 64, 256),
            "ppo": SEEDS_PPO,
            "sessions": 78,
        }
    )


def _population(context: Context) -> dict[str, Any]:
    return context.job("device_jobs.seeds", repeats=context.repeats, **context.sizes)


def _precision(context: Context) -> dict[str, Any]:
    found = context.job(
        "device_jobs.precision", shapes=context.sizes["shapes"], repeats=context.repeats
    )
    return found | _left_out(context.sizes)


# -------------------------------------------------------------------------------------- compilation, memory, launches
def _compile_sizes(quick: bool, platform: str) -> dict[str, Any]:
    name, ppo, sessions = ("train --test", TEST, 10) if quick else ("default", {}, 78)
    return {
        "shape": name,
        "chunk": {"ppo": ppo, "sessions": sessions},
        "health": {"ppo": TEST, "sessions": 10, "chunks": 2 if quick else 3},
    }


def _compile(context: Context) -> dict[str, Any]:
    """Once each: nothing here takes turns with anything."""
    sizes, seconds = context.sizes, {}
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            parts = context.job("device_jobs.chunk", {CACHE: cache}, cache=cache, **sizes["chunk"])
            parts |= {
                "chunk": parts["lower"] + parts["compile"],
                "process": context.done[-1].seconds,
            }
            seconds[f"{sizes['shape']} {kind}"] = {
                name: {"repeats": 1, "seconds": float(f"{value:.4g}")}
                for name, value in parts.items()
            }
        found = context.job("device_jobs.health", {CACHE: cache}, **sizes["health"])
    return {"seconds": seconds, "health": found, "sides": {}, "ratios": {}}


def _command_buffers(context: Context) -> dict[str, Any]:
    return _on_and_off(context, f"{flags()} {NO_BUFFERS}".strip())


def _determinism(context: Context) -> dict[str, Any]:
    return _on_and_off(context, flags(deterministic=False))


def _on_and_off(context: Context, without: str) -> dict[str, Any]:
    """Updates with the usual flags and with others. XLA reads its flags once, so each setting has a
    process and the two do not take turns."""
    given = {"shapes": context.sizes["shapes"], "repeats": context.repeats}
    found = {
        "on": context.job("device_jobs.ppo", **given),
        "off": context.job("device_jobs.ppo", {"XLA_FLAGS": without}, **given),
    }
    on, off = (found[name]["sides"] for name in ("on", "off"))
    ratios = {
        f"{name}: on/off": {
            clock: float(f"{on[name][key] / off[name][key]:.4g}")
            for clock, key in (("wall", "steps_per_second"), ("cpu", "steps_per_cpu_second"))
        }
        for name in on
    }
    return {
        "sides": {
            f"{name}/{kind}": side
            for kind, each in found.items()
            for name, side in each["sides"].items()
        },
        "ratios": ratios,
    } | _left_out(context.sizes)


def _of_a_gpu(what: str) -> Callable[[str], str]:
    return lambda platform: (
        "" if platform in ("gpu", "cuda", "rocm") else f"no {what} on a {platform.upper()}"
    )


def _memory(context: Context) -> dict[str, Any]:
    sizes = context.sizes
    training = {
        side_name(shape): context.job("device_jobs.memory_of", shape=shape)
        for shape in sizes["shapes"]
    }
    silent = [name for name, each in training.items() if "peak_device_bytes" not in each]
    bytes_ = context.job("device_jobs.env_memory", envs=sizes["envs"], sessions=sizes["sessions"])
    left_out = _left_out(sizes).get("left_out", {}) | {
        f"{name}, peak": "this device does not count the memory in use" for name in silent
    }
    return {
        "targets": {
            "env_step_temporary_bytes_per_env": {"measured": bytes_, "envs": sizes["envs"]}
        },
        "training": training,
        "sides": {},
        "ratios": {},
    } | ({"left_out": left_out} if left_out else {})


PARTS = {
    "correctness": Part(
        "is what the device computes right: trajectories, an update, resumption, many seeds",
        _correctness_sizes,
        _correctness,
        200.0,
    ),
    "env_step": Part(
        "environment steps by number of environments, with observations consumed; our own side alone",
        _env_sizes,
        _env_step,
    ),
    "ppo_train": Part(
        "whole PPO training with large batches; our own side alone", _train_sizes, _ppo_train, 150.0
    ),
    "population": Part(
        "many seeds in one program against one, start-up and compilation excluded",
        _seeds_sizes,
        _population,
    ),
    "precision": Part(
        "updates by the precision of matrix products (compute.precision)",
        _precision_sizes,
        _precision,
        150.0,
    ),
    "compile": Part(
        "seconds to compile a train chunk, cold and from the cache; recompiles and host transfers",
        _compile_sizes,
        _compile,
    ),
    "command_buffers": Part(
        "updates with and without XLA's command buffers",
        _buffer_sizes,
        _command_buffers,
        absent=_of_a_gpu("command buffers"),
    ),
    "determinism": Part(
        "updates with and without the flags for the same bits (compute.deterministic)",
        _buffer_sizes,
        _determinism,
        absent=_of_a_gpu("choice of programs by timing them"),
    ),
    "memory": Part(
        "compiled temporaries and the device's own count of memory in use", _memory_sizes, _memory
    ),
}


def side_name(shape: Sequence[Any]) -> str:
    """As `ppo_train` calls its sides. shape: the fields of its `Own`."""
    return "{}/ours/{}x{}/batch {}/{} epochs".format(*shape)


def as_json(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """As a result holds them once it is read back."""
    return json.loads(json.dumps(dict(sizes)))


def estimates(
    bench: str, folder: str, sides: Mapping[str, Any], path: Path = COMPILED
) -> dict[str, Any]:
    """`roofline`: beside each measured shape that `accelerator` compiled for this device, its
    estimate.
    """
    if not path.is_file():
        return {}
    compiled = json.loads(path.read_text(encoding="utf-8"))["targets"].get(folder, {})
    found = {}
    for shape, name in ROOFLINE[bench].items():
        if name in sides and (estimate := compiled.get(shape, {}).get("estimate")):
            share = sides[name]["steps_per_second"] / estimate["steps_per_second"]
            found[shape] = {
                "side": name,
                "estimated_steps_per_second": estimate["steps_per_second"],
                "measured_over_estimate": float(f"{share:.4g}"),
            }
    return {"roofline": found} if found else {}
