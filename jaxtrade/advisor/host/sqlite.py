"""SQLite functions that the cache and the ledger share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 5.0  # seconds to wait for other processes that open or write the file
_PAUSE = 0.025  # seconds


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error means that another process holds the file for the moment."""
    code = (
        getattr(error, "sqlite_errorcode", 0) & 0xFF
    )  # the low byte of an extended code is the primary code
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """All reads inside see the file in one state, whatever other processes write between them."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, in which readers do not block the writer and a kill leaves the
    file intact.

    After a power failure the last commits may be missing. SQLite does not wait while another
    process switches the mode, so this function tries again, for about `PATIENCE` at most.
    """
    connection.execute("PRAGMA synchronous=NORMAL")
    for left in reversed(range(round(PATIENCE / _PAUSE))):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not left:
                raise
            time.sleep(_PAUSE)
