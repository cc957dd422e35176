"""A cache of answers on disk, so that each question is paid for once. SQLite in WAL mode; one
thread per process.

It keeps advice, and also negatives: model texts that could not be parsed, with the number of
repetitions. It does not keep results that say nothing about the question: a lost connection, an
error status, a proxy's page, or an empty, cut or filtered answer. An unusable file never stops a
run: answers are then kept in memory, and this is reported once.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from jaxtrade.advisor.host.ledger import PATIENCE, is_busy, snapshot, use_wal
from jaxtrade.advisor.host.types import Advice, Answer, Failure, Question
from jaxtrade.errors import StorageError

FORMAT = 1
NEGATIVE = frozenset({Failure.PARSE, Failure.SCHEMA})
_APPLICATION = 0x6A74_4341  # "jtCA"
_MOST_RAW = 65536  # characters
_MOST_IN_MEMORY = 100_000  # answers
_PATIENCE_IN_USE = (
    200  # milliseconds: once open, a read or write that would wait longer is tried again later
)

_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, advice TEXT, failure TEXT, attempts INTEGER NOT NULL, raw TEXT NOT NULL, model TEXT NOT NULL,
    bar INTEGER NOT NULL, symbol TEXT NOT NULL, time TEXT NOT NULL, prompt_version TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, latency REAL NOT NULL) WITHOUT ROWID"""
# The first advice stays. Advice replaces a negative. A negative counts repetitions of the same
# failure.
_PUT = """INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET advice = excluded.advice, failure = excluded.failure, raw = excluded.raw,
        model = excluded.model, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, latency = excluded.latency,
        attempts = excluded.attempts + CASE WHEN answers.failure = excluded.failure THEN answers.attempts ELSE 0 END
    WHERE answers.advice IS NULL"""


class Cached(NamedTuple):
    """Cached advice, or None with the failure that occurred `attempts` times in a row."""

    advice: Advice | None
    failure: Failure | None = None
    attempts: int = 1


class _Row(NamedTuple):
    """A row to write. `cached.attempts` counts attempts since the last write."""

    cached: Cached
    question: Question
    answer: Answer


def cache_key(identity: Mapping[str, str], question: Question, sample: int = 0) -> str:
    """SHA-256 (hex) of all that an answer depends on: the backend's identity, prompt, its version
    and sample number.

    Deadlines, retries and credentials are left out, because they do not change the answer.
    """
    parts = {
        "identity": dict(identity),
        "prompt": question.prompt,
        "prompt_version": question.prompt_version,
        "sample": sample,
    }
    text = json.dumps(
        parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def cacheable(answer: Answer) -> bool:
    """Whether an answer may be kept: advice, or a failure that the model's own text shows."""
    return answer.advice is not None or (answer.failure in NEGATIVE and answer.raw != "")


class AdviceCache:
    """The cache. Until `open`, which checks the whole file, it reads and writes nothing on disk.

    path: the file; None keeps answers in memory only. tell: receives one line where the file cannot
        be used.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], None]) -> None:
        self._path, self._tell = path, tell
        self._pending: dict[str, _Row] = {}  # not on disk yet, or never without a usable file
        self._connection: sqlite3.Connection | None = None
        self.degraded = ""  # why the file is not used; "" while it is
        self.quarantined: Path | None = None

    # --- the file ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open and check the file. Where it cannot be used, answers stay in memory."""
        if (path := self._path) is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = _connect(path)
            except sqlite3.DatabaseError as error:
                if isinstance(
                    error, sqlite3.OperationalError
                ):  # locked, read-only or full, but not damaged
                    raise
                self._quarantine(path, str(error))
                self._connection = _connect(path)
        except (sqlite3.Error, OSError) as error:
            self._degrade(str(error))

    def _quarantine(self, path: Path, why: str) -> None:
        """Rename a damaged file, together with SQLite's `-wal` and `-shm` files."""
        number = 1
        while (target := path.with_name(f"{path.name}.corrupt-{number}")).exists():
            number += 1
        path.rename(target)
        for end in ("-wal", "-shm"):
            if (beside := path.with_name(path.name + end)).exists():
                beside.rename(target.with_name(target.name + end))
        self.quarantined = target
        self._tell(
            f"advisor: the cache {path} is damaged ({why}); it is kept as {target.name} and a new one is begun"
        )

    def _degrade(self, why: str) -> None:
        if not self.degraded:
            self.degraded = why
            self._tell(
                f"advisor: the cache {self._path} cannot be used ({why}); answers of this run are kept in "
                "memory and will be paid for again in the next"
            )

    # --- answers -----------------------------------------------------------------------------------------------------

    def key(self, identity: Mapping[str, str], question: Question) -> str:
        """The key of a question for `get` and `put`.

        It is "", which both ignore, for a question without a prompt: a file could not tell such
        questions apart. A cache in memory serves one run only, so its key is just the bar and the
        prompt's version.
        """
        if self._path is None:
            return f"bar {question.bar} {question.prompt_version}"
        return cache_key(identity, question) if question.prompt else ""

    def get(self, key: str) -> Cached | None:
        """The answer stored under `key`, or None."""
        if not key:
            return None
        row = self._pending.get(key)
        found = self._read(key)
        if row is None or (found is not None and found.advice is not None):
            return found
        return _added(found, row.cached)

    def _read(self, key: str) -> Cached | None:
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(
                "SELECT advice, failure, attempts FROM answers WHERE key = ?", (key,)
            ).fetchone()
            return None if row is None else _decoded(*row)
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._degrade(str(error))
            return None

    def put(self, key: str, question: Question, answer: Answer) -> None:
        """Keep an answer; the next `flush` writes it to disk. Answers that are not `cacheable` are
        ignored.
        """
        if not key or not cacheable(answer):
            return
        before = self._pending.pop(key, None)
        cached = _added(before.cached if before else None, Cached(answer.advice, answer.failure))
        if before is not None and cached is before.cached:
            question, answer = before.question, before.answer  # the first advice stays
        if (
            self._path is None or self.degraded
        ):  # only the file needs the text; in memory it would take up room
            answer = answer._replace(raw="")
        self._pending[key] = _Row(cached, question._replace(prompt="", slots={}), answer)
        if len(self._pending) > _MOST_IN_MEMORY:  # without a usable file: forget the oldest
            del self._pending[next(iter(self._pending))]

    def flush(self) -> bool:
        """Write pending answers. Returns False where another process holds the file; they then stay
        pending.
        """
        if self._connection is None or self.degraded or not self._pending:
            return True
        try:
            self._write(self._connection)
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            self._degrade(str(error))
        return True

    def _write(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_PUT, [_encoded(key, row) for key, row in self._pending.items()])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._pending.clear()

    def close(self) -> None:
        """Write pending answers, also after an earlier write failed, and close the file."""
        if self._connection is None:
            return
        try:
            if self._pending:
                self._write(self._connection)
        except sqlite3.Error as error:
            self._degrade(str(error))
        finally:
            self._connection.close()
            self._connection = None

    def count(self) -> int:
        """The number of questions with advice on disk."""
        if self._connection is None:
            return 0
        return self._connection.execute(
            "SELECT count(*) FROM answers WHERE advice IS NOT NULL"
        ).fetchone()[0]


def _connect(path: Path) -> sqlite3.Connection:
    """Open and check the file, and create the table in a new one.

    Raises sqlite3.DatabaseError for a damaged file and sqlite3.OperationalError for one that cannot
    be used.
    """
    connection = sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        read = connection.execute
        if (found := read("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        with snapshot(connection):  # another process may be making the file at this moment
            kind, number = (
                read(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            fresh = read("SELECT 1 FROM sqlite_master").fetchone() is None
        if not fresh and (kind, number) != (_APPLICATION, FORMAT):
            raise sqlite3.OperationalError("a database of something else, or of another version")
        use_wal(connection)
        if fresh:
            read("BEGIN IMMEDIATE")
            read(_TABLE)
            read(f"PRAGMA application_id={_APPLICATION}")
            read(f"PRAGMA user_version={FORMAT}")
            read("COMMIT")
        read(f"PRAGMA busy_timeout={_PATIENCE_IN_USE}")
    except BaseException:
        connection.close()
        raise
    return connection


def _added(before: Cached | None, new: Cached) -> Cached:
    """Combine two results about one question, by the same rule as the SQL of `_PUT`."""
    if before is None:
        return new
    if before.advice is not None:
        return before
    same = new.advice is None and new.failure is before.failure
    return new._replace(attempts=new.attempts + before.attempts) if same else new


def _encoded(key: str, row: _Row) -> tuple[object, ...]:
    cached, question, answer = row
    advice = None if cached.advice is None else json.dumps(list(cached.advice), allow_nan=False)
    failure = None if cached.failure is None else cached.failure.value
    raw, model = (
        text.encode("utf-8", "replace").decode() for text in (answer.raw[:_MOST_RAW], answer.model)
    )
    return (
        key,
        advice,
        failure,
        cached.attempts,
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


def _decoded(advice: str | None, failure: str | None, attempts: int) -> Cached:
    if advice is not None:
        return Cached(Advice(*json.loads(advice)))
    return Cached(None, Failure(failure), attempts)


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
