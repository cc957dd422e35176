"""What the bits of a run depend on besides its configuration and data: versions, device, driver,
threads, flags.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxtrade.version import __version__

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy", "pandas")
DRIVER = Path("/proc/driver/nvidia/version")  # Linux only


def facts() -> dict[str, Any]:
    """The machine's part of a manifest. Starts JAX."""
    import jax

    device = jax.devices()[0]
    return {
        "versions": {name: metadata.version(name) for name in LIBRARIES}
        | {"jaxtrade": __version__, "python": platform.python_version()},
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "runtime": device.client.platform_version,
            "driver": driver(),
        },
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "nproc": os.environ.get("NPROC"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def driver(path: Path = DRIVER) -> str | None:
    """The version of the NVIDIA driver, such as "580.95.05". None if there is none, or on another
    system than Linux.
    """
    if not path.is_file():
        return None
    found = re.search(
        r"Kernel Module.*?\s(\d+(?:\.\d+)+)", path.read_text(encoding="utf-8", errors="replace")
    )
    return found.group(1) if found else None


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between the machines of two manifests: a run that goes on with it computes other
    bits.

    Facts that only one of the manifests has are passed over: an earlier version did not record
    them. So is the version of jaxtrade itself, whose changelog says what changes bits.
    """
    for part, ignored in (
        ("versions", {"jaxtrade", "pandas"}),
        ("device", {"count"}),
        ("machine", {"cpus"}),
    ):
        before, after = then.get(part, {}), now[part]
        for name in before.keys() & after.keys() - ignored:
            if before[name] != after[name]:
                yield f"{part.removesuffix('s')} {name}: {_line(before[name])}, now {_line(after[name])}"
    for name, label in (("nproc", "compute threads (NPROC)"), ("xla_flags", "XLA_FLAGS")):
        if then.get(name) is not None and then[name] != now[name]:
            yield f"{label}: {then[name]}, now {now[name]}"


def _line(value: Any) -> str:
    return " ".join(str(value).split())
