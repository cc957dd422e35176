"""How much this machine may use: physical memory, and the limits of a process's control groups.

Imports no library, so that the doctor works where nothing else does. POSIX-only calls are used only
if the platform has them; each has an alternative.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Read = Callable[[str], str | None]
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


@dataclass(frozen=True)
class MachineLimits:
    """Limits of the control group; None means no limit.

    CPUs may be a fraction; memory is in bytes.
    """

    cpus: float | None = None
    memory: int | None = None


def usable_cpus() -> int:
    """Count the CPUs of the affinity mask if the system has one (Linux), else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_text(path: str) -> str | None:
    """Read the text of a file. None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # other kernels and cgroup versions lack this file, which is a valid answer


class _MemoryStatus(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "total",
                "available",
                "total_page",
                "available_page",
                "total_virtual",
                "available_virtual",
                "extended",
            )
        ),
    ]


def _of_windows(name: str) -> int | None:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(getattr(status, name)) if known else None


def _of_linux(name: str, read: Read) -> int | None:
    lines = (read("/proc/meminfo") or "").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def total_memory(system: str, read: Read = read_text) -> int | None:
    """Return the physical memory in bytes; None if it is unknown."""
    if system == "Windows":
        return _of_windows("total")
    if (known := _of_linux("MemTotal:", read)) is not None:
        return known
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _folders(path: str) -> list[str]:
    """List the folders of a control group and of its parents, since each of them may set a limit.

    The last one is '', the root. Inside a container, the root is the container's own group.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["".join(f"/{part}" for part in parts[:end]) for end in range(len(parts), -1, -1)]


def cgroup_limits(read: Read = read_text) -> MachineLimits:
    """Find the tightest limits among the control groups (version 2 or 1) of this process."""
    groups = {}
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path

    def values(controller: str, *names: str) -> list[str]:
        roots = [("/sys/fs/cgroup", groups.get("", "/"), names[0])]
        roots += [
            (f"/sys/fs/cgroup/{controller}", groups[controller], name)
            for name in names[1:]
            if controller in groups
        ]
        texts = (
            read(f"{root}{folder}/{name}")
            for root, path, name in roots
            for folder in _folders(path)
        )
        return [text.strip() for text in texts if text is not None]

    def number(found: list[str]) -> int | None:
        return min(
            (int(text) for text in found if text.isdigit() and int(text) < NO_LIMIT), default=None
        )

    cpus = [
        int(quota) / int(period)
        for quota, period in (text.split() for text in values("cpu", "cpu.max"))
        if quota.isdigit()
    ]
    for folder in _folders(groups.get("cpu", "/")):
        quota, period = (
            read(f"/sys/fs/cgroup/cpu{folder}/cpu.cfs_{name}_us") for name in ("quota", "period")
        )
        if quota is not None and period is not None and int(quota) > 0:
            cpus.append(int(quota) / int(period))
    return MachineLimits(
        min(cpus, default=None),
        number(values("memory", "memory.max", "memory.limit_in_bytes")),
    )


def usable_memory(system: str, read: Read = read_text) -> int | None:
    """Return the bytes that this process may use; None if unknown.

    This is the physical memory, or less if a control group says so.
    """
    known = total_memory(system, read), cgroup_limits(read).memory
    return min((each for each in known if each is not None), default=None)


def available_memory(system: str, read: Read = read_text) -> int | None:
    """Return the bytes that are free for this process now; None if unknown.

    This is what the kernel calls available, or less if a control group says so.

    Where the system does not report it, this is all memory that the process may use.
    """
    if system == "Windows":
        return _of_windows("available")
    free = _of_linux("MemAvailable:", read)
    limit, used = cgroup_limits(read).memory, _cgroup_used(read)
    left = None if limit is None or used is None else max(limit - used, 0)
    return min(
        (each for each in (free, left) if each is not None), default=usable_memory(system, read)
    )


def _cgroup_used(read: Read) -> int | None:
    """Return the bytes in use in this process's control group (the root of a container).

    Pages that can be dropped do not count.
    """
    for folder, name in (
        ("/sys/fs/cgroup", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.usage_in_bytes"),
    ):
        if (text := read(f"{folder}/{name}")) is not None:
            stat = dict(line.split() for line in (read(f"{folder}/memory.stat") or "").splitlines())
            return int(text) - int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
    return None
