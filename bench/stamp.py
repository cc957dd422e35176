"""What ran where: the part of every result that lets a reader repeat it."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxtrade.runs.commit import environment

from . import harness

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


def stamp(command: Sequence[str], load: float | None) -> dict[str, Any]:
    """command, commit, device, cores, versions; load: the load average (of one minute) when the
    command started.
    """
    return {
        "command": " ".join(command),
        "commit": commit(),
        "device": device_name(),
        "platform": jax.devices()[0].platform,
        "devices": jax.device_count(),
        "cores": harness.cores(),
        "load_before": load,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of Python and of what is installed of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path = Path(__file__).parent) -> str:
    """The commit of the source in `folder`, `+` where it has changes other than of results;
    "unknown" outside a checkout, whose top is the folder or the one above it: an installed package
    lies in somebody else's repository."""

    def git(*words: str) -> str:
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


def device_name() -> str:
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
