"""What the cache and the ledger do alike with their files."""

from __future__ import annotations

import sqlite3
import time


def is_busy(error: sqlite3.Error) -> bool:
    """Another process holds the file; it will let go."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary one, of an extended code
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def use_wal(connection: sqlite3.Connection, tries: int = 40) -> None:
    """Readers do not stop the writer; after a kill the file is whole (after a power failure the last commits may be
    missing). While another process switches the mode sqlite does not wait, so this does: a second at most."""
    connection.execute("PRAGMA synchronous=NORMAL")
    for left in reversed(range(tries)):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not left:
                raise
            time.sleep(0.025)
