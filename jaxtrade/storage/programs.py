"""How programs are compiled: XLA's settings, and the folder of programs kept between runs.

The folder is JAX's cache. JAX keys an entry by program, versions, flags and device, so it never
loads a stale one. The folder may be deleted at any time. Only the user may write to it, because
anyone who can write to it can run code as this user.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import stat
import sys
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from jaxtrade import interrupt
from jaxtrade.storage import internals

VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# This option fuses loops that share their inputs. Without it, XLA's CPU compiler repeats the whole
# computation for every leaf of a result: an environment step would be computed about twenty times.
FUSION = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"
# The same bits in every process on one GPU: no operation whose order of sums is open, and no choice
# between programs by timing them.
_ORDER, _TIMING = "--xla_gpu_deterministic_ops", "--xla_gpu_autotune_level"
DETERMINISTIC = f"{_ORDER}=true {_TIMING}=0"
OFF = "JAXTRADE_XLA_DEFAULTS"  # 1: leave XLA's settings alone
LAST_SECONDS = 3.0  # entries younger than this may be half written when a process is killed
LEAST_SECONDS = 0.2  # programs that compile faster than this are not cached


def cache_folder(env: Mapping[str, str] = os.environ, system: str = platform.system()) -> Path:
    """Return the folder of compiled programs.

    It is `JAX_COMPILATION_CACHE_DIR` if that is set, else `jaxtrade/programs` in the user's cache
    folder (`XDG_CACHE_HOME` or `~/.cache`; on macOS `~/Library/Caches`; on Windows `LOCALAPPDATA`).
    Raises RuntimeError if the user has no home folder.
    """
    if given := env.get(VARIABLE):
        return Path(given)
    return user_folder("XDG_CACHE_HOME", ".cache", "Library/Caches", env, system) / "programs"


def user_folder(
    variable: str,
    usual: str,
    on_macos: str,
    env: Mapping[str, str] = os.environ,
    system: str = platform.system(),
) -> Path:
    """Return the folder `jaxtrade` of a user, in `variable` or `usual`.

    It lies in `on_macos` on macOS and in `LOCALAPPDATA` on Windows. Raises RuntimeError if the user
    has no home folder.
    """
    match system:
        case "Darwin":
            base = Path.home() / on_macos
        case "Windows":
            base = Path(env.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case _:
            base = Path(env.get(variable) or Path.home() / usual)
    return base / "jaxtrade"


def use_fusion(env: MutableMapping[str, str] = os.environ) -> None:
    """Add `FUSION` to `XLA_FLAGS`.

    Adds nothing if the flags already hold backend options, `JAXTRADE_XLA_DEFAULTS` is 1 or this XLA
    does not know the option. XLA reads the flags once, when a process first uses a device. Only the
    CPU platform uses this option.
    """
    given = env.get("XLA_FLAGS", "")
    if env.get(OFF) == "1" or "xla_backend_extra_options" in given:
        return
    if internals.supports_xla_flags(FUSION):
        env["XLA_FLAGS"] = f"{given} {FUSION}".strip()
    else:
        internals.note_lost_part("fusion", f"XLA does not know {FUSION}")


def pin_threads(count: int, env: MutableMapping[str, str]) -> None:
    """Set `NPROC`, the number of compute threads on a CPU, unless it is already set.

    Call this before JAX starts. Results on a CPU depend on the number of threads, so a run
    records it.
    """
    env.setdefault("NPROC", str(count))


def use_cpu_devices(count: int, env: MutableMapping[str, str]) -> None:
    """Let a CPU count as so many devices.

    Changes nothing if `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS` already says as how many. Call this
    before JAX starts.
    """
    if (
        "xla_force_host_platform_device_count" in env.get("XLA_FLAGS", "")
        or "JAX_NUM_CPU_DEVICES" in env
    ):
        return
    env["JAX_NUM_CPU_DEVICES"] = str(count)  # which JAX reads when it is imported
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_num_cpu_devices", count)


def use_determinism(env: MutableMapping[str, str]) -> None:
    """Add the options of `DETERMINISTIC` to `XLA_FLAGS`.

    Leaves the flags alone if they give one of them another value or this XLA does not know them.
    Call this before JAX starts. Only the GPU platform uses these options. Without a GPU plugin
    nothing is added.
    """
    given = env.get("XLA_FLAGS", "")
    missing = [option for option in DETERMINISTIC.split() if option.partition("=")[0] not in given]
    if not has_gpu_plugin() or not is_deterministic(" ".join([given, *missing])):
        return
    if internals.supports_xla_flags(DETERMINISTIC):
        env["XLA_FLAGS"] = " ".join([*given.split(), *missing])
    else:
        internals.note_lost_part("determinism", f"XLA does not know {DETERMINISTIC}")


def is_deterministic(flags: str) -> bool:
    """Return whether XLA's flags ask for bit-identical results on a GPU.

    Of an option that stands twice, the last counts.
    """
    found = {
        name: value or "true" for name, _, value in (flag.partition("=") for flag in flags.split())
    }
    return found.get(_ORDER) in ("true", "1") and found.get(_TIMING) == "0"


def has_gpu_plugin() -> bool:
    """Return whether a package is installed by which JAX can use a GPU. Imports nothing of it."""
    plugins = importlib.util.find_spec("jax_plugins")
    folders = (plugins and plugins.submodule_search_locations) or []
    return any(
        each.is_dir()
        for folder in folders
        for kind in ("xla_cuda*", "xla_rocm*")
        for each in Path(folder).glob(kind)
    )


def use_cache() -> str:
    """Keep compiled programs in `cache_folder()`. Call this before anything is compiled.

    If JAX already has a cache folder (`JAX_COMPILATION_CACHE_DIR`), that one is kept. A folder that
    others can write to is not used: a compiled program is code. Does nothing if
    `JAX_ENABLE_COMPILATION_CACHE` is off. Returns a sentence that says why programs cannot be kept,
    or a warning; empty if all is well, or if no cache is wanted.
    """
    import jax

    given = jax.config.jax_compilation_cache_dir  # pyright: ignore
    if not jax.config.jax_enable_compilation_cache or "://" in str(given):  # pyright: ignore
        return ""
    if given is not None:
        said, used = written_by_others(Path(given), named=True)
        if not used:
            jax.config.update("jax_compilation_cache_dir", None)
        return said
    try:
        folder = cache_folder()
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(0, "not writable", str(folder))
        said, used = written_by_others(folder, named=False)
        if not used:
            return said
    except (OSError, RuntimeError) as error:
        return f"compiled programs are not kept for the next run ({error}); set {VARIABLE} to a folder of your own"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    interrupt.at_end(partial(drop_unfinished, folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    return ""


def written_by_others(folder: Path, named: bool) -> tuple[str, bool]:
    """Check who else can write to a folder of programs.

    Returns (a sentence about them, whether the folder is used nevertheless).
    named: whether the user named the folder. It is then used if only his own group can write to it.
    """
    if os.name == "nt" or not folder.exists():
        return "", True
    above = folder.resolve().parent
    if above.stat().st_mode & stat.S_IWOTH and not above.stat().st_mode & stat.S_ISVTX:
        return (
            f"{folder} is not used, so programs are compiled again: other users can replace it, because they can "
            f"write to {above}; chmod o-w {shlex.quote(str(above))}"
        ), False
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        return (
            f"{folder} is not used, so programs are compiled again: it belongs to another user, and a compiled "
            f"program is code; set {VARIABLE} to a folder of your own"
        ), False
    mend = f"chmod go-w {shlex.quote(str(folder))}"
    if found.st_mode & stat.S_IWOTH or (
        found.st_mode & stat.S_IWGRP and not (named and found.st_gid == os.getegid())
    ):
        return (
            f"{folder} is not used, so programs are compiled again: other users can write to it, and a compiled "
            f"program is code; {mend}"
        ), False
    if found.st_mode & stat.S_IWGRP:
        return (
            f"{folder}: your group can write compiled programs there, which are code; {mend} stops that",
            True,
        )
    return "", True


def drop_unfinished(folder: Path) -> None:
    """Remove what JAX wrote to its cache in the last few seconds.

    JAX writes an entry in place, so it may be half an entry, and JAX never writes it again. A whole
    one that is removed is only compiled again.
    """
    since = time.time() - LAST_SECONDS
    for path in folder.glob("*-cache"):
        with suppress(OSError):  # another process removed it, or owns it
            if path.stat().st_mtime >= since:
                path.unlink()
