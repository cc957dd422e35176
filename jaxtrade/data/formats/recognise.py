"""Recognise a file's layout, and take over what the layout and the user state about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from jaxtrade.data.formats.layout import Head, Layout, Order
from jaxtrade.data.formats.vendors import BARS, VENDORS

HEAD_BYTES = 1 << 16
HEAD_LINES = 30
SEPARATORS = (",", ";", "\t", "|")


def separator_of(line: str) -> str:
    """The separator that a line has most often."""
    return max(SEPARATORS, key=line.count)


def head_of(raw: bytes, file: str) -> Head | None:
    """The first lines of a text file. None if it has none."""
    text = raw[:HEAD_BYTES].decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(raw) > HEAD_BYTES and len(lines) > 1:
        lines.pop()  # it may be cut
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        return None
    separator = separator_of(lines[0])
    cells = [
        [cell.strip().strip('"') for cell in line.split(separator)] for line in lines[:HEAD_LINES]
    ]
    return Head(cells[0], cells[1:], file)


def recognise(head: Head | None) -> Layout | None:
    """The layout of a file with this head. None if no vendor's layout fits."""
    if head is None:
        return None
    found = next((layout for vendor in VENDORS if (layout := vendor(head)) is not None), None)
    return found or _below(head)


def _below(head: Head) -> Layout | None:
    """The layout of a file whose header is its second line: `sep=;`, an address or a title stands
    before it.
    """
    rows = head.rows if head.is_text else []
    separator = (
        separator_of(rows[0][0]) if rows and len(rows[0]) == 1 else None
    )  # the first line has another one
    if separator is not None:
        rows = [[cell.strip().strip('"') for cell in row[0].split(separator)] for row in rows]
    names = rows[0] if rows else []
    if not set(BARS) <= {name.lower() for name in names} or set(BARS) <= {
        name.lower() for name in head.names
    }:
        return None
    found = recognise(Head(names, rows[1:], head.file)) or Layout(
        "bars with a line before the header line"
    )
    return replace(
        found,
        names=found.names or tuple(names),
        header_lines=found.header_lines + 1,
        separator=found.separator or separator,
    )


class Stated(NamedTuple):
    """The keys with which a file is read, as `load_bars` takes them."""

    columns: Mapping[str, str]
    time_zone: str | None
    stamp: Literal["open", "close"] | None
    price_scale: float
    date_order: Order | None


def settled(layout: Layout, stated: Stated) -> Stated:
    """The keys of a file: what the user states, else what the layout defines. A zone is for stamps
    without offset.
    """
    zone = layout.time_zone if layout.naive else None
    return Stated(
        {**layout.columns, **stated.columns},
        stated.time_zone or zone,
        stated.stamp or layout.stamp,
        stated.price_scale if stated.price_scale != 1.0 else layout.price_scale,
        stated.date_order or layout.date_order,
    )


def missing_keys(layout: Layout, stated: Stated) -> tuple[str, ...]:
    """The keys of `data` that neither the layout nor the user states."""
    found = settled(layout, stated)
    return tuple(key for key in layout.open_keys if getattr(found, key) is None)


def unsaid(layout: Layout, missing: tuple[str, ...]) -> tuple[str, str]:
    """(problem, fix) of a file whose layout leaves the keys `missing` open."""
    words = {
        "time_zone": "the time zone of its stamps",
        "stamp": "whether a stamp names a bar's open or its close",
    }
    first, *others = [
        usual for usual in layout.usual if all(getattr(usual, key) for key in missing)
    ]
    fix = f"confirm what is usual for {first.whose}: {first.flags(missing)}"
    fix += "".join(f"; for {usual.whose}: {usual.flags(missing)}" for usual in others)
    return (
        f"read as {layout.title}; the file does not say {' nor '.join(words[key] for key in missing)}",
        f"{fix}; or state what you know. Python: {', '.join(f'{key}=...' for key in missing)}",
    )


def spoken(layout: Layout, stated: Stated) -> str:
    """The note that says how a file is read."""
    found = settled(layout, stated)
    parts = (
        [f"stamps name a bar's {found.stamp}{_source(layout.stamp, stated.stamp)}"]
        if found.stamp
        else []
    )
    zone = stated.time_zone or layout.time_zone
    if zone is not None:
        parts.append(f"in {zone}{_source(layout.time_zone, stated.time_zone)}")
    if found.price_scale != 1.0:
        given = stated.price_scale if stated.price_scale != 1.0 else None
        own = layout.price_scale if layout.price_scale != 1.0 else None
        parts.append(f"prices in units of {found.price_scale:g}{_source(own, given)}")
    of = f" of {layout.symbol}" if layout.symbol else ""
    return f"read as {layout.title}{of}" + (f": {', '.join(parts)}" if parts else "")


def _source(defined: Any, stated: Any) -> str:
    """Who says so: the user, the format, or the user against the format."""
    if stated is None:
        return ""
    return (
        f" (as stated; the format says {defined})"
        if defined not in (None, stated)
        else " (as stated)"
    )
