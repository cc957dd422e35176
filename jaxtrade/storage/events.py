"""TensorBoard event files: scalars by step, and the marks with which TensorBoard forgets steps.

An event file is a sequence of records (a length, the record, and a checksum of each). A record is one `Event` in the
protobuf encoding. A run needs two kinds of event, so this module encodes them itself. The package `tensorboardX` would
do it too, but its `__init__` imports torch wherever torch is installed: seconds of start-up, its threads and 500 MB,
for a program that never uses it. Hiding torch while `tensorboardX` is imported would break other threads that import
torch at that moment, and importing its parts alone runs the same `__init__`. `tests/test_metrics.py` reads these files
back with the protobuf classes of `tensorboardX`.
"""

from __future__ import annotations

import math
import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

VERSION = b"brain.Event:2"  # TensorBoard's name of the format; the first event of every file holds it
FLOAT32_MAX = 3.4028234663852886e38
POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # protobuf wire types
# Field numbers of the messages Event, Summary, Summary.Value and SessionLog.
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7
VALUE, TAG, SIMPLE_VALUE, STATUS = 1, 1, 2, 1
START = 1  # SessionLog.status
_UNUSUAL = re.compile(r"[^-/\w.]")  # characters that TensorBoard's tags do not have


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def masked_crc32c(data: bytes) -> int:
    """The checksum of event files: CRC-32C, rotated by 15 bits, plus a constant; uint32."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1  # protobuf writes a negative number as its 64-bit complement
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, kind: int, content: bytes) -> bytes:
    size = _varint(len(content)) if kind == BYTES else b""
    return _varint(number << 3 | kind) + size + content


def _event(step: int, body: bytes) -> bytes:
    return (_field(WALL_TIME, DOUBLE, struct.pack("<d", time.time())) + _field(STEP, VARINT, _varint(step)) + body)


def _scalar(tag: str, value: float) -> bytes:
    """One `Summary.Value`. A value beyond float32 becomes infinite."""
    value = value if abs(value) <= FLOAT32_MAX else math.copysign(math.inf, value)
    clean = _UNUSUAL.sub("_", tag).lstrip("/")
    return _field(TAG, BYTES, clean.encode()) + _field(SIMPLE_VALUE, FLOAT, struct.pack("<f", value))


def _file_name(directory: Path) -> str:
    """A name that no file of the directory has. TensorBoard reads the files of a directory in the order of their
    names, so a later file must have a later name."""
    earlier = sum(1 for _ in directory.glob("events.out.tfevents.*"))
    return f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{earlier:05d}.{os.getpid()}"


class EventWriter:
    """Writes one new event file."""

    def __init__(self, directory: Path | str) -> None:
        """Make the directory if needed, and start a file in it. Raises OSError if that is impossible."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / _file_name(folder)).open("xb")
        self._record(_event(0, _field(FILE_VERSION, BYTES, VERSION)))
        self._file.flush()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write named numbers of one step. Characters that a tag cannot have become `_`."""
        summary = b"".join(_field(VALUE, BYTES, _scalar(tag, value)) for tag, value in values.items())
        self._record(_event(step, _field(SUMMARY, BYTES, summary)))

    def forget_from(self, step: int) -> None:
        """Make TensorBoard discard all earlier events with this step or a later one."""
        self._record(_event(step, _field(SESSION_LOG, BYTES, _field(STATUS, VARINT, _varint(START)))))

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file. Nothing is written afterwards."""
        self._file.close()

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + struct.pack("<I", masked_crc32c(length)) + event
                         + struct.pack("<I", masked_crc32c(event)))
