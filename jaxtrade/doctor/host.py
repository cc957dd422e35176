"""The machine as plain data. POSIX-only calls are used only if the platform has them; each has an alternative."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

Read = Callable[[str], str | None]
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


@dataclass(frozen=True)
class MachineLimits:
    """Limits of the control group; None means no limit. CPUs may be a fraction; memory is in bytes."""

    cpus: float | None = None
    memory: int | None = None
    pids: int | None = None


@dataclass(frozen=True)
class Machine:
    """The data that the checks use. `here` fills them from this machine; tests replace fields. Sizes are in bytes."""

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


def read_text(path: str) -> str | None:
    """The text of a file, or None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # other kernels and cgroup versions lack this file, which is a valid answer


def usable_cpus() -> int:
    """Number of CPUs that this process may use: those of its affinity mask if the system has one (Linux), else all."""
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


class _MemoryStatus(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32),
                *((name, ctypes.c_uint64) for name in ("total", "available", "total_page", "available_page",
                                                       "total_virtual", "available_virtual", "extended"))]


def total_memory(system: str, read: Read = read_text) -> int | None:
    """Physical memory in bytes; None if it is unknown."""
    if system == "Windows":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
        return int(status.total) if known else None
    for line in (read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _folders(path: str) -> list[str]:
    """The folders of a control group and of its parents, since each of them may set a limit.

    The last one is '', the root. Inside a container, the root is the container's own group.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["".join(f"/{part}" for part in parts[:end]) for end in range(len(parts), -1, -1)]


def cgroup_limits(read: Read = read_text) -> MachineLimits:
    """The tightest limits among the control groups (version 2 or 1) that contain this process."""
    groups = {}
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path

    def values(controller: str, *names: str) -> list[str]:
        roots = [("/sys/fs/cgroup", groups.get("", "/"), names[0])]
        roots += [(f"/sys/fs/cgroup/{controller}", groups[controller], name) for name in names[1:]
                  if controller in groups]
        texts = (read(f"{root}{folder}/{name}") for root, path, name in roots for folder in _folders(path))
        return [text.strip() for text in texts if text is not None]

    def number(found: list[str]) -> int | None:
        return min((int(text) for text in found if text.isdigit() and int(text) < NO_LIMIT), default=None)

    cpus = [int(quota) / int(period) for quota, period in (text.split() for text in values("cpu", "cpu.max"))
            if quota.isdigit()]
    for folder in _folders(groups.get("cpu", "/")):
        quota, period = (read(f"/sys/fs/cgroup/cpu{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota is not None and period is not None and int(quota) > 0:
            cpus.append(int(quota) / int(period))
    return MachineLimits(min(cpus, default=None), number(values("memory", "memory.max", "memory.limit_in_bytes")),
                  number(values("pids", "pids.max", "pids.max")))


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
    seen = (shutil.which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists()
            or Path("/dev/dxg").exists())  # /dev/dxg is the GPU under WSL2
    return Machine(system=system, release=platform.release(), machine=platform.machine(),
                python=(sys.version_info[0], sys.version_info[1], sys.version_info[2]), env=dict(os.environ),
                cpus=usable_cpus(), cpu_flags=cpu_flags(), memory=total_memory(system), limits=cgroup_limits(),
                max_processes=rlimit("RLIMIT_NPROC"), max_files=rlimit("RLIMIT_NOFILE"),
                versions=installed_versions(), gpu_seen=seen, run_folder=run_folder, read=read_text)
