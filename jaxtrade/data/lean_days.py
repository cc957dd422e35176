"""A folder of LEAN's daily zips as one zip, which is then read like any other file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from jaxtrade.data.formats.vendors import LEAN_NAME
from jaxtrade.errors import DataError
from jaxtrade.storage.archives import unpacked

MOST_BYTES = 64 << 20  # of one day; the seconds of SPY have 1 MB
EARLIEST = (1980, 1, 1, 0, 0, 0)  # of zip members, so that the same days make the same file


def joined_days(folder: Path) -> tuple[bytes, int]:
    """(a zip of the daily files in a folder's zips, their number): trades if there are any,
    otherwise quotes.

    Raises DataError if the folder holds no daily file of LEAN, or a damaged one.
    """
    days: dict[str, dict[str, bytes]] = {"trade": {}, "quote": {}}
    for path in sorted(folder.glob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    if named := LEAN_NAME.fullmatch(info.filename):
                        if info.file_size > MOST_BYTES:
                            raise DataError(
                                f"{path}: {info.filename} unpacks to {info.file_size} bytes, more than "
                                f"the {MOST_BYTES} of a day. Fix: copy it again"
                            )
                        days[named["kind"]][info.filename] = unpacked(archive, info)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(
                f"{path}: cannot be read as a zip archive ({error}). Fix: copy it again"
            ) from None
    chosen = days["trade"] or days["quote"]
    if not chosen:
        raise DataError(
            f"{folder}: is a directory without daily zips of LEAN (20131007_trade.zip with "
            "20131007_spy_minute_trade.csv in it). Fix: name one file of bars"
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(chosen.items()):
            archive.writestr(zipfile.ZipInfo(name, EARLIEST), content, zipfile.ZIP_DEFLATED)
    return out.getvalue(), len(chosen)
