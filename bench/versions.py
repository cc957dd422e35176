"""This version against another checkout of jaxtrade (`--code DIR`): sides take turns, each in
processes of its own.

`env`: the environment alone. `small`, `large`, `default`: whole PPO updates, as in `ppo_train`;
    `default` is 64x64 with
256 environments x 128 steps. Each version computes with the number of threads that it chooses by
itself: this one by
`runs.computing`, versions before it with all cores. `quickstart`: the whole command `jaxtrade train quickstart`, with
empty caches (`cold`) and with those that an earlier command has filled (`warm`). `chunk`: tracing, lowering
and compiling a train chunk of the shape `default`, with an empty cache of JAX and with a filled one.

The child (`versions_child.py`) uses of jaxtrade only what both versions have.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError
from jaxtrade.runs.computing import threads_of

from . import harness, programs, setting
from .catalogue import Options
from .harness import Sample
from .stamp import commit

ROOT = Path(__file__).resolve().parent.parent
SHAPES: dict[
    str, dict[str, Any]
] = {  # keys of the learner, by their own names; `env` steps without one
    "env": {"num_envs": 4096, "num_steps": 64},
    "small": {
        "num_envs": 16,
        "num_steps": 256,
        "num_minibatches": 16,
        "num_epochs": 4,
        "hidden": [64, 64],
        "activation": "tanh",
        "num_shards": 1,
    },
    "large": {
        "num_envs": 16,
        "num_steps": 128,
        "num_minibatches": 8,
        "num_epochs": 10,
        "hidden": [256, 256, 128],
        "activation": "relu",
        "num_shards": 1,
    },
    "default": {
        "num_envs": 256,
        "num_steps": 128,
        "num_minibatches": 8,
        "num_epochs": 4,
        "hidden": [64, 64],
    },
}
QUICK = {"env": {"num_envs": 64, "num_steps": 4}}
NOW, BEFORE = "now", "before"
CHILD = str(Path(__file__).with_name("versions_child.py"))
CHUNK = 5  # updates, the default of `train.chunk_updates`
UNHEALTHY = 1  # exit code
COMMAND = "import sys; from jaxtrade.cli import main; sys.exit(main())"
# The counts of quickstart.yaml when this bench was made: both versions know these keys, whatever
# their defaults are.
QUICKSTART = tuple(
    word
    for key in (
        "rollout.num_envs=256",
        "rollout.num_steps=64",
        "ppo.num_minibatches=8",
        "ppo.num_epochs=4",
        "train.total_timesteps=1_000_000",
        "train.chunk_updates=5",
        "train.checkpoint_every=2",
    )
    for word in ("--set", key)
)
QUICK_FLAGS = ("--set", "train.total_timesteps=20480")
REPEATS_OF_COMMANDS = 5  # at most: each takes half a minute


class Child:
    """Repeats of one shape of one version, in a process of its own."""

    def __init__(self, code: Path, shape: Mapping[str, Any], sessions: int, threads: int) -> None:
        words = [sys.executable, "-P", CHILD, json.dumps(dict(shape)), str(sessions)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(code) | {"NPROC": str(threads)},
            start_new_session=True,
        )
        self._held = ExitStack()
        self._held.enter_context(interrupt.child(self._process))

    def run(self) -> Sample:
        """One repeat. Raises ConfigError if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ConfigError(
                f"a version cannot run this bench (status {self._process.wait()}); its error is above"
            )
        return Sample(*json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with self._held:
            self._process.stdin.close()
            self._process.wait()


def environment(code: Path) -> dict[str, str]:
    """Variables of a process that runs the checkout `code`."""
    path = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path}


def threads(shape: Mapping[str, Any], new: bool) -> int:
    """The compute threads that a version chooses for a shape."""
    cores = harness.cores()
    return threads_of(setting.config(ppo=shape), cores) if new and "hidden" in shape else cores


def command(code: Path, caches: Path, quick: bool) -> Sample:
    """One `jaxtrade train quickstart` from its start to its end, with the threads that it chooses
    itself.
    """
    own = environment(code) | {
        "JAX_COMPILATION_CACHE_DIR": str(caches),
        "XDG_CACHE_HOME": str(caches),
    }
    own.pop("NPROC", None)
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            "-P",
            "-c",
            COMMAND,
            "train",
            "quickstart",
            "--run-dir",
            f"{folder}/run",
            *QUICKSTART,
            *(QUICK_FLAGS if quick else ()),
        ]
        wall, before = time.perf_counter(), os.times()
        done = subprocess.run(words, env=own, capture_output=True, text=True, cwd=folder)
        seconds, after = time.perf_counter() - wall, os.times()
    if done.returncode not in (0, UNHEALTHY):  # a short run may fail a health check
        raise ConfigError(f"train quickstart failed in {code}: {_why(done)}")
    return Sample(
        seconds,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what a process that failed has written, or its status."""
    return next(iter(done.stderr.strip().splitlines()[-1:]), f"status {done.returncode}")


def chunk(code: Path, caches: Path, quick: bool) -> Sample:
    """Tracing, lowering and compiling a train chunk of the default shape, in a new process; its
    start is excluded.
    """
    own = environment(code) | {
        "JAX_COMPILATION_CACHE_DIR": str(caches),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    own.pop("NPROC", None)
    words = [
        sys.executable,
        "-P",
        CHILD,
        json.dumps(SHAPES["default"]),
        str(4 if quick else setting.SESSIONS),
        str(CHUNK),
    ]
    done = subprocess.run(words, env=own, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{code} compiles no train chunk: {_why(done)}")
    return Sample(*json.loads(done.stdout))


def starts(
    name: str,
    start: Callable[[Path, Path, bool], Sample],
    codes: Mapping[str, Path],
    options: Options,
) -> dict[str, Any]:
    """What has empty caches (cold) and filled ones (warm) -> what its sides took, by name."""
    with tempfile.TemporaryDirectory() as folder:
        filled = {side: Path(folder) / side for side in codes}

        def cold(code: Path) -> Sample:
            with tempfile.TemporaryDirectory() as caches:
                return start(code, Path(caches), options.quick)

        for side, code in codes.items():
            start(code, filled[side], options.quick)
        work = {f"{name} cold/{side}": partial(cold, code) for side, code in codes.items()}
        work |= {
            f"{name} warm/{side}": partial(start, code, filled[side], options.quick)
            for side, code in codes.items()
        }
        taken = harness.take_turns(work, min(options.repeats, REPEATS_OF_COMMANDS))
    return {side: programs.durations(samples) for side, samples in taken.items()}


def computed(codes: Mapping[str, Path], options: Options) -> dict[str, dict[str, Any]]:
    """The shapes of both versions, interleaved -> side by name."""
    sessions = 4 if options.quick else setting.SESSIONS
    shapes = QUICK if options.quick else SHAPES
    with ExitStack() as stack:
        sides, chosen = {}, {}
        for shape, keys in shapes.items():
            for name, code in codes.items():
                chosen[f"{shape}/{name}"] = threads(keys, name == NOW)
                child = stack.enter_context(
                    closing(Child(code, keys, sessions, chosen[f"{shape}/{name}"]))
                )
                sides[f"{shape}/{name}"] = harness.Side(
                    child.run, keys["num_envs"] * keys["num_steps"]
                )
        found = harness.compare(sides, options.repeats)
        return {name: side | {"threads": chosen[name]} for name, side in found.items()}


def run(options: Options) -> dict[str, Any]:
    assert options.code is not None
    if not (ROOT / "bench" / "setting.py").is_file():
        raise ConfigError(
            "versions compares two checkouts; this package is installed, so run it from a checkout"
        )
    codes = {NOW: ROOT, BEFORE: options.code.resolve()}
    sides = computed(codes, options)
    seconds = starts("quickstart", command, codes, options) | starts("chunk", chunk, codes, options)
    whole = {
        kind: {
            clock: harness.rounded(seconds[f"{kind}/{BEFORE}"][key] / seconds[f"{kind}/{NOW}"][key])
            for clock, key in (("wall", "seconds"), ("cpu", "cpu_seconds"))
        }
        for kind in ("quickstart cold", "quickstart warm", "chunk cold", "chunk warm")
    }
    return {
        "config": {
            "shapes": QUICK if options.quick else SHAPES,
            "repeats": options.repeats,
            "repeats_of_commands": min(options.repeats, REPEATS_OF_COMMANDS),
            "torch": importlib.util.find_spec("torch") is not None,
        },
        "before": commit(options.code),
        "sides": sides,
        "ratios": {
            shape: harness.ratio(sides, f"{shape}/{NOW}", f"{shape}/{BEFORE}")
            for shape in (QUICK if options.quick else SHAPES)
        }
        | whole,
        "commands": seconds,
    }
