"""Recognise a file's layout, and take over what the layout and the user state about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.data.read.grammar import Order, form_of, is_date

# What a vendor's layout says about a file, as data.
#
# A layout is recognised by the file's header and first rows (`recognise`). It names the columns,
# and states what the vendor's format defines: the side of a bar that a stamp names, the time zone,
# the unit of prices. What the format leaves open stays None; reading then stops with the usual
# values and the keys that confirm them.


@dataclass(frozen=True)
class UsualMeaning:
    """What files of a layout usually mean.

    whose: which files.
    time_zone, stamp: the values; None if not left open.
    """

    whose: str
    time_zone: str | None = None
    stamp: Literal["open", "close"] | None = None

    def flags(self, asked: tuple[str, ...]) -> str:
        """Return the flags that confirm the values of the asked keys, for a message."""
        return " ".join(f"--set data.{key}={getattr(self, key)}" for key in asked)


@dataclass(frozen=True)
class FileLayout:
    """The layout of one file.

    title: what it is, for messages ("an MT5 export").
    columns: field -> column name.
    names: the column names in their order, where the first line does not hold them.
    header_lines: lines before the first row.
    separator: where it is not the usual one of the header line.
    date, clock: columns that together make the stamp.
    day: whether the date is in the file's name and the column `clock` holds milliseconds
        since midnight.
    volumes: columns that may hold the volume; the first that is not zero throughout is read.
    single: column -> what it holds, if it may hold one value only.
    stamp, time_zone, date_order, price_scale: what the format defines; None (1.0) if it does not.
    naive: whether stamps carry no offset, so that a time zone must be known.
    usual: what files of this layout usually mean, for what the format leaves open.
    symbol: the instrument, if the layout names it once for the whole file.
    """

    title: str
    columns: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    header_lines: int = 1
    separator: str = ""
    date: str = ""
    clock: str = ""
    day: bool = False
    volumes: tuple[str, ...] = ()
    single: Mapping[str, str] = field(default_factory=dict)
    stamp: Literal["open", "close"] | None = None
    time_zone: str | None = None
    date_order: Order | None = None
    price_scale: float = 1.0
    naive: bool = False
    usual: tuple[UsualMeaning, ...] = ()
    symbol: str = ""


PLAIN = FileLayout("a file with a header line")  # what every file is that no vendor's layout fits


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file.

    names: the cells of the first line (or the column names of a frame).
    rows: the cells of the lines after it.
    file: the file's name without folders.
    is_text: whether it is a text file, which may lack a header line; False for frames and Parquet,
        whose names are known.
    """

    names: list[str]
    rows: list[list[str]]
    file: str
    is_text: bool = True

    @property
    def lines(self) -> list[list[str]]:
        """The cells of all lines, for layouts without a header line."""
        return [self.names, *self.rows]

    def find(self, *wanted: str) -> str:
        """Return the column whose name is one of `wanted`; empty if there is none.

        Ignores case, brackets, spaces and underscores.
        """
        plain = {plain_name(name): name for name in reversed(self.names)}
        return next((plain[name] for name in wanted if name in plain), "")


def plain_name(name: str) -> str:
    """Return a column name in lower case without brackets, spaces, underscores and hyphens."""
    return "".join(letter for letter in name.lower() if letter not in "<>[] _-")


WHOLE, CELLS = r"\d+", {"price": r"\d+(?:\.\d*)?", "quoted": r"(?:\d+(?:\.\d*)?)?"}
SERVER = "America/New_York+7h"
METATRADER = (
    UsualMeaning("servers on UTC+2, and UTC+3 in New York's summer (most FX brokers)", SERVER),
    UsualMeaning("servers on UTC", "UTC"),
)
BARS = ("open", "high", "low", "close")
QUOTES = tuple(f"{side}_{price}" for side in ("bid", "ask") for price in BARS)
LEAN_NAME = re.compile(
    r"(?P<day>\d{8})_(?P<symbol>[^_]+)_(?:minute|second)_(?P<kind>trade|quote)"
    r"(?:_(?P<expiry>\d{6})(?:_\d{8})?)?\.csv"
)


def fits(rows: list[list[str]], *kinds: str | Callable[[str], bool]) -> bool:
    """Return whether the first row, and most rows, have one matching cell per kind.

    A kind is a regular expression or a test. A row that does not match is left to the reader, which
    names its line.
    """

    def fit(kind: str | Callable[[str], bool], cell: str) -> bool:
        return bool(re.fullmatch(kind, cell) if isinstance(kind, str) else kind(cell))

    good = [len(row) == len(kinds) and all(map(fit, kinds, row)) for row in rows]
    return bool(good) and good[0] and 2 * sum(good) > len(good)


def match_bracketed(head: FileHead) -> FileLayout | None:
    """Recognise `<DATE> <TIME> <OPEN> ...`: MetaTrader 5, or MetaStock and Finam."""
    names = [name for name in head.names if re.fullmatch(r"<\w+>", name)]
    if len(names) < len(head.names) or not {"<DATE>", "<OPEN>", "<CLOSE>"} <= {
        name.upper() for name in names
    }:
        return None
    date, clock = head.find("date"), head.find("time")
    fields = {field: head.find(field) for field in BARS} | {"symbol": head.find("ticker")}
    own = {field: name for field, name in fields.items() if name}
    if not clock:
        own["time"] = date
    common: dict[str, Any] = {
        "columns": own,
        "names": tuple(head.names),
        "date": date if clock else "",
        "clock": clock,
        "volumes": tuple(filter(None, (head.find("vol", "volume"), head.find("tickvol")))),
        "naive": True,
    }
    if head.find("tickvol", "spread"):
        return FileLayout("an MT5 export", **common, stamp="open", usual=METATRADER)
    return FileLayout(
        "a MetaStock export (also Finam's)",
        **common,
        usual=(
            UsualMeaning("Finam", "Europe/Moscow", "open"),
            UsualMeaning("MetaStock", "America/New_York", "close"),
        ),
    )


def databento(head: FileHead) -> FileLayout | None:
    """Recognise `ts_event,rtype,publisher_id,instrument_id,open,...`."""
    names = {name.lower() for name in head.names}
    if not {"ts_event", "rtype", "instrument_id", *BARS} <= names:
        return None
    at = [i for i, name in enumerate(head.names) if name.lower() in BARS]
    whole = bool(head.rows) and all(
        re.fullmatch(f"-?{WHOLE}", row[i])  # a spread's price may be negative
        for row in head.rows
        for i in at
        if i < len(row)
    )
    columns = {field: head.find(field) for field in BARS} | {
        "time": head.find("tsevent"),
        "symbol": head.find("symbol") or head.find("instrumentid"),
    }
    single = {"rtype": "lengths of bars"} | (
        {"publisher_id": "venues"} if "publisher_id" in names else {}
    )
    return FileLayout(
        "a Databento file",
        columns,
        volumes=("volume",) if "volume" in names else (),
        single=single,
        stamp="open",
        time_zone="UTC",
        price_scale=1e-9 if whole else 1.0,
    )


def yfinance(head: FileHead) -> FileLayout | None:
    """Recognise three header lines: `Price,Close,...`, `Ticker,ES=F,...`, `Datetime,,,...`."""
    rows = head.rows
    if (
        not head.is_text
        or head.names[0] != "Price"
        or len(rows) < 3
        or rows[0][0] != "Ticker"
        or not rows[1][0]
    ):
        return None
    tickers = sorted(set(rows[0][1:]))
    names = head.names
    if len(tickers) > 1:
        names = map(" ".join, zip(names, rows[0], strict=False))
    names = (rows[1][0], *list(names)[1:])
    return FileLayout(
        "a yfinance file",
        names=names,
        header_lines=3,
        symbol=" ".join(tickers),
        columns={"time": names[0]},
        usual=(UsualMeaning("Yahoo", stamp="open"),),
    )


def binance(head: FileHead) -> FileLayout | None:
    """Recognise klines with a header line.

    The line is `open_time,open,high,low,close,volume,close_time,...`.
    """
    named = {plain_name(name) for name in head.names}
    if {"opentime", "closetime", *BARS} <= named:
        columns = {field: head.find(field) or field for field in (*BARS, "volume")}
        return FileLayout(
            "Binance klines",
            columns | {"time": head.find("opentime")},
            stamp="open",
            time_zone="UTC",
        )
    return None


class HeaderlessForm(NamedTuple):
    """The names of the columns of a file without a header line, and what their cells are."""

    names: tuple[str, ...]
    cells: tuple[str, ...]


class Headerless(NamedTuple):
    """A layout of files without a header line, in one of several forms."""

    layout: FileLayout
    forms: tuple[HeaderlessForm, ...]


_FILE = Path(__file__).with_name("headerless.yaml")
HEADERLESS = TypeAdapter(tuple[Headerless, ...]).validate_python(
    parse_yaml(_FILE.read_text(encoding="utf-8"), _FILE.name)
)


def headerless(head: FileHead) -> FileLayout | None:
    """Recognise a text file without a header line, of a vendor that headerless.yaml names."""
    for layout, forms in HEADERLESS if head.is_text else ():
        for names, cells in forms:
            if fits(head.lines, *(CELLS.get(cell, cell) for cell in cells)):
                found = replace(layout, names=names, header_lines=0)
                return _lean(head, found) if layout.title.startswith("LEAN") else found
    return None


def _lean(head: FileHead, layout: FileLayout) -> FileLayout:
    """Complete the layout of LEAN.

    Share prices are whole numbers, times 10,000, in New York time. A future's file names
    its expiry.
    """
    named = LEAN_NAME.fullmatch(head.file)
    prices = [
        cell
        for row in head.lines
        for name, cell in zip(layout.names, row, strict=False)
        if name.endswith(BARS) and cell
    ]
    shares = all(re.fullmatch(WHOLE, cell) for cell in prices) and not (named and named["expiry"])
    found = replace(layout, symbol=named["symbol"].upper() if named else "")
    if not shares:
        return found
    title = f"{layout.title} of shares"
    return replace(found, title=title, time_zone="America/New_York", price_scale=0.0001)


def fxcm(head: FileHead) -> FileLayout | None:
    """Recognise `DateTime,BidOpen,BidHigh,BidLow,BidClose,AskOpen,...`, in any order."""
    named = {name.lower(): name for name in head.names}
    columns = {field: named.get(plain_name(field), "") for field in QUOTES}
    columns["time"] = head.find("datetime", "date")
    if not all(columns.values()):
        return None
    volume = head.find("volume", "tickqty")
    return FileLayout(
        "an FXCM file",
        columns | ({"volume": volume} if volume else {}),
        date_order="mdy",
        naive=True,
        usual=(
            UsualMeaning("FXCM's candle archive, by its readme", "UTC", "open"),
            UsualMeaning(
                "archives whose weeks begin at 17:00 in summer and winter",
                "America/New_York",
                "open",
            ),
        ),
    )


def is_half(text: str) -> bool:
    """Return whether a text is meant as a date without a time of day, or a time without a date.

    It is neither a whole stamp nor a number since 1970. What it says is the reader's business, who
    quotes what he cannot read.
    """
    stamp = form_of(text, "dmy") is not None and not is_date(text)
    return bool(text) and not stamp and not re.fullmatch(r"\d{9,}(?:\.\d*)?", text)


def date_and_time(head: FileHead) -> FileLayout | None:
    """Recognise separate columns `date` and `time`, of any vendor."""
    date, clock = head.find("date"), head.find("time")
    if not date or not clock:
        return None
    at, then = head.names.index(date), head.names.index(clock)
    if not fits(
        [[row[at], row[then]] for row in head.rows if max(at, then) < len(row)],
        is_half,
        lambda text: is_half(text) and not is_date(text),  # a time of day beside a date
    ):
        return None
    return FileLayout("bars with separate date and time columns", date=date, clock=clock)


def open_time(head: FileHead) -> FileLayout | None:
    """Recognise a column `open_time`, of any vendor."""
    name = head.find("opentime")
    return (
        FileLayout("bars with a column open_time", {"time": name}, stamp="open") if name else None
    )


VENDORS: tuple[Callable[[FileHead], FileLayout | None], ...] = (
    match_bracketed,
    headerless,
    databento,
    yfinance,
    binance,
    fxcm,
    date_and_time,
    open_time,
)


HEAD_BYTES = 1 << 16
HEAD_LINES = 30
SEPARATORS = (",", ";", "\t", "|")


def separator_of(line: str) -> str:
    """Return the separator that a line has most often."""
    return max(SEPARATORS, key=line.count)


def head_of(raw: bytes, file: str) -> FileHead:
    """Read the first lines of a text file."""
    text = raw[:HEAD_BYTES].decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(raw) > HEAD_BYTES and len(lines) > 1:
        lines.pop()  # it may be cut
    while lines and not lines[-1].strip():
        lines.pop()
    lines = lines[:HEAD_LINES] or [""]
    first, *others = (_cells(line, separator_of(lines[0])) for line in lines)
    return FileHead(first, others, file)


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(separator)]


def recognise(head: FileHead) -> FileLayout:
    """Return the layout of a file with this head. `PLAIN` if no vendor's layout fits."""
    return next((layout for vendor in VENDORS if (layout := vendor(head))), None) or _below(head)


def _below(head: FileHead) -> FileLayout:
    """Return the layout of a file whose header is its second line.

    `sep=;`, an address or a title stands before it. `PLAIN` for every other file.
    """
    rows, separator = head.rows if head.is_text else [], ""
    if rows and len(rows[0]) == 1:  # the first line has another separator
        separator = separator_of(rows[0][0])
        rows = [_cells(row[0], separator) for row in rows]
    names = rows[0] if rows else []
    if not set(BARS) <= {name.lower() for name in names} or set(BARS) <= {
        name.lower() for name in head.names
    }:
        return PLAIN
    found = recognise(FileHead(names, rows[1:], head.file))
    return replace(
        found,
        title="bars with a line before the header line" if found is PLAIN else found.title,
        names=found.names or tuple(names),
        header_lines=found.header_lines + 1,
        separator=found.separator or separator,
    )


class StatedKeys(NamedTuple):
    """The keys with which a file is read, as `load_bars` takes them."""

    columns: Mapping[str, str]
    time_zone: str | None
    stamp: Literal["open", "close"] | None
    price_scale: float
    date_order: Order | None
    spreads: Literal["refuse", "drop"] = "refuse"


def resolve_keys(layout: FileLayout, stated: StatedKeys) -> StatedKeys:
    """Resolve the keys of a file: what the user states, else what the layout defines.

    A zone is for stamps without offset.
    """
    return StatedKeys(
        {**layout.columns, **stated.columns},
        stated.time_zone or (layout.time_zone if layout.naive else None),
        stated.stamp or layout.stamp,
        stated.price_scale if stated.price_scale != 1.0 else layout.price_scale,
        stated.date_order or layout.date_order,
        stated.spreads,
    )


def find_missing_keys(layout: FileLayout, stated: StatedKeys) -> tuple[str, str] | None:
    """Return (problem, fix) of a file of which neither the layout nor the user states all keys."""
    known = resolve_keys(layout, stated)
    asked = ("time_zone", "stamp") if layout.naive else ("stamp",)
    missing = tuple(key for key in asked if not getattr(known, key))
    if missing and layout.usual:
        words = {
            "time_zone": "the time zone of its stamps",
            "stamp": "whether a stamp names a bar's open or its close",
        }
        first, *others = (
            usual for usual in layout.usual if all(getattr(usual, key) for key in missing)
        )
        fix = f"confirm what is usual for {first.whose}: {first.flags(missing)}"
        fix += "".join(f"; for {usual.whose}: {usual.flags(missing)}" for usual in others)
        return (
            f"read as {layout.title}; the file does not say {' nor '.join(words[key] for key in missing)}",
            f"{fix}; or state what you know. Python: {', '.join(f'{key}=...' for key in missing)}",
        )
    if "stamp" in missing:
        return (
            "it is not stated whether stamps name a bar's open or its close",
            "set data.stamp=open or data.stamp=close (stamp=... in Python)",
        )
    return None


def describe_layout(layout: FileLayout, stated: StatedKeys) -> list[str]:
    """Return the note that says how a file of a vendor's layout is read."""
    if layout is PLAIN:
        return []
    found, parts = resolve_keys(layout, stated), []
    if found.stamp:
        parts.append(f"stamps name a bar's {found.stamp}{_source(layout.stamp, stated.stamp)}")
    if zone := stated.time_zone or layout.time_zone:
        parts.append(f"in {zone}{_source(layout.time_zone, stated.time_zone)}")
    if found.price_scale != 1.0:
        scales = (
            scale if scale != 1.0 else None for scale in (layout.price_scale, stated.price_scale)
        )
        parts.append(f"prices in units of {found.price_scale:g}{_source(*scales)}")
    of = f" of {layout.symbol}" if layout.symbol else ""
    return [f"read as {layout.title}{of}" + (f": {', '.join(parts)}" if parts else "")]


def _source(defined: Any, stated: Any) -> str:
    """Say who states a value: the user, the format, or the user against the format."""
    if not stated:
        return ""
    against = defined not in (None, stated)
    return f" (as stated; the format says {defined})" if against else " (as stated)"
