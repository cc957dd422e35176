"""Reads the models' texts in a cache of answers, for reports. The file is opened for reading
only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from jaxtrade.errors import StorageError

_AT_ONCE = 500  # keys in one query; SQLite allows at least 999


def read_texts(path: Path, keys: Iterable[str]) -> dict[str, str]:
    """The texts of the answers with advice among `keys` (`cache.cache_key`), by key.

    Raises StorageError where the file cannot be read or is no cache.
    """
    wanted, found = list(keys), dict[str, str]()
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                found |= dict(
                    connection.execute(
                        f"SELECT key, raw FROM answers WHERE advice IS NOT NULL AND key IN ({marks})",
                        some,
                    )
                )
    except sqlite3.Error as error:
        raise StorageError(f"{path}: the answers in it cannot be read ({error})") from None
    return found
