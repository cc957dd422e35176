"""A GPU or TPU measured by one command: part after part, each saved as it ends.

First whether the device computes right (`correctness`), then our own sides of other benches, at the
sizes of a GPU; a part is named after the bench whose sides it measures and its result has that
bench's keys. Results go to `OUT/DEVICE/PART.json`, DEVICE a short name of the device. Run again after
an interruption, the command skips the parts whose result is there already: of this commit, device,
versions, sizes and repeats. This process never starts JAX, because one job after the other needs the
device for itself. On an accelerator the whole takes at most SECONDS; what is not done by then is left
to the next run.
"""

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import namedtuple
from contextlib import contextmanager
from functools import partial

import yaml

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.storage.programs import cache_folder, use_determinism

from . import idle, table, worker

SECONDS = 540.0  # of a full run on an accelerator
# Times a part's limit, where a limit only ends what hangs: on a CPU, and with small sizes.
PATIENT = 10.0
LEAST = 10.0  # seconds: a part is not begun with fewer left
PROBE = 180.0  # seconds until the device has answered
UNFINISHED, BROKEN, ENDED = 1, 70, 143  # exit codes
KNOWN = r"\b(?:(h200|h100|a100)|tpu (v[56])(?:e| lite))\b"
OTHERS = r"\b(mig|pcie|nvl)\b"  # a part of a GPU, or one of other rates
LOUD = "=" * 88
CACHE = "JAX_COMPILATION_CACHE_DIR"
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
# With nothing behind it: no operation is captured in a command buffer.
NO_BUFFERS = "--xla_gpu_enable_command_buffer="
PASSED, FAILED, UNKNOWN = "passed", "failed", "not run"

# What is run. A shape: network, environments, steps, batch, epochs.
SIZES = yaml.safe_load("""
shapes:
  small: &small [small, 4096, 128, 32768, 4]
  reference: &reference [large, 4096, 128, 32768, 4]
  long: &long [large, 4096, 128, 32768, 10]
  default: &default [small, 256, 128, 4096, 4]
  quick: &quick [small, 64, 16, 256, 4]
# Those that take a CPU minutes an update.
slow: [*reference, *long]
seeds: &seeds {num_envs: 16, num_steps: 128, num_minibatches: 8, num_epochs: 4, hidden: [64, 64]}
tiny: &tiny {num_envs: 8, num_steps: 16, num_minibatches: 2, num_epochs: 2, hidden: [16]}
# `jaxtrade train --test`
test: &test {num_envs: 64, num_steps: 64, num_minibatches: 4}
parts:
  correctness:
    about: "is what the device computes right: trajectories, an update, resumption, many seeds"
    seconds: 200
    full:
      trajectories: {envs: 32, steps: 400}
      update: {}
      resumed: {ppo: {<<: *seeds, num_envs: 256, num_steps: 64, num_minibatches: 4}, chunk: 3}
      seeds: {count: 64, ppo: *seeds, sessions: 78, updates: 3}
    quick:
      trajectories: {envs: 8, steps: 200}
      update: {}
      resumed: {ppo: *tiny, chunk: 1}
      seeds: {count: 4, ppo: *tiny, sessions: 4, updates: 2}
  env_step:
    about: "environment steps by number of environments, with observations consumed; our own side alone"
    full: {sizes: [1024, 4096, 16384, 65536, 262144], steps: 16777216, sessions: 78}
    quick: {sizes: [64, 256], steps: 8192, sessions: 4}
    # An accelerator is done with fewer before the clock can tell.
    cpu: {steps: 1048576}
  ppo_train:
    about: "whole PPO training with large batches; our own side alone"
    seconds: 150
    full: {shapes: [*small, *reference, *long, [large, 256, 128, 8192, 4], *default]}
    quick: {shapes: [*quick, [large, 32, 16, 256, 4]]}
  population:
    about: "many seeds in one program against one, start-up and compilation excluded"
    full: {counts: [1, 16, 64, 256], ppo: *seeds, sessions: 78}
    quick: {counts: [1, 4], ppo: *tiny, sessions: 4}
    cpu: {counts: [1, 8, 64]}
  precision:
    about: "updates by the precision of matrix products (compute.precision)"
    seconds: 150
    full: {shapes: [*small, *reference]}
    quick: {shapes: [*quick]}
  compile:
    about: "seconds to compile a train chunk, cold and from the cache; recompiles and host transfers"
    full:
      shape: default
      chunk: {ppo: {}, sessions: 78}
      health: {ppo: *test, sessions: 10, chunks: 3}
    quick:
      shape: train --test
      chunk: {ppo: *test, sessions: 10}
      health: {ppo: *test, sessions: 10, chunks: 2}
  command_buffers:
    about: "updates with and without XLA's command buffers"
    gpu: command buffers
    full: {shapes: [*default, *reference]}
    quick: {shapes: [*quick]}
  determinism:
    about: "updates with and without the flags for the same bits (compute.deterministic)"
    gpu: choice of programs by timing them
    full: {shapes: [*default, *reference]}
    quick: {shapes: [*quick]}
  memory:
    about: "compiled temporaries and the device's own count of memory in use"
    full: {shapes: [*small, *reference], envs: 65536, sessions: 78}
    quick: {shapes: [*quick], envs: 256, sessions: 4}
""")


# The device that is measured. folder: its name in paths (`folder_of`).
Machine = namedtuple("Machine", "platform name folder")


class Context(namedtuple("Context", "sizes repeats deadline cache")):
    """What the jobs of a part share.

    sizes: as `Part.sizes` gave them; deadline: of the part, by `time.monotonic`.
    """

    def job(self, name, variables=None, **arguments):
        """Return the answer of `MODULE.FUNCTION(**arguments)` in a process of its own."""
        kept = kept_in(self.cache) | {"XLA_FLAGS": flags()}
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise worker.LateError(f"{name}: no time was left for it")
        return worker.once(name, arguments, left, kept | dict(variables or {}))

    @property
    def left_out(self):
        """The sides that `Part.sizes` left out."""
        slow = self.sizes.get("slow", ())
        return {side_name(shape): "minutes an update on a CPU" for shape in slow}


def kept_in(folder):
    """Variables of a process that keeps everything that it compiles in a folder."""
    return {CACHE: folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def flags(deterministic=True):
    """Return XLA's flags of a job.

    They are this process's and, unless told otherwise, those by which `jaxtrade train` has the same
    bits on a GPU (compute.deterministic).
    """
    own = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    if deterministic:
        use_determinism(own)
    return own["XLA_FLAGS"]


class Part(
    namedtuple("Part", "about measure full quick cpu seconds gpu", defaults=[{}, 120.0, ""])
):
    """A part of the measurement.

    about: what it measures. measure: its result, but for what every result has. full, quick: what
    is run, as JSON; cpu: changes of `full` on a CPU. seconds: its limit on an accelerator. gpu:
    what it measures that only a GPU has.
    """

    def sizes(self, quick, platform):
        """Return what is run. Shapes that take a CPU minutes are `slow` there."""
        on_cpu = platform == "cpu"
        sizes = self.quick if quick else self.full | (self.cpu if on_cpu else {})
        if "shapes" not in sizes:
            return sizes
        slow = [shape for shape in sizes["shapes"] if on_cpu and shape in SIZES["slow"]]
        return sizes | {"shapes": [x for x in sizes["shapes"] if x not in slow], "slow": slow}

    def absent(self, platform):
        """Why it cannot be measured on a platform, or empty."""
        missing = self.gpu and platform not in ("gpu", "cuda", "rocm")
        return f"no {self.gpu} on a {platform.upper()}" if missing else ""


# ------------------------------------------------------------------------------------------ parts
def sides(name, context):
    """Return the part that is one job: the sides of a bench, `MODULE.FUNCTION`."""
    given = {key: value for key, value in context.sizes.items() if key != "slow"}
    found = context.job(name, repeats=context.repeats, **given)
    return found | {"left_out": context.left_out}


def correctness(context):
    """Run every check, whatever became of the others; one that fails on its way has failed.

    Raises LateError: time says nothing of correctness.
    """
    found = {}
    for name, given in context.sizes.items():
        try:
            job = partial(resumed, context) if name == "resumed" else context.job
            found[name] = job(f"correctness.{name}", **given)
        except worker.LateError:
            raise
        except worker.WorkerError as error:
            found[name] = {"passed": False, "error": str(error)}
    passed = all(each["passed"] for each in found.values())
    return {"correctness": PASSED if passed else FAILED, "checks": found}


def resumed(context, name, **given):
    """Run both processes, each of which compiles anew.

    One that loads the programs of the other would not show that they compile to the same bits.
    """
    with tempfile.TemporaryDirectory() as folder:
        context.job("correctness.straight", NO_CACHE, folder=folder, **given)
        # Not the programs of the first process; its own two runs share them.
        own = {CACHE: f"{folder}/programs"}
        return context.job(name, own, folder=folder, **given)


def compiling(context):
    """Once each: nothing here takes turns with anything."""
    sizes, seconds = context.sizes, {}
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            parts = context.job("compile.on_device", {CACHE: cache}, **sizes["chunk"])
            seconds[f"{sizes['shape']} {kind}"] = {
                name: {"repeats": 1, "seconds": value} for name, value in parts.items()
            }
        found = context.job("compile.health", {CACHE: cache}, **sizes["health"])
    return {"seconds": seconds, "health": found}


def on_and_off(without, context):
    """Measure updates with the usual flags of XLA and with others, which `without` gives.

    XLA reads its flags once, so each setting has a process and the two do not take turns.
    """
    named, given = {}, {"shapes": context.sizes["shapes"], "repeats": context.repeats}
    for kind, variables in (("on", {}), ("off", {"XLA_FLAGS": without()})):
        found = context.job("ppo_train.on_device", variables, **given)["sides"]
        named |= {f"{name}/{kind}": side for name, side in found.items()}
    ratios = {f"{name}: on/off": table.ratio(named, f"{name}/on", f"{name}/off") for name in found}
    return {"sides": named, "ratios": ratios, "left_out": context.left_out}


def memory(context):
    sizes, missing, training = context.sizes, context.left_out, {}
    for shape in sizes["shapes"]:
        name = side_name(shape)
        training[name] = context.job("ppo_train.memory_of", shape=shape)
        if "peak_device_bytes" not in training[name]:
            missing[f"{name}, peak"] = "this device does not count the memory in use"
    of_step = context.job("memory.of_env_step", envs=sizes["envs"], sessions=sizes["sessions"])
    bytes_ = {"env_step_temporary_bytes_per_env": of_step}
    return {"bytes": bytes_, "training": training, "left_out": missing}


MEASURES = {
    "correctness": correctness,
    "env_step": partial(sides, "env_step.on_device"),
    "ppo_train": partial(sides, "ppo_train.on_device"),
    "population": partial(sides, "population.on_device"),
    "precision": partial(sides, "ppo_train.by_precision"),
    "compile": compiling,
    "command_buffers": partial(on_and_off, lambda: f"{flags()} {NO_BUFFERS}".strip()),
    "determinism": partial(on_and_off, partial(flags, deterministic=False)),
    "memory": memory,
}
PARTS = {name: Part(measure=MEASURES[name], **of) for name, of in SIZES["parts"].items()}


def side_name(shape):
    """As a result calls the side of a shape."""
    return "{}/ours/{}x{}/batch {}/{} epochs".format(*shape)


# -------------------------------------------------------------------------------------- the suite
def folder_of(platform, kind):
    """Return a short name for a device that is safe in paths.

    It is `h200`, `cpu`, or its kind in small letters and hyphens.
    """
    said = kind.lower()
    if platform == "cpu":
        return "cpu"
    known = None if re.search(OTHERS, said) else re.search(KNOWN, said)
    if known:
        return known[1] or f"{known[2]}e"
    return re.sub(r"[^a-z0-9]+", "-", said).strip("-") or platform


class Suite:
    """One run of the command.

    options, command, load: what was asked, how a result calls it, and the load average before.
    keep: prints and writes a result to a folder; its exit code. stamp: of the probe. correctness:
    what is known of it so far.
    """

    def __init__(self, options, command, load, keep, machine, stamp):
        self.options, self.keep, self.machine = options, keep, machine
        self.stamp = {**stamp, "command": command, "load_before": load}
        self.folder = options.out / machine.folder
        self.patient = options.quick or machine.platform == "cpu"
        self.end = time.monotonic() + (float("inf") if self.patient else SECONDS)
        self.correctness = UNKNOWN
        self.said = {}  # part -> (exit code, what became of it)

    def path(self, name):
        return self.folder / f"{name}.json"

    def config(self, part):
        """Return what is run: the part of a result that decides whether it answers this command."""
        sizes = part.sizes(self.options.quick, self.machine.platform)
        return {
            "device": self.machine.folder,
            "repeats": self.options.repeats,
            "xla_flags": [flag for flag in flags().split() if "/" not in flag],
            "sizes": json.loads(json.dumps(sizes)),  # as a result holds them once it is read back
        }

    def why_again(self, name, part):
        """Say why a part has to be measured; None where it can be skipped.

        What is there is then of something else.
        """
        path = self.path(name)
        if self.options.again or not path.exists():
            return "--again" if path.exists() else "not measured yet"
        try:
            there = table.read(path)
        except DataError as error:
            return str(error)
        first, found = name == "correctness", there.get("correctness")
        asked = self.options.quick, self.config(part)
        reasons = {
            f"its {key} is another": there["stamp"].get(key) != self.stamp[key]
            for key in ("commit", "device", "versions")
        } | {
            "the commit has changes, which may be others now": self.stamp["commit"].endswith("+"),
            "its sizes are others": (there["quick"], there.get("config")) != asked,
            "the machine was not idle": there.get("forced") and not self.options.force,
            "it did not pass": first and found != PASSED,
            "it stands beside another correctness": not first and found != self.correctness,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def one(self, name, part):
        """Measure a part, or say why not."""
        begun, reason = time.monotonic(), self.why_again(name, part)
        if absent := part.absent(self.machine.platform):
            self.told(name, 0, f"left out: {absent}")
        elif reason is None:
            said = "measured already, with this commit, device and sizes (--again measures anew)"
            self.told(name, 0, f"skipped: {said}")
        elif self.end - begun < LEAST:
            said = f"the {SECONDS / 60:.0f} minutes are over; run the command again"
            self.told(name, UNFINISHED, f"not begun: {said}")
        else:
            self.log(f"{name} ({reason}) ...")
            limit = part.seconds * (PATIENT if self.patient else 1)
            try:
                code = self.measured(name, part, min(begun + limit, self.end))
            except worker.WorkerError as error:
                self.told(name, BROKEN, f"failed: {error}")
            else:
                did = f"measured, exit code {code}" if code else "done"
                self.told(name, code, f"{did} in {time.monotonic() - begun:.0f} s")

    def measured(self, name, part, deadline):
        """Measure a part, print and write its result; return the exit code.

        A failed correctness is said at once. Raises WorkerError.
        """
        config = self.config(part)
        idle.LEDGER.worst()  # what an earlier part left
        cache = str(programs_folder())
        found = part.measure(Context(config["sizes"], self.options.repeats, deadline, cache))
        result = {
            "bench": name,
            "about": part.about,
            "quick": self.options.quick,
            "stamp": self.stamp | {"steal": idle.LEDGER.worst()},
            "config": config,
            "correctness": self.correctness,
        } | found
        code, self.correctness = self.keep(result, self.folder), result["correctness"]
        if name == "correctness" and self.correctness == FAILED:
            shout(failures(result))
            return max(code, UNFINISHED)
        return code

    def told(self, name, code, text):
        self.said[name] = code, text
        self.log(f"{name}: {text}")

    def log(self, text):
        print(f"device {self.machine.folder}: {text}", file=sys.stderr, flush=True)


def failures(result):
    """List the checks of `correctness` that failed, each in a line."""
    return [f"{name}: {each}" for name, each in result["checks"].items() if not each["passed"]]


def shout(lines):
    """Print what nobody may overlook."""
    said = (
        "CORRECTNESS FAILED: this device does not compute what it should. No figure below counts."
    )
    print("\n".join([LOUD, said, *lines, LOUD]), file=sys.stderr, flush=True)


def programs_folder():
    """Return the folder of the compiled programs that the parts share.

    So what an interrupted run compiled is not lost.
    """
    try:
        folder = cache_folder() / "device"
    except RuntimeError as error:
        raise ConfigError(f"no folder for compiled programs ({error}); set {CACHE}") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def ended_by_a_signal():
    """SIGTERM ends this process as an exception does, so that the running job ends with it."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def probed():
    """Return the device, and a stamp of what would measure it. Raises ConfigError."""
    try:
        stamp = worker.once("harness.stamp", {"command": [], "load": None}, PROBE)
    except worker.WorkerError as error:
        raise ConfigError(
            f"no device answered: {error}; `jaxtrade doctor` examines the machine"
        ) from None
    told = stamp["platform"], stamp["device"]
    return Machine(*told, folder_of(*told)), stamp


def run(options, command, load, keep, parts=PARTS, probe=probed):
    """Run the chosen parts in their order; the worst exit code. Arguments: of `Suite`.

    Raises ConfigError: no device, or a quick run that would replace full results.
    """
    with ended_by_a_signal():
        suite = Suite(options, command, load, keep, *probe())
        known = parts.get("correctness")
        if known and suite.why_again("correctness", known) is None:
            suite.correctness = table.read(suite.path("correctness"))["correctness"]
        chosen = options.parts or tuple(parts)
        if options.quick:
            table.refuse_full(map(suite.path, chosen))
        suite.log(f"{suite.machine.name}: {', '.join(chosen)} -> {suite.folder}")
        with interrupt.hint(
            lambda: f"what is finished is in {suite.folder}; the same command goes on from there"
        ):
            for name in chosen:
                suite.one(name, parts[name])
    suite.log(f"correctness {suite.correctness}")
    for name, (_, text) in suite.said.items():
        suite.log(f"{name}: {text}")
    return max(code for code, _ in suite.said.values())
