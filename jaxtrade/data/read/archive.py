"""Unpack gzip and zip. The text files inside a zip archive become the bytes of one file."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import NamedTuple

from jaxtrade.errors import DataError
from jaxtrade.storage.archives import unpacked

SUFFIXES = (".csv", ".txt")


class Member(NamedTuple):
    """One text file. name: without folders. rows: its lines; None if it is the whole source."""

    name: str
    rows: int | None


def is_zip(raw: bytes) -> bool:
    """Whether the bytes begin as a zip archive does."""
    return raw[:4] in (b"PK\x03\x04", b"PK\x05\x06")  # the second one: without a file


def unzip(raw: bytes, source: str, limit: int) -> tuple[bytes, tuple[Member, ...]]:
    """(the lines of all text files in the order of their names, the files). Raises DataError if
    there is none, if the archive is damaged, or if it unpacks to more than `limit` bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            infos = sorted(
                (
                    info
                    for info in archive.infolist()
                    if info.filename.lower().endswith(SUFFIXES)
                    and not info.filename.startswith("__MACOSX")
                ),
                key=lambda info: PurePosixPath(info.filename).name,
            )
            if sum(info.file_size for info in infos) > limit:
                raise DataError(f"{source}: unpacks to more than {limit} bytes. Fix: split it")
            texts = [unpacked(archive, info).rstrip(b"\r\n") for info in infos]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{source}: the zip archive is damaged, encrypted or of an unknown kind ({error}). Fix: copy "
            "or download it again, or extract its CSV file"
        ) from None
    if not infos:
        raise DataError(
            f"{source}: the zip archive holds no .csv or .txt file. Fix: give the file with the bars"
        )
    members = tuple(
        Member(PurePosixPath(info.filename).name, text.count(b"\n") + 1 if len(infos) > 1 else None)
        for info, text in zip(infos, texts, strict=True)
        if text
    )
    if not members:
        raise DataError(
            f"{source}: the files in the zip archive are empty. Fix: export the bars again"
        )
    return b"\n".join(text for text in texts if text) + b"\n", members


def gunzip(raw: bytes, source: str, limit: int) -> bytes:
    """The unpacked bytes. Raises DataError if they are damaged, or more than `limit`."""
    out = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            while block := stream.read(1 << 20):
                out.write(block)
                if out.tell() > limit:
                    raise DataError(f"{source}: unpacks to more than {limit} bytes. Fix: split it")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{source}: the gzip data are cut or damaged after {out.tell()} unpacked bytes ({error}). "
            "Fix: copy or download the file again; the part that still unpacks is not used"
        ) from None
    return out.getvalue()
