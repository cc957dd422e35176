"""Dates that are not written as ISO 8601: which number is the month, and the same stamps as ISO 8601 text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from jaxtrade.data.formats.layout import Order
from jaxtrade.data.read.faults import Faults
from jaxtrade.data.read.tabular import Table

LAST = re.compile(r"(\d{1,2})([-./])(\d{1,2})\2(\d{4})\b")  # a date with the year last
FIRST = re.compile(r"\d{4}[./]\d\d[./]\d\d|\d{8}[T \t,;|]\d")
PROBES = 5000  # cells in which a day above 12 is looked for
YEAR_FIRST = re.compile(r"^(\d{4})[./]?(\d\d)[./]?(\d\d)(?!\d)")
CLOCK = re.compile(r"(?<=^\d{4}-\d\d-\d\d)[T \t,;|]+(\d{1,2}):?(\d\d)(?::?(\d\d))?")


def day_and_month(table: Table, name: str, rows: np.ndarray, stated: Order | None, faults: Faults, notes: list[str]
                  ) -> Order | None:
    """Whether the month or the day comes first, in a column of dates with the year last; None for other columns.

    It is `stated`, or a day above 12 proves it, and a note says so. Otherwise a fault is raised.
    """
    first = str(table.cell(name, int(rows[0])))
    if not LAST.match(first) or stated is not None:
        return stated
    order, proof = proven_order(table, name, rows)
    if order is not None:
        notes.append(f"dates are read with the {'day' if order == 'dmy' else 'month'} first, as '{proof}' shows")
        return order
    faults.add("the first number of the date could be the month or the day", "state it: data.date_order=mdy (month "
               "first) or data.date_order=dmy (day first)", int(rows[0]), name, first)
    faults.stop()
    raise AssertionError("a fault was added: stop raises")


def proven_order(table: Table, name: str, rows: np.ndarray) -> tuple[Order | None, str]:
    """(the order of dates with the year last, the date that proves it). None if no day above 12 is found."""
    probes = rows[np.unique(np.linspace(0, len(rows) - 1, min(PROBES, len(rows))).astype(np.int64))]
    for row in probes:
        found = LAST.match(str(table.cell(name, int(row))))
        if found is not None and max(int(found[1]), int(found[3])) > 12:
            return ("dmy" if int(found[1]) > 12 else "mdy"), found[0]
    return None, ""


def iso_text(text: Any, order: Order | None) -> Any:
    """A pandas Series of stamps, those of another usual form as ISO 8601. Cells of no usual form stay as they are.

    The form is that of the first cell.
    """
    first = str(text.iloc[0])
    if order is not None and LAST.match(first):
        month, day = ((3, 1) if order == "dmy" else (1, 3))

        def dated(found: re.Match[str]) -> str:
            return f"{found[4]}-{int(found[month]):02d}-{int(found[day]):02d}"

        text = text.str.replace(re.compile(f"^{LAST.pattern}"), dated, regex=True)
    elif FIRST.match(first):
        text = text.str.replace(YEAR_FIRST, r"\1-\2-\3", regex=True)
    else:
        return text
    return text.str.replace(CLOCK, _clock, regex=True)


def _clock(found: re.Match[str]) -> str:
    return f" {int(found[1]):02d}:{found[2]}:{found[3] or '00'}"
