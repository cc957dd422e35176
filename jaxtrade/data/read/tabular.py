"""Files and frames as columns of text or numbers, with line numbers for error messages.

CSV cells stay text until they are checked, so that a message can quote a fault exactly as the file has it.
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

from jaxtrade.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 2 << 30
SEPARATORS = (",", ";", "\t", "|")


@dataclass
class Table:
    """Columns of one source: name -> pandas Series of n rows.

    first_line: the line of data row 0; None if the source has no lines (Parquet, frames).
    """

    source: str
    columns: dict[str, Any]
    first_line: int | None
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


def read_table(path: str | Path) -> Table:
    """Read a CSV, CSV.gz or Parquet file. Raises DataError if it cannot be read completely."""
    file = Path(path)
    if file.is_dir():
        raise DataError(f"{file}: is a directory. Fix: name one CSV, CSV.gz or Parquet file")
    if not file.exists():
        raise DataError(f"{file}: no such file. Fix: check data.file (or the path given to --data)")
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
    import pandas as pd

    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{source}: is UTF-16 text. Fix: save it as UTF-8")
    if b"\x00" in raw:
        raise DataError(f"{source}: is not text (a NUL byte at offset {raw.index(0)}). Fix: give CSV, CSV.gz or "
                        "Parquet")
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
    separator = max(SEPARATORS, key=lines[0].count)
    header = [name.strip().strip('"') for name in lines[0].split(separator)]
    if len(header) == 1 or any(_is_number(name) for name in header):
        raise DataError(f"{source}:1: no header line of column names, found '{lines[0][:60]}'. Fix: put the names on "
                        "line 1, e.g. time,open,high,low,close,volume")
    twins = sorted({name for name in header if header.count(name) > 1})
    if twins:
        raise DataError(f"{source}:1: column '{twins[0]}' appears twice. Fix: keep one")
    _check_lines(lines, separator, source)
    frame = pd.read_csv(io.StringIO("\n".join(lines[1:])), sep=separator, header=None, names=header, dtype=str,
                        keep_default_na=False, skip_blank_lines=False, index_col=False) if len(lines) > 1 else None
    columns = {name: pd.Series([], dtype=str) if frame is None else frame[name].str.strip() for name in header}
    table = Table(source, columns, 2)
    if separator != ",":
        table.notes.append(f"fields are separated by {separator!r}")
    if not text.endswith(("\n", "\r")):
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
        frame = pq.read_table(io.BytesIO(raw)).to_pandas()
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
    return Table(source, {name: frame.iloc[:, i].reset_index(drop=True) for i, name in enumerate(names)}, None)


def as_numbers(series: Any) -> np.ndarray:
    """A column as float64. A cell that is not a plain number becomes NaN."""
    import pandas as pd

    numbers: Any = pd.to_numeric(series, errors="coerce")
    return numbers.to_numpy(np.float64, na_value=np.nan)
