"""Files and frames as columns of text or numbers, with line numbers for error messages.

CSV cells stay text until they are checked, so that a message can quote a fault exactly as the file
has it. pyarrow reads them, and pandas keeps them in pyarrow's memory: a Python string per cell
would take most of the time and memory of reading. What pyarrow does not say, or says without a
line, is found here line by line.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Collection, Mapping
from csv import reader
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.data.formats.recognise import (
    LEAN_NAME,
    Head,
    Layout,
    head_of,
    recognise,
    separator_of,
)
from jaxtrade.errors import DataError
from jaxtrade.storage.archives import unpacked

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Collects the faults of a data file, so that one short message shows them together.

LINES = 5  # faults listed in one message


def place_of(source: str, first_line: int | None, row: int) -> str:
    """The place of a data row, counted from 0: `file.csv:12`, or `frame: row 10 (0-based)` if the
    source has no lines.
    """
    return (
        f"{source}: row {row} (0-based)" if first_line is None else f"{source}:{row + first_line}"
    )


@dataclass
class Fault:
    """One kind of fault: the data rows that have it, what was found at the first of them, and the
    fix.

    rows: 0-based; empty if the fault concerns the whole source.
    """

    rows: set[int]
    column: str | None
    value: str | None
    problem: str
    fix: str

    @property
    def row(self) -> int:
        """The first row; -1 for the whole source."""
        return min(self.rows, default=-1)

    def text(self, source: str, first_line: int | None) -> str:
        """The fault as text: `source:line: column 'x' = 'value': problem. Fix: fix`.

        If the source has no lines, the text begins with `source: row n (0-based): ...`.
        """
        parts = [place_of(source, first_line, self.row) if self.rows else source]
        if self.column is not None:
            value = "" if self.value is None else f" = '{self.value[:60]}'"
            parts.append(f"column '{self.column}'{value}")
        more = len(self.rows) - 1
        like = f" (... and {more} more row{'s' if more > 1 else ''} like it)" if more > 0 else ""
        return f"{': '.join(parts)}: {self.problem}. Fix: {self.fix}{like}"


@dataclass
class Faults:
    """Collects the faults of one source. Faults with the same problem text are counted as one."""

    found: dict[str, Fault] = field(default_factory=dict)
    total: int = 0

    def add(
        self,
        problem: str,
        fix: str,
        rows: Collection[int] = (),
        column: str | None = None,
        value: object = None,
    ) -> None:
        """Record a fault in some data rows, or in the whole source. value: of the first row."""
        self.total += len(rows) or 1
        fault = Fault(set(rows), column, None if value is None else str(value), problem, fix)
        known = self.found.setdefault(problem, fault)
        rows = known.rows | fault.rows
        self.found[problem] = fault if fault.row < known.row else known
        self.found[problem].rows = rows

    def stop(self, source: str, first_line: int | None) -> None:
        """Raise DataError if any fault was recorded. The message lists at most LINES of them, and
        the exact total.

        first_line: the line of data row 0; None if the source has no lines (Parquet, a frame).
        """
        if not self.total:
            return
        found = sorted(self.found.values(), key=lambda fault: fault.row)
        lines = [fault.text(source, first_line) for fault in found]
        if self.total > len(lines) or len(lines) > LINES:
            hidden = len(lines) - (LINES - 1)
            kinds = (
                f", {hidden} more kind{'s' if hidden > 1 else ''} of them not shown"
                if hidden > 0
                else ""
            )
            lines = [*lines[: LINES - 1], f"{source}: {self.total} faults in all{kinds}"]
        raise DataError("\n".join(lines))


MAX_BYTES = 2 << 30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 1 << 22  # read at once; no line may be longer
DAY = 86_400_000  # milliseconds
HEAD_ROWS = 20  # rows of a frame by which its layout is recognised


@dataclass
class Table:
    """Columns of one source, n rows each.

    columns: name -> pandas Series. first_line: the line of data row 0; None if the source has no
        lines (Parquet, frames, several files in one archive). layout: the vendor's layout, if it is
        one that is recognised. twins: names of several columns, of which the first alone has that
        name here; none of them may be read. rows: int64[n], the chosen data rows; None for all.
        faults: what is wrong so far.
    """

    source: str
    columns: dict[str, Any]
    first_line: int | None
    notes: list[str] = field(default_factory=list)
    layout: Layout | None = None
    twins: frozenset[str] = frozenset()
    rows: np.ndarray | None = None
    faults: Faults = field(default_factory=Faults)

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def chosen(self, keep: np.ndarray) -> Table:
        """The table of some of its rows. keep: bool[n], or their places."""
        if keep.dtype == bool and keep.all():
            return self
        return replace(self, rows=self.row(np.arange(len(self))[keep]))

    def row(self, at: Any) -> Any:
        """The data rows that stand at places among the chosen ones."""
        return at if self.rows is None else self.rows[at]

    def place(self, at: int) -> str:
        """Where a row stands, for messages: `line 12`, or `row 10 (0-based)`."""
        row = int(self.row(at))
        return (
            f"row {row} (0-based)" if self.first_line is None else f"line {row + self.first_line}"
        )

    def cell(self, name: str, at: Any) -> Any:
        """One cell as the source has it, for messages."""
        return self.columns[name].iloc[self.row(at)]

    def series(self, name: str) -> Any:
        """The column as a pandas Series."""
        column = self.columns[name]
        return column if self.rows is None else column.iloc[self.rows]

    def numbers(self, name: str) -> np.ndarray:
        """The column as float64. A cell that is not a plain number becomes NaN."""
        return as_numbers(self.series(name))

    def texts(self, name: str) -> Any:
        """The column as a Series of text."""
        return self.series(name).astype(str)

    def empty(self, name: str) -> np.ndarray:
        """bool[n]: where a cell is missing or has no text."""
        return (self.series(name).isna() | (self.texts(name).str.strip() == "")).to_numpy(bool)

    def fault(self, problem: str, fix: str, name: str | None = None, at: Any = 0) -> None:
        """Record a fault of the source, or of the column `name`: in the rows where `at` is True
        (bool[n]), or in the row at a place.
        """
        if name is None:
            self.faults.add(problem, fix)
            return
        rows = self.row(np.flatnonzero(at) if isinstance(at, np.ndarray) else np.array([at]))
        if len(rows):
            value = self.columns[name].iloc[int(rows.min())]
            self.faults.add(problem, fix, rows.tolist(), name, value)

    def stop(self) -> None:
        """Raise DataError if any fault was recorded."""
        self.faults.stop(self.source, self.first_line)


def read_table(path: str | Path) -> Table:
    """Read a CSV, CSV.gz, zip or Parquet file. Raises DataError if it cannot be read completely."""
    file = Path(path)
    if file.is_dir():
        raise DataError(
            f"{file}: is a directory. Fix: name one CSV, CSV.gz, zip or Parquet file (a folder of LEAN's "
            f"daily zips becomes one file by: jaxtrade init {file})"
        )
    if not file.exists():
        raise DataError(f"{file}: no such file. Fix: check data.file (--data)")
    if not file.is_file():
        raise DataError(f"{file}: is not a regular file. Fix: name a CSV, CSV.gz or Parquet file")
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise DataError(
                f"{file}: {size} bytes, more than the {MAX_BYTES} that are read at once. Fix: split it"
            )
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror}. Fix: check the file's permissions"
        ) from None
    if not raw:
        raise DataError(f"{file}: is empty. Fix: export the bars again")
    if raw[:4] == b"PAR1":
        return _parquet(raw, str(file))
    if raw[:4] in (b"PK\x03\x04", b"PK\x05\x06"):  # the second one: without a file
        raw, members = unzip(raw, str(file))
        return _csv(raw, str(file), members)
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, str(file))
    return _csv(raw, str(file), (Member(file.name.removesuffix(".gz"), None),))


def _csv(raw: bytes, source: str, members: tuple[Member, ...]) -> Table:
    """members: the files whose lines `raw` holds, one after the other."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            raw = raw.decode("utf-16").encode()  # MetaTrader and Excel on Windows write it
        except UnicodeDecodeError as error:
            raise DataError(
                f"{source}: is damaged UTF-16 text (byte offset {error.start}). Fix: save it as UTF-8"
            ) from None
    if b"\x00" in raw:
        raise DataError(
            f"{source}: is not text (a NUL byte at offset {raw.index(0)}). Fix: give CSV, CSV.gz, zip or "
            "Parquet"
        )
    layout = recognise(head_of(raw, members[0].name))
    if len(members) > 1 and not (layout and layout.day):
        raise DataError(
            f"{source}: holds {len(members)} files ({members[0].name}, {members[1].name}, ...), and only "
            "LEAN's daily files are read together. Fix: extract the one that you need"
        )
    table = _text_table(raw.removeprefix(BYTE_ORDER_MARK), source, layout)
    if layout is not None:
        table.columns |= add_stamps(table.columns, layout, members, source)
        table.layout = layout
    if len(members) > 1:
        table.first_line = None
    return table


def _text_table(raw: bytes, source: str, layout: Layout | None) -> Table:
    """The table of a CSV file without byte order mark. Raises DataError naming the first line that
    is wrong.
    """
    try:
        if not raw.isascii():
            raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: is not UTF-8 text (byte offset {error.start}). Fix: give CSV, CSV.gz or Parquet, "
            "saved as UTF-8"
        ) from None
    if layout is None and raw.lstrip()[:1] == b"<":
        raise DataError(
            f"{source}: looks like an HTML or XML page, not CSV. Fix: download the data file itself"
        )
    stop = len(raw)
    while raw[stop - 1 : stop].isspace():
        stop -= 1
    if not stop:
        raise DataError(f"{source}: is empty. Fix: export the bars again")
    stop = min((at for end in b"\r\n" if (at := raw.find(end, stop)) >= 0), default=len(raw))
    first = raw[:BLOCK_BYTES].splitlines()[0].decode(errors="replace")
    separator = (layout.separator if layout else None) or separator_of(first)
    if layout is not None and layout.names is not None:
        header = list(layout.names)
    else:
        header = [name.strip().strip('"') for name in first.split(separator)]
    if layout is None and (len(header) == 1 or any(map(_is_number, header))):
        raise DataError(
            f"{source}:1: no header line of column names, found '{first[:60]}'. Fix: put the names on line 1, e.g. "
            "time,open,high,low,close,volume"
        )
    top = 1 if layout is None else layout.header_lines
    columns = _columns(raw, stop, top, separator, _unique(header), source)
    table = Table(source, columns, top + 1, twins=_twins(header))
    if separator != ",":
        table.notes.append(f"fields are separated by {separator!r}")
    if raw[-1:] not in (b"\n", b"\r"):
        table.notes.append("the last line has no line end: check that the file is not cut")
    return table


def _columns(
    raw: bytes, stop: int, top: int, separator: str, names: list[str], source: str
) -> dict[str, Any]:
    """Name -> the cells of the lines after the `top` header lines, without spaces around them.

    stop: where the last line ends.
    """
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv

    head = raw[: min(BLOCK_BYTES, stop)].splitlines(keepends=True)[:top]
    begin = sum(map(len, head))
    if begin >= stop:
        return {name: pd.Series([], dtype=str) for name in names}

    def check_lines() -> None:
        _check_lines(raw[:stop].splitlines(), top, len(names), separator, source)

    quoted = raw.find(b'"', begin, stop) >= 0
    if quoted:
        check_lines()
    try:
        cells = csv.read_csv(
            pa.py_buffer(raw).slice(begin, stop - begin),
            csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
            csv.ParseOptions(
                delimiter=separator,
                quote_char='"' if quoted else False,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        check_lines()
        raise DataError(
            f"{source}: cannot be read as CSV ({str(error).splitlines()[0]}). Fix: export it again"
        ) from None
    # The first cell of a blank line is empty, and that of the header line again is its first name.
    odd = ["", *(line.decode().split(separator)[0].strip() for line in head[-1:])]
    columns, cells = dict(zip(names, cells.columns, strict=True)), None
    for name, column in columns.items():  # one after the other, to hold one copy at a time
        columns[name] = pd.Series(pd.array(column, dtype="str")).str.strip()
    if columns[names[0]].isin(odd).any():
        check_lines()
    return columns


def _twins(header: list[str]) -> frozenset[str]:
    return frozenset(name for name in header if header.count(name) > 1)


def _unique(header: list[str]) -> list[str]:
    """The names of columns, each once: a second column `line` is `line (column 8)`."""
    return [
        name if name and name not in header[:i] else f"{name} (column {i + 1})".lstrip()
        for i, name in enumerate(header)
    ]


def _check_lines(lines: list[bytes], top: int, fields: int, separator: str, source: str) -> None:
    """Check that every line after the `top` header lines has as many fields as there are columns.

    Raises DataError naming the first line that does not.
    """
    for number, raw in enumerate(lines[top:], start=top + 1):
        line = raw.decode()
        if top and raw == lines[top - 1]:
            raise DataError(
                f"{source}:{number}: the header line again: '{line[:60]}'. Fix: remove it (joined files?)"
            )
        quotes = line.count('"')
        if quotes % 2:
            raise DataError(
                f"{source}:{number}: an unbalanced quote: '{line[:60]}'. Fix: remove it"
            )
        found = (
            len(next(reader([line], delimiter=separator))) if quotes else line.count(separator) + 1
        )
        if found != fields:
            where = "the header has" if top else "line 1 has"
            raise DataError(
                f"{source}:{number}: {found} fields where {where} {fields}: '{line[:60]}'. "
                f"Fix: the line is cut, blank or has a stray '{separator}'; export again"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(raw: bytes, source: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frame = pq.read_table(pa.BufferReader(raw)).to_pandas(split_blocks=True, self_destruct=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{source}: cannot be read as Parquet ({str(error).splitlines()[0]}). Fix: the file is cut or "
            "damaged; write it again"
        ) from None
    return table_of_frame(frame, source)


def table_of_frame(frame: pd.DataFrame, source: str) -> Table:
    """Convert a pandas frame to a Table. A named or datetime index becomes a column. A second level
    of column names that holds one ticker, as yfinance gives it, is left out.

    Raises DataError for several tickers.
    """
    import pandas as pd

    if isinstance(frame.columns, pd.MultiIndex):
        frame = _one_ticker(frame, source)
    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index(names=frame.index.name or "time")
    header = [str(name) for name in frame.columns]
    names = _unique(header)
    series = (frame.iloc[:, i].reset_index(drop=True) for i in range(len(names)))
    table = Table(
        source,
        dict(zip(names, series, strict=True)),
        None,
        twins=_twins(header),
    )
    rows = [
        [str(table.cell(name, row)) for name in names] for row in range(min(len(frame), HEAD_ROWS))
    ]
    table.layout = recognise(Head(names, rows, source, is_text=False)) if names else None
    if table.layout is not None:
        table.columns |= add_stamps(table.columns, table.layout, (), source)
    return table


def _one_ticker(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """The frame with its first level of price names alone."""
    levels = [frame.columns.get_level_values(i) for i in range(frame.columns.nlevels)]
    prices = next(
        (level for level in levels if {"open", "close"} <= {str(name).lower() for name in level}),
        levels[0],
    )
    others = sorted({str(name) for level in levels if level is not prices for name in level} - {""})
    if len(others) > 1:
        raise DataError(
            f"{source}: holds {len(others)} tickers: {', '.join(others[:6])}. Fix: choose one, e.g. "
            f"frame.xs({others[0]!r}, axis=1, level=1) (level=0 after group_by='ticker')"
        )
    return frame.set_axis(prices, axis=1)


def is_text(series: Any) -> bool:
    """Whether pandas keeps the column as text in pyarrow's memory."""
    return getattr(series.dtype, "storage", None) == "pyarrow"


def texts_of(series: Any) -> pa.ChunkedArray:
    """The cells of a column as text, without a copy where pandas keeps them in pyarrow's memory."""
    import pyarrow as pa

    if is_text(series) and not series.hasnans:
        return pa.chunked_array(series.array.__arrow_array__())
    return pa.chunked_array([[str(cell) for cell in series]], pa.large_string())


def as_numbers(series: Any) -> np.ndarray:
    """A column as float64. A cell that is not a plain number becomes NaN."""
    import pandas as pd
    import pyarrow as pa

    if is_text(series):
        try:
            return texts_of(series).cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:  # a cell is no number, or one in a form that pandas alone reads
            series = series.astype(object)
    numbers: Any = pd.to_numeric(series, errors="coerce")
    return numbers.to_numpy(np.float64, na_value=np.nan)


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
    day, clock = (columns[name].astype(str) for name in (layout.date, layout.clock))
    return {stamp_column(layout): (day + " " + clock).astype(str)}


def stamp_column(layout: Layout) -> str:
    """The name of the column of whole stamps, if they are made of several columns."""
    return "time" if layout.day else f"{layout.date} {layout.clock}"


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
    milliseconds = np.nan_to_num(as_numbers(clock), nan=DAY, posinf=DAY).astype(np.int64)
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


SUFFIXES = (".csv", ".txt")


class Member(NamedTuple):
    """One text file. name: without folders. rows: its lines; None if it is the whole source."""

    name: str
    rows: int | None


def unzip(raw: bytes, source: str) -> tuple[bytes, tuple[Member, ...]]:
    """(the lines of all text files in the order of their names, the files). Raises DataError if
    there is none, if the archive is damaged, or if it unpacks to more than MAX_BYTES."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            infos = sorted(
                (
                    info
                    for info in archive.infolist()
                    if info.filename.lower().endswith(SUFFIXES)
                    and not info.filename.startswith("__MACOSX")
                ),
                key=lambda info: PurePosixPath(info.filename).name,
            )
            if sum(info.file_size for info in infos) > MAX_BYTES:
                raise DataError(f"{source}: unpacks to more than {MAX_BYTES} bytes. Fix: split it")
            texts = [unpacked(archive, info).rstrip(b"\r\n") for info in infos]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{source}: the zip archive is damaged, encrypted or of an unknown kind ({error}). Fix: copy "
            "or download it again, or extract its CSV file"
        ) from None
    if not infos:
        raise DataError(
            f"{source}: the zip archive holds no .csv or .txt file. Fix: give the file with the bars"
        )
    members = tuple(
        Member(PurePosixPath(info.filename).name, text.count(b"\n") + 1 if len(infos) > 1 else None)
        for info, text in zip(infos, texts, strict=True)
        if text
    )
    if not members:
        raise DataError(
            f"{source}: the files in the zip archive are empty. Fix: export the bars again"
        )
    return b"\n".join(text for text in texts if text) + b"\n", members


def gunzip(raw: bytes, source: str) -> bytes:
    """The unpacked bytes. Raises DataError if they are damaged, or more than MAX_BYTES."""
    out = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            while block := stream.read(1 << 20):
                out.write(block)
                if out.tell() > MAX_BYTES:
                    raise DataError(
                        f"{source}: unpacks to more than {MAX_BYTES} bytes. Fix: split it"
                    )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{source}: the gzip data are cut or damaged after {out.tell()} unpacked bytes ({error}). "
            "Fix: copy or download the file again; the part that still unpacks is not used"
        ) from None
    return out.getvalue()


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
