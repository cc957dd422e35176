"""TensorBoard event files: scalars and plots by step, hyper-parameters, marks to forget steps.

An event file is a sequence of records (a length, the record, and a checksum of each). A record is
one `Event` in the protobuf encoding. A run needs few kinds of event, so this module encodes them
itself. Packages would do it too, at a price (tensorboardX 2.6.5, tensorboard 2.21):

- tensorboardX is small, but its `__init__` imports torch wherever torch is installed: seconds of
  start-up, its threads and 500 MB, for a program that never uses it. Hiding torch meanwhile would
  break other threads that import it at that moment, and importing its parts alone runs the same
  `__init__`.
- tensorboard's `EventFileWriter` imports tensorflow wherever that is installed. Its messages and
  its `RecordWriter` import neither, but bring 60 MB (grpcio, a data server, a web server) to every
  user, because these files are written without any extra.

`tests/test_metrics.py` reads these files back with the protobuf classes of tensorboardX.
"""

from __future__ import annotations

import math
import os
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

VERSION = (
    b"brain.Event:2"  # TensorBoard's name of the format; the first event of every file holds it
)
FLOAT32_MAX = 3.4028234663852886e38
POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # protobuf wire types
# Field numbers of the messages Event, Summary, Summary.Value and SessionLog.
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7
VALUE, TAG, SIMPLE_VALUE, IMAGE, METADATA, STATUS = 1, 1, 2, 4, 9, 1
# Of Summary.Image: height, width, colours (3: RGB, 4: with transparency) and the file itself.
HEIGHT, WIDTH, COLOURS, ENCODED = 1, 2, 3, 4
# Of SummaryMetadata and its PluginData; of the hparams plugin's HParamsPluginData, Experiment,
# HParamInfo, MetricInfo, MetricName and SessionStartInfo; of a map's entry; and of
# google.protobuf.Value.
PLUGIN_DATA, PLUGIN_NAME, CONTENT = 1, 1, 2
EXPERIMENT, SESSION_START = 2, 3
HPARAM_INFOS, METRIC_INFOS, INFO_NAME, INFO_TYPE, METRIC_NAME, METRIC_TAG, HPARAMS = (
    4,
    5,
    1,
    4,
    1,
    2,
    1,
)
KEY, ENTRY = 1, 2
NUMBER_VALUE, STRING_VALUE, BOOL_VALUE = 2, 3, 4
TYPE_STRING, TYPE_BOOL, TYPE_FLOAT64 = 1, 2, 3
PNG = b"\x89PNG\r\n\x1a\n"
COLOURS_OF = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # colour type in a PNG's header -> number of channels
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
    """Compute the checksum of event files (uint32): CRC-32C, rotated by 15 bits, plus a constant."""
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


class Single(float):
    """A number that its field holds in 32 bits. One beyond float32 becomes infinite."""

    def __new__(cls, value: float) -> Single:
        return super().__new__(
            cls, value if abs(value) <= FLOAT32_MAX else math.copysign(math.inf, value)
        )


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Encode a protobuf message of field numbers and values.

    A whole number becomes a varint, a float a double, text and bytes (such as a message within this
    one) their length and their content.
    """
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            kind, content = VARINT, _varint(value)
        elif isinstance(value, Single):
            kind, content = FLOAT, struct.pack("<f", value)
        elif isinstance(value, float):
            kind, content = DOUBLE, struct.pack("<d", value)
        else:
            text = value.encode() if isinstance(value, str) else value
            kind, content = BYTES, _varint(len(text)) + text
        out += _varint(number << 3 | kind) + content
    return bytes(out)


def _hparam(value: float | bool | str) -> tuple[int, bytes]:
    """Return (data type of the hparams plugin, google.protobuf.Value) of a hyper-parameter."""
    if isinstance(value, bool):
        return TYPE_BOOL, message((BOOL_VALUE, value))
    if isinstance(value, str):
        return TYPE_STRING, message((STRING_VALUE, value))
    return TYPE_FLOAT64, message((NUMBER_VALUE, float(value)))


def _plugin_value(tag: str, content: bytes) -> bytes:
    """Encode one `Summary.Value` for the hparams plugin."""
    data = message((PLUGIN_NAME, "hparams"), (CONTENT, content))
    return message((TAG, tag), (METADATA, message((PLUGIN_DATA, data))))


def _file_name(directory: Path) -> str:
    """Choose a name that no file of the directory has.

    TensorBoard reads the files of a directory in the order of their names, so a later file must
    have a later name.
    """
    earlier = sum(1 for _ in directory.glob("events.out.tfevents.*"))
    return f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{earlier:05d}.{os.getpid()}"


class EventWriter:
    """Writes one new event file."""

    def __init__(self, directory: Path | str) -> None:
        """Make the directory if needed, and start a file in it.

        Raises OSError if that is impossible.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / _file_name(folder)).open("xb")
        self._record(0, FILE_VERSION, VERSION)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write named numbers of one step. Characters that a tag cannot have become `_`."""
        self._summary(
            step,
            *(
                message((TAG, _UNUSUAL.sub("_", tag).lstrip("/")), (SIMPLE_VALUE, Single(value)))
                for tag, value in values.items()
            ),
        )

    def image(self, tag: str, png: bytes, step: int) -> None:
        """Write a plot of one step.

        png: the bytes of a PNG file. Raises ValueError for other bytes.
        """
        if png[:8] != PNG or png[12:16] != b"IHDR":
            raise ValueError(f"{tag}: expected a PNG file, found {png[:8]!r}")
        width, height = struct.unpack(">II", png[16:24])
        image = message(
            (HEIGHT, height), (WIDTH, width), (COLOURS, COLOURS_OF[png[25]]), (ENCODED, png)
        )
        self._summary(step, message((TAG, _UNUSUAL.sub("_", tag)), (IMAGE, image)))

    def hyperparameters(
        self, values: Mapping[str, float | bool | str], metrics: Sequence[str]
    ) -> None:
        """Write the run's hyper-parameters for TensorBoard's HPARAMS page.

        metrics: tags of scalars to show there.
        """
        infos, entries = list[tuple[int, bytes]](), list[tuple[int, bytes]]()
        for name, value in values.items():
            kind, content = _hparam(value)
            infos.append((HPARAM_INFOS, message((INFO_NAME, name), (INFO_TYPE, kind))))
            entries.append((HPARAMS, message((KEY, name), (ENTRY, content))))
        named = [
            (METRIC_INFOS, message((METRIC_NAME, message((METRIC_TAG, tag))))) for tag in metrics
        ]
        experiment = message((EXPERIMENT, message(*infos, *named)))
        start = message((SESSION_START, message(*entries)))
        self._summary(0, _plugin_value("_hparams_/experiment", experiment))
        self._summary(0, _plugin_value("_hparams_/session_start_info", start))

    def forget_from(self, step: int) -> None:
        """Make TensorBoard discard all earlier events with this step or a later one."""
        self._record(step, SESSION_LOG, message((STATUS, START)))

    def close(self) -> None:
        """Close the file. Nothing is written afterwards."""
        self._file.close()

    def _summary(self, step: int, *values: bytes) -> None:
        self._record(step, SUMMARY, message(*((VALUE, value) for value in values)))

    def _record(self, step: int, field: int, content: bytes) -> None:
        """Write an event with one field besides its time and step.

        Flushes it to the operating system.
        """
        event = message((WALL_TIME, time.time()), (STEP, step), (field, content))
        length = struct.pack("<Q", len(event))
        self._file.write(
            length
            + struct.pack("<I", masked_crc32c(length))
            + event
            + struct.pack("<I", masked_crc32c(event))
        )
        self._file.flush()
