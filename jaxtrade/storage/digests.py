"""`digests.json` of a folder: sha256 of its files, which shows whether one was changed later.

A file of which no digest is known is taken as it is: folders of earlier versions have none. While
files are replaced, the old and the new digest both count, so that a process that is killed between
leaves nothing that looks damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError

FILE = "digests.json"


def write_whole(path: Path, content: str | bytes, sync: bool = False) -> None:
    """Write a file so that no reader, and no process that is killed, sees or leaves half of it.

    sync: wait until it is on disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Wait until what was renamed in a directory is on disk."""
    if (
        os.name == "nt"
    ):  # Windows cannot open directories, and its file system journals renames anyway
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checked(path: Path) -> bytes:
    """Read the bytes of a file and check that they are those that were written.

    Raises DataError if they are not, OSError if it cannot be read.
    """
    for _ in range(2):  # a process may replace the file, and note its digest, between the two reads
        content = path.read_bytes()
        known = _read_known(path.parent).get(path.name, [])
        found = hashlib.sha256(content).hexdigest()
        if not known or found in known:
            return content
    raise DataError(
        f"{path}: has changed since it was written (sha256 {found[:16]}..., {FILE} says {known[0][:16]}"
        "...); restore the file, or make it again"
    )


def has_digest(path: Path) -> bool:
    """Return whether the digest of a file is known. Raises DataError for a damaged list."""
    return path.name in _read_known(path.parent)


def read_json(path: Path, again: str = "") -> dict[str, Any]:
    """Read a JSON object and check it.

    again: how to make the file again, for messages.
    Raises DataError.
    """
    try:
        found = json.loads(read_checked(path))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({str(error)[:120]}){again and f'; {again}'}"
        ) from None
    if not isinstance(found, dict):
        raise DataError(
            f"{path}: expected a JSON object, found a {type(found).__name__}{again and f'; {again}'}"
        )
    return found


@contextmanager
def replace_files(folder: Path, new: Mapping[str, bytes | Path]) -> Iterator[None]:
    """Replace files of a folder inside the block.

    new: name -> content, or the file that will be moved there.
    """
    made = {
        name: hashlib.sha256(each if isinstance(each, bytes) else each.read_bytes()).hexdigest()
        for name, each in new.items()
        if name != FILE
    }
    before = _read_or_begin(folder)
    _write(
        folder, before | {name: [digest, *before.get(name, ())] for name, digest in made.items()}
    )
    yield
    _write(folder, before | {name: [digest] for name, digest in made.items()})


def seal(folder: Path, names: Iterable[str]) -> None:
    """Record the digests of files that are complete now."""
    with replace_files(
        folder, {name: folder / name for name in names if (folder / name).is_file()}
    ):
        pass


def forget(path: Path) -> None:
    """Drop the digest of a file that is about to be written to."""
    known = _read_or_begin(path.parent)
    if path.name in known:
        _write(path.parent, {name: digests for name, digests in known.items() if name != path.name})


def _read_known(folder: Path) -> dict[str, list[str]]:
    """Read the accepted digests by name. Raises DataError for a damaged file."""
    path = folder / FILE
    try:
        found = json.loads(path.read_bytes())
        return {str(name): [str(first), *map(str, rest)] for name, (first, *rest) in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: cannot be read ({str(error)[:120]}); without it, the files beside it are taken as "
            "they are"
        ) from None


def _read_or_begin(folder: Path) -> dict[str, list[str]]:
    """Read what is known, for a process that writes: a damaged list begins anew."""
    try:
        return _read_known(folder)
    except DataError:
        return {}


def _write(folder: Path, known: Mapping[str, list[str]]) -> None:
    write_whole(folder / FILE, json.dumps(known, indent=1, sort_keys=True) + "\n")
