"""What was paid for: answers kept on disk, and the calls, tokens and money that were spent.

Two SQLite files in WAL mode; one thread per process.

The ledger: counts spending in a file that outlives the process, and enforces hard caps.

Before a call, the most that it can cost is reserved. After the call, the reservation is replaced by
the actual cost. A process killed in between has therefore counted too much, never too little.
(After a power failure the last seconds may be missing.)

A cache of answers on disk, so that each question is paid for once. SQLite in WAL mode; one
thread per process.

It keeps advice, and also negatives: model texts that could not be parsed, with the number of
repetitions. It does not keep results that say nothing about the question: a lost connection, an
error status, a proxy's page, or an empty, cut or filtered answer. An unusable file never stops a
run: answers are then kept in memory, and this is reported once.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from jaxtrade.advisor.host.replies import verdict_of
from jaxtrade.advisor.host.types import Advice, Answer, Failure, Question, canonical, sha256_of
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError
from jaxtrade.text import Log

PATIENCE = 5.0  # seconds to wait for other processes that open or write the file
_PAUSE = 0.025  # seconds


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether the error means that another process holds the file for the moment."""
    code = (
        getattr(error, "sqlite_errorcode", 0) & 0xFF
    )  # the low byte of an extended code is the primary code
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all writes inside together, or none of them."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode.

    In it, readers do not block the writer and a kill leaves the file intact.

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


class ForeignError(sqlite3.OperationalError):
    """A database of something else, or of another version."""


def _open_database(
    path: Path | str, kind: int, version: int, check: str, *tables: str
) -> sqlite3.Connection:
    """Open and check a file, and make the tables in a new one.

    Args:
        kind, version: its application id and user version.
        check: the PRAGMA that checks the whole file.
        tables: the statements that make them.

    Raises:
        ForeignError: it is a database of something else, or of another version.
        sqlite3.DatabaseError: the file is damaged.
        sqlite3.OperationalError: the file cannot be used.
    """
    connection = sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        read = connection.execute
        if (found := read(f"PRAGMA {check}").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        read("BEGIN")  # one state of a file that another process may be making at this moment
        names = ("application_id", "user_version")
        marks = [read(f"PRAGMA {name}").fetchone()[0] for name in names]
        fresh = not read("SELECT 1 FROM sqlite_master").fetchone()
        connection.rollback()
        if marks != ([0, 0] if fresh else [kind, version]):
            raise ForeignError("a database of something else, or of another version")
        use_wal(connection)
        if fresh:
            with transaction(connection):
                for statement in tables:
                    read(statement)
                read(f"PRAGMA application_id={kind}")
                read(f"PRAGMA user_version={version}")
    except BaseException:
        connection.close()
        raise
    return connection


_LEDGER = 0x6A74_4C31  # "jtL1"
_SPENT = """CREATE TABLE IF NOT EXISTS spent (
    one INTEGER PRIMARY KEY CHECK (one = 1), calls INTEGER NOT NULL, tokens INTEGER NOT NULL, cost INTEGER NOT NULL)"""
_NOTHING = "INSERT OR IGNORE INTO spent VALUES (1, 0, 0, 0)"
MICRO = 1_000_000


class Spend(NamedTuple):
    """Spending.

    cost: in millionths of the currency of the prices.
    """

    calls: int = 0
    tokens: int = 0
    cost: int = 0


class Caps(NamedTuple):
    """The most that may be spent, in the units of `Spend`."""

    calls: float = math.inf
    tokens: float = math.inf
    cost: float = math.inf

    @classmethod
    def of(cls, options: ServiceOptions) -> Caps:
        """Return the caps that `advisor.service` sets."""
        caps = ((options.max_calls, 1), (options.max_tokens, 1), (options.max_cost, MICRO))
        return cls(*(math.inf if most is None else int(most * unit) for most, unit in caps))


def cost_of(options: ServiceOptions, prompt_tokens: int, completion_tokens: int) -> int:
    """Return the cost in millionths of the currency, rounded up.

    Prices are per million tokens, which equals millionths per token; one that is not given counts
    as 0.
    """
    prompt, completion = options.price_prompt or 0.0, options.price_completion or 0.0
    return math.ceil(prompt * prompt_tokens + completion * completion_tokens)


def at_most(prompt: str, options: ServiceOptions) -> Spend:
    """Return the most that one call can cost.

    In a byte-level vocabulary each token covers at least one byte, so the prompt has at most as
    many tokens as bytes, and those that the server adds to it (chat template, schema).
    """
    tokens = len(prompt.encode("utf-8", "replace")) + options.overhead_tokens
    completion = options.completion_tokens
    return Spend(1, tokens + completion, cost_of(options, tokens, completion))


def spend_of(answer: Answer, reserved: Spend, options: ServiceOptions) -> Spend:
    """Return what one request counts as: its reported usage.

    Without one, all that was reserved for it, unless the server's status says that
    it did not answer.
    """
    if used := answer.prompt_tokens + answer.completion_tokens:
        cost = cost_of(options, answer.prompt_tokens, answer.completion_tokens)
        return Spend(1, used, cost)
    return Spend(1) if verdict_of(answer).unbilled else reserved


class Ledger:
    """The ledger: one row of totals. One thread uses it; other processes may share the file.

    path: the file; None keeps the totals in memory. Every method raises StorageError where the file
        cannot be read or written, because spending that cannot be counted must not happen.
    """

    def __init__(self, path: Path | str | None, caps: Caps) -> None:
        self._caps, self._name = caps, str(path or "ledger in memory")
        with self._storage_errors():
            if path:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = _open_database(
                    path or ":memory:", _LEDGER, 0, "integrity_check", _SPENT, _NOTHING
                )
            except ForeignError:
                raise StorageError(
                    f"{self._name}: a database of something else; give advisor.service.ledger another name"
                ) from None

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"{self._name}: what the advisor has spent cannot be read or written ({error}); nothing "
                "is asked. Restore the file; deleting it sets what was spent to 0"
            ) from None

    def _add(self, spend: Spend) -> None:
        self._connection.execute(
            "UPDATE spent SET calls = calls + ?, tokens = tokens + ?, cost = cost + ?", spend
        )

    def sum_spend(self) -> Spend:
        """Sum what has been spent, reservations included."""
        with self._storage_errors():
            return Spend(
                *self._connection.execute("SELECT calls, tokens, cost FROM spent").fetchone()
            )

    def reserve(self, spend: Spend) -> str:
        """Reserve `spend` and return "".

        Where a cap does not allow it, reserve nothing and return a text naming it.
        """
        with self._storage_errors(), transaction(self._connection):
            for name, cap, before, more in zip(
                Caps._fields, self._caps, self.sum_spend(), spend, strict=True
            ):
                if before + more > cap:
                    if name == "cost":
                        return f"{before / MICRO:g} of advisor.service.max_cost = {cap / MICRO:g} is spent"
                    return f"{before} of advisor.service.max_{name} = {cap} are used"
            self._add(spend)
        return ""

    def book_cost(self, reserved: Spend, actual: Spend) -> None:
        """Replace a reservation by the actual spending."""
        with self._storage_errors():
            self._add(Spend(*(new - old for new, old in zip(actual, reserved, strict=True))))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


FORMAT = 1
NEGATIVE = frozenset({Failure.PARSE, Failure.SCHEMA})
_CACHE = 0x6A74_4341  # "jtCA"
_MOST_RAW = 65536  # characters
_MOST_IN_MEMORY = 100_000  # answers
_PATIENCE_IN_USE = (
    200  # milliseconds: once open, a read or write that would wait longer is tried again later
)

_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, advice TEXT, failure TEXT, attempts INTEGER NOT NULL, raw TEXT NOT NULL, model TEXT NOT NULL,
    bar INTEGER NOT NULL, symbol TEXT NOT NULL, time TEXT NOT NULL, prompt_version TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, latency REAL NOT NULL)"""
# The first advice stays. Advice replaces a negative. A negative counts repetitions of the same
# failure.
_PUT = """INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET advice = excluded.advice, failure = excluded.failure, raw = excluded.raw,
        model = excluded.model, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, latency = excluded.latency,
        attempts = excluded.attempts + CASE WHEN answers.failure = excluded.failure THEN answers.attempts ELSE 0 END
    WHERE answers.advice IS NULL"""
_FORGET = (
    "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?"  # all but the last
)


class CachedAdvice(NamedTuple):
    """Cached advice, or None with the failure that occurred `attempts` times in a row."""

    advice: Advice | None
    failure: Failure | None = None
    attempts: int = 1


def cache_key(identity: Mapping[str, str], question: Question) -> str:
    """Hash all that an answer depends on: the backend's identity, prompt and its version.

    The key is SHA-256 (hex).

    Deadlines, retries and credentials are left out, because they do not change the answer.
    """
    parts = {
        "identity": dict(identity),
        "prompt": question.prompt,
        "prompt_version": question.prompt_version,
        "sample": 0,  # keys of earlier versions had a number here
    }
    return sha256_of(canonical(parts))


def cacheable(answer: Answer) -> bool:
    """Return whether an answer may be kept.

    That is advice, or a failure that the model's own text shows.
    """
    return bool(answer.advice) or (answer.failure in NEGATIVE and answer.raw != "")


class AdviceCache:
    """The cache. Until `open`, which checks the whole file, it reads and writes nothing on disk.

    path: the file; None keeps answers in memory only.
    log: receives one line where the file cannot be used.
    """

    def __init__(self, path: Path | str | None, log: Log) -> None:
        self._path, self._log = Path(path) if path else None, log
        # Answers that are not on disk yet, or never without a usable file.
        self._pending = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._pending.execute(_TABLE)
        self._connection: sqlite3.Connection | None = None
        self.degraded = ""  # why the file is not used; "" while it is

    # --- the file ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open and check the file. Where it cannot be used, answers stay in memory."""
        if not (path := self._path):
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = _connect(path)
            except sqlite3.OperationalError:  # locked, read-only or full, but not damaged
                raise
            except sqlite3.DatabaseError as error:
                self._quarantine(path, str(error))
                self._connection = _connect(path)
        except (sqlite3.Error, OSError) as error:
            self._degrade(str(error))

    def _quarantine(self, path: Path, why: str) -> None:
        """Rename a damaged file, together with SQLite's `-wal` and `-shm` files."""
        names = (path.with_name(f"{path.name}.corrupt-{number}") for number in itertools.count(1))
        target = next(name for name in names if not name.exists())
        path.rename(target)
        for end in ("-wal", "-shm"):
            if (beside := path.with_name(path.name + end)).exists():
                beside.rename(target.with_name(target.name + end))
        self._log(
            f"advisor: the cache {path} is damaged ({why}); it is kept as {target.name} and a new one is begun"
        )

    def _degrade(self, why: str) -> None:
        if not self.degraded:
            self.degraded = why
            self._log(
                f"advisor: the cache {self._path} cannot be used ({why}); answers of this run are kept in "
                "memory and will be paid for again in the next"
            )

    # --- answers -----------------------------------------------------------------------------------------------------

    def key(self, identity: Mapping[str, str], question: Question) -> str:
        """Return the key of a question for `get` and `put`.

        It is "", which both ignore, for a question without a prompt: a file could not distinguish
        such questions. A cache in memory serves one run only, so its key is just the bar and the
        prompt's version.
        """
        if not self._path:
            return f"bar {question.bar} {question.prompt_version}"
        return cache_key(identity, question) if question.prompt else ""

    def get(self, key: str) -> CachedAdvice | None:
        """Return the answer stored under `key`, or None."""
        before = self._read(self._connection, key) if self._connection else None
        new = self._read(self._pending, key)
        return _add_results(before, new) if new else before

    def _read(self, connection: sqlite3.Connection, key: str) -> CachedAdvice | None:
        try:
            rows = connection.execute(
                "SELECT advice, failure, attempts FROM answers WHERE key = ?", (key,)
            )
            for advice, failure, attempts in rows:
                if advice:
                    return CachedAdvice(Advice(*json.loads(advice)))
                return CachedAdvice(None, Failure(failure), attempts)
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._degrade(str(error))
        return None

    def put(self, key: str, question: Question, answer: Answer) -> None:
        """Keep an answer; the next `flush` writes it to disk.

        Answers that are not `cacheable` are ignored.
        """
        if not key or not cacheable(answer):
            return
        # Memory has no room for the text.
        kept = answer.raw[:_MOST_RAW] if self._path and not self.degraded else ""
        raw, model = (text.encode("utf-8", "replace").decode() for text in (kept, answer.model))
        row = (
            key,
            json.dumps(list(answer.advice), allow_nan=False) if answer.advice else None,
            answer.failure.value if answer.failure else None,
            1,
            raw,
            model,
            question.bar,
            question.symbol,
            question.time,
            question.prompt_version,
            answer.prompt_tokens,
            answer.completion_tokens,
            answer.latency,
        )
        try:
            self._pending.execute(_PUT, row)
            self._pending.execute(_FORGET, (_MOST_IN_MEMORY,))
        except (sqlite3.Error, OverflowError) as error:  # the answer counts all the same
            self._degrade(str(error))

    def flush(self) -> bool:
        """Write pending answers.

        Returns False where another process holds the file; they then stay pending.
        """
        if not self._connection or self.degraded:
            return True
        try:
            self._write(self._connection)
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            self._degrade(str(error))
        return True

    def _write(self, connection: sqlite3.Connection) -> None:
        if rows := self._pending.execute("SELECT * FROM answers").fetchall():
            with transaction(connection):
                connection.executemany(_PUT, rows)
            self._pending.execute("DELETE FROM answers")

    def close(self) -> None:
        """Write pending answers, also after an earlier write failed, and close the file."""
        if self._connection:
            try:
                self._write(self._connection)
            except sqlite3.Error as error:
                self._degrade(str(error))
            finally:
                self._connection.close()
                self._connection = None
        self._pending.close()


def _connect(path: Path) -> sqlite3.Connection:
    """Open and check the cache's file. Raises like `_open_database`."""
    connection = _open_database(path, _CACHE, FORMAT, "quick_check", f"{_TABLE} WITHOUT ROWID")
    connection.execute(f"PRAGMA busy_timeout={_PATIENCE_IN_USE}")
    return connection


def _add_results(before: CachedAdvice | None, new: CachedAdvice) -> CachedAdvice:
    """Combine two results about one question, by the same rule as the SQL of `_PUT`."""
    if before and before.advice:
        return before
    same = before and not new.advice and new.failure is before.failure
    return new._replace(attempts=new.attempts + before.attempts) if before and same else new


def read_texts(path: Path, keys: Iterable[str]) -> dict[str, str]:
    """Return the texts of the answers with advice among `keys` (`cache_key`), by key.

    Raises StorageError where the file cannot be read or is no cache.
    """
    asked = (
        "SELECT key, raw FROM answers WHERE advice IS NOT NULL "
        "AND key IN (SELECT value FROM json_each(?))"
    )
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return dict(connection.execute(asked, (json.dumps(list(keys)),)))
    except sqlite3.Error as error:
        raise StorageError(f"{path}: the answers in it cannot be read ({error})") from None
