"""Checks that touch the disk: the run folder and the compilation cache."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jaxtrade.doctor.checks import GIB, MIB, gib
from jaxtrade.doctor.finding import Finding, fail, ok, warn
from jaxtrade.doctor.host import Machine
from jaxtrade.storage.programs import VARIABLE, cache_folder


def nearest_existing(path: Path) -> Path:
    """The path itself or its first parent that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def try_folder(folder: Path) -> float:
    """Do what a checkpoint does in a folder: lock, write, fsync, rename, remove. Returns the
    seconds it took.

    Raises OSError if a step fails.
    """
    from jaxtrade.runs.rundir import locked

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".jaxtrade-doctor-", dir=folder) as name:
        with locked(Path(name)), (Path(name) / "part").open("wb") as file:
            file.write(bytes(MIB))
            file.flush()
            os.fsync(file.fileno())
        (Path(name) / "part").replace(Path(name) / "whole")
    return time.monotonic() - start


def check_run_folder(
    host: Machine,
    attempt: Callable[[Path], float] = try_folder,
    usage: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
) -> Finding:
    """Check that runs can be written, locked and synced, and that there is space."""
    folder = nearest_existing(host.run_folder)
    if not folder.is_dir():
        return fail(
            "run-folder",
            f"{folder} is a file",
            "move it away, or train with --run-dir in another folder",
        )
    try:
        seconds = attempt(folder)
    except (
        ImportError
    ) as error:  # the lock is code of this package, whose dependencies may be missing
        return fail(
            "run-folder",
            f"not examined: {error}",
            "install what 'packages' names, then run the doctor again",
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return fail(
                "run-folder",
                f"{folder}: {error.strerror}, {gib(usage(folder))} free",
                f"free some space under {folder}, or train with --run-dir on another disk",
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return fail(
                "run-folder",
                f"{folder}: {error.strerror}",
                f"make {folder} writable for this user, or train with --run-dir in a folder that is",
            )
        return fail("run-folder", f"{folder}: {error}", "train with --run-dir on a local disk")
    free = usage(folder)
    text = f"{folder}: {gib(free)} free, lock + 1 MiB + fsync + rename in {seconds * 1000:.0f} ms"
    if free < GIB:
        return warn(
            "run-folder",
            text,
            "free some space (1 GiB is ample), or train with --run-dir on another disk",
        )
    if seconds > 2:
        return warn("run-folder", text, "checkpoints will be slow here: use a local disk for runs")
    return ok("run-folder", text)


def check_cache(host: Machine) -> Finding:
    """Check who can write to the cache. Its programs are run unchecked, so a writer can run code as
    this user.
    """
    if "://" in (name := host.env.get(VARIABLE, "")):
        return warn(
            "compile-cache", f"{name} is remote", "use a local folder that only you can write"
        )
    try:
        folder = cache_folder(host.env, host.system)
    except RuntimeError as error:
        return warn(
            "compile-cache",
            f"no folder ({error}): every run compiles again",
            f"set {VARIABLE} to a folder of your own",
        )
    if not folder.exists():
        return ok("compile-cache", f"{folder}: not made yet")
    if not folder.is_dir():
        return fail("compile-cache", f"{folder} is not a folder", f"point {VARIABLE} to a folder")
    found = folder.stat()
    # Mode bits mean nothing on Windows, where only the user can access the folders of the user's
    # profile.
    if host.system == "Windows":
        return ok("compile-cache", f"{folder} (keep it inside your user profile)")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        return fail(
            "compile-cache",
            f"{folder}: mode {mode:04o}, others can write it",
            f"chmod 700 {folder}; and empty it, if others had access",
        )
    if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
        return fail(
            "compile-cache",
            f"{folder} belongs to user {found.st_uid}",
            f"set {VARIABLE} to a folder of your own",
        )
    return ok("compile-cache", f"{folder}: mode {mode:04o}")


CHECKS: tuple[Callable[[Machine], Finding], ...] = (check_run_folder, check_cache)
