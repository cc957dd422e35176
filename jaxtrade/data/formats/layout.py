"""What a vendor's layout says about a file, as data.

A layout is recognised by the file's header and first rows (`recognise`). It names the columns, and
states what the vendor's format defines: the side of a bar that a stamp names, the time zone, the
unit of prices. What the format leaves open stays None; reading then stops with the usual values and
the keys that confirm them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jaxtrade.data.read.grammar import Order


@dataclass(frozen=True)
class Usual:
    """What files of a layout usually mean. whose: which files. time_zone, stamp: the values; None
    if not left open.
    """

    whose: str
    time_zone: str | None = None
    stamp: Literal["open", "close"] | None = None

    def flags(self, asked: tuple[str, ...]) -> str:
        """The flags that confirm the values of the asked keys, for a message."""
        return " ".join(f"--set data.{key}={getattr(self, key)}" for key in asked)


@dataclass(frozen=True)
class Layout:
    """The layout of one file.

    title: what it is, for messages ("an MT5 export"). columns: field -> column name. names: the
        column names in their
    order, if the first line does not hold them. header_lines: lines before the first row.
    separator: None if it is the usual one of the header line. date, clock: columns that together
    make the stamp. day: whether the date is in the file's name and the column `clock` holds
    milliseconds since midnight. volumes: columns that may hold the volume; the first that is not
    zero throughout is read. single: column -> what it holds, if it may hold one value only.
    stamp, time_zone, date_order, price_scale: what the format defines; None (1.0) if it does not.
        naive: whether stamps
    carry no offset, so that a time zone must be known. usual: what files of this layout usually
    mean, for what the format leaves open. symbol: the instrument, if the layout names it once for
    the whole file.
    """

    title: str
    columns: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    header_lines: int = 1
    separator: str | None = None
    date: str | None = None
    clock: str | None = None
    day: bool = False
    volumes: tuple[str, ...] = ()
    single: Mapping[str, str] = field(default_factory=dict)
    stamp: Literal["open", "close"] | None = None
    time_zone: str | None = None
    date_order: Order | None = None
    price_scale: float = 1.0
    naive: bool = False
    usual: tuple[Usual, ...] = ()
    symbol: str | None = None

    @property
    def open_keys(self) -> tuple[str, ...]:
        """The keys of `data` that a user must state, because the format leaves them open."""
        return (
            *(("time_zone",) if self.naive and self.time_zone is None else ()),
            *(("stamp",) if self.stamp is None else ()),
        )


@dataclass(frozen=True)
class Head:
    """The beginning of a file. names: the cells of the first line (or the column names of a frame).
    rows: the cells of the lines after it. file: the file's name without folders. is_text: whether
    it is a text file, which may lack a header line; False for frames and Parquet, whose names are
    known.
    """

    names: list[str]
    rows: list[list[str]]
    file: str
    is_text: bool = True

    @property
    def lines(self) -> list[list[str]]:
        """The cells of all lines, for layouts without a header line."""
        return [self.names, *self.rows]

    def find(self, *wanted: str) -> str | None:
        """The column whose name is one of `wanted`, whatever its case, brackets, spaces and
        underscores.
        """
        plain = {plain_name(name): name for name in reversed(self.names)}
        return next((plain[name] for name in wanted if name in plain), None)


def plain_name(name: str) -> str:
    """A column name in lower case without brackets, spaces, underscores and hyphens."""
    return "".join(letter for letter in name.lower() if letter not in "<>[] _-")
