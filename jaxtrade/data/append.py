"""A later export of an instrument joined to an earlier one, whose rows stay as they are written."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.contracts import contract_of
from jaxtrade.data.formats.recognise import StatedKeys
from jaxtrade.data.read import validate
from jaxtrade.data.read.bars import keys_of
from jaxtrade.data.read.stamps import day_and_month, parse_stamps
from jaxtrade.data.read.tabular import BYTE_ORDER_MARK, Table, read_table
from jaxtrade.data.sources import read_keys
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso
from jaxtrade.storage.digests import write_whole
from jaxtrade.text import several

LISTED = 10  # differences in one message
ENOUGH = 20  # rows whose shortest step is the length of their bars
ENDS = b"\r\n"  # of lines, any of these
DAY = 86_400  # seconds, which stand for the step of a contract's first row


class Export(NamedTuple):
    """One file of n rows.

    rows: pandas frame of contract, time (UTC seconds as stamped), row, and then the numbers of
        every field by its column.
    lines: those of its header and of its rows, with their ends; none of a Parquet file.
    form: what must be the same in both files, by its name in messages; None where it is not known.
    """

    table: Table
    rows: Any
    lines: list[bytes]
    form: dict[str, Any]


def append(old: Path, new: Path, out: Path, config: RunConfig) -> str:
    """Write the rows of `old`, and after them those of `new` that are later, to `out`.

    Rows belong together by contract and stamp. Nothing is written if `new` has no later row.

    config: says how both files are read.

    Returns what was done, as text. Raises DataError where a file has faults, or where the two
    differ in form or in a bar that both should have; ConfigError if `out` is another file that
    exists, or of another kind. Both files are then as they were.
    """
    taken = out.exists() and out.resolve() != old.resolve()
    if taken or out.suffix != old.suffix or not out.parent.is_dir():
        raise ConfigError(
            f"--out {out}: expected a new file in a folder that exists, which ends with '{old.suffix}' like "
            f"the earlier export, or {old}, to replace it"
        )
    first, later = (read_export(path, config) for path in (old, new))
    other = [
        f"{new}: {name} is {later.form[name]!r}, and {value!r} in {old}"
        for name, value in first.form.items()
        if value != later.form[name] and None not in (value, later.form[name])
    ]
    if other:
        raise DataError(
            "\n".join(other) + "\nFix: export both with the same settings, or convert one of them"
        )
    fresh = _later_rows(first, later)
    if not len(fresh):
        return f"{new}: nothing to append: {old} has all of its {several(len(later.rows), 'row')}"
    write_whole(out.resolve(), _join(first, later, fresh, out))
    return f"{out}: {several(len(first.rows), 'row')} of {old} and {len(fresh):,} of {new}"


def read_export(path: Path, config: RunConfig) -> Export:
    """Read one file.

    Raises DataError for stamps that cannot be read, rows out of order, and prices that the reader
    would refuse. The prices of spreads are differences and are not checked.
    """
    import pandas as pd

    given = read_keys(config, quotes=False)
    table = read_table(path)
    lines = _lines(path, table)
    keys, _ = keys_of(table, StatedKeys(*(given[name] for name in StatedKeys._fields)))
    names, two_sided, _ = validate.map_columns(table, keys.columns)
    if not len(table):
        table.fault("no bars", "export the bars again")
    table.check()
    stamps, code = names["time"], names.get("expiry") or names.get("symbol")
    time, _ = parse_stamps(table, stamps, keys.time_zone, keys.date_order)
    table.check()
    rows = pd.DataFrame({"contract": table.texts(code) if code else "", "time": time})
    step = rows.groupby("contract").time.diff().fillna(DAY).to_numpy()
    validate.check_order(table, names, step)
    priced, _ = validate.drop_spreads(table, names)
    sides = [names]
    if two_sided:
        priced, _ = validate.quoted_rows(priced, names, 1.0)
        sides = [validate.side_columns(names, side) for side in validate.SIDES]
    for columns in sides:
        validate.parse_prices(
            priced, columns, time[priced.rows], contract_of(config.data), keys.price_scale
        )
    validate.parse_volume(priced, names)
    table.check()
    stamp = str(table.cell(stamps, 0))
    keys = keys._replace(columns=names, date_order=day_and_month(table, stamps, keys.date_order)[0])
    form = {
        "what stands before its rows": b"".join(lines[: table.first_line - 1]).splitlines()
        or str(table.data.schema),
        "the form of its stamps": re.sub(r"\d+|[AaPp](?=\.?[Mm])", "0", stamp)
        if re.search(r"\D", stamp)
        else f"{len(stamp)} digits",
        "the seconds of its bars": int(step.min()) if len(table) >= ENOUGH else None,
        **{f"data.{name}": value for name, value in keys._asdict().items()},
        **{f"column '{name}'": table.cell(name, 0) for name in table.layout.single},
    }
    numbers = {name: table.numbers(name) for name in names.values() if name not in (stamps, code)}
    return Export(table, rows.assign(row=table.rows, **numbers), lines, form)


def _lines(path: Path, table: Table) -> list[bytes]:
    """Return the lines of a file with their ends; none of a Parquet file."""
    raw = path.read_bytes()
    if raw[:4] == b"PAR1":
        return []
    if raw[:2] == b"PK" or table.layout.day:
        raise DataError(
            f"{path}: nothing is appended to a zip archive or a day of LEAN. Fix: extract the CSV file, or "
            "join the days: jaxtrade init FOLDER"
        )
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raw = raw.decode("utf-16").encode()
    return raw.removeprefix(BYTE_ORDER_MARK).splitlines(keepends=True)


def _later_rows(old: Export, new: Export) -> np.ndarray:
    """Find the rows of `new` that are later than those of their contract in `old` (int64[k]).

    Raises DataError that lists the differences where the two overlap.
    """
    spans = [each.rows.groupby("contract").time for each in (old, new)]
    begin, end = spans[1].min(), np.minimum(spans[0].max(), spans[1].max())  # NaN of one file alone
    shared, known = (
        rows.time.between(rows.contract.map(begin), rows.contract.map(end))
        for rows in (old.rows, new.rows)
    )
    key = ["time", "contract"]
    one, two = old.rows[shared].set_index(key).align(new.rows[known].set_index(key))
    differ = one.ne(two) & (one.notna() | two.notna())
    differ["row"] = one.row.isna() | two.row.isna()
    columns = differ.idxmax(axis=1)[differ.any(axis=1)]  # bar -> its first column that differs

    def describe(export: Export, cells: Any, name: str) -> str:
        if np.isnan(cells["row"]):
            return "no bar"
        value = "a bar" if name == "row" else cells[name]
        return f"{value} ({export.table.place(int(cells['row']))})"

    if len(columns):
        lines = [
            f"{new.table.source}: {iso(bar[0])} {bar[1]}: column '{name}': found {describe(new, two.loc[bar], name)}, "
            f"expected {describe(old, one.loc[bar], name)} as in {old.table.source}"
            for bar, name in columns[:LISTED].items()
        ]
        raise DataError(
            "\n".join(lines)
            + f"\n{several(len(columns), 'difference')} where the two overlap; nothing was "
            "written. Fix: name the earlier export first, and remove the rows of the one that is wrong there"
        )
    return np.flatnonzero(~known)


def _join(old: Export, new: Export, fresh: np.ndarray, out: Path) -> bytes:
    """Return the content of the joined file, whose new lines end as the first line of `old`."""
    if not old.lines:
        import pandas as pd

        parts = old.table.data, new.table.data.take(fresh)
        return pd.concat([part.to_pandas() for part in parts]).to_parquet(index=False)
    top = old.table.first_line - 1
    later = (new.lines[top + row].rstrip(ENDS) for row in fresh)
    lines = *old.lines[: top + len(old.rows)], *later
    end = old.lines[0].removeprefix(old.lines[0].rstrip(ENDS)) or b"\n"
    text = b"".join(line if line.endswith((b"\r", b"\n")) else line + end for line in lines)
    return gzip.compress(text, mtime=0) if out.suffix == ".gz" else text
