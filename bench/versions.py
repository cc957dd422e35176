"""Measure this version against another checkout of jaxtrade (`--code DIR`).

Sides take turns, each in processes of its own.

`env`: the environment alone. `small`, `large`, `default`: whole PPO updates, as in `ppo_train`;
`default` is 64x64 with 256 environments x 128 steps. Each version computes with the number of
threads that it chooses by itself: this one by `runs.xla_settings`, versions before it with all cores.
`quickstart`: the whole command `jaxtrade train quickstart`, with empty caches (`cold`) and with
those that an earlier command has filled (`warm`).

The child (`versions_child.py`) uses of jaxtrade only what both versions have.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import yaml

from jaxtrade.errors import ConfigError
from jaxtrade.runs.xla_settings import threads_of

from . import harness, setting
from .harness import commit
from .worker import ROOT, Child, finding

# Keys of the learner, by their own names; `env` steps without one.
SHAPES = yaml.safe_load("""
env: {num_envs: 4096, num_steps: 64}
small: {num_envs: 16, num_steps: 256, num_shards: 1, num_minibatches: 16, num_epochs: 4,
        hidden: [64, 64], activation: tanh}
large: {num_envs: 16, num_steps: 128, num_shards: 1, num_minibatches: 8, num_epochs: 10,
        hidden: [256, 256, 128], activation: relu}
default: {num_envs: 256, num_steps: 128, num_minibatches: 8, num_epochs: 4, hidden: [64, 64]}
""")
QUICK = {"env": {"num_envs": 64, "num_steps": 4}}
NOW, BEFORE = "now", "before"
CHILD = str(Path(__file__).with_name("versions_child.py"))
UNHEALTHY = 1  # exit code
COMMAND = "import sys; from jaxtrade.cli import main; sys.exit(main())"
# The counts of quickstart.yaml when this bench was made: both versions know these keys, whatever
# their defaults are.
QUICKSTART = """
rollout.num_envs=256 rollout.num_steps=64 ppo.num_minibatches=8 ppo.num_epochs=4
train.chunk_updates=5 train.checkpoint_every=2
"""
STEPS, QUICK_STEPS = "train.total_timesteps=1_000_000", "train.total_timesteps=20480"
REPEATS_OF_COMMANDS = 5  # at most: each takes half a minute


def threads(shape, new):
    """Return the compute threads that a version chooses for a shape."""
    cores = harness.cores()
    return threads_of(setting.config(ppo=shape), cores) if new and "hidden" in shape else cores


def command(code, quick, caches=None):
    """Run `jaxtrade train quickstart` once, with the threads that it chooses itself.

    It is timed from its start to its end.
    """
    names = ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        own = finding(code) | dict.fromkeys(names, caches or f"{folder}/caches")
        own.pop("NPROC", None)
        words = [sys.executable, "-P", "-c", COMMAND, "train", "quickstart"]
        words += ["--run-dir", f"{folder}/run"]
        for key in (*QUICKSTART.split(), QUICK_STEPS if quick else STEPS):
            words += ["--set", key]
        given = {"env": own, "capture_output": True, "text": True, "cwd": folder}
        sample, done = harness.of_children(subprocess.run, words, **given)
    if done.returncode not in (0, UNHEALTHY):  # a short run may fail a health check
        why = next(iter(done.stderr.strip().splitlines()[-1:]), f"status {done.returncode}")
        raise ConfigError(f"train quickstart failed in {code}: {why}")
    return sample


def commands(codes, options):
    """Run the whole command with empty caches (cold) and with filled ones (warm).

    Returns what its sides took, by name.
    """
    work = {}
    with tempfile.TemporaryDirectory() as folder:
        for side, code in codes.items():
            work[f"quickstart cold/{side}"] = partial(command, code, options.quick)
            warm = partial(command, code, options.quick, f"{folder}/{side}")
            warm()  # fills the caches
            work[f"quickstart warm/{side}"] = warm
        return harness.timed(work, min(options.repeats, REPEATS_OF_COMMANDS))


def computed(codes, options):
    """Measure the shapes of both versions, interleaved -> side by name."""
    sessions = 4 if options.quick else setting.SESSIONS
    with ExitStack() as stack:
        sides, chosen = {}, {}
        for shape, keys in (QUICK if options.quick else SHAPES).items():
            for version, code in codes.items():
                name = f"{shape}/{version}"
                chosen[name] = threads(keys, version == NOW)
                own = finding(code) | {"NPROC": str(chosen[name])}
                words = [CHILD, json.dumps(keys), str(sessions)]
                child = stack.enter_context(Child(name, words, own))
                sides[name] = harness.side(child, keys["num_envs"] * keys["num_steps"])
        found = harness.compare(sides, options.repeats)
    return {name: side | {"threads": chosen[name]} for name, side in found.items()}


def run(options):
    if not (ROOT / "bench" / "setting.py").is_file():
        raise ConfigError(
            "versions compares two checkouts; this package is installed, so run it from a checkout"
        )
    codes = {NOW: ROOT, BEFORE: options.code.resolve()}
    sides, seconds = computed(codes, options), commands(codes, options)
    shapes = QUICK if options.quick else SHAPES
    ratios = {name: harness.ratio(sides, f"{name}/{NOW}", f"{name}/{BEFORE}") for name in shapes}
    for kind in ("quickstart cold", "quickstart warm"):
        ratios[kind] = harness.sooner(*(seconds[f"{kind}/{side}"] for side in (NOW, BEFORE)))
    return {
        "config": {"shapes": shapes, "repeats": options.repeats},
        "before": commit(options.code),
        "sides": sides,
        "ratios": ratios,
        "commands": seconds,
    }
