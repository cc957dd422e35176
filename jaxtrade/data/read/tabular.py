"""Files and frames as an Arrow table with the places of its rows, for error messages.

CSV cells stay text until they are checked, so that a message can quote a fault exactly as the file
has it. They stay in Arrow's memory: a Python string per cell would take most of the time and
memory of reading. What pyarrow does not say, or says without a line, is found here line by line.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from csv import reader
from dataclasses import dataclass, field, replace
from datetime import date
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.data.bars import place_of
from jaxtrade.data.formats.recognise import (
    LEAN_NAME,
    PLAIN,
    FileHead,
    FileLayout,
    head_of,
    recognise,
    separator_of,
)
from jaxtrade.errors import DataError
from jaxtrade.storage.archives import unpack

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LINES = 5  # faults listed in one message
MAX_BYTES = 2 << 30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 1 << 22  # read at once; no line may be longer
DAY = 86_400_000  # milliseconds
HEAD_ROWS = 20  # rows of a frame by which its layout is recognised


class Fault(NamedTuple):
    """What is wrong in some rows of a source, and the fix.

    rows: int32[k], data rows counted from 0; none if the fault concerns the whole source.
    where: the column and what it has in the first of these rows, for messages.
    """

    problem: str
    fix: str
    rows: np.ndarray = np.zeros(0, np.int32)
    where: str = ""

    @property
    def row(self) -> int:
        """The first row; -1 for the whole source."""
        return int(self.rows.min()) if len(self.rows) else -1


@dataclass(frozen=True)
class Table:
    """The columns of one source, n rows each.

    rows: int32[n], the data row of each.
    first_line: the line of data row 0; 0 if the source has no lines (Parquet, frames, several files
        in one archive).
    layout: the vendor's layout, or `PLAIN`.
    twins: names of several columns, of which the first alone has that name here; none of them may
        be read.
    notes: what was found while reading.
    faults: of the cells, as they are found; all tables of a source share them, so that one error
        lists them all (`check`).
    """

    source: str
    data: pa.Table
    rows: np.ndarray
    first_line: int = 0
    layout: FileLayout = PLAIN
    twins: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    faults: list[Fault] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.data.column_names

    def select(self, keep: np.ndarray) -> Table:
        """Select some rows of the table.

        keep: bool[n], or their places.
        """
        if keep.dtype == bool and keep.all():
            return self
        places = np.arange(len(self))[keep]
        return replace(self, data=self.data.take(places), rows=self.rows[places])

    def place(self, at: int) -> str:
        """Return where a row stands, for messages: `line 12`, or `row 10 (0-based)`."""
        row = int(self.rows[at])
        return f"line {row + self.first_line}" if self.first_line else f"row {row} (0-based)"

    def series(self, name: str, at: slice = slice(None)) -> Any:
        """Return the column, or some of its rows, as a pandas Series."""
        return self.data.column(name)[at].to_pandas()

    def cell(self, name: str, at: int) -> Any:
        """Return one cell as the source has it, for messages."""
        return self.series(name, slice(at, at + 1)).iloc[0]

    def numbers(self, name: str) -> np.ndarray:
        """Return the column as float64. A cell that is not a plain number becomes NaN."""
        return as_numbers(self.data.column(name))

    def texts(self, name: str) -> Any:
        """Return the column as a pandas Series of text."""
        return self.series(name).astype(str)

    def empty(self, name: str) -> np.ndarray:
        """Return where a cell is missing or has no text (bool[n])."""
        return (self.series(name).isna() | (self.texts(name) == "")).to_numpy(bool)

    def fault(self, problem: str, fix: str, name: str = "", at: Any = 0) -> None:
        """Add the fault of the source, or of the column `name`.

        It is in the rows where `at` is True (bool[n]), or in the row at a place. Nothing is added
        if there is no such row.
        """
        if not name:
            self.faults.append(Fault(problem, fix))
            return
        places = np.flatnonzero(at) if isinstance(at, np.ndarray) else np.array([at])
        if len(places):
            where = f"column '{name}' = '{str(self.cell(name, int(places[0])))[:60]}'"
            self.faults.append(Fault(problem, fix, self.rows[places], where))

    def refusal(self, problem: str, fix: str, name: str = "", at: Any = 0) -> DataError:
        """Make the error of one fault, with which nothing more can be read."""
        self.faults.clear()
        self.fault(problem, fix, name, at)
        return self.error()

    def check(self) -> None:
        """Raise DataError if there is any fault."""
        if self.faults:
            raise self.error()

    def error(self) -> DataError:
        """Make the error of the faults.

        Its message lists at most LINES kinds of them in the order of their first rows, each
        `source:line: column 'x' = 'value': problem. Fix: fix`, and says how many there are.
        """
        total, kinds = 0, dict[str, list[Fault]]()
        for fault in self.faults:
            total += len(fault.rows) or 1
            kinds.setdefault(fault.problem, []).append(fault)
        alike = sorted(kinds.values(), key=lambda same: min(fault.row for fault in same))
        lines = [self._line(same) for same in alike]
        if total > len(lines) or len(lines) > LINES:
            hidden = len(lines) - (LINES - 1)
            more = f", {hidden} more kind{'s' if hidden > 1 else ''} of them not shown"
            count = f"{self.source}: {total} faults in all" + (more if hidden > 0 else "")
            lines = [*lines[: LINES - 1], count]
        return DataError("\n".join(lines))

    def _line(self, same: list[Fault]) -> str:
        """Format faults of one problem, at the first row of them all."""
        first = min(same, key=lambda fault: fault.row)
        parts = [
            self.source if first.row < 0 else place_of(self.source, self.first_line, first.row),
            *([first.where] if first.where else []),
            f"{first.problem}. Fix: {first.fix}",
        ]
        more = len(np.unique(np.concatenate([fault.rows for fault in same]))) - 1
        like = f" (... and {more} more row{'s' if more > 1 else ''} like it)" if more > 0 else ""
        return ": ".join(parts) + like


def read_table(path: str | Path) -> Table:
    """Read a CSV, CSV.gz, zip or Parquet file.

    Raises DataError if it cannot be read completely.
    """
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
        return table_of_frame(_parquet(raw, str(file)), str(file))
    if raw[:4] in (b"PK\x03\x04", b"PK\x05\x06"):  # the second one: without a file
        raw, members = unzip(raw, str(file))
        return _csv(raw, str(file), members)
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, str(file))
    return _csv(raw, str(file), (TextFile(file.name.removesuffix(".gz")),))


def _csv(raw: bytes, source: str, members: tuple[TextFile, ...]) -> Table:
    """Read a CSV file, or several.

    members: the files whose lines `raw` holds, one after the other.
    """
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
    if len(members) > 1 and not layout.day:
        raise DataError(
            f"{source}: holds {len(members)} files ({members[0].name}, {members[1].name}, ...), and only "
            "LEAN's daily files are read together. Fix: extract the one that you need"
        )
    table = _text_table(raw.removeprefix(BYTE_ORDER_MARK), source, layout)
    data = _with_stamps(table.data, layout, members, source)
    return replace(table, data=data, first_line=0 if len(members) > 1 else table.first_line)


def _text_table(raw: bytes, source: str, layout: FileLayout) -> Table:
    """Read the table of a CSV file without byte order mark.

    Raises DataError naming the first line that is wrong.
    """
    try:
        if not raw.isascii():
            raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: is not UTF-8 text (byte offset {error.start}). Fix: give CSV, CSV.gz or Parquet, "
            "saved as UTF-8"
        ) from None
    if layout is PLAIN and raw.lstrip()[:1] == b"<":
        raise DataError(
            f"{source}: looks like an HTML or XML page, not CSV. Fix: download the data file itself"
        )
    stop = len(raw)
    while stop and raw[stop - 1] in b" \t\r\n":
        stop -= 1
    if not stop:
        raise DataError(f"{source}: is empty. Fix: export the bars again")
    stop = min((at for end in b"\r\n" if (at := raw.find(end, stop)) >= 0), default=len(raw))
    first = raw[:BLOCK_BYTES].splitlines()[0].decode(errors="replace")
    separator = layout.separator or separator_of(first)
    header = list(layout.names) or [name.strip().strip('"') for name in first.split(separator)]
    if layout is PLAIN and (len(header) == 1 or any(map(_is_number, header))):
        raise DataError(
            f"{source}:1: no header line of column names, found '{first[:60]}'. Fix: put the names on line 1, e.g. "
            "time,open,high,low,close,volume"
        )
    top, notes = layout.header_lines, []
    if separator != ",":
        notes.append(f"fields are separated by {separator!r}")
    if raw[-1:] not in (b"\n", b"\r"):
        notes.append("the last line has no line end: check that the file is not cut")
    data = _cells(raw, stop, top, separator, _unique(header), source)
    return Table(
        source,
        data,
        np.arange(data.num_rows, dtype=np.int32),
        top + 1,
        layout,
        _twins(header),
        tuple(notes),
    )


def _cells(
    raw: bytes, stop: int, top: int, separator: str, names: list[str], source: str
) -> pa.Table:
    """Read the cells of the lines after the `top` header lines, as text without spaces around it.

    stop: where the last line ends.
    """
    import pyarrow as pa
    from pyarrow import csv

    head = raw[: min(BLOCK_BYTES, stop)].splitlines(keepends=True)[:top]
    begin = sum(map(len, head))
    text = pa.large_string()
    if begin >= stop:
        return pa.table({name: pa.array([], text) for name in names})

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
            csv.ConvertOptions(column_types=dict.fromkeys(names, text), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        check_lines()
        raise DataError(
            f"{source}: cannot be read as CSV ({str(error).splitlines()[0]}). Fix: export it again"
        ) from None
    columns, cells = dict(zip(names, cells.columns, strict=True)), None
    for name, column in columns.items():  # one after the other, to hold one copy at a time
        columns[name] = _strip(column)
    # The first cell of a blank line is empty, and that of the header line again is its first name.
    odd = ["", *(line.decode().split(separator)[0].strip() for line in head[-1:])]
    if columns[names[0]].to_pandas().isin(odd).any():
        check_lines()
    return pa.table(columns)


def _strip(column: Any) -> Any:
    """Strip the spaces around the cells of a column of text; return any other column as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return (
        pc.call_function("utf8_trim_whitespace", [column.cast(pa.large_string())])
        if text
        else column
    )


def _twins(header: list[str]) -> frozenset[str]:
    return frozenset(name for name in header if name and header.count(name) > 1)


def _unique(header: list[str]) -> list[str]:
    """Return the names of columns, each once: a second column `line` is `line (column 8)`."""
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


def _parquet(raw: bytes, source: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(raw)).to_pandas(split_blocks=True, self_destruct=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{source}: cannot be read as Parquet ({str(error).splitlines()[0]}). Fix: the file is cut or "
            "damaged; write it again"
        ) from None


def table_of_frame(frame: pd.DataFrame, source: str) -> Table:
    """Convert a pandas frame to a Table.

    A named or datetime index becomes a column. A second level of column names that holds one
    ticker, as yfinance gives it, is left out. Raises DataError for several tickers.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(frame.columns, pd.MultiIndex):
        frame = _one_ticker(frame, source)
    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index(names=frame.index.name or "time")
    header = [str(name) for name in frame.columns]
    names = _unique(header)
    data = pa.table({name: _arrow(frame.iloc[:, i]) for i, name in enumerate(names)})
    table = Table(source, data, np.arange(len(frame), dtype=np.int32), twins=_twins(header))
    rows = range(min(len(frame), HEAD_ROWS))
    cells = [[str(table.cell(name, row)) for name in names] for row in rows]
    layout = recognise(FileHead(names, cells, source, is_text=False))
    return replace(table, layout=layout, data=_with_stamps(data, layout, (), source))


def _arrow(column: Any) -> Any:
    """Convert a column of a frame to Arrow's memory.

    Cells of objects, and those that Arrow has no type for, become text.
    """
    import pandas as pd
    import pyarrow as pa

    if column.dtype.kind != "O" or isinstance(column.dtype, pd.StringDtype):
        with suppress(pa.ArrowException):
            return _strip(pa.chunked_array(pa.Array.from_pandas(column)))
    cells = [None if pd.isna(cell) else str(cell) for cell in column]
    return _strip(pa.chunked_array([cells], pa.large_string()))


def _one_ticker(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the frame with its first level of price names alone."""
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


def as_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Convert a column to float64. A cell that is not a plain number becomes NaN."""
    import pandas as pd
    import pyarrow as pa

    try:
        return column.cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # a cell is no number, or one in a form that pandas alone reads
        numbers: Any = pd.to_numeric(column.to_pandas().astype(object), errors="coerce")
        return numbers.to_numpy(np.float64, na_value=np.nan)


def stamp_column(layout: FileLayout) -> str:
    """Return the name of the column of whole stamps, if they are made of several columns."""
    return "time" if layout.day else f"{layout.date} {layout.clock}"


def _with_stamps(
    data: pa.Table, layout: FileLayout, members: tuple[TextFile, ...], source: str
) -> pa.Table:
    """Add the columns that a layout's stamps need and the file lacks; none for most layouts.

    Raises DataError if the files' names lack the date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if layout.day:
        made = _add_dates(data.column(layout.clock), layout, members, source)
    elif layout.date and layout.clock:
        parts = [data.column(name).cast(pa.large_string()) for name in (layout.date, layout.clock)]
        parts.append(pa.scalar(" ", pa.large_string()))
        made = {stamp_column(layout): pc.call_function("binary_join_element_wise", parts)}
    else:
        made = {}
    columns = dict(zip(data.column_names, data.columns, strict=True))
    return pa.table(columns | made)


def _add_dates(
    clock: pa.ChunkedArray, layout: FileLayout, members: tuple[TextFile, ...], source: str
) -> dict[str, Any]:
    """Compute stamps from milliseconds since midnight and the dates in the names of the files.

    The names give the expiries, too.
    """
    matches = []
    for member in members:
        if not (match := LEAN_NAME.fullmatch(member.name)):
            raise DataError(
                f"{source}: read as {layout.title}, whose stamps are milliseconds since midnight, but the "
                f"name '{member.name}' holds no date. Fix: name it as LEAN does, e.g. "
                "20131007_spy_minute_trade.csv"
            )
        matches.append(match)
    for part in ("symbol", "kind"):
        found = sorted({match[part] for match in matches})
        if len(found) > 1:
            raise DataError(
                f"{source}: holds files of {' and '.join(found)}. Fix: give files of one"
            )
    rows = [member.rows or len(clock) for member in members]
    days = np.repeat([_day(match["day"], source) for match in matches], rows)
    milliseconds = np.nan_to_num(as_numbers(clock), nan=DAY, posinf=DAY).astype(np.int64)
    late = np.flatnonzero(milliseconds >= DAY)
    if len(late):
        raise DataError(
            f"{source}: row {late[0]} (0-based): column '{layout.clock}': not milliseconds since midnight "
            f"(0 to {DAY - 1}). Fix: export the day again"
        )
    made = {stamp_column(layout): (days * DAY + milliseconds).astype("datetime64[ms]")}
    if all(match["expiry"] for match in matches):
        made["expiry"] = np.repeat([match["expiry"] for match in matches], rows)
    return made


def _day(text: str, source: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise DataError(
            f"{source}: '{text}' in a file's name is no date. Fix: name it as LEAN does, YYYYMMDD first"
        ) from None


SUFFIXES = (".csv", ".txt")


class TextFile(NamedTuple):
    """One text file.

    name: without folders.
    rows: its lines; 0 if it is the whole source.
    """

    name: str
    rows: int = 0


def _texts(
    file: Path | io.BytesIO, source: str, wanted: Callable[[str], object], most: int = MAX_BYTES
) -> list[tuple[str, bytes]]:
    """Return (name without folders, content) of the wanted files of a zip archive, by name.

    Raises DataError if the archive is damaged, or if they unpack to more than `most` bytes.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if wanted(info.filename)]
            if sum(info.file_size for info in infos) > most:
                raise DataError(f"{source}: unpacks to more than {most} bytes. Fix: split it")
            found = [(PurePosixPath(info.filename).name, unpack(archive, info)) for info in infos]
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        raise DataError(
            f"{source}: the zip archive is damaged, encrypted or of an unknown kind ({error}). Fix: copy "
            "or download it again, or extract its CSV file"
        ) from None
    return sorted(found, key=itemgetter(0))


def _is_text(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith("__MACOSX")


def unzip(raw: bytes, source: str) -> tuple[bytes, tuple[TextFile, ...]]:
    """Return (the lines of all text files in the order of their names, the files).

    Raises DataError if there is none, if the archive is damaged, or if it unpacks to more
    than MAX_BYTES.
    """
    texts = [
        (name, text.rstrip(b"\r\n")) for name, text in _texts(io.BytesIO(raw), source, _is_text)
    ]
    if not texts:
        raise DataError(
            f"{source}: the zip archive holds no .csv or .txt file. Fix: give the file with the bars"
        )
    members = tuple(
        TextFile(name, text.count(b"\n") + 1 if len(texts) > 1 else 0)
        for name, text in texts
        if text
    )
    if not members:
        raise DataError(
            f"{source}: the files in the zip archive are empty. Fix: export the bars again"
        )
    return b"\n".join(text for _, text in texts if text) + b"\n", members


def gunzip(raw: bytes, source: str) -> bytes:
    """Return the unpacked bytes. Raises DataError if they are damaged, or more than MAX_BYTES."""
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
    """Return (a zip of the daily files in a folder's zips, their number).

    Takes trades if there are any, otherwise quotes. Raises DataError if the folder holds no daily
    file of LEAN, or a damaged one.
    """
    days: dict[str, dict[str, bytes]] = {"trade": {}, "quote": {}}
    for path in sorted(folder.glob("*.zip")):
        for name, text in _texts(path, str(path), LEAN_NAME.fullmatch, MOST_BYTES):
            if named := LEAN_NAME.fullmatch(name):
                days[named["kind"]][name] = text
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
