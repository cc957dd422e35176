"""Files and frames as columns of text or numbers, with line numbers for error messages.

CSV cells stay text until they are checked, so that a message can quote a fault exactly as the file
has it. Text columns stay bytes where possible (`cells`): a Python string per cell would take most
of the time and memory of reading.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.data.formats.layout import Head, Layout
from jaxtrade.data.formats.recognise import head_of, recognise, separator_of
from jaxtrade.data.read.archive import Member, gunzip, is_zip, unzip
from jaxtrade.data.read.cells import Cells, decimals, labels
from jaxtrade.data.read.compose import add_stamps
from jaxtrade.data.read.lines import split_cells
from jaxtrade.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 2 << 30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD_ROWS = 20  # rows of a frame by which its layout is recognised


@dataclass
class Table:
    """Columns of one source, n rows each.

    columns: name -> pandas Series, or the cells of a text column in bytes. first_line: the line of
        data row 0; None if
    the source has no lines (Parquet, frames, several files in one archive). layout: the vendor's
    layout, if it is one that is recognised. twins: names of several columns, of which the first
    alone has that name here; none of them may be read.
    """

    source: str
    columns: dict[str, Any]
    first_line: int | None
    notes: list[str] = field(default_factory=list)
    layout: Layout | None = None
    twins: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def cells(self, name: str) -> Cells | None:
        """The column as cells in bytes. None if it does not hold text, or not in bytes."""
        column = self.columns[name]
        return column if isinstance(column, Cells) else None

    def cell(self, name: str, row: int) -> Any:
        """One cell as the source has it, for messages."""
        column = self.columns[name]
        return column.text(row) if isinstance(column, Cells) else column.iloc[row]

    def series(self, name: str, rows: np.ndarray | None = None) -> Any:
        """The column as a pandas Series, in the given rows or in all."""
        column = self.columns[name]
        if isinstance(column, Cells):
            return _texts(column.chosen(rows))
        return column if rows is None else column.iloc[rows]

    def numbers(self, name: str, rows: np.ndarray | None = None) -> np.ndarray:
        """The column as float64, in the given rows or in all. A cell that is not a plain number
        becomes NaN.
        """
        column = self.columns[name]
        if not isinstance(column, Cells):
            return as_numbers(column if rows is None else column.iloc[rows])
        chosen = column.chosen(rows)
        values, read = decimals(chosen)
        others = np.flatnonzero(~read)
        if len(others):
            values[others] = as_numbers(_texts(chosen.chosen(others)))
        return values

    def empty(self, name: str, rows: np.ndarray) -> np.ndarray:
        """bool[len(rows)]: where a cell is missing or has no text."""
        column = self.columns[name]
        if isinstance(column, Cells):
            texts, codes = labels(column.chosen(rows))
            return np.array([not text.strip() for text in texts], bool)[codes]
        cells = column.iloc[rows]
        return (cells.isna() | (cells.astype(str).str.strip() == "")).to_numpy(bool)


def _texts(cells: Cells) -> Any:
    """The cells as a pandas Series of text. Equal texts share one Python string."""
    import pandas as pd

    texts, codes = labels(cells)
    return pd.Series(np.array(texts, object)[codes], dtype=str)


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
    if is_zip(raw):
        raw, members = unzip(raw, str(file), MAX_BYTES)
        return _csv(raw, str(file), members)
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, str(file), MAX_BYTES)
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
    table = plain_table(raw, source, layout) or _table_by_lines(raw, source, layout)
    if layout is not None:
        table.columns |= add_stamps(table.columns, layout, members, source)
        table.layout = layout
    if len(members) > 1:
        table.first_line = None
    return table


def plain_table(raw: bytes, source: str, layout: Layout | None = None) -> Table | None:
    """The table of a CSV file whose lines all have the same plain form, with its columns as cells.

    layout: says what the header lines hold, if the first line is not simply one name per column.
        None for any other
    file, in particular for every file with a fault in its lines.
    """
    start = len(BYTE_ORDER_MARK) if raw.startswith(BYTE_ORDER_MARK) else 0
    stop, line = start - 1, b""
    for _ in range(1 if layout is None else layout.header_lines):
        begin, stop = stop + 1, raw.find(b"\n", stop + 1)
        line = raw[begin:stop].removesuffix(b"\r")
        if stop < 0 or not line.isascii() or len(line.splitlines()) != 1:
            return None
    if line and raw.find(b"\n" + line, stop) >= 0:  # perhaps the header line again
        return None
    if layout is None and line.lstrip()[:1] in (b"", b"<"):
        return None
    separator, header = _names(_first_line(raw[start:]), layout)
    if layout is None and _header_fault(line.decode(), header) is not None:
        return None
    cells = split_cells(raw, stop + 1, separator, len(header))
    if cells is None:
        return None
    first = (1 if layout is None else layout.header_lines) + 1
    table = Table(
        source, dict(zip(_unique(header), cells, strict=True)), first, twins=_twins(header)
    )
    return _noted(table, separator, raw[-1:] in (b"\n", b"\r"))


def _first_line(raw: bytes) -> str:
    return (
        raw[: raw.find(b"\n") if b"\n" in raw else len(raw)]
        .decode(errors="replace")
        .removesuffix("\r")
    )


def _table_by_lines(raw: bytes, source: str, layout: Layout | None = None) -> Table:
    """The table of any CSV file, read line by line. Raises DataError naming the first line that is
    wrong.
    """
    import pandas as pd

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: is not UTF-8 text (byte offset {error.start}). Fix: give CSV, CSV.gz or Parquet, "
            "saved as UTF-8"
        ) from None
    if layout is None and text.lstrip()[:1] == "<":
        raise DataError(
            f"{source}: looks like an HTML or XML page, not CSV. Fix: download the data file itself"
        )
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{source}: is empty. Fix: export the bars again")
    separator, header = _names(lines[0], layout)
    fault = _header_fault(lines[0], header) if layout is None else None
    if fault is not None:
        raise DataError(f"{source}:1: {fault}")
    top = 1 if layout is None else layout.header_lines
    _check_lines(lines, top, len(header), separator, source)
    names = _unique(header)
    frame = (
        pd.read_csv(
            io.StringIO("\n".join(lines[top:])),
            sep=separator,
            header=None,
            names=names,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            index_col=False,
        )
        if len(lines) > top
        else None
    )
    columns = {
        name: pd.Series([], dtype=str) if frame is None else frame[name].str.strip()
        for name in names
    }
    return _noted(
        Table(source, columns, top + 1, twins=_twins(header)),
        separator,
        text.endswith(("\n", "\r")),
    )


def _names(line: str, layout: Layout | None = None) -> tuple[str, list[str]]:
    """(separator, column names) of a file with this first line."""
    separator = (layout.separator if layout else None) or separator_of(line)
    if layout is not None and layout.names is not None:
        return separator, list(layout.names)
    return separator, [name.strip().strip('"') for name in line.split(separator)]


def _header_fault(line: str, header: list[str]) -> str | None:
    """What is wrong with the names of the first line, with the fix. None if it holds one name per
    column.
    """
    if len(header) == 1 or any(_is_number(name) for name in header):
        return (
            f"no header line of column names, found '{line[:60]}'. Fix: put the names on line 1, e.g. "
            "time,open,high,low,close,volume"
        )
    return None


def _twins(header: list[str]) -> frozenset[str]:
    return frozenset(name for name in header if header.count(name) > 1)


def _unique(header: list[str]) -> list[str]:
    """The names of columns, each once: a second column `line` is `line (column 8)`."""
    return [
        name if name and name not in header[:i] else f"{name} (column {i + 1})".lstrip()
        for i, name in enumerate(header)
    ]


def _noted(table: Table, separator: str, complete: bool) -> Table:
    """The table with notes on its form. complete: whether the last line has a line end."""
    if separator != ",":
        table.notes.append(f"fields are separated by {separator!r}")
    if not complete:
        table.notes.append("the last line has no line end: check that the file is not cut")
    return table


def _check_lines(lines: list[str], top: int, fields: int, separator: str, source: str) -> None:
    """Check that every line after the `top` header lines has as many fields as there are columns.

    Raises DataError naming the first line that does not.
    """
    for number, line in enumerate(lines[top:], start=top + 1):
        if top and line == lines[top - 1]:
            raise DataError(
                f"{source}:{number}: the header line again: '{line[:60]}'. Fix: remove it (joined files?)"
            )
        quotes = line.count('"')
        if quotes % 2:
            raise DataError(
                f"{source}:{number}: an unbalanced quote: '{line[:60]}'. Fix: remove it"
            )
        found = (
            len(next(csv.reader([line], delimiter=separator)))
            if quotes
            else line.count(separator) + 1
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{source}: reading Parquet needs pyarrow. Fix: pip install pyarrow (or install "
            "jaxtrade with its extra [parquet])"
        ) from None
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
        {name: _arrow_cells(column) or column for name, column in zip(names, series, strict=True)},
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


def _arrow_cells(series: Any) -> Cells | None:
    """The cells of a text column that pandas keeps in pyarrow's memory, without a copy of the text.

    None for any other column, and for one with missing cells.
    """
    if getattr(series.dtype, "storage", None) != "pyarrow" or not len(series) or series.hasnans:
        return None
    import pyarrow as pa

    array = (
        pa.chunked_array(series.array.__arrow_array__()).combine_chunks().cast(pa.large_string())
    )
    _, offsets, text = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    if text is None or not text.size:
        return None
    return Cells(np.frombuffer(text, np.uint8), places[:-1], places[1:], strip=False)


def as_numbers(series: Any) -> np.ndarray:
    """A column as float64. A cell that is not a plain number becomes NaN."""
    import pandas as pd

    numbers: Any = pd.to_numeric(series, errors="coerce")
    return numbers.to_numpy(np.float64, na_value=np.nan)
