"""A cache of prepared markets: one file of arrays per market, in a folder of this user alone.

Reading and preparing ten years of minute bars takes seconds. The result is kept here, under a key
that its maker forms from everything it depends on (`data.prepared`). An entry holds a digest of
every array and of its own description, so a damaged file is never used. Entries are written under a
temporary name and then renamed, so processes that write one entry at once do not disturb each
other. After each write the entries that were used longest ago are removed, until the folder is
within its limit. The folder may be deleted at any time.

An entry is a line that names the format, a line of JSON that names types and shapes, and the bytes
of the arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jaxtrade.errors import ConfigError
from jaxtrade.storage.programs import VARIABLE as PROGRAMS
from jaxtrade.storage.programs import cache_folder

VARIABLE = "JAXTRADE_MARKETS_GB"  # limit of the folder in gigabytes; 0 switches the cache off
DEFAULT_GB = 4.0
FORMAT = b"jaxtrade market 2\n"
SUFFIX = ".market"
ABANDONED = 86_400  # seconds after which a temporary file is that of a writer that was killed


class DamagedError(ValueError):
    """The bytes of an entry differ from those that were written."""


class Entry(NamedTuple):
    """The contents of one file: arrays by name, and facts that JSON can hold."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def markets_folder(env: Mapping[str, str] = os.environ, system: str = platform.system()) -> Path:
    """The folder of prepared markets: beside the compiled programs, or `markets` inside
    `JAX_COMPILATION_CACHE_DIR` if that names a local folder.

    Raises RuntimeError if the user has no home folder.
    """
    given = env.get(PROGRAMS, "")
    if given and "://" not in given:
        return Path(given) / "markets"
    return cache_folder(
        {name: text for name, text in env.items() if name != PROGRAMS}, system
    ).with_name("markets")


def limit_bytes(env: Mapping[str, str] = os.environ) -> int:
    """The largest size of the folder, from `JAXTRADE_MARKETS_GB`. Raises ConfigError if that is not
    a number.
    """
    text = env.get(VARIABLE, "")
    try:
        limit = float(text) if text else DEFAULT_GB
    except ValueError:
        limit = -1.0
    if not 0 <= limit < 1e9:
        raise ConfigError(
            f"{VARIABLE} = '{text}': give the gigabytes that prepared markets may take, such as "
            f"{DEFAULT_GB:g}; 0 keeps none"
        )
    return int(limit * 1e9)


def entry_path(folder: Path, key: str) -> Path:
    """The file of an entry."""
    return folder / f"{key}{SUFFIX}"


# --- reading ---------------------------------------------------------------------------------------------------------


def read_entry(path: Path) -> Entry | None:
    """Read an entry, check every byte, and mark it as used now. None if there is no such entry.

    Raises DamagedError if it is damaged or of another format, OSError if it cannot be read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        head = _head(file)
        arrays = {}
        for listed in head["arrays"]:
            array = _read_array(file, np.dtype(listed["dtype"]), tuple(listed["shape"]))
            if array is None or _digest(array) != listed["sha256"]:
                raise DamagedError(f"array '{listed['name']}' does not match its digest")
            arrays[listed["name"]] = array
        if file.read(1):
            raise DamagedError("there are bytes after its last array")
    with suppress(
        OSError
    ):  # another process removed it after it was read, or it belongs to another user
        os.utime(path)
    return Entry(arrays, head["facts"])


def _read_array(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """The next array of an entry; None if the file ends before it, or if it would hold Python
    objects.
    """
    count = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or count > os.fstat(file.fileno()).st_size - file.tell():
        return None
    data = np.empty(count, np.uint8)
    return data.view(dtype).reshape(shape) if file.readinto(data.data) == count else None  # type: ignore[attr-defined]


def _head(file: BinaryIO) -> dict[str, Any]:
    """The JSON line of an entry. Raises DamagedError."""
    if file.readline(len(FORMAT)) != FORMAT:
        raise DamagedError("it does not begin with the name of this format")
    line = file.readline()
    try:
        head = json.loads(line)
        digest = head.pop("digest")
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # not JSON, without a digest, not an object
        raise DamagedError("its description cannot be read") from None
    if _line(head, digest) != line or digest != _text_digest(head):
        raise DamagedError("its description does not match its own digest")
    return head


# --- writing ---------------------------------------------------------------------------------------------------------


def write_entry(folder: Path, key: str, entry: Entry, limit: int) -> bool:
    """Write an entry atomically, then remove the entries used longest ago until the folder is
    within `limit` bytes.

    Writes nothing, and returns False, if the entry alone is larger. Raises OSError if it cannot be
    written.
    """
    if sum(array.nbytes for array in entry.arrays.values()) > limit:
        return False
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array) for name, array in entry.arrays.items()}
    head = {
        "facts": entry.facts,
        "arrays": [
            {"name": name, "dtype": array.dtype.str, "shape": array.shape, "sha256": _digest(array)}
            for name, array in arrays.items()
        ],
    }
    temporary = folder / f".{key}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(FORMAT + _line(head, _text_digest(head)))
            for array in arrays.values():
                file.write(_bytes(array))
        temporary.replace(entry_path(folder, key))
    finally:
        temporary.unlink(missing_ok=True)  # gone already if it was renamed
    evict(folder, limit, entry_path(folder, key))
    return True


def evict(folder: Path, limit: int, spared: Path) -> None:
    """Remove the entries used longest ago until the folder is within `limit` bytes, and files of
    killed writers.

    spared: the entry that stays. Another process may remove the same files at the same time.
    """
    now, found = time.time(), []
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if path.suffix == SUFFIX:
            found.append((status.st_mtime, status.st_size, path))
        elif path.name.startswith(".") and now - status.st_mtime > ABANDONED:
            _remove(path)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        if path != spared:
            _remove(path)
            total -= size


def _remove(path: Path) -> None:
    with suppress(
        FileNotFoundError, PermissionError
    ):  # removed by another process; on Windows: read by one
        path.unlink()


def _line(head: Mapping[str, Any], digest: str) -> bytes:
    return json.dumps({**head, "digest": digest}, allow_nan=False).encode() + b"\n"


def _text_digest(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _digest(array: np.ndarray) -> str:
    """sha256 (hex) of dtype, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.str}:{array.shape};".encode())
    digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
