"""A lock on an open file, which the operating system releases even if the process is killed."""

from __future__ import annotations

import errno
import os
import time
from typing import IO

from jaxtrade.errors import StorageError

PAUSE = 0.02  # seconds between two attempts
_TAKEN = (
    errno.EWOULDBLOCK,
    errno.EACCES,
    errno.EDEADLK,
)  # what a lock that another process holds is answered with


def try_lock(handle: IO[str] | IO[bytes]) -> bool:
    """Take the lock of an open file without waiting, and return whether it was taken.

    False: another process holds it, or the file system has none.
    """
    try:
        _lock(handle)
    except OSError:
        return False
    return True


def wait_lock(handle: IO[str] | IO[bytes], where: str, seconds: float) -> None:
    """Take the lock of an open file, waiting for at most `seconds`.

    Raises StorageError, which names `where`, if another process holds it for so long; OSError if
    the file system has no locks.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            _lock(handle)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if time.monotonic() >= until:
                raise StorageError(
                    f"{where}: another process has held its lock for {seconds:g} s"
                ) from None
            time.sleep(PAUSE)
        else:
            return


def _lock(handle: IO[str] | IO[bytes]) -> None:
    if os.name == "nt":
        import msvcrt

        handle.seek(1 << 30)  # a byte past the text, so that the text stays readable
        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
