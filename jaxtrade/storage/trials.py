"""The trial log: every look of a test split, in a file that nobody can shorten unseen.

It is beside the runs.

`trials.jsonl` holds one JSON object per line. Each has its number and the SHA-256 of the line before, so a line that
was changed, removed, inserted or moved breaks the chain there. `trials.head.json` holds the number and the SHA-256 of
the last line, so lines that are missing at the end are seen too. Someone who rewrites both files, or deletes both, is
not found out: the log guards against accidents and against forgetting, not against forgery.

Appending takes a lock on the file, writes a whole line and waits until it is on disk. A killed
process leaves at most a torn last line, which the next one cuts. Reading takes no lock and writes
nothing. Loads no heavy library.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from jaxtrade.errors import DataError, StorageError
from jaxtrade.storage.locks import wait_lock

TRIALS, HEAD = "trials.jsonl", "trials.head.json"
FORMAT = 1
KINDS = (
    "train",
    "evaluate",
    "grid",
    "replay",
    "walkforward",
    "ablate",
)  # commands that open a test split
GENESIS = "0" * 64  # stands for the line before the first one
LATER = ("bars", "policies")  # fields that lines of the first version lack
PATIENCE = 30.0  # seconds to wait for another process that appends


class SplitLook(NamedTuple):
    """One look of a test split: what was evaluated, and what came of it.

    kind: the command, of `KINDS`.
    run: the run's folder, seen from the log's.
    config: sha256 of the configuration, and of whatever else decides the policies besides
        their seeds.
    data: sha256 of the data, features included.
    split: its name.
    first, last: its first and last trade date, ISO.
    sessions: how many days it has.
    agent: the agent whose profit is kept, such as "greedy".
    dates: the days that were shown, ISO.
    net: dollars of each of these days, by policy: its seed, or in a sweep its index; empty where
        the command kept no daily profit (a grid).
    bars: of each symbol the digest of each day's bars (`evaluation.test_set_history`).
    policies: sha256 of each policy by its name in `net`. bars and policies are empty in lines of a
        version without them.
    utc: when; "" until it is appended.
    """

    kind: str
    run: str
    config: str
    data: str
    split: str
    first: str
    last: str
    sessions: int
    agent: str
    dates: tuple[str, ...] = ()
    net: Mapping[str, tuple[float, ...]] = {}
    bars: Mapping[str, tuple[str, ...]] = {}
    policies: Mapping[str, str] = {}
    utc: str = ""


class TrialLog(NamedTuple):
    """A trial log that was read and is whole.

    notes: one line for a torn last line.
    """

    path: Path
    looks: tuple[SplitLook, ...]
    notes: tuple[str, ...]


class LogHead(NamedTuple):
    """How many lines the log has, and the SHA-256 of the last one."""

    lines: int
    sha256: str


def sha_of(line: bytes) -> str:
    """Return the SHA-256 (hex) of a line without its end."""
    return hashlib.sha256(line).hexdigest()


# --- writing ---------------------------------------------------------------------------------------------------------


def append_look(folder: Path, look: SplitLook) -> int:
    """Append a look to the log in `folder`, flush it to disk, and return the number of its line.

    Several processes may append at once. A log that is damaged is appended to all the same, and
    stays damaged. Raises OSError (no permission, a full disk; a part of the line is removed again)
    and StorageError (another process holds the lock for too long).
    """
    path = folder / TRIALS
    with _open_locked(path) as file:
        whole, _, torn = file.read().rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        size = len(whole) + 1 if lines else 0
        head = _head_for(folder, bool(lines or torn))
        known = head or LogHead(0, GENESIS)
        # Lines that the head knows and the file lacks were removed: the gap in the numbers keeps
        # saying so. A last line that is not the one that the head knows was changed: the link to
        # the head's keeps saying that.
        missing = known.lines > len(lines)
        number = max(known.lines, len(lines)) + 1
        before = known.sha256 if known.lines >= len(lines) else sha_of(lines[-1])
        line = _text(number, before, look._replace(utc=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"))
        data = line + b"\n"
        if (
            torn and missing
        ):  # what is left of a line that was whole: evidence, which is kept as a line
            size, data = size + len(torn), b"\n" + data
        try:  # else a torn line is cut: it was never whole, its process was killed before it showed anything
            _write(file, size, data)
            if head:
                _write_head(folder, LogHead(number, sha_of(line)))
        except OSError:
            file.truncate(size)
            raise
    return number


@contextmanager
def _open_locked(path: Path) -> Iterator[IO[bytes]]:
    """Open the log for reading and writing, locked and at its start.

    Raises OSError and StorageError.
    """
    with path.open("a+b", buffering=0) as file:
        wait_lock(file, str(path), PATIENCE)
        file.seek(0)
        yield file


def _head_for(folder: Path, begun: bool) -> LogHead | None:
    """Return the head of a log that is appended to, or None if it is missing or damaged.

    A damaged head is left as it is, because a new one would hide that.
    """
    path = folder / HEAD
    if not begun and not path.exists():
        _write_head(folder, LogHead(0, GENESIS))
    try:
        return _read_head(path)
    except DataError:
        return None


def _text(number: int, before: str, look: SplitLook) -> bytes:
    found = {"format": FORMAT, "number": number, "before": before, **look._asdict()}
    return json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _write(file: IO[bytes], size: int, data: bytes) -> None:
    """Replace what follows the first `size` bytes by `data`, and wait until it is on disk.

    Raises OSError.
    """
    file.truncate(size)
    while data:  # an unbuffered write may write only a part
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _write_head(folder: Path, head: LogHead) -> None:
    temporary = folder / f"{HEAD}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(json.dumps(head._asdict()).encode() + b"\n")
            file.flush()
            os.fsync(
                file.fileno()
            )  # else a loss of power could leave an empty file under the new name
        temporary.replace(folder / HEAD)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


# --- reading ---------------------------------------------------------------------------------------------------------


def read_trials(folder: Path) -> TrialLog:
    """Read the log in `folder` and check its chain. A folder without one has no looks.

    Raises DataError, which names the file and the line, where a line was changed, removed, inserted
    or moved, or is missing at the end; StorageError where a file cannot be read.
    """
    path = folder / TRIALS
    try:
        head = (
            _read_head(folder / HEAD) if (folder / HEAD).exists() else None
        )  # before the lines, which come first
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from None
    whole, _, torn = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    found = [_parse_line(path, number, line) for number, line in enumerate(lines, 1)]
    _check_numbers(path, found, head)
    if not head and lines:
        raise _fault(
            folder / HEAD,
            "",
            f"is missing, so nobody can tell whether lines are missing at the end of {TRIALS}",
        )
    if head:
        _check_links(path, lines, [each["before"] for each in found], head)
    notes = (
        ()
        if not torn
        else (
            f"{path}: line {len(lines) + 1} is torn ({len(torn)} bytes without an end of line): a process was killed "
            "while it wrote, before it showed its result",
        )
    )
    return TrialLog(
        path, tuple(_parse_look(path, number, each) for number, each in enumerate(found, 1)), notes
    )


def _fault(path: Path, where: str, why: str) -> DataError:
    return DataError(
        f"{path}: {where}{why}. Restore the file from a copy; to begin a new count, move it and the other "
        "trials.* file away (earlier looks are then not counted)"
    )


def _read_head(path: Path) -> LogHead:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return LogHead(int(found["lines"]), str(found["sha256"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise _fault(path, "", "is no head of a trial log") from None


def _parse_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
        return found | {
            "number": int(found["number"]),
            "before": str(found["before"]),
            "format": int(found["format"]),
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _fault(
            path, f"line {number}: ", "is not a line of a trial log: damaged or edited"
        ) from None


def _check_numbers(path: Path, found: list[dict[str, Any]], head: LogHead | None) -> None:
    """Raise DataError where lines are missing, or stand where they do not belong."""
    for number, each in enumerate(found, 1):
        if each["number"] > number:
            raise _fault(
                path,
                f"line {number}: ",
                f"was removed (the line here says that it is number {each['number']})",
            )
        if each["number"] < number:
            raise _fault(
                path,
                f"line {number}: ",
                f"was inserted or moved (it says that it is number {each['number']})",
            )
    if head and head.lines > len(found):
        raise _fault(
            path,
            f"line {len(found) + 1}: ",
            f"was removed ({HEAD} counts {head.lines} lines, the file has {len(found)})",
        )


def _check_links(path: Path, lines: list[bytes], before: list[str], head: LogHead) -> None:
    """Raise DataError where the hash of a line is not the one that its successor or the head holds.

    A line whose own `before` was changed breaks two links; the second of them is its own.
    """
    expected = [*before[1:], *([head.sha256] if head.lines == len(lines) and lines else [])]
    broken = [before[0] != GENESIS] if before else []
    broken += [sha_of(line) != digest for line, digest in zip(lines, expected, strict=False)]
    if True not in broken:
        return
    first = broken.index(True)
    at = first + 1 if first + 1 < len(broken) and broken[first + 1] else max(first, 1)
    raise _fault(
        path,
        f"line {at}: ",
        "was changed (the line after it, or the head, was written after another one)",
    )


def _parse_look(path: Path, number: int, found: dict[str, Any]) -> SplitLook:
    if found["format"] != FORMAT:
        raise DataError(
            f"{path}: line {number}: format {found['format']}, this version reads {FORMAT}"
        )
    try:
        net = {name: tuple(map(float, values)) for name, values in found["net"].items()}
        bars = {name: tuple(map(str, digests)) for name, digests in found.get("bars", {}).items()}
        look = SplitLook(
            **{name: found[name] for name in SplitLook._fields if name not in LATER}
            | {
                "dates": tuple(map(str, found["dates"])),
                "net": net,
                "bars": bars,
                "policies": {name: str(sha) for name, sha in found.get("policies", {}).items()},
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _fault(path, f"line {number}: ", f"is not a look ({error})") from None
    if any(len(values) != len(look.dates) for values in (*net.values(), *bars.values())):
        raise _fault(
            path,
            f"line {number}: ",
            f"has profits or bars of other than its {len(look.dates)} days",
        )
    return look


# --- where -----------------------------------------------------------------------------------------------------------


def trials_folder(run: Path) -> Path:
    """Return the folder of the log of a run: the one in which the run lies.

    A run that is a part of a sweep, a search or a curriculum belongs to the log beside that.
    """
    folder = run.resolve().parent
    while (folder / "sweep.json").is_file() or (
        folder.name == "phases" and (folder.parent / "curriculum.yaml").is_file()
    ):
        folder = folder.parent.parent if folder.name == "phases" else folder.parent
    return folder
