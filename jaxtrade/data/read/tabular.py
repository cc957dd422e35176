"""Files and frames as columns of text or numbers, with line numbers for error messages.

CSV cells stay text until they are checked, so that a message can quote a fault exactly as the file has it. Text columns
stay bytes where possible (`cells`): a Python string per cell would take most of the time and memory of reading.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.data.read.cells import Cells, decimals, labels
from jaxtrade.data.read.lines import split_cells
from jaxtrade.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 2 << 30
SEPARATORS = (",", ";", "\t", "|")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class Table:
    """Columns of one source, n rows each.

    columns: name -> pandas Series, or the cells of a text column in bytes. first_line: the line of data row 0; None if
    the source has no lines (Parquet, frames).
    """

    source: str
    columns: dict[str, Any]
    first_line: int | None
    notes: list[str] = field(default_factory=list)

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
        """The column as float64, in the given rows or in all. A cell that is not a plain number becomes NaN."""
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
    """Read a CSV, CSV.gz or Parquet file. Raises DataError if it cannot be read completely."""
    file = Path(path)
    if file.is_dir():
        raise DataError(f"{file}: is a directory. Fix: name one CSV, CSV.gz or Parquet file")
    if not file.exists():
        raise DataError(f"{file}: no such file. Fix: check data.file (--data)")
    if not file.is_file():
        raise DataError(f"{file}: is not a regular file. Fix: name a CSV, CSV.gz or Parquet file")
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise DataError(f"{file}: {size} bytes, more than the {MAX_BYTES} that are read at once. Fix: split it")
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}. Fix: check the file's permissions") from None
    if not raw:
        raise DataError(f"{file}: is empty. Fix: export the bars again")
    if raw[:4] == b"PAR1":
        return _parquet(raw, str(file))
    if raw[:2] == b"\x1f\x8b":
        raw = _gunzip(raw, str(file))
    return _csv(raw, str(file))


def _gunzip(raw: bytes, source: str) -> bytes:
    out = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            while block := stream.read(1 << 20):
                out.write(block)
                if out.tell() > MAX_BYTES:
                    raise DataError(f"{source}: unpacks to more than {MAX_BYTES} bytes. Fix: split it")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{source}: the gzip data are cut or damaged after {out.tell()} unpacked bytes ({error}). "
                        "Fix: copy or download the file again; the part that still unpacks is not used") from None
    return out.getvalue()


def _csv(raw: bytes, source: str) -> Table:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{source}: is UTF-16 text. Fix: save it as UTF-8")
    if b"\x00" in raw:
        raise DataError(f"{source}: is not text (a NUL byte at offset {raw.index(0)}). Fix: give CSV, CSV.gz or "
                        "Parquet")
    return plain_table(raw, source) or _table_by_lines(raw, source)


def plain_table(raw: bytes, source: str) -> Table | None:
    """The table of a CSV file whose lines all have the same plain form, with its columns as cells.

    None for any other file, in particular for every file with a fault in its lines.
    """
    start = len(BYTE_ORDER_MARK) if raw.startswith(BYTE_ORDER_MARK) else 0
    stop = raw.find(b"\n", start)
    line = raw[start:stop].removesuffix(b"\r")
    if stop < 0 or not line.isascii() or len(line.splitlines()) != 1 or line.lstrip()[:1] in (b"", b"<"):
        return None
    if raw.find(b"\n" + line, stop) >= 0:  # perhaps the header line again
        return None
    separator, header = _names(line.decode())
    if _header_fault(line.decode(), header) is not None:
        return None
    cells = split_cells(raw, stop + 1, separator, len(header))
    if cells is None:
        return None
    return _noted(Table(source, dict(zip(header, cells, strict=True)), 2), separator, raw[-1:] in (b"\n", b"\r"))


def _table_by_lines(raw: bytes, source: str) -> Table:
    """The table of any CSV file, read line by line. Raises DataError naming the first line that is wrong."""
    import pandas as pd

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: is not UTF-8 text (byte offset {error.start}). Fix: give CSV, CSV.gz or Parquet, "
                        "saved as UTF-8") from None
    if text.lstrip()[:1] == "<":
        raise DataError(f"{source}: looks like an HTML or XML page, not CSV. Fix: download the data file itself")
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{source}: is empty. Fix: export the bars again")
    separator, header = _names(lines[0])
    fault = _header_fault(lines[0], header)
    if fault is not None:
        raise DataError(f"{source}:1: {fault}")
    _check_lines(lines, separator, source)
    frame = pd.read_csv(io.StringIO("\n".join(lines[1:])), sep=separator, header=None, names=header, dtype=str,
                        keep_default_na=False, skip_blank_lines=False, index_col=False) if len(lines) > 1 else None
    columns = {name: pd.Series([], dtype=str) if frame is None else frame[name].str.strip() for name in header}
    return _noted(Table(source, columns, 2), separator, text.endswith(("\n", "\r")))


def _names(line: str) -> tuple[str, list[str]]:
    """(separator, column names) of the first line."""
    separator = max(SEPARATORS, key=line.count)
    return separator, [name.strip().strip('"') for name in line.split(separator)]


def _header_fault(line: str, header: list[str]) -> str | None:
    """What is wrong with the names of the first line, with the fix. None if it holds one name per column."""
    if len(header) == 1 or any(_is_number(name) for name in header):
        return (f"no header line of column names, found '{line[:60]}'. Fix: put the names on line 1, e.g. "
                "time,open,high,low,close,volume")
    twins = sorted({name for name in header if header.count(name) > 1})
    return f"column '{twins[0]}' appears twice. Fix: keep one" if twins else None


def _noted(table: Table, separator: str, complete: bool) -> Table:
    """The table with notes on its form. complete: whether the last line has a line end."""
    if separator != ",":
        table.notes.append(f"fields are separated by {separator!r}")
    if not complete:
        table.notes.append("the last line has no line end: check that the file is not cut")
    return table


def _check_lines(lines: list[str], separator: str, source: str) -> None:
    """Check that every line has as many fields as the header. Raises DataError naming the first line that does not."""
    fields = lines[0].count(separator) + 1
    for number, line in enumerate(lines[1:], start=2):
        if line == lines[0]:
            raise DataError(f"{source}:{number}: the header line again: '{line[:60]}'. Fix: remove it (joined files?)")
        quotes = line.count('"')
        if quotes % 2:
            raise DataError(f"{source}:{number}: an unbalanced quote: '{line[:60]}'. Fix: remove it")
        found = len(next(csv.reader([line], delimiter=separator))) if quotes else line.count(separator) + 1
        if found != fields:
            raise DataError(f"{source}:{number}: {found} fields where the header has {fields}: '{line[:60]}'. "
                            f"Fix: the line is cut, blank or has a stray '{separator}'; export again")


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
        raise DataError(f"{source}: reading Parquet needs pyarrow. Fix: pip install pyarrow (or install "
                        "jaxtrade with its extra [parquet])") from None
    try:
        frame = pq.read_table(pa.BufferReader(raw)).to_pandas(split_blocks=True, self_destruct=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: cannot be read as Parquet ({str(error).splitlines()[0]}). Fix: the file is cut or "
                        "damaged; write it again") from None
    return table_of_frame(frame, source)


def table_of_frame(frame: pd.DataFrame, source: str) -> Table:
    """Convert a pandas frame to a Table. A named or datetime index becomes a column.

    Raises DataError for repeated column names.
    """
    import pandas as pd

    if frame.index.name is not None or isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index(names=frame.index.name or "time")
    names = [str(name) for name in frame.columns]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise DataError(f"{source}: column '{twins[0]}' appears twice. Fix: keep one")
    series = (frame.iloc[:, i].reset_index(drop=True) for i in range(len(names)))
    return Table(source, {name: _arrow_cells(column) or column for name, column in zip(names, series, strict=True)},
                 None)


def _arrow_cells(series: Any) -> Cells | None:
    """The cells of a text column that pandas keeps in pyarrow's memory, without a copy of the text.

    None for any other column, and for one with missing cells.
    """
    if getattr(series.dtype, "storage", None) != "pyarrow" or not len(series) or series.hasnans:
        return None
    import pyarrow as pa

    array = pa.chunked_array(series.array.__arrow_array__()).combine_chunks().cast(pa.large_string())
    _, offsets, text = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset:array.offset + len(array) + 1]
    if text is None or not text.size:
        return None
    return Cells(np.frombuffer(text, np.uint8), places[:-1], places[1:], strip=False)


def as_numbers(series: Any) -> np.ndarray:
    """A column as float64. A cell that is not a plain number becomes NaN."""
    import pandas as pd

    numbers: Any = pd.to_numeric(series, errors="coerce")
    return numbers.to_numpy(np.float64, na_value=np.nan)
