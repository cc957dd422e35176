"""Timing that a hostile reader would accept, and the stamp that lets him repeat it.

Sides take turns in one run, so that whatever else the machine does falls on all of them. Programs
are compiled ahead of time and warmed up, results are blocked on, medians are reported with their
spread. Two clocks: wall seconds, and CPU seconds of the process that does the work and its
children, which other processes disturb little.
"""

import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import time
from collections import namedtuple
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
from scipy import stats

from jaxtrade.limits import usable_cpus as cores
from jaxtrade.runs.rundir import environment

from . import idle
from .table import ratio, sooner  # noqa: F401 (benches find them here)
from .worker import Child, Sample

LEVEL = 0.9  # of intervals
PACKAGES = """
jaxtrade jax jaxlib flax optax gymnax numpy gymnasium torch stable-baselines3 sb3-contrib sbx-rl
rejax
"""


# One of the things compared. run: one repeat -> what it took. steps: environment steps in it.
Side = namedtuple("Side", "run steps")


def clock(work):
    """Time one call in this process; JAX arrays in its result are waited for."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(work())
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def of_children(work, *given, **named):
    """Time one call, with CPU seconds of the processes that it started and waited for.

    Returns (what it took, what it returned).
    """
    wall, before = time.perf_counter(), os.times()
    answer = work(*given, **named)
    seconds, after = time.perf_counter() - wall, os.times()
    user = after.children_user - before.children_user
    return Sample(seconds, user + after.children_system - before.children_system), answer


def called(words, **given):
    """Run a command that must succeed, its output thrown away. Raises CalledProcessError."""
    nothing = subprocess.DEVNULL
    subprocess.run(words, stdin=nothing, stdout=nothing, check=True, **given)


def side(work, steps=0):
    """Return a side.

    work: a child, or what runs in this process, is compiled already and returns everything that it
    computes. steps: default those of an `Update`.
    """
    child = isinstance(work, Child)
    return Side(lambda: work.run().sample if child else clock(work), steps or work.steps)


def interleave(sides, repeats):
    """Take `repeats` samples of each side, taking turns; the order of turns alternates.

    One more run before warms up.
    """
    for each in sides.values():
        each.run()
    return take_turns({name: each.run for name, each in sides.items()}, repeats)


def take_turns(work, repeats):
    """Return by side what its `repeats` calls returned, taking turns.

    The order of turns alternates. The steal time of each side goes to `idle.LEDGER`.
    """
    idle.LEDGER.begin()
    found = {name: [] for name in work}
    for repeat in range(repeats):
        for name in list(work)[:: 1 if repeat % 2 == 0 else -1]:
            with idle.LEDGER.during(name):
                found[name].append(work[name]())
    return found


def durations(samples):
    """Medians by both clocks in seconds, and the least and greatest of the repeats."""
    wall, cpu = zip(*samples, strict=True)
    return {"repeats": len(samples)} | middle("seconds", wall) | middle("cpu_seconds", cpu)


def timed(work, repeats):
    """Side -> `durations` of the samples that its calls return, taking turns."""
    return {name: durations(taken) for name, taken in take_turns(work, repeats).items()}


def middle(name, values):
    """`name`: the median; `name_range`: the least and the greatest."""
    return {name: statistics.median(values), f"{name}_range": [min(values), max(values)]}


def summary(samples, steps):
    """Medians of steps per second by both clocks, and the least and greatest of the repeats."""
    wall, cpu = steps / np.array(samples).T
    by_clock = middle("steps_per_second", wall) | middle("steps_per_cpu_second", cpu)
    return {"steps": steps, "repeats": len(samples)} | by_clock


def compare(sides, repeats):
    """Side -> `summary`, all interleaved."""
    return {
        name: summary(taken, sides[name].steps)
        for name, taken in interleave(sides, repeats).items()
    }


def paired(ours, theirs):
    """Return the interval of LEVEL of how many times as fast `ours` is, by both clocks.

    It is Student's t of the logarithms of the ratios of repeats that stood side by side, for sides
    of as many steps.
    """
    logs = np.log(np.divide(theirs, ours))
    half = stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1) * logs.std(0, ddof=1) / len(logs) ** 0.5
    middle = logs.mean(0)
    ends = np.exp([middle - half, middle + half]).T.tolist()
    return {f"{clock}_interval": each for clock, each in zip(Sample._fields, ends, strict=True)}


def stamp(command, load):
    """Return what ran where: command, commit, device, cores, versions.

    load: the load average (of one minute) when the command started.
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
    for name in PACKAGES.split():
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def row_of(tree):
    """All numbers of a tree, float64."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def distance(first, one, other):
    """Return how far apart two steps end: |one - other| / |other - first|.

    It is over all numbers of three trees.
    """
    first, one, other = map(row_of, (first, one, other))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other - first))


def commit(folder=Path(__file__).parent):
    """Return the commit of the source in `folder`; `+` where it has changes other than of results.

    It is "unknown" outside a checkout, whose top is the folder or the one above it: an installed
    package lies in somebody else's repository.
    """

    def git(*words):
        told = {"cwd": folder, "env": environment(), "text": True, "stderr": subprocess.DEVNULL}
        return subprocess.check_output(["git", *words], **told).strip()

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
    """Return the device's kind; on a CPU the name that Linux gives it, where there is one."""
    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    if device.platform == "cpu" and info.exists():
        named = re.search(r"model name\s*: (.*)", info.read_text())
        return named[1].strip() if named else platform.processor()
    return device.device_kind
