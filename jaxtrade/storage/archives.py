"""NumPy archives (`.npz`) of unknown origin: headers give their size before they are unpacked."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from jaxtrade.storage import digests

MOST_TIMES, SMALL = (
    30,
    16 << 20,
)  # records of real runs unpack to at most 6 times their size; small ones may do so more
# What reading raises for bytes that are no archive of arrays.
FAULTS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(source: Path | bytes) -> dict[str, np.ndarray]:
    """Read all arrays of an archive, by name.

    Reads no pickle, and unpacks nothing that the headers contradict. Raises DataError if the file
    has changed since it was written, or one of FAULTS: ValueError, with both sizes, for an archive
    that unpacks to more than SMALL bytes and MOST_TIMES its own size.
    """
    content = source if isinstance(source, bytes) else digests.read_checked(source)
    size = len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found, most = sum(info.file_size for info in archive.infolist()), SMALL + MOST_TIMES * size
        if found > most:
            raise ValueError(
                f"it unpacks to {found:,} bytes, and at most {most:,} are read from {size:,}"
            )
        # The end of each entry is reached, where its sum is checked; `np.load` of the archive would
        # not reach it.
        return {
            info.filename.removesuffix(".npy"): _array(unpack(archive, info))
            for info in archive.infolist()
        }


def unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack an entry and check its checksum.

    `ZipFile.read` would unpack all that there is, whatever the header says; a read of so many bytes
    stops there.
    """
    with archive.open(info) as stream:
        return stream.read(info.file_size)


def _array(entry: bytes) -> np.ndarray:
    """Read one array.

    First compares its header with the bytes that there are, because NumPy allocates what the
    header says.
    """
    stream = io.BytesIO(entry)
    version = np.lib.format.read_magic(stream)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(entry) - stream.tell():
        raise ValueError(f"an array of {dtype}{list(shape)} in {len(entry) - stream.tell()} bytes")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
