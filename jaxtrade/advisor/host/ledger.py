"""What was spent, in a file that outlives the process, and the hard caps on it.

A call is booked at the most it can cost before it is made and corrected by what it did cost: a process killed in
between has spent too much on paper, never too little. (After a power failure the last seconds may be missing.)
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jaxtrade.advisor.host.sqlite import use_wal
from jaxtrade.errors import StorageError

_APPLICATION = 0x6A74_4C31  # "jtL1"
MICRO = 1_000_000


class Spend(NamedTuple):
    """cost: in millionths of the prices' currency."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0


class Caps(NamedTuple):
    """The most that may be spent; None: no cap."""

    calls: int | None = None
    tokens: int | None = None
    cost: int | None = None


class Prices(NamedTuple):
    """Of a million tokens, so that a token costs as many millionths. None: unknown, counted as nothing."""

    prompt: float | None = None
    completion: float | None = None

    @property
    def known(self) -> bool:
        return self.prompt is not None and self.completion is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Millionths of the currency, rounded up."""
        return math.ceil((self.prompt or 0.0) * prompt_tokens + (self.completion or 0.0) * completion_tokens)


def at_most(prompt: str, overhead: int, completion: int, prices: Prices) -> Spend:
    """The most that one call can cost: a token of a byte-level vocabulary is at least a byte of the prompt; `overhead`
    tokens come with it (chat template, schema) and `completion` tokens answer it, at most."""
    tokens = len(prompt.encode("utf-8", "replace")) + overhead
    return Spend(1, tokens + completion, prices.cost(tokens, completion))


class Ledger:
    """One row of totals. `path` None: kept in memory. Used by one thread; other processes may share the file.

    Raises StorageError, in every method, where the file cannot be read or written: what cannot be counted must not be
    spent.
    """

    def __init__(self, path: Path | None, caps: Caps) -> None:
        self._caps, self._name = caps, str(path or "ledger in memory")
        with self._told():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path or ":memory:", timeout=1.0, isolation_level=None,
                                               check_same_thread=False)
            self._prepare()

    def _prepare(self) -> None:
        read = self._connection.execute
        kind = read("PRAGMA application_id").fetchone()[0]
        if kind not in (0, _APPLICATION) or (kind == 0 and read("SELECT 1 FROM sqlite_master").fetchone()):
            raise StorageError(f"{self._name}: a database of something else; give advisor.ledger another name")
        if (found := read("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        use_wal(self._connection)
        with self._transaction():
            read(f"PRAGMA application_id={_APPLICATION}")
            read("CREATE TABLE IF NOT EXISTS spent (one INTEGER PRIMARY KEY CHECK (one = 1), calls INTEGER NOT NULL, "
                 "tokens INTEGER NOT NULL, cost INTEGER NOT NULL)")
            read("INSERT OR IGNORE INTO spent VALUES (1, 0, 0, 0)")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._name}: what the advisor has spent cannot be read or written ({error}); nothing "
                               "is asked. Restore the file; deleting it sets what was spent to 0") from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back where the disk is full
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _add(self, spend: Spend) -> None:
        self._connection.execute("UPDATE spent SET calls = calls + ?, tokens = tokens + ?, cost = cost + ?", spend)

    def spent(self) -> Spend:
        with self._told():
            return Spend(*self._connection.execute("SELECT calls, tokens, cost FROM spent").fetchone())

    def reserve(self, spend: Spend) -> str:
        """Book `spend`; or, where a cap does not allow it, book nothing and say which."""
        with self._told(), self._transaction():
            for name, cap, before, more in zip(Caps._fields, self._caps, self.spent(), spend, strict=True):
                if cap is not None and before + more > cap:
                    if name == "cost":
                        return f"{before / MICRO:g} of advisor.max_cost = {cap / MICRO:g} is spent"
                    return f"{before} of advisor.max_{name} = {cap} are used"
            self._add(spend)
        return ""

    def settle(self, reserved: Spend, actual: Spend) -> None:
        """Correct a booking by what it came to."""
        with self._told():
            self._add(Spend(*(new - old for new, old in zip(actual, reserved, strict=True))))

    def close(self) -> None:
        self._connection.close()
