"""What a kept program depends on besides its arguments: source code, versions, settings, device.
The key is made of it.

Everything that could change a traced or compiled program belongs here. A fact too many costs a
compilation, a fact too few runs an old program.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
# Variables that XLA and its CPU backend read.
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "OMP_NUM_THREADS", "JAXTRADE_XLA_DEFAULTS")
# Settings of JAX that say where programs are kept and what is logged. All others are part of the
# key.
HARMLESS = frozenset(
    {
        "jax_compilation_cache_dir",
        "jax_enable_compilation_cache",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_raise_persistent_cache_errors",
        "jax_log_compiles",
        "jax_logging_level",
        "jax_explain_cache_misses",
        "jax_debug_log_modules",
        "jax_traceback_filtering",
        "jax_dump_ir_to",
    }
)


class Source(NamedTuple):
    """The source files of this package. digest: sha256 (hex) of their names and bytes. stamp:
    (name, time of the last change in ns, bytes) of each, to see quickly that none has changed
    since."""

    digest: str
    stamp: tuple[tuple[str, int, int], ...]


_COMMAND: list[Source] = []  # of this process, at most one


def _stamp(package: Path) -> tuple[tuple[str, int, int], ...]:
    # An editor's lock and scratch files begin with a dot. Python imports none of them.
    files = (path for path in package.rglob("*.py") if not path.name.startswith("."))
    found = ((path.relative_to(package).as_posix(), path.stat()) for path in files)
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))


def read_source(package: Path = PACKAGE) -> Source | None:
    """The source files as they are now. None if there are none, as in a package made of compiled
    modules, or if one cannot be read or is replaced meanwhile."""
    digest = hashlib.sha256()
    try:
        stamp = _stamp(package)
        for name, _, _ in stamp:
            data = (package / name).read_bytes()
            digest.update(f"{name} {len(data)}\n".encode() + data)
    except OSError:
        return None
    known = any(name == "storage/source.py" for name, _, _ in stamp)
    return Source(digest.hexdigest(), stamp) if known else None


def unchanged(source: Source, package: Path = PACKAGE) -> bool:
    """Whether the files are still those of `source`.

    A process may run code that it read before somebody edited the files. It must neither take nor
    leave a program.
    """
    try:
        return _stamp(package) == source.stamp
    except OSError:  # a file was replaced meanwhile
        return False


def of_command() -> Source | None:
    """The source files of this process, if it is one of jaxtrade's commands. None in a process of
    the user's own, whose code may have changed any part of this package (`declare`)."""
    return _COMMAND[-1] if _COMMAND else None


def declare(source: Source | None) -> None:
    """Say that this process is a command, and which source files it runs. Call it once, before it
    does anything.
    """
    _COMMAND[:] = [] if source is None else [source]


@functools.cache
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in LIBRARIES} | {
        "python": f"{platform.python_implementation()} {sys.version}"
    }


@functools.cache
def _processor() -> str:
    """The processor's model and instructions: compiled code holds for those that it was compiled
    for.
    """
    described = Path("/proc/cpuinfo")
    if not described.exists():
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return (
        platform.machine()
        + " "
        + " ".join(sorted({line for line in lines if line.startswith(wanted)}))
    )


def surroundings(env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Versions, settings and the device, as plain values. Starts JAX."""
    import jax

    device = jax.local_devices()[0]
    settings = {
        name: str(value) for name, value in jax.config.values.items() if name not in HARMLESS
    }
    return {
        "versions": _versions(),
        "settings": settings,
        "processor": _processor(),
        "variables": {name: env.get(name) for name in VARIABLES},
        "flags": [word for word in sys.argv if word.startswith("--xla")],
        "device": [
            device.platform,
            device.device_kind,
            device.client.platform_version,
            device.id,
            jax.device_count(),
            jax.process_count(),
        ],
    }


def described(args: Any) -> list[Any]:
    """Structure, shapes and types of arguments, as plain values. Arrays may be abstract
    (`jax.ShapeDtypeStruct`).
    """
    import jax

    leaves, tree = jax.tree.flatten(args)
    return [
        str(tree),
        [
            [list(leaf.shape), str(leaf.dtype), bool(getattr(leaf, "weak_type", False))]
            for leaf in leaves
        ],
    ]


def text_key(name: str, lowered: Any, args: Any) -> str:
    """sha256 (hex) of a lowered program (`jax.stages.Lowered`), the structure of its arguments and
    result, and
    `surroundings`. Programs of equal keys are equal, whatever source they come from.

    JAX leaves arguments that are not used out of the text, so the text does not say which ones it
    has: the key does.
    """
    from jaxtrade.storage.executable import kept_arguments

    whole = {
        "name": name,
        "text": lowered.as_text(),
        "arguments": described(args),
        "kept": kept_arguments(lowered),
        "result": described(lowered.out_info),
        "surroundings": surroundings(),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def program_key(name: str, facts: Mapping[str, Any], args: Any, source: Source) -> str:
    """sha256 (hex) of all that a program depends on.

    name: of the program. facts: plain values that determine what it computes (the configuration,
        the data). args: its
    arguments, as in `described`.
    """
    whole = {
        "name": name,
        "facts": facts,
        "arguments": described(args),
        "source": source.digest,
        "surroundings": surroundings(),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
