"""Timing that a hostile reader would accept, and the stamp that lets him repeat it.

Sides take turns in one run, so that whatever else the machine does falls on all of them. Programs
are compiled ahead of time and warmed up, results are blocked on, medians are reported with their
spread. Two clocks: wall seconds, and CPU seconds of the process that does the work and its
children, which other processes disturb little.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from scipy import stats

from jaxtrade.runs.commit import environment

from . import idle
from .worker import Child, Sample

T = TypeVar("T")
LEVEL = 0.9  # of intervals
PACKAGES = (
    "jaxtrade",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "gymnax",
    "numpy",
    "gymnasium",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
    "sbx-rl",
    "rejax",
)


class Side(NamedTuple):
    """One of the things compared. run: one repeat -> what it took. steps: environment steps in
    it.
    """

    run: Callable[[], Sample]
    steps: int


def clock(work) -> Sample:
    """What one call took in this process; JAX arrays in its result are waited for."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(work())
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def of_children(work) -> tuple[Sample, T]:
    """What one call took, CPU seconds of the processes that it started and waited for; and what it
    returned.
    """
    wall, before = time.perf_counter(), os.times()
    answer = work()
    seconds, after = time.perf_counter() - wall, os.times()
    user, system = (
        getattr(after, f"children_{k}") - getattr(before, f"children_{k}")
        for k in ("user", "system")
    )
    return Sample(seconds, user + system), answer


def called(words, **given):
    """Run a command that must succeed, its output thrown away. Raises CalledProcessError."""
    nothing = subprocess.DEVNULL
    subprocess.run(words, stdin=nothing, stdout=nothing, check=True, **given)


def side(work, steps) -> Side:
    """A side that runs in this process. `work` is compiled already and returns everything that it
    computes.
    """
    return Side(lambda: clock(work), steps)


def worker_side(worker: Child, steps) -> Side:
    """A side that runs in a child."""
    return Side(lambda: worker.run().sample, steps)


def interleave(sides: Mapping[str, Side], repeats) -> dict[str, list[Sample]]:
    """`repeats` samples of each side, taking turns; the order of turns alternates. One more run
    before warms up.
    """
    for each in sides.values():
        each.run()
    return take_turns({name: each.run for name, each in sides.items()}, repeats)


def take_turns(work, repeats):
    """Side -> what its `repeats` calls returned, taking turns; the order of turns alternates. The
    steal time of each side goes to `idle.LEDGER`."""
    idle.LEDGER.begin()
    found = {name: [] for name in work}
    for repeat in range(repeats):
        for name in list(work)[:: 1 if repeat % 2 == 0 else -1]:
            with idle.LEDGER.during(name):
                found[name].append(work[name]())
    return found


def durations(samples: Sequence[Sample]):
    """Medians by both clocks in seconds, and the least and greatest of the repeats."""
    wall, cpu = ([getattr(sample, clock) for sample in samples] for clock in Sample._fields)
    return {"repeats": len(samples)} | middle("seconds", wall) | middle("cpu_seconds", cpu)


def middle(name, values):
    """`name`: the median; `name_range`: the least and the greatest."""
    ends = [rounded(min(values)), rounded(max(values))]
    return {name: rounded(statistics.median(values)), f"{name}_range": ends}


def summary(samples: Sequence[Sample], steps):
    """Medians of steps per second by both clocks, and the least and greatest of the repeats."""
    wall, cpu = ([steps / getattr(sample, clock) for sample in samples] for clock in Sample._fields)
    by_clock = middle("steps_per_second", wall) | middle("steps_per_cpu_second", cpu)
    return {"steps": steps, "repeats": len(samples)} | by_clock


def compare(sides: Mapping[str, Side], repeats):
    """Side -> `summary`, all interleaved."""
    return {
        name: summary(taken, sides[name].steps)
        for name, taken in interleave(sides, repeats).items()
    }


def ratio(results, ours, theirs):
    """How many times as many steps per second `ours` makes, by wall and by CPU seconds (medians
    over medians).
    """
    return {
        name: rounded(results[ours][key] / results[theirs][key])
        for name, key in (("wall", "steps_per_second"), ("cpu", "steps_per_cpu_second"))
    }


def paired(ours: Sequence[Sample], theirs: Sequence[Sample]):
    """The interval of LEVEL of how many times as fast `ours` is, by both clocks: Student's t of the
    logarithms of the ratios of repeats that stood side by side, for sides of as many steps."""
    found = {}
    for clock in Sample._fields:
        logs = np.log(
            [getattr(b, clock) / getattr(a, clock) for a, b in zip(ours, theirs, strict=True)]
        )
        half = stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
        ends = np.exp([logs.mean() - half, logs.mean() + half])
        found[f"{clock}_interval"] = [rounded(float(end)) for end in ends]
    return found


def sooner(ours, theirs, times=1):
    """How many times as long `theirs`, `times` in a row, take as `ours` (`durations`), by both
    clocks.
    """
    return {
        name: rounded(times * theirs[key] / ours[key])
        for name, key in (("wall", "seconds"), ("cpu", "cpu_seconds"))
    }


def rounded(value, digits=4):
    """To significant digits: more would claim a precision that a shared machine has not."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) >= 10 ** (digits - 1) else short


def cores():
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stamp(command, load):
    """What ran where: command, commit, device, cores, versions; load: the load average (of one
    minute) when the command started.
    """
    return {
        "command": " ".join(command),
        "commit": commit(),
        "device": device_name(),
        "platform": jax.devices()[0].platform,
        "devices": jax.device_count(),
        "cores": cores(),
        "load_before": load,
        "versions": versions(),
    }


def versions():
    """Of Python and of what is installed of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(folder=Path(__file__).parent):
    """The commit of the source in `folder`, `+` where it has changes other than of results;
    "unknown" outside a checkout, whose top is the folder or the one above it: an installed package
    lies in somebody else's repository."""

    def git(*words):
        return subprocess.run(
            ["git", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        ).stdout.strip()

    if not any((top / ".git").exists() for top in (folder.resolve(), folder.resolve().parent)):
        return "unknown"
    try:
        changed = git(
            "status", "--porcelain", "-uno", "--", ":(top)", ":(top,exclude)bench/results"
        )
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def device_name():
    """The device's kind; on a CPU the name that Linux gives it, where there is one."""
    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    if device.platform == "cpu" and info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if "model name" in line
        ]
        return names[0] if names else platform.processor()
    return device.device_kind


def about():
    """The device's kind as JAX calls it, and the stamp of what would measure it."""
    return {"kind": jax.devices()[0].device_kind, "stamp": stamp([], None)}
