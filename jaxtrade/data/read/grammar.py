"""The one grammar of stamps that are text: what each cell says, or that it says nothing.

A cell is a date, perhaps with a time of day, and that perhaps with an offset from UTC. The year
stands first (`2013-10-07`, `2013.10.7`, `2013 10 07`, `20131007`) or last (`7/10/2013`). The time
of day is `9:30`, `09:30:00.000`,
`9:30 AM`, or its digits alone (`930`, `093000`). The offset is `Z`, `+02:00`, `-0500` or `GMT-0500`. Every form is read
with array operations: cells of one shape (the same marks at the same places) at a time, without a string per cell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Order = Literal["mdy", "dmy"]
UNREAD, BROKEN = np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1  # no stamp; no whole second
YEAR_FIRST = (
    r"(?P<year>\d{4})(?:(?P<mark>[-./]| )(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
    r"|(?P<plain_month>\d\d)(?P<plain_day>\d\d))"
)
YEAR_LAST = r"(?P<{0}>\d{{1,2}})(?P<mark>[-./])(?P<{1}>\d{{1,2}})(?P=mark)(?P<year>\d{{4}})"
FRACTION = r"(?:[.,](?P<{}fraction>\d{{1,9}}))?"
# Digits alone need three: "9" could be an hour or a minute. After a T, two are an hour, as in ISO
# 8601.
CLOCK = (
    r"(?:(?:[Tt]|[ \t,;|]+)(?:(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)"
    + FRACTION.format("")
    + r")?|(?P<plain_hour>\d{1,2}?)(?P<plain_minute>\d\d)(?:(?P<plain_second>\d\d)"
    + FRACTION.format("plain_")
    + r")?)(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?|[Tt](?P<t_hour>\d\d))"
)
OFFSET = (
    r"(?: ?(?:(?P<utc>[Zz]|UTC|GMT)|(?:UTC|GMT)?(?P<sign>[+-])(?P<ahead>\d\d)(?::?(?P<ahead_minute>\d\d))?"
    r"|(?:UTC|GMT)(?P<plain_sign>[+-])(?P<plain_ahead>\d)))?"
)
REST = rf"(?:{CLOCK}{OFFSET})?\s*"
FORMS = {
    None: re.compile(rf"\s*{YEAR_FIRST}{REST}", re.ASCII),
    "dmy": re.compile(rf"\s*{YEAR_LAST.format('day', 'month')}{REST}", re.ASCII),
    "mdy": re.compile(rf"\s*{YEAR_LAST.format('month', 'day')}{REST}", re.ASCII),
}
LAST = re.compile(r"\s*(\d{1,2})([-./])(\d{1,2})\2(\d{4})\b", re.ASCII)  # a date with the year last
VARIED = {"sign": b"+-", "half": b"AaPp"}  # parts whose mark may differ between cells of one shape
ZERO, NINE = ord("0"), 9
BLOCK = 1 << 16  # cells read at once, so that temporary arrays stay in the processor's cache
MOST_WIDTH = 64  # bytes of the longest stamp
MOST_AHEAD = 14 * 60  # minutes by which a place is ahead of UTC, or behind it


def form_of(text: str, order: Order | None) -> re.Match[str] | None:
    """Match the parts of a stamp.

    None if it is none, or puts the year last and `order` is not known.
    """
    return FORMS[None].fullmatch(text) or (None if order is None else FORMS[order].fullmatch(text))


def parts_of(form: re.Match[str]) -> dict[str, tuple[int, int]]:
    """Find where each part of a stamp stands.

    The parts are year, month, day, hour, minute, second, fraction, half (AM or PM), utc, sign,
    ahead, ahead_minute. A part has one name, however the stamp writes it.
    """
    return {
        name.removeprefix("plain_").removeprefix("t_"): form.span(name)
        for name, text in form.groupdict().items()
        if text is not None
    }


def has_offset(text: str) -> bool:
    """Return whether a text is a stamp with an offset from UTC."""
    found = form_of(text, "dmy")
    return found is not None and not parts_of(found).keys().isdisjoint(("utc", "sign"))


def is_date(text: str) -> bool:
    """Return whether a text is a date without a time of day."""
    found = form_of(text, "dmy")
    return found is not None and "hour" not in parts_of(found)


def read_stamps(texts: pa.ChunkedArray, order: Order | None) -> tuple[np.ndarray, np.ndarray]:
    """Read every cell of large strings.

    Returns (seconds since 1970, int64[n]: UTC of a cell with an offset, else of the wall clock;
    UNREAD if the cell is no stamp, BROKEN if it lies between two whole seconds; bool[n], whether it
    has an offset).
    order: of dates with the year last; None if it is not known, and no such date is read.
    """
    seconds, aware, done = np.full(len(texts), UNREAD), np.zeros(len(texts), bool), 0
    for start in range(0, len(texts), BLOCK):
        for chunk in texts.slice(start, BLOCK).chunks:
            rows = slice(done, done + len(chunk))
            _read_chunk(chunk, order, seconds[rows], aware[rows])
            done += len(chunk)
    return seconds, aware


def _read_chunk(
    chunk: pa.LargeStringArray, order: Order | None, seconds: np.ndarray, aware: np.ndarray
) -> None:
    """Write what the cells say to `seconds` and `aware`."""
    _, offsets, text = chunk.buffers()
    places = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    first, width = places[:-1], np.diff(places)
    for size in np.flatnonzero(np.bincount(np.minimum(width, MOST_WIDTH + 1))):
        if not 8 <= size <= MOST_WIDTH:
            continue
        own = np.flatnonzero(width == size)
        data = np.frombuffer(text, np.uint8)
        chars = np.stack([data[first[own] + j] for j in range(size)])
        while len(own):
            form = form_of(chars[:, 0].tobytes().decode(errors="replace"), order)
            if form is None:
                own, chars = own[1:], chars[:, 1:]
                continue
            parts = parts_of(form)
            fits = _of_shape(chars, form[0], parts)
            whole = bool(fits.all())
            seconds[own[fits]] = _seconds(chars if whole else chars[:, fits], parts)
            aware[own[fits]] = "utc" in parts or "sign" in parts
            own, chars = own[~fits], chars[:, :0] if whole else chars[:, ~fits]


def _of_shape(chars: np.ndarray, shape: str, parts: Mapping[str, tuple[int, int]]) -> np.ndarray:
    """Find the cells with digits and marks where the text `shape` has them (bool[n]).

    chars: uint8[width, n].
    """
    varied = {parts[name][0]: marks for name, marks in VARIED.items() if name in parts}
    fits = np.ones(chars.shape[1], bool)
    for j, letter in enumerate(shape):
        if letter.isdigit():
            fits &= (
                chars[j] - np.uint8(ZERO) <= NINE
            )  # anything below '0' wraps around to a large number
        elif j in varied:
            fits &= np.isin(chars[j], np.frombuffer(varied[j], np.uint8))
        else:
            fits &= chars[j] == ord(letter)
    return fits


def _seconds(chars: np.ndarray, parts: Mapping[str, tuple[int, int]]) -> np.ndarray:
    """Compute the seconds since 1970 of cells with these parts, less their offset (int64[n]).

    Unusable cells become UNREAD or BROKEN.
    """

    def number(name: str) -> np.ndarray:
        """Parse the digits of a part; 0 if it is not there."""
        total = np.zeros(chars.shape[1], np.int64)
        for j in range(*parts.get(name, (0, 0))):
            total = 10 * total + chars[j] - ZERO
        return total

    days, known = _days(number("year"), number("month"), number("day"))
    hour, minute, second = number("hour"), number("minute"), number("second")
    known &= (hour <= 23) & (minute <= 59) & (second <= 59)
    if "half" in parts:
        known &= (hour >= 1) & (hour <= 12)
        hour = hour % 12 + 12 * np.isin(
            chars[parts["half"][0]], np.frombuffer(VARIED["half"][2:], np.uint8)
        )
    total = ((days * 24 + hour) * 60 + minute) * 60 + second
    if "sign" in parts:
        ahead = 60 * number("ahead") + number("ahead_minute")
        known &= (ahead <= MOST_AHEAD) & (number("ahead_minute") <= 59)
        total -= 60 * np.where(chars[parts["sign"][0]] == ord("-"), -ahead, ahead)
    return np.where(known, np.where(number("fraction") != 0, BROKEN, total), UNREAD)


def _days(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute (days since 1970 int64[n], whether the date exists bool[n])."""
    known = (month >= 1) & (month <= 12) & (day >= 1)
    months = (year - 1970) * 12 + np.where(known, month, 1) - 1
    begin, end = (
        (months + later).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        for later in (0, 1)
    )
    days = begin + day - 1
    return days, known & (days < end)
