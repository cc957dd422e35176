"""The journal: a record of which advice became visible when.

A replay from it needs no network and is bit-identical.

Each line is one JSON object. It carries a SHA-256 over its own canonical form and the digest of the
line before, so a line that was changed, removed, inserted or moved breaks the chain there. A killed
run leaves no `end` line and perhaps an incomplete last line. The incomplete line is cut, and both
are reported. Whole lines missing at the end can only be detected with a `JournalPosition` stored
elsewhere, as in a checkpoint.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from jaxtrade.advisor.host.types import canonical, sha256_of
from jaxtrade.errors import JournalError

FORMAT = 1
_END_BYTES = 256  # an end line is shorter
# Required entries: the run's id, digests of its configuration and of the answers' schema, the
# version of its prompts, the advisor's identity, and versions of libraries.
ROWS_EACH = "rows_of_each_advisor"  # entry of a panel's header: row i of advisor k is about bar i - k * this
HEADER = ("run", "config", "schema", "prompt_version", "identity", "versions")


class JournalPosition(NamedTuple):
    """A place in a journal.

    deltas: number of deltas before it.
    sha256: digest of the last of them, or of the header.
    """

    deltas: int
    sha256: str


class JournalDelta(NamedTuple):
    """Rows that became visible together.

    update: the update from which they are visible.
    version: the table's, rising with every delta.
    rows[i]: the row of bars[i].
    """

    update: int
    version: int
    bars: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]


class LoadedJournal(NamedTuple):
    """A journal that was read and passed all checks.

    notes: one line for each thing that was cut or is missing at its end.
    digests[i]: the digest of the line before delta i + 1; the first is the header's.
    ended: whether it has an `end` line.
    """

    header: dict[str, Any]
    deltas: tuple[JournalDelta, ...]
    position: JournalPosition
    notes: tuple[str, ...]
    digests: tuple[str, ...]
    ended: bool = True


def chain_line(before: str, text: str) -> tuple[bytes, str]:
    """Return the line of a canonical text of a JSON object, and the line's digest.

    The line follows one with digest `before`.
    """
    digest = sha256_of(before + text)
    return f'{text[:-1]},"sha256":"{digest}"}}\n'.encode(), digest


def read_chain(
    lines: Sequence[bytes], fault: Callable[[int, str], Exception], what: str
) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield (number, document, digest) of each line of a chain.

    lines: without their ends.
    fault: makes what is raised at the first line that is changed, inserted, moved or missing before
        others, from its number and why.
    what: what the lines are of, for messages.
    """
    before = ""
    for number, raw in enumerate(lines, 1):
        try:
            found = json.loads(raw)
            digest, _ = found.pop("sha256"), found["kind"]
            intact = chain_line(before, canonical(found)) == (raw + b"\n", digest)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise fault(number, f"not a line of {what}") from None
        if not intact:
            why = "damaged or edited (its digest does not follow from it and the line before)"
            raise fault(number, why)
        before = digest
        yield number, found, digest


def append_line(file: IO[bytes], line: bytes) -> None:
    """Append a line to an unbuffered file. Raises OSError, and leaves no part of the line."""
    size = os.fstat(file.fileno()).st_size
    try:
        while line:  # an unbuffered write may write only a part of the line
            line = line[file.write(line) :]
    except OSError:
        os.truncate(file.fileno(), size)
        raise


def row_text(row: Sequence[float]) -> str:
    """Format a row as the journal's text.

    This is the slowest part of writing, so another thread may do it in advance.

    Raises ValueError for a number that is not finite.
    """
    return canonical([float(value) for value in row])


def _check(
    update: int, version: int, bars: Sequence[int], rows: int, before: JournalDelta | None
) -> None:
    """Check that a delta can follow `before`.

    Raises ValueError where bars repeat or do not match the rows, the version does not rise, or the
    update falls.

    Args:
        rows: number of rows.
    """
    if not bars or len(bars) != rows or len(set(bars)) != len(bars):
        raise ValueError(f"{rows} rows of {len(set(bars))} distinct bars out of {len(bars)}")
    if before and (version <= before.version or update < before.update):
        raise ValueError(
            f"version {version} of update {update} after version {before.version} of update "
            f"{before.update}"
        )


# --- reading ---------------------------------------------------------------------------------------------------------


def _fault(path: Path, number: int, why: str) -> JournalError:
    row = "header (line 1)" if number == 1 else f"line {number} (delta {number - 1})"
    return JournalError(
        f"{path}: {row}: {why}; the journal cannot be replayed. Restore the file, or record "
        "a new one"
    )


def _delta(
    path: Path, number: int, found: Mapping[str, Any], before: JournalDelta | None
) -> JournalDelta:
    try:
        delta = JournalDelta(
            found["update"],
            found["version"],
            tuple(found["bars"]),
            tuple(tuple(row) for row in found["rows"]),
        )
        if len({len(row) for row in delta.rows}) > 1:
            raise ValueError("rows of several widths")
        _check(delta.update, delta.version, delta.bars, len(delta.rows), before)
        return delta
    except (KeyError, TypeError, ValueError) as error:
        raise _fault(path, number, f"not a delta that can follow ({error})") from None


def read_journal(
    path: Path | str, expected: Mapping[str, Any] = MappingProxyType({})
) -> LoadedJournal:
    """Read and check a whole journal.

    Missing lines at its end are not detected: `check_position` does that.

    Raises JournalError where the journal was edited or cut, or belongs to another run; it names the
    first bad line.

    Args:
        expected: header entries that must have these values, such as configuration,
            prompts and schema.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror})") from None
    *whole, torn = data.split(b"\n")
    header: dict[str, Any] | None = None
    deltas, digests, notes, ended = list[JournalDelta](), list[str](), list[str](), False
    chain = read_chain(whole, functools.partial(_fault, path), "an advice journal")
    for number, found, digest in chain:
        kind = found["kind"]
        if ended:
            raise _fault(path, number, "follows the journal's end")
        if (kind == "header") != (number == 1):
            raise _fault(path, number, f"a {kind} line is out of place")
        if ended := kind == "end":
            continue
        digests.append(digest)
        if kind != "header":
            deltas.append(_delta(path, number, found, deltas[-1] if deltas else None))
        elif found.get("format") == FORMAT:
            header = found
        else:
            why = f"format {found.get('format')}, this version reads {FORMAT}"
            raise _fault(path, number, why)
    if not header:
        raise _fault(path, 1, "missing (an empty file, or no journal)")
    if torn:
        notes.append(
            f"{path}: line {len(whole) + 1} is torn ({len(torn)} bytes without an end of line) and was cut: "
            "the run was killed while it wrote"
        )
    elif not ended:
        notes.append(f"{path}: no end line: the run was killed, or goes on")
    at = JournalPosition(len(deltas), digests[-1])
    recorded = LoadedJournal(header, tuple(deltas), at, tuple(notes), tuple(digests), ended)
    for name, value in expected.items():
        if recorded.header.get(name) != value:
            raise JournalError(
                f"{path}: header (line 1): '{name}' is {recorded.header.get(name)!r}, this run has "
                f"{value!r}; the journal belongs to another run"
            )
    return recorded


def check_position(
    path: Path | str, digests: Sequence[str], position: JournalPosition, where: str
) -> None:
    """Check that a journal contains a place.

    Raises JournalError, which names the first line that is missing or different.

    Args:
        digests: as of `LoadedJournal`.
        where: what knows the place.
    """
    if position.deltas >= len(digests):
        raise JournalError(
            f"{path}: line {len(digests) + 1} (delta {len(digests)}) is missing: {where} knows "
            f"{position.deltas} deltas; the journal was cut. Restore the file, or record a new one"
        )
    if digests[position.deltas] != position.sha256:
        raise JournalError(
            f"{path}: line {position.deltas + 1} (delta {position.deltas}) is not the one that {where} "
            "knows; the journal belongs to another run. Restore the file, or record a new one"
        )


def is_ended(path: Path) -> bool:
    """Return whether the last line of a journal is its `end`, without any check.

    Raises OSError where it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        last = file.read().removesuffix(b"\n").rpartition(b"\n")[2]
    return last.startswith(b'{"deltas":') and b'"kind":"end"' in last


# --- writing ---------------------------------------------------------------------------------------------------------


class Journal:
    """Writes a journal.

    Writes are unbuffered, so a killed process leaves at most one incomplete line.
    """

    def __init__(self, path: Path, digest: str, deltas: int, last: JournalDelta | None) -> None:
        self._file = path.open("ab", buffering=0)
        self._digest, self._deltas, self._last = digest, deltas, last

    @classmethod
    def create(cls, path: Path | str, header: Mapping[str, Any]) -> Journal:
        """Create a new journal.

        Raises FileExistsError where the file exists, ValueError where the header lacks an entry or
        uses a reserved one.

        Args:
            header: JSON values that include all entries of `HEADER`.
        """
        path = Path(path)
        if missing := [name for name in HEADER if name not in header]:
            raise ValueError(f"header without '{missing[0]}'")
        if taken := {"kind", "format", "sha256"} & header.keys():
            raise ValueError(f"header entries {sorted(taken)} are the journal's own")
        line, digest = chain_line("", canonical({**header, "kind": "header", "format": FORMAT}))
        with path.open("xb") as file:
            file.write(line)
        return cls(path, digest, 0, None)

    @classmethod
    def resume(
        cls, path: Path | str, expected: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Journal, LoadedJournal]:
        """Continue a journal after its last delta, and return the journal and what it holds.

        Raises JournalError like `read_journal`.
        """
        path = Path(path)
        recorded = read_journal(path, expected)
        deltas, kept = recorded.deltas, recorded.position
        # Of the file stay the header and the deltas: no torn line, and no end.
        lines = path.read_bytes().split(b"\n")[: kept.deltas + 1]
        os.truncate(path, sum(len(line) + 1 for line in lines))
        return cls(path, kept.sha256, kept.deltas, deltas[-1] if deltas else None), recorded

    @property
    def position(self) -> JournalPosition:
        """How many deltas the journal holds, and the digest up to the last."""
        return JournalPosition(self._deltas, self._digest)

    def append(
        self, update: int, version: int, bars: Sequence[int], texts: Sequence[str]
    ) -> JournalPosition:
        """Record rows that become visible at `update`.

        Args:
            texts: of the rows (`row_text`), which another thread may have prepared.

        Raises:
            ValueError: the version does not rise, or a bar appears twice.
            OSError: the write failed, as on a full disk; the part of the line that was
                written is removed.
        """
        _check(update, version, bars, len(texts), self._last)
        self._digest = self._write(
            f'{{"bars":{canonical(bars)},"kind":"delta","rows":[{",".join(texts)}],'
            f'"update":{update},"version":{version}}}'
        )
        self._deltas += 1
        self._last = JournalDelta(update, version, (), ())  # its place alone
        return self.position

    def _write(self, text: str) -> str:
        line, digest = chain_line(self._digest, text)
        append_line(self._file, line)
        return digest

    def sync(self) -> None:
        """Wait until the journal is on disk. Called with every checkpoint."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the `end` line and close the file. A second call does nothing."""
        if not self._file.closed:
            self._write(canonical({"kind": "end", "deltas": self._deltas}))
            self.sync()
            self._file.close()

    def abandon(self) -> None:
        """Close a file that cannot be written any more, without an `end` line."""
        with suppress(OSError):  # the caller already knows that the file fails
            self._file.close()
