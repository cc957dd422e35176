"""What is used of JAX and XLA that no release promises: private names, options that may be dropped.

Each is used in one place, and asked for first. A release that lacks one costs what `PARTS` says,
and a line; never the command. Nothing here loads JAX.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.errors import JaxtradeError

# Releases of jaxlib that the tests have run with, and that know the options of `storage.programs`.
TRIED = ("0.10.", "0.11.")
ASK_SECONDS = 60.0


class InternalUse(NamedTuple):
    """A use of private parts of JAX.

    name: of what is used.
    place: the module that uses it.
    without: what is lost where it is missing.
    """

    name: str
    place: str
    without: str


PARTS = {
    "fusion": InternalUse(
        "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion",
        "storage/programs.py",
        "steps on a CPU are slower",
    ),
    "determinism": InternalUse(
        "--xla_gpu_deterministic_ops, --xla_gpu_autotune_level",
        "storage/programs.py",
        "runs on a GPU may have other bits each time",
    ),
    "started": InternalUse(
        "jax._src.xla_bridge.backends_are_initialized",
        "storage/internals.py",
        "a run keeps the compute threads, CPU devices and XLA flags that the process was started with",
    ),
    "processes": InternalUse(
        "jax._src.distributed.global_state",
        "storage/internals.py",
        "no run is trained by several processes",
    ),
}
_lost: dict[str, str] = {}


def note_lost_part(part: str, reason: str) -> None:
    """Note that this process goes without a part.

    part: a key of `PARTS`.
    """
    _lost.setdefault(part, f"{PARTS[part].without} ({reason})")


def list_lost() -> list[str]:
    """List what this process has had to go without so far, a sentence each."""
    return list(_lost.values())


@functools.cache
def jaxlib_version() -> str:
    """Return the version of the installed jaxlib; empty if there is none.

    Does not use `importlib.metadata`, which takes longer than all of `import jaxtrade`.
    """
    spec = importlib.util.find_spec("jaxlib")
    if not spec or not spec.origin:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r'^_version = "([^"]+)"', text, re.MULTILINE)
    return found.group(1) if found else ""


def supports_xla_flags(flags: str) -> bool:
    """Return whether the installed XLA takes these options in `XLA_FLAGS`.

    XLA ends the process for an option that it does not know. So a release that was never tried is
    asked in a process of its own, which takes about a second.
    """
    return jaxlib_version().startswith(TRIED) or _try_flags(flags)


@functools.cache
def _try_flags(flags: str) -> bool:
    if not importlib.util.find_spec("jax"):
        return False
    import subprocess  # takes a while to load, and few processes need it

    command = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def backends_started() -> bool:
    """Return whether JAX has started in this process.

    It has then read `NPROC` and `XLA_FLAGS`, and reads them no more. No public function says so
    without starting JAX. Where the private one is missing, JAX counts as started once it is
    loaded: settings that might come too late are then not made, so that no manifest names one
    without effect.
    """
    if "jax" not in sys.modules:
        return False
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError as error:
        note_lost_part("started", str(error))
        return True
    return backends_are_initialized()


def find_distributed_state() -> Any:
    """Return JAX's state of this process among others, or None if it has joined none.

    The state has `client`, `process_id` and `num_processes`. The public functions
    (`jax.process_index`) would start the devices, and none gives the coordination service. Raises
    JaxtradeError in a process that has joined others where this JAX keeps the state elsewhere.
    """
    if "jax" not in sys.modules or not sys.modules["jax"].distributed.is_initialized():
        return None
    try:
        from jax._src.distributed import global_state

        return None if global_state.num_processes == 1 else global_state
    except (ImportError, AttributeError) as error:
        raise JaxtradeError(
            f"this release of JAX ({jaxlib_version()}) hides its coordination service ({error}), so no "
            "run can be trained by several processes with it; install JAX 0.11, or use one process"
        ) from error
