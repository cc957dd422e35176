"""Time stamps of feeds: ISO 8601 with a UTC offset, as UTC seconds."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from zoneinfo import ZoneInfo

from jaxtrade.errors import DataError

_STAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


def seconds_of(text: object) -> float | None:
    """UTC seconds of a stamp such as 2013-10-07T09:31:00-04:00; None if `text` is no such stamp."""
    if not isinstance(text, str) or not _STAMP.fullmatch(text):
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def local(seconds: float, zone: str, layout: str) -> str:
    """UTC seconds as wall time of a zone, formatted as by `strftime`."""
    return datetime.datetime.fromtimestamp(seconds, ZoneInfo(zone)).strftime(layout)


def text_of(path: Path, key: str) -> str:
    """The UTF-8 text of a feed's file. key: the configuration key that names it. Raises
    DataError.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8 ({key})"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; check {key}") from None
