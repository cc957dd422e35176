"""Stamps read from bytes with array operations, if all of them have one usual form.

The forms are ISO 8601 and its relatives that put the year first (`2013.10.07 13:30`, `20131007 133000`), and dates that
put the year last (`10/07/2013 13:30`), if it is known whether the month or the day comes first.

pandas reads any form, at the price of a Python string and two regular expressions per cell. `stamps` asks this module
first. It reads all cells or none, and never one that pandas would read differently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from jaxtrade.data.read.cells import NINE, ZERO, Cells, characters

CLOCK = (r"[T \t,;|](?P<hour>\d\d)(?P<colon>:?)(?P<minute>\d\d)(?:(?P=colon)(?P<second>\d\d)(?P<fraction>\.\d{1,9})?)?"
         r"(?P<zone>Z|[+-]\d\d:\d\d)?")
YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<mark>[-./]?)(?P<month>\d\d)(?P=mark)(?P<day>\d\d)" + CLOCK)
YEAR_LAST = {"mdy": re.compile(r"(?P<month>\d\d)(?P<mark>[-./])(?P<day>\d\d)(?P=mark)(?P<year>\d{4})" + CLOCK),
             "dmy": re.compile(r"(?P<day>\d\d)(?P<mark>[-./])(?P<month>\d\d)(?P=mark)(?P<year>\d{4})" + CLOCK)}
SIGNS = (ord("+"), ord("-"))
YEARS = (1900, 2200)  # inside the range of nanoseconds in 64 bits


@dataclass(frozen=True)
class IsoStamps:
    """seconds: int64[n], UTC seconds if `aware`, else wall-clock seconds since 1970. aware: whether stamps have an
    offset."""

    seconds: np.ndarray
    aware: bool


def form_of(text: str, order: str | None) -> re.Match[str] | None:
    """The form of a stamp. None if it is not a usual one. order: of dates that put the year last; None: unknown."""
    found = YEAR_FIRST.fullmatch(text)
    return YEAR_LAST[order].fullmatch(text) if found is None and order is not None else found


def read_iso(cells: Cells, order: str | None = None) -> IsoStamps | None:
    """The stamps of all cells. None if they differ in form, or if one is not a valid stamp of whole seconds.

    order: as in `form_of`.
    """
    form = form_of(cells.text(0), order) if len(cells) else None
    if form is None:
        return None
    seconds = np.empty(len(cells), np.int64)
    for rows, first, width in cells.blocks():
        if (width != form.end()).any():
            return None
        found = _seconds(characters(cells.data, first, form.end()), form)
        if found is None:
            return None
        seconds[rows] = found
    return IsoStamps(seconds, form["zone"] is not None)


def _seconds(chars: np.ndarray, form: re.Match[str]) -> np.ndarray | None:
    """Seconds since 1970 of stamps that have the form of one stamp, less their offset. chars: uint8[width, n]."""
    digits = chars - np.uint8(ZERO)  # anything below '0' wraps around to a large number
    sign = form.start("zone") if form["zone"] not in (None, "Z") else -1
    for j, letter in enumerate(form[0]):
        if j == sign:
            fits = np.isin(chars[j], SIGNS)
        elif letter.isdigit():
            fits = digits[j] <= NINE
        else:
            fits = chars[j] == ord(letter)
        if not fits.all():
            return None

    def number(at: int) -> np.ndarray:
        return digits[at].astype(np.int64) * 10 + digits[at + 1]

    year = form.start("year")
    hour, minute = number(form.start("hour")), number(form.start("minute"))
    second = number(form.start("second")) if form["second"] else np.zeros_like(hour)
    days = _days(100 * number(year) + number(year + 2), number(form.start("month")), number(form.start("day")))
    if days is None or hour.max() > 23 or minute.max() > 59 or second.max() > 59 or _has_fraction(digits, form):
        return None
    total = ((days * 24 + hour) * 60 + minute) * 60 + second
    if sign < 0:
        return total
    hours, minutes = number(sign + 1), number(sign + 4)
    if hours.max() > 14 or minutes.max() > 59:
        return None
    return total - np.where(chars[sign] == ord("-"), -60, 60) * (hours * 60 + minutes)


def _days(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray | None:
    """Days since 1970, int64[n]. None if a date does not exist, or is far from the years that bars have."""
    if year.min() < YEARS[0] or year.max() > YEARS[1] or month.min() < 1 or month.max() > 12 or day.min() < 1:
        return None
    months = (year - 1970) * 12 + month - 1
    begin, end = ((months + later).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for later in (0, 1))
    days = begin + day - 1
    return None if (days >= end).any() else days


def _has_fraction(digits: np.ndarray, form: re.Match[str]) -> bool:
    """Whether a stamp lies between two whole seconds."""
    return form["fraction"] is not None and bool(digits[form.start("fraction") + 1:form.end("fraction")].any())
