"""Columns that a layout's stamps, expiries and dates are made of: date and time in two columns, or
a date in the name of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from jaxtrade.data.formats.layout import Layout
from jaxtrade.data.formats.vendors import LEAN_NAME
from jaxtrade.data.read.archive import Member
from jaxtrade.data.read.cells import Cells, labels, whole_numbers
from jaxtrade.errors import DataError

DAY = 86_400_000


def add_stamps(
    columns: Mapping[str, Any], layout: Layout, members: tuple[Member, ...], source: str
) -> dict[str, Any]:
    """The columns that a layout's stamps need and the file lacks, by name; none for most layouts.

    Raises DataError if the files' names lack the date.
    """
    if layout.day:
        return _dated(columns, layout, members, source)
    if layout.date is None or layout.clock is None:
        return {}
    return {stamp_column(layout): _joined(columns[layout.date], columns[layout.clock])}


def stamp_column(layout: Layout) -> str:
    """The name of the column of whole stamps, if they are made of several columns."""
    return "time" if layout.day else f"{layout.date} {layout.clock}"


def _joined(day: Any, clock: Any) -> Any:
    """Date and time in one column: cells where both stand side by side in the file, else text."""
    if (
        isinstance(day, Cells)
        and isinstance(clock, Cells)
        and day.data is clock.data
        and np.array_equal(day.end, clock.before)
    ):
        return replace(day, end=clock.end)
    day, clock = (
        _text(column) if isinstance(column, Cells) else column.astype(str)
        for column in (day, clock)
    )
    return (day + " " + clock).astype(str)


def _text(cells: Cells) -> Any:
    """The cells as a pandas Series of text."""
    import pandas as pd

    texts, codes = labels(cells)
    return pd.Series(np.array(texts, object)[codes], dtype=str)


def _dated(
    columns: Mapping[str, Any], layout: Layout, members: tuple[Member, ...], source: str
) -> dict[str, Any]:
    """Stamps from milliseconds since midnight and the dates in the names of the files, and expiries
    from them.
    """
    import pandas as pd

    named = [LEAN_NAME.fullmatch(member.name) for member in members]
    for member, match in zip(members, named, strict=True):
        if match is None:
            raise DataError(
                f"{source}: read as {layout.title}, whose stamps are milliseconds since midnight, but the "
                f"name '{member.name}' holds no date. Fix: name it as LEAN does, e.g. "
                "20131007_spy_minute_trade.csv"
            )
    matches = [match for match in named if match is not None]
    for part in ("symbol", "kind"):
        found = sorted({match[part] for match in matches})
        if len(found) > 1:
            raise DataError(
                f"{source}: holds files of {' and '.join(found)}. Fix: give files of one"
            )
    clock = columns[str(layout.clock)]
    count = len(clock)
    rows = [count if member.rows is None else member.rows for member in members]
    days = np.repeat([_day(match["day"], source) for match in matches], rows)
    milliseconds = whole_numbers(clock) if isinstance(clock, Cells) else None
    if milliseconds is None:
        numbers: Any = pd.to_numeric(clock, errors="coerce")
        milliseconds = numbers.fillna(DAY).to_numpy(np.int64)
    late = np.flatnonzero(milliseconds >= DAY)
    if len(late):
        raise DataError(
            f"{source}: row {late[0]} (0-based): column '{layout.clock}': not milliseconds since midnight "
            f"(0 to {DAY - 1}). Fix: export the day again"
        )
    stamps = pd.Series((days * DAY + milliseconds).astype("datetime64[ms]"))
    made: dict[str, Any] = {stamp_column(layout): stamps}
    if all(match["expiry"] for match in matches):
        made["expiry"] = pd.Series(
            np.repeat([match["expiry"] for match in matches], rows), dtype=str
        )
    return made


def _day(text: str, source: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise DataError(
            f"{source}: '{text}' in a file's name is no date. Fix: name it as LEAN does, YYYYMMDD first"
        ) from None
