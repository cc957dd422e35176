"""A GPU or TPU measured by one command: part after part, each saved as it ends.

First whether the device computes right (`correctness`), then our own sides of other benches, at the
sizes of a GPU; a part is named after the bench whose sides it measures and its result has that
bench's keys. Results go to `OUT/DEVICE/PART.json`, DEVICE a short name of the device. Run again after
an interruption, the command skips the parts whose result is there already: of this commit, device,
versions, sizes and repeats. This process never starts JAX, because one job after the other needs the
device for itself. On an accelerator the whole takes at most SECONDS; what is not done by then is left
to the next run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.storage.programs import cache_folder, use_determinism

from . import idle, table, worker
from .catalogue import Options

SECONDS = 540.0  # of a full run on an accelerator
# Times a part's limit, where a limit only ends what hangs: on a CPU, and with small sizes.
PATIENT = 10.0
LEAST = 10.0  # seconds: a part is not begun with fewer left
PROBE = 180.0  # seconds until the device has answered
UNFINISHED, BROKEN, ENDED = 1, 70, 143  # exit codes
KNOWN = {
    "h200": r"\bh200\b",
    "h100": r"\bh100\b",
    "a100": r"\ba100\b",
    "v5e": r"\btpu v5(e| lite)\b",
    "v6e": r"\btpu v6(e| lite)\b",
}
OTHERS = r"\b(mig|pcie|nvl)\b"  # a part of a GPU, or one of other rates
LOUD = "=" * 88
CACHE, CACHE_SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
# With nothing behind it: no operation is captured in a command buffer.
NO_BUFFERS = "--xla_gpu_enable_command_buffer="
PASSED, FAILED, UNKNOWN = "passed", "failed", "not run"

# Network, environments, steps, batch, epochs; those of SLOW take a CPU minutes an update.
REFERENCE, SMALL = ("large", 4_096, 128, 32_768, 4), ("small", 4_096, 128, 32_768, 4)
LONG, DEFAULT = ("large", 4_096, 128, 32_768, 10), ("small", 256, 128, 4_096, 4)
SHAPES, SLOW = (SMALL, REFERENCE, LONG, ("large", 256, 128, 8_192, 4), DEFAULT), (REFERENCE, LONG)
QUICK_SHAPES = (("small", 64, 16, 256, 4), ("large", 32, 16, 256, 4))
RATE = {"num_minibatches": 8, "num_epochs": 4, "hidden": (64, 64)}
SEEDS_PPO = {"num_envs": 16, "num_steps": 128, **RATE}
RESUMED_PPO = {"num_envs": 256, "num_steps": 64, **RATE, "num_minibatches": 4}
QUICK_PPO = {"num_envs": 8, "num_steps": 16, "num_minibatches": 2, "num_epochs": 2, "hidden": (16,)}
TEST = {"num_envs": 64, "num_steps": 64, "num_minibatches": 4}  # `jaxtrade train --test`
SEEDS = {"count": 64, "ppo": SEEDS_PPO, "sessions": 78, "updates": 3}
QUICK_SEEDS = {"count": 4, "ppo": QUICK_PPO, "sessions": 4, "updates": 2}


class Machine(NamedTuple):
    """The device that is measured. folder: its name in paths (`folder_of`)."""

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
    cache: str

    def job(self, name: str, variables: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """The answer of `MODULE.FUNCTION(**arguments)` in a process of its own."""
        kept = {CACHE: self.cache, CACHE_SECONDS: "0", "XLA_FLAGS": flags()}
        left = self.seconds_left()
        if left <= 0:
            raise worker.LateError(f"{name}: no time was left for it")
        return worker.once(name, arguments, left, kept | dict(variables or {}))


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


# ------------------------------------------------------------------------------------------ parts
def correctness_sizes(quick: bool, platform: str) -> dict[str, Any]:
    return {
        "trajectories": {"envs": 8, "steps": 200} if quick else {"envs": 32, "steps": 400},
        "resumed": {"ppo": QUICK_PPO, "chunk": 1} if quick else {"ppo": RESUMED_PPO, "chunk": 3},
        "seeds": QUICK_SEEDS if quick else SEEDS,
    }


def correctness(context: Context) -> dict[str, Any]:
    """Every check runs, whatever became of the others."""
    sizes = context.sizes
    checks = {
        "trajectories": lambda: context.job("correctness.trajectories", **sizes["trajectories"]),
        "update": lambda: context.job("correctness.update"),
        "resumed": lambda: resumed(context),
        "seeds": lambda: context.job("correctness.seeds", **sizes["seeds"]),
    }
    found = {name: checked(check) for name, check in checks.items()}
    passed = all(each["passed"] for each in found.values())
    return {"correctness": PASSED if passed else FAILED, "checks": found}


def resumed(context: Context) -> dict[str, Any]:
    """Both processes compile anew: one that loads the programs of the other would not show that
    they compile to the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"folder": folder, **context.sizes["resumed"]}
        context.job("correctness.straight", NO_CACHE, **given)
        # Not the programs of the first process; its own two runs share them.
        return context.job("correctness.resumed", {CACHE: f"{folder}/programs"}, **given)


def checked(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a check found; one that fails on its way has failed. Raises LateError: time says nothing
    of correctness.
    """
    try:
        return run()
    except worker.LateError:
        raise
    except worker.WorkerError as error:
        return {"passed": False, "error": str(error)}


def env_sizes(quick: bool, platform: str) -> dict[str, Any]:
    if quick:
        return {"sizes": (64, 256), "steps": 1 << 13, "sessions": 4}
    # An accelerator is done with fewer before the clock can tell.
    steps = 1 << (20 if platform == "cpu" else 24)
    return {"sizes": (1_024, 4_096, 16_384, 65_536, 262_144), "steps": steps, "sessions": 78}


def env_step(context: Context) -> dict[str, Any]:
    return context.job("env_step.on_device", repeats=context.repeats, **context.sizes)


def feasible(full: Sequence[Any], quick: Sequence[Any]) -> Callable[[bool, str], dict[str, Any]]:
    """Without those that take a CPU minutes; their names stay in the result."""

    def sizes(small: bool, platform: str) -> dict[str, Any]:
        shapes = quick if small else full
        slow = [shape for shape in shapes if platform == "cpu" and shape in SLOW]
        return {"shapes": [shape for shape in shapes if shape not in slow], "slow": slow}

    return sizes


def left_out(sizes: Mapping[str, Any]) -> dict[str, str]:
    return {side_name(shape): "minutes an update on a CPU" for shape in sizes["slow"]}


def ppo_train(context: Context) -> dict[str, Any]:
    shapes = context.sizes["shapes"]
    found = context.job("ppo_train.on_device", shapes=shapes, repeats=context.repeats)
    return found | {"left_out": left_out(context.sizes)}


def seeds_sizes(quick: bool, platform: str) -> dict[str, Any]:
    if quick:
        return {"counts": (1, 4), "ppo": QUICK_PPO, "sessions": 4}
    counts = (1, 8, 64) if platform == "cpu" else (1, 16, 64, 256)
    return {"counts": counts, "ppo": SEEDS_PPO, "sessions": 78}


def population(context: Context) -> dict[str, Any]:
    return context.job("population.on_device", repeats=context.repeats, **context.sizes)


def precision(context: Context) -> dict[str, Any]:
    shapes = context.sizes["shapes"]
    found = context.job("ppo_train.by_precision", shapes=shapes, repeats=context.repeats)
    return found | {"left_out": left_out(context.sizes)}


def compile_sizes(quick: bool, platform: str) -> dict[str, Any]:
    name, ppo, sessions = ("train --test", TEST, 10) if quick else ("default", {}, 78)
    return {
        "shape": name,
        "chunk": {"ppo": ppo, "sessions": sessions},
        "health": {"ppo": TEST, "sessions": 10, "chunks": 2 if quick else 3},
    }


def compiling(context: Context) -> dict[str, Any]:
    """Once each: nothing here takes turns with anything."""
    sizes, seconds = context.sizes, {}
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            given = {"cache": cache, **sizes["chunk"]}
            parts = context.job("compile.on_device", {CACHE: cache}, **given)
            seconds[f"{sizes['shape']} {kind}"] = {
                name: {"repeats": 1, "seconds": float(f"{value:.4g}")}
                for name, value in parts.items()
            }
        found = context.job("compile.health", {CACHE: cache}, **sizes["health"])
    return {"seconds": seconds, "health": found}


def command_buffers(context: Context) -> dict[str, Any]:
    return on_and_off(context, f"{flags()} {NO_BUFFERS}".strip())


def determinism(context: Context) -> dict[str, Any]:
    return on_and_off(context, flags(deterministic=False))


def on_and_off(context: Context, without: str) -> dict[str, Any]:
    """Updates with the usual flags and with others. XLA reads its flags once, so each setting has a
    process and the two do not take turns."""
    given = {"shapes": context.sizes["shapes"], "repeats": context.repeats}
    kinds = {"on": {}, "off": {"XLA_FLAGS": without}}
    found = {
        kind: context.job("ppo_train.on_device", variables, **given)["sides"]
        for kind, variables in kinds.items()
    }
    clocks = {"wall": "steps_per_second", "cpu": "steps_per_cpu_second"}
    ratios = {
        f"{name}: on/off": {
            clock: float(f"{side[key] / found['off'][name][key]:.4g}")
            for clock, key in clocks.items()
        }
        for name, side in found["on"].items()
    }
    sides = {f"{name}/{kind}": side for kind in found for name, side in found[kind].items()}
    return {"sides": sides, "ratios": ratios, "left_out": left_out(context.sizes)}


def of_a_gpu(what: str) -> Callable[[str], str]:
    return lambda platform: (
        "" if platform in ("gpu", "cuda", "rocm") else f"no {what} on a {platform.upper()}"
    )


def memory_sizes(quick: bool, platform: str) -> dict[str, Any]:
    shapes = feasible((SMALL, REFERENCE), QUICK_SHAPES[:1])(quick, platform)
    return shapes | ({"envs": 256, "sessions": 4} if quick else {"envs": 65_536, "sessions": 78})


def memory(context: Context) -> dict[str, Any]:
    sizes, missing = context.sizes, left_out(context.sizes)
    training = {
        side_name(shape): context.job("ppo_train.memory_of", shape=shape)
        for shape in sizes["shapes"]
    }
    for name, each in training.items():
        if "peak_device_bytes" not in each:
            missing[f"{name}, peak"] = "this device does not count the memory in use"
    given = {"envs": sizes["envs"], "sessions": sizes["sessions"]}
    bytes_ = {"env_step_temporary_bytes_per_env": context.job("memory.of_env_step", **given)}
    return {"bytes": bytes_, "training": training, "left_out": missing}


SHORT = feasible((DEFAULT, REFERENCE), QUICK_SHAPES[:1])
PARTS = {
    "correctness": Part(
        "is what the device computes right: trajectories, an update, resumption, many seeds",
        correctness_sizes,
        correctness,
        200.0,
    ),
    "env_step": Part(
        "environment steps by number of environments, with observations consumed; our own side alone",
        env_sizes,
        env_step,
    ),
    "ppo_train": Part(
        "whole PPO training with large batches; our own side alone",
        feasible(SHAPES, QUICK_SHAPES),
        ppo_train,
        150.0,
    ),
    "population": Part(
        "many seeds in one program against one, start-up and compilation excluded",
        seeds_sizes,
        population,
    ),
    "precision": Part(
        "updates by the precision of matrix products (compute.precision)",
        feasible((SMALL, REFERENCE), QUICK_SHAPES[:1]),
        precision,
        150.0,
    ),
    "compile": Part(
        "seconds to compile a train chunk, cold and from the cache; recompiles and host transfers",
        compile_sizes,
        compiling,
    ),
    "command_buffers": Part(
        "updates with and without XLA's command buffers",
        SHORT,
        command_buffers,
        absent=of_a_gpu("command buffers"),
    ),
    "determinism": Part(
        "updates with and without the flags for the same bits (compute.deterministic)",
        SHORT,
        determinism,
        absent=of_a_gpu("choice of programs by timing them"),
    ),
    "memory": Part(
        "compiled temporaries and the device's own count of memory in use", memory_sizes, memory
    ),
}


def side_name(shape: Sequence[Any]) -> str:
    """As a result calls the side of a shape."""
    return "{}/ours/{}x{}/batch {}/{} epochs".format(*shape)


# -------------------------------------------------------------------------------------- the suite
def folder_of(platform: str, kind: str) -> str:
    """A short name for a device that is safe in paths: `h200`, `cpu`, or its kind in small letters
    and hyphens.
    """
    if platform == "cpu":
        return "cpu"
    said = kind.lower()
    if not re.search(OTHERS, said):
        for name, pattern in KNOWN.items():
            if re.search(pattern, said):
                return name
    return re.sub(r"[^a-z0-9]+", "-", said).strip("-") or platform


class Asked(NamedTuple):
    """What the command asks of the suite. keep: prints and writes a result to a folder; its exit
    code.
    """

    options: Options
    out: Path
    load: float | None
    again: bool
    force: bool
    stamped: str
    keep: Callable[[dict[str, Any], Path], int]


class Suite:
    """One run of the command. stamp: of the probe. correctness: what is known of it so far."""

    def __init__(
        self,
        asked: Asked,
        machine: Machine,
        stamp: Mapping[str, Any],
        parts: Mapping[str, Part],
    ) -> None:
        self.asked, self.options, self.machine, self.stamp = asked, asked.options, machine, stamp
        self.parts = {name: parts[name] for name in asked.options.parts or parts}
        self.folder = asked.out / machine.folder
        self.patient = asked.options.quick or machine.platform == "cpu"
        self.end = time.monotonic() + (float("inf") if self.patient else SECONDS)
        self.correctness = UNKNOWN
        self.codes: dict[str, int] = {}
        self.said: dict[str, str] = {}  # part -> what became of it
        if "correctness" in parts and self.why_again("correctness", parts["correctness"]) is None:
            self.correctness = table.read(self.path("correctness"))["correctness"]

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def config(self, part: Part) -> dict[str, Any]:
        """What is run: the part of a result that decides whether it answers this command."""
        sizes = part.sizes(self.options.quick, self.machine.platform)
        return {
            "device": self.machine.folder,
            "repeats": self.options.repeats,
            "xla_flags": [flag for flag in flags().split() if "/" not in flag],
            "sizes": json.loads(json.dumps(sizes)),  # as a result holds them once it is read back
        }

    def why_again(self, name: str, part: Part) -> str | None:
        """Why a part has to be measured: what is there is of something else; None where it can be
        skipped.
        """
        path = self.path(name)
        if self.asked.again or not path.exists():
            return "--again" if path.exists() else "not measured yet"
        try:
            there = table.read(path)
        except DataError as error:
            return str(error)
        for key in ("commit", "device", "versions"):
            if there["stamp"].get(key) != self.stamp[key]:
                return f"its {key} is another"
        if str(self.stamp["commit"]).endswith("+"):
            return "the commit has changes, which may be others now"
        if (there["quick"], there.get("config")) != (self.options.quick, self.config(part)):
            return "its sizes are others"
        if there.get("forced") and not self.asked.force:
            return "the machine was not idle"
        found = there.get("correctness")
        if name == "correctness":
            return None if found == PASSED else "it did not pass"
        return None if found == self.correctness else "it stands beside another correctness"

    def refuse(self) -> None:
        """Raises ConfigError: a quick run that would replace a full result."""
        for path in map(self.path, self.parts) if self.options.quick else ():
            if path.exists() and not table.read(path)["quick"]:
                raise ConfigError(
                    f"{path} is a full result, which --quick would replace; give another --out"
                )

    def one(self, name: str) -> None:
        """Measure a part, or say why not."""
        part = self.parts[name]
        left, reason = self.end - time.monotonic(), self.why_again(name, part)
        if absent := part.absent(self.machine.platform):
            self.told(name, 0, f"left out: {absent}")
        elif reason is None:
            said = "measured already, with this commit, device and sizes (--again measures anew)"
            self.told(name, 0, f"skipped: {said}")
        elif left < LEAST:
            said = f"the {SECONDS / 60:.0f} minutes are over; run the command again"
            self.told(name, UNFINISHED, f"not begun: {said}")
        else:
            self.tell(f"{name} ({reason}) ...")
            started = time.monotonic()
            limit = min(part.seconds * (PATIENT if self.patient else 1), left)
            try:
                result = self.measured(name, part, started + limit)
            except worker.WorkerError as error:
                self.told(name, BROKEN, f"failed: {error}")
            else:
                self.kept(name, result, time.monotonic() - started)

    def measured(self, name: str, part: Part, deadline: float) -> dict[str, Any]:
        """The result of a part, stamped. Raises WorkerError."""
        config = self.config(part)
        idle.LEDGER.worst()  # what an earlier part left
        context = Context(
            self.machine,
            config["sizes"],
            self.options.repeats,
            lambda: deadline - time.monotonic(),
            str(programs_folder()),
        )
        found = part.measure(context)
        own = {"command": self.asked.stamped, "load_before": self.asked.load}
        return {
            "bench": name,
            "about": part.about,
            "quick": self.options.quick,
            "stamp": dict(self.stamp) | own | {"steal": idle.LEDGER.worst()},
            "config": config,
            "correctness": self.correctness,
        } | found

    def kept(self, name: str, result: dict[str, Any], seconds: float) -> None:
        """Print and write a result; a failed correctness is said at once."""
        code = self.asked.keep(result, self.folder)
        if name == "correctness":
            self.correctness = result["correctness"]
            if self.correctness == FAILED:
                shout(failures(result))
                code = max(code, UNFINISHED)
        did = f"measured, exit code {code}" if code else "done"
        self.told(name, code, f"{did} in {seconds:.0f} s")

    def told(self, name: str, code: int, text: str) -> None:
        self.codes[name], self.said[name] = code, text
        self.tell(f"{name}: {text}")

    def tell(self, text: str) -> None:
        print(f"device {self.machine.folder}: {text}", file=sys.stderr, flush=True)


def failures(result: Mapping[str, Any]) -> list[str]:
    """The checks of `correctness` that failed, each in a line."""
    checks = result.get("checks", {})
    return [f"{name}: {each}" for name, each in checks.items() if not each["passed"]]


def shout(lines: list[str]) -> None:
    """What nobody may overlook."""
    said = (
        "CORRECTNESS FAILED: this device does not compute what it should. No figure below counts."
    )
    print("\n".join([LOUD, said, *lines, LOUD]), file=sys.stderr, flush=True)


def programs_folder() -> Path:
    """Of the compiled programs that the parts share, so that what an interrupted run compiled is
    not lost.
    """
    try:
        folder = cache_folder() / "device"
    except RuntimeError as error:
        raise ConfigError(f"no folder for compiled programs ({error}); set {CACHE}") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def ended_by_a_signal() -> Iterator[None]:
    """SIGTERM ends this process as an exception does, so that the running job ends with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        sys.exit(ENDED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def probed() -> tuple[Machine, dict[str, Any]]:
    """The device, and a stamp of what would measure it. Raises ConfigError."""
    try:
        found = worker.once("harness.about", {}, PROBE)
    except worker.WorkerError as error:
        raise ConfigError(
            f"no device answered: {error}; `jaxtrade doctor` examines the machine"
        ) from None
    stamp = found["stamp"]
    folder = folder_of(stamp["platform"], found["kind"])
    return Machine(stamp["platform"], stamp["device"], folder), stamp


def run(
    asked: Asked,
    parts: Mapping[str, Part] = PARTS,
    probe: Callable[[], tuple[Machine, dict[str, Any]]] = probed,
) -> int:
    """Run the chosen parts in their order; the worst exit code.

    Raises ConfigError: no device, or a quick run that would replace full results.
    """
    with ended_by_a_signal():
        suite = Suite(asked, *probe(), parts)
        suite.refuse()
        suite.tell(f"{suite.machine.name}: {', '.join(suite.parts)} -> {suite.folder}")
        with interrupt.hint(
            lambda: f"what is finished is in {suite.folder}; the same command goes on from there"
        ):
            for name in suite.parts:
                suite.one(name)
    suite.tell(f"correctness {suite.correctness}")
    for name, text in suite.said.items():
        suite.tell(f"{name}: {text}")
    return max(suite.codes.values(), default=0)
