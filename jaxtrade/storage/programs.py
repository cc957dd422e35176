"""How programs are compiled: XLA's settings, and its persistent cache between runs, in a folder of this user.

JAX keys an entry by program, versions, flags and device, so a stale one is never loaded; the folder may be deleted at
any time. Whoever can write it can run code as this user, hence a folder that only the user can write.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, MutableMapping
from pathlib import Path

VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# Loops that share their inputs become one. Without it XLA's CPU compiler computes all that leads to a leaf of a result
# again for every leaf: an environment's step some twenty times.
FUSION = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"
OFF = "JAXTRADE_XLA_DEFAULTS"  # 1: leave XLA's settings alone
LEAST_SECONDS = 0.2  # a program that compiles faster is not worth a file


def cache_folder(env: Mapping[str, str] = os.environ, system: str = platform.system()) -> Path:
    """Where compiled programs are kept: what `JAX_COMPILATION_CACHE_DIR` says, else `jaxtrade/programs` below the
    user's cache folder (`XDG_CACHE_HOME` or `~/.cache`; on macOS `~/Library/Caches`; on Windows `LOCALAPPDATA`).

    Raises RuntimeError where the user has no home folder.
    """
    if given := env.get(VARIABLE):
        return Path(given)
    match system:
        case "Darwin":
            base = Path.home() / "Library" / "Caches"
        case "Windows":
            base = Path(env.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case _:
            base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "jaxtrade" / "programs"


def use_fusion(env: MutableMapping[str, str] = os.environ) -> None:
    """Add `FUSION` to `XLA_FLAGS`, unless these name such options themselves or `JAXTRADE_XLA_DEFAULTS` is 1. XLA reads
    them once, when a process first uses a device; other platforms than the CPU ignore this one.
    """
    given = env.get("XLA_FLAGS", "")
    if env.get(OFF) != "1" and "xla_backend_extra_options" not in given:
        env["XLA_FLAGS"] = f"{given} {FUSION}".strip()


def pin_threads(env: MutableMapping[str, str] = os.environ) -> None:
    """Set `NPROC`, the number of compute threads, to the number of cores unless it is set. To be called before JAX
    starts. It changes bits on a CPU, so a run records it.
    """
    env.setdefault("NPROC", str(os.cpu_count() or 1))


def use_cache() -> str:
    """Keep compiled programs in `cache_folder()`, unless JAX was told a folder of its own, or
    `JAX_ENABLE_COMPILATION_CACHE` is off. To be called before anything is compiled.

    Returns why there is no cache, in words; empty where there is one or none is wanted.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None or not jax.config.jax_enable_compilation_cache:  # pyright: ignore
        return ""
    try:
        folder = cache_folder()
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(0, "not writable", str(folder))
    except (OSError, RuntimeError) as error:
        return f"compiled programs are not kept for the next run ({error}); set {VARIABLE} to a folder of your own"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    return ""
