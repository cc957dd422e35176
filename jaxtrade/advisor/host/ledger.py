"""The ledger: counts spending in a file that outlives the process, and enforces hard caps.

Before a call, the most that it can cost is reserved. After the call, the reservation is replaced by
the actual cost. A process killed in between has therefore counted too much, never too little.
(After a power failure the last seconds may be missing.)
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jaxtrade.errors import StorageError

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


_APPLICATION = 0x6A74_4C31  # "jtL1"
MICRO = 1_000_000


class Spend(NamedTuple):
    """Spending. cost: in millionths of the currency of the prices."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0


class Caps(NamedTuple):
    """The most that may be spent, in the units of `Spend`; None means no cap."""

    calls: int | None = None
    tokens: int | None = None
    cost: int | None = None


class Prices(NamedTuple):
    """Prices per million tokens, which equal millionths of the currency per token. None: unknown,
    counted as 0.
    """

    prompt: float | None = None
    completion: float | None = None

    @property
    def known(self) -> bool:
        """Whether both prices are given."""
        return self.prompt is not None and self.completion is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Cost in millionths of the currency, rounded up."""
        return math.ceil(
            (self.prompt or 0.0) * prompt_tokens + (self.completion or 0.0) * completion_tokens
        )


def at_most(prompt: str, overhead: int, completion: int, prices: Prices) -> Spend:
    """The most that one call can cost.

    In a byte-level vocabulary each token covers at least one byte, so the prompt has at most as
    many tokens as bytes.
    overhead: the most tokens added to it (chat template, schema). completion: the most tokens of
        the answer.
    """
    tokens = len(prompt.encode("utf-8", "replace")) + overhead
    return Spend(1, tokens + completion, prices.cost(tokens, completion))


class Ledger:
    """The ledger: one row of totals. One thread uses it; other processes may share the file.

    path: the file; None keeps the totals in memory. Every method raises StorageError where the file
        cannot be read or
    written, because spending that cannot be counted must not happen.
    """

    def __init__(self, path: Path | None, caps: Caps) -> None:
        self._caps, self._name = caps, str(path or "ledger in memory")
        with self._storage_errors():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._prepare()

    def _prepare(self) -> None:
        read = self._connection.execute
        with snapshot(self._connection):  # another process may be making the file at this moment
            kind = read("PRAGMA application_id").fetchone()[0]
            foreign = kind == 0 and read("SELECT 1 FROM sqlite_master").fetchone() is not None
        if foreign or kind not in (0, _APPLICATION):
            raise StorageError(
                f"{self._name}: a database of something else; give advisor.service.ledger another name"
            )
        if (found := read("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        use_wal(self._connection)
        with self._transaction():
            read(f"PRAGMA application_id={_APPLICATION}")
            read(
                "CREATE TABLE IF NOT EXISTS spent (one INTEGER PRIMARY KEY CHECK (one = 1), calls INTEGER NOT NULL, "
                "tokens INTEGER NOT NULL, cost INTEGER NOT NULL)"
            )
            read("INSERT OR IGNORE INTO spent VALUES (1, 0, 0, 0)")

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"{self._name}: what the advisor has spent cannot be read or written ({error}); nothing "
                "is asked. Restore the file; deleting it sets what was spent to 0"
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # on a full disk SQLite has already rolled back
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _add(self, spend: Spend) -> None:
        self._connection.execute(
            "UPDATE spent SET calls = calls + ?, tokens = tokens + ?, cost = cost + ?", spend
        )

    def spent(self) -> Spend:
        """What has been spent, reservations included."""
        with self._storage_errors():
            return Spend(
                *self._connection.execute("SELECT calls, tokens, cost FROM spent").fetchone()
            )

    def reserve(self, spend: Spend) -> str:
        """Reserve `spend` and return "". Where a cap does not allow it, reserve nothing and return
        a text naming it.
        """
        with self._storage_errors(), self._transaction():
            for name, cap, before, more in zip(
                Caps._fields, self._caps, self.spent(), spend, strict=True
            ):
                if cap is not None and before + more > cap:
                    if name == "cost":
                        return f"{before / MICRO:g} of advisor.service.max_cost = {cap / MICRO:g} is spent"
                    return f"{before} of advisor.service.max_{name} = {cap} are used"
            self._add(spend)
        return ""

    def settle(self, reserved: Spend, actual: Spend) -> None:
        """Replace a reservation by the actual spending."""
        with self._storage_errors():
            self._add(Spend(*(new - old for new, old in zip(actual, reserved, strict=True))))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
