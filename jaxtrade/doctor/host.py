"""The machine as plain data. POSIX-only calls are used only if the platform has them; each has an
alternative.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from jaxtrade.runs.limits import MachineLimits, Read, cgroup_limits, read_text, total_memory


@dataclass(frozen=True)
class Machine:
    """The data that the checks use. `here` fills them from this machine; tests replace fields.
    Sizes are in bytes.
    """

    system: str
    release: str
    machine: str
    python: tuple[int, int, int]
    env: Mapping[str, str]
    cpus: int  # CPUs that this process may use
    cpu_flags: frozenset[str] | None  # None if the platform does not list them
    memory: int | None
    limits: MachineLimits
    max_processes: int | None  # RLIMIT_NPROC; None: no such limit
    max_files: int | None
    versions: Mapping[str, str]  # lower-case distribution name -> version
    gpu_seen: bool
    run_folder: Path
    read: Read


def usable_cpus() -> int:
    """Number of CPUs that this process may use: those of its affinity mask if the system has one
    (Linux), else all.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def rlimit(name: str) -> int | None:
    """A soft limit of the `resource` module, such as "RLIMIT_NPROC".

    None if it is unlimited or does not exist; Windows has no such module.
    """
    try:
        import resource
    except ImportError:
        return None
    if not hasattr(resource, name):
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft in (resource.RLIM_INFINITY, -1) else soft


def cpu_flags(read: Read = read_text) -> frozenset[str] | None:
    """The instruction sets that Linux lists for the CPU; None where it lists none."""
    for line in (read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return None


def installed_versions() -> dict[str, str]:
    """The version of every installed distribution, by its normalised name."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(name.lower().replace("_", "-"), distribution.version)
    return found


def here(run_folder: Path) -> Machine:
    """Describe this machine. Loads no native library."""
    system = platform.system()
    seen = (
        shutil.which("nvidia-smi") is not None
        or Path("/dev/nvidiactl").exists()
        or Path("/dev/dxg").exists()
    )  # /dev/dxg is the GPU under WSL2
    return Machine(
        system=system,
        release=platform.release(),
        machine=platform.machine(),
        python=(sys.version_info[0], sys.version_info[1], sys.version_info[2]),
        env=dict(os.environ),
        cpus=usable_cpus(),
        cpu_flags=cpu_flags(),
        memory=total_memory(system),
        limits=cgroup_limits(),
        max_processes=rlimit("RLIMIT_NPROC"),
        max_files=rlimit("RLIMIT_NOFILE"),
        versions=installed_versions(),
        gpu_seen=seen,
        run_folder=run_folder,
        read=read_text,
    )
