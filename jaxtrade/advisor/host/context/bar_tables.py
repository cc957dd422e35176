"""Texts about earlier bars: the last bars, completed longer bars, and the session's levels. Raw
prices and volumes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from jaxtrade.errors import DataError

NONE = "none yet"  # in place of a part that does not exist
WINDOW: Mapping[str, str] = MappingProxyType(
    {
        "head": "Last {count} bars of {length}, oldest first: time of the close (month-day hour:minute), then prices",
        "volume": " and volume",
        "columns": "time,open,high,low,close",
        "volume_column": ",volume",
        "stamp": "%m-%d %H:%M",
        "fine_stamp": "%m-%d %H:%M:%S",
        "volume_format": ".0f",
        "none": NONE,
    }
)
HIGHER: Mapping[str, str] = MappingProxyType(
    {
        **WINDOW,
        "head": "Last completed bars of {length}, oldest first",
        "missing": "Bars of {length}: {none}",
    }
)
LEVELS: Mapping[str, str] = MappingProxyType(
    {
        "session": "Session since {since}: {levels}",
        "opening": "Opening range (first {minutes} minutes): {levels}",
        "prior": "Prior day: {levels}",
        "left": "Time to the session's close: {left}",
        "minutes": "{minutes} minutes",
        "name": "{name} {price}",
        "since": "%H:%M",
        "none": NONE,
    }
)


class PriceBar(NamedTuple):
    """A bar. time: wall time of its close. Prices in the quote unit. volume: None where bars have
    none.
    """

    time: str
    open: float
    high: float
    low: float
    close: float
    volume: float | None


def length_of(seconds: int) -> str:
    """The length of a bar in words: 1 minute, 5 minutes, 15 seconds."""
    count, noun = (seconds // 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"{count} {noun}" + ("" if count == 1 else "s")


def window_block(rows: Sequence[PriceBar], seconds: int, decimals: int) -> str:
    """The last bars as a table. Raises DataError for values that no bar has."""
    head = WINDOW["head"].format(count=len(rows), length=length_of(seconds))
    return f"{head}{WINDOW['volume'] if rows[-1].volume is not None else ''}:\n{_table(rows, decimals)}"


def higher_block(tables: Mapping[int, Sequence[PriceBar]], decimals: int) -> str:
    """A table for each length in minutes. Raises DataError for values that no bar has."""
    parts = []
    for minutes, rows in tables.items():
        length = length_of(60 * minutes)
        parts.append(
            f"{HIGHER['head'].format(length=length)}:\n{_table(rows, decimals)}"
            if rows
            else HIGHER["missing"].format(length=length, none=NONE)
        )
    return (
        "\n".join(parts)
        if parts
        else HIGHER["missing"].format(length="longer time frames", none=NONE)
    )


def levels_block(
    session: Mapping[str, float] | None,
    since: str,
    opening: Mapping[str, float] | None,
    minutes: int,
    prior: Mapping[str, float] | None,
    left: int | None,
    decimals: int,
) -> str:
    """The session's levels, the opening range and the prior day: prices by name, or None for a part
    that does not exist. since: wall time of the session's opening. minutes: of the opening range.
    left: minutes to the close."""
    return "\n".join(
        [
            LEVELS["session"].format(since=since, levels=_levels(session, decimals)),
            LEVELS["opening"].format(minutes=minutes, levels=_levels(opening, decimals)),
            LEVELS["prior"].format(levels=_levels(prior, decimals)),
            LEVELS["left"].format(
                left=NONE if left is None else LEVELS["minutes"].format(minutes=left)
            ),
        ]
    )


def _levels(prices: Mapping[str, float] | None, decimals: int) -> str:
    if prices is None:
        return NONE
    return ", ".join(
        LEVELS["name"].format(name=name, price=f"{price:.{decimals}f}")
        for name, price in prices.items()
    )


def _table(rows: Sequence[PriceBar], decimals: int) -> str:
    volume = rows[-1].volume is not None
    lines = [WINDOW["columns"] + (WINDOW["volume_column"] if volume else "")]
    for row in rows:
        _check(row)
        cells = [row.time, *(f"{price:.{decimals}f}" for price in row[1:5])]
        lines.append(
            ",".join(cells + ([f"{row.volume:{WINDOW['volume_format']}}"] if volume else []))
        )
    return "\n".join(lines)


def _check(row: PriceBar) -> None:
    """Raises DataError for a normalised or broken bar: prices not positive, out of order, or a
    negative volume.
    """
    prices = row[1:5]
    if (
        not all(math.isfinite(price) and price > 0 for price in prices)
        or row.high < max(prices)
        or row.low > min(prices)
    ):
        raise DataError(
            f"bar closed at {row.time}: open {row.open:g}, high {row.high:g}, low {row.low:g}, close "
            f"{row.close:g}; expected raw prices above 0 with the high highest and the low lowest"
        )
    if row.volume is not None and not (math.isfinite(row.volume) and row.volume >= 0):
        raise DataError(
            f"bar closed at {row.time}: volume {row.volume:g}; expected a raw volume, 0 or more"
        )
