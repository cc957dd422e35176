"""SQLite functions that the cache and the ledger share."""

from __future__ import annotations

import sqlite3
import time


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error means that another process holds the file for the moment."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code is the primary code
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def use_wal(connection: sqlite3.Connection, tries: int = 40) -> None:
    """Switch the file to WAL mode, in which readers do not block the writer and a kill leaves the file intact.

    After a power failure the last commits may be missing. SQLite does not wait while another process switches the mode,
    so this function tries again, for about one second at most.
    """
    connection.execute("PRAGMA synchronous=NORMAL")
    for left in reversed(range(tries)):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not left:
                raise
            time.sleep(0.025)
