"""TensorBoard event files: scalars and pictures by step, hyper-parameters, and the marks that make
it forget steps.

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
    return (
        _field(WALL_TIME, DOUBLE, struct.pack("<d", time.time()))
        + _field(STEP, VARINT, _varint(step))
        + body
    )


def _scalar(tag: str, value: float) -> bytes:
    """One `Summary.Value`. A value beyond float32 becomes infinite."""
    value = value if abs(value) <= FLOAT32_MAX else math.copysign(math.inf, value)
    clean = _UNUSUAL.sub("_", tag).lstrip("/")
    return _field(TAG, BYTES, clean.encode()) + _field(
        SIMPLE_VALUE, FLOAT, struct.pack("<f", value)
    )


def _image(tag: str, png: bytes) -> bytes:
    """One `Summary.Value` with a PNG file. Raises ValueError for other bytes."""
    if png[:8] != PNG or png[12:16] != b"IHDR":
        raise ValueError(f"{tag}: expected a PNG file, found {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    image = (
        _field(HEIGHT, VARINT, _varint(height))
        + _field(WIDTH, VARINT, _varint(width))
        + _field(COLOURS, VARINT, _varint(COLOURS_OF[png[25]]))
        + _field(ENCODED, BYTES, png)
    )
    return _field(TAG, BYTES, _UNUSUAL.sub("_", tag).encode()) + _field(IMAGE, BYTES, image)


def _hparam(value: float | bool | str) -> tuple[int, bytes]:
    """(data type of the hparams plugin, google.protobuf.Value) of a hyper-parameter."""
    if isinstance(value, bool):
        return TYPE_BOOL, _field(BOOL_VALUE, VARINT, _varint(value))
    if isinstance(value, str):
        return TYPE_STRING, _field(STRING_VALUE, BYTES, value.encode())
    return TYPE_FLOAT64, _field(NUMBER_VALUE, DOUBLE, struct.pack("<d", value))


def _plugin_value(tag: str, content: bytes) -> bytes:
    """One `Summary.Value` for the hparams plugin."""
    data = _field(PLUGIN_NAME, BYTES, b"hparams") + _field(CONTENT, BYTES, content)
    return _field(TAG, BYTES, tag.encode()) + _field(
        METADATA, BYTES, _field(PLUGIN_DATA, BYTES, data)
    )


def _experiment(values: Mapping[str, float | bool | str], metrics: Sequence[str]) -> bytes:
    """HParamsPluginData that names the hyper-parameters, with their types, and the metrics."""
    infos = b"".join(
        _field(
            HPARAM_INFOS,
            BYTES,
            _field(INFO_NAME, BYTES, name.encode())
            + _field(INFO_TYPE, VARINT, _varint(_hparam(value)[0])),
        )
        for name, value in values.items()
    )
    named = b"".join(
        _field(
            METRIC_INFOS, BYTES, _field(METRIC_NAME, BYTES, _field(METRIC_TAG, BYTES, tag.encode()))
        )
        for tag in metrics
    )
    return _field(EXPERIMENT, BYTES, infos + named)


def _session_start(values: Mapping[str, float | bool | str]) -> bytes:
    """HParamsPluginData with the values of this run."""
    entries = b"".join(
        _field(
            HPARAMS,
            BYTES,
            _field(KEY, BYTES, name.encode()) + _field(ENTRY, BYTES, _hparam(value)[1]),
        )
        for name, value in values.items()
    )
    return _field(SESSION_START, BYTES, entries)


def _file_name(directory: Path) -> str:
    """A name that no file of the directory has. TensorBoard reads the files of a directory in the
    order of their names, so a later file must have a later name."""
    earlier = sum(1 for _ in directory.glob("events.out.tfevents.*"))
    return f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{earlier:05d}.{os.getpid()}"


class EventWriter:
    """Writes one new event file."""

    def __init__(self, directory: Path | str) -> None:
        """Make the directory if needed, and start a file in it. Raises OSError if that is
        impossible.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / _file_name(folder)).open("xb")
        self._record(_event(0, _field(FILE_VERSION, BYTES, VERSION)))
        self._file.flush()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write named numbers of one step. Characters that a tag cannot have become `_`."""
        summary = b"".join(
            _field(VALUE, BYTES, _scalar(tag, value)) for tag, value in values.items()
        )
        self._record(_event(step, _field(SUMMARY, BYTES, summary)))

    def image(self, tag: str, png: bytes, step: int) -> None:
        """Write a picture of one step. png: the bytes of a PNG file. Raises ValueError for other
        bytes.
        """
        self._record(_event(step, _field(SUMMARY, BYTES, _field(VALUE, BYTES, _image(tag, png)))))

    def hyperparameters(
        self, values: Mapping[str, float | bool | str], metrics: Sequence[str]
    ) -> None:
        """Write the run's hyper-parameters for TensorBoard's HPARAMS page. metrics: tags of scalars
        to show there.
        """
        for tag, content in (
            ("_hparams_/experiment", _experiment(values, metrics)),
            ("_hparams_/session_start_info", _session_start(values)),
        ):
            self._record(
                _event(0, _field(SUMMARY, BYTES, _field(VALUE, BYTES, _plugin_value(tag, content))))
            )

    def forget_from(self, step: int) -> None:
        """Make TensorBoard discard all earlier events with this step or a later one."""
        self._record(
            _event(step, _field(SESSION_LOG, BYTES, _field(STATUS, VARINT, _varint(START))))
        )

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file. Nothing is written afterwards."""
        self._file.close()

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(
            length
            + struct.pack("<I", masked_crc32c(length))
            + event
            + struct.pack("<I", masked_crc32c(event))
        )
