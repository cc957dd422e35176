"""A later export of an instrument joined to an earlier one, whose rows stay as they are written."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import schedule_for
from jaxtrade.data.calendar.sessions import HOLE
from jaxtrade.data.contracts import Contract, contract_of
from jaxtrade.data.formats.recognise import StatedKeys, separator_of
from jaxtrade.data.read.bars import keys_of
from jaxtrade.data.read.grammar import LAST, form_of, parts_of
from jaxtrade.data.read.stamps import parse_stamps, proven_order
from jaxtrade.data.read.tabular import Table, gunzip, read_table
from jaxtrade.data.read.validate import (
    SIDES,
    check_order,
    drop_spreads,
    map_columns,
    parse_prices,
    parse_volume,
    quoted_rows,
    side_columns,
)
from jaxtrade.data.sources import read_keys
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso
from jaxtrade.storage.digests import write_whole
from jaxtrade.text import several

LISTED = 10  # differences in one message
ENOUGH = 20  # rows whose shortest step is the length of their bars
SHOWN = 5  # sessions in a note
STEP = "its shortest step in seconds"
SHIFT = 34  # bits of a stamp: it lies before 2100


class Export(NamedTuple):
    """One file of n rows.

    names: field -> column.
    time: int64[n], UTC seconds as stamped.
    content: its lines without their ends, or the Arrow table of a Parquet file.
    end: what ends its lines.
    form: what must be the same in both files, by its name in messages.
    closes: whether stamps name the bar's close.
    """

    table: Table
    names: dict[str, str]
    time: np.ndarray
    content: Any
    end: bytes
    form: dict[str, Any]
    closes: bool


def append(old: Path, new: Path, out: Path, config: RunConfig) -> str:
    """Write the rows of `old`, and after them those of `new` that are later, to `out`.

    Rows belong together by contract and stamp. Nothing is written if `new` has no later row.

    config: says how both files are read.

    Returns what was done, as text. Raises DataError where a file has faults, where the two differ
    in form or in a bar that both should have, or where `new` begins before `old`; ConfigError if
    `out` is another file that exists. Both files are then as they were.
    """
    if out.exists() and not (old.exists() and out.samefile(old)):
        raise ConfigError(
            f"--out {out}: exists already, and is not overwritten; give another name, or --out {old} to "
            "replace the earlier export by the whole"
        )
    contract = contract_of(config.data)
    first, later = (read_export(path, contract, config) for path in (old, new))
    _check_form(first, later)
    fresh = _fresh_rows(first, later)
    if not len(fresh):
        return f"{new}: nothing to append: {old} has all of its {several(len(later.time), 'row')}"
    write_whole(out.resolve(), _joined(first, later, fresh, out))
    return "\n".join(
        [
            f"{out}: {several(len(first.time), 'row')} of {old} and {len(fresh)} of {new}, of which "
            f"{len(later.time) - len(fresh)} were the same in both",
            *_missing_sessions(first, later, contract, config.data.calendar),
        ]
    )


def read_export(path: Path, contract: Contract, config: RunConfig) -> Export:
    """Read one file.

    Raises DataError for stamps that cannot be read, rows out of order, and prices that the reader
    would refuse. The prices of spreads are differences and are not checked.
    """
    keys = read_keys(config, quotes=False)
    stated = StatedKeys(*(keys[name] for name in StatedKeys._fields))
    table = read_table(path)
    resolved, _ = keys_of(table, stated)
    names, two_sided, _ = map_columns(table, resolved.columns)
    if not len(table):
        table.fault("no bars", "export the bars again")
    table.check()
    if table.layout.day:
        raise table.refusal(
            "daily files of LEAN have their date in their name",
            "put them into one zip: jaxtrade init FOLDER",
        )
    time, _ = parse_stamps(table, names["time"], resolved.time_zone, resolved.date_order)
    table.check()
    step = _steps(_contracts(names, table)[0], time)
    check_order(table, names, step)
    priced, _ = drop_spreads(table, names)
    if two_sided:
        priced, _ = quoted_rows(priced, names, 1.0)
    for columns in [side_columns(names, side) for side in SIDES] if two_sided else [names]:
        parse_prices(priced, columns, time[priced.rows], contract, resolved.price_scale)
    parse_volume(priced, names)
    table.check()
    content, end, head = _content(path, table.first_line)
    stamp = str(table.cell(names["time"], 0))
    order = resolved.date_order or (LAST.match(stamp) and proven_order(table, names["time"])[0])
    form = {
        "what is before its rows": head,
        "its layout": table.layout.title,
        "its unit of prices": resolved.price_scale,
        "what its columns are read as": names,
        "how its stamps are written": (_shape(stamp), order),
        STEP: int(step.min()),
    } | {f"column '{name}'": str(table.cell(name, 0)) for name in table.layout.single}
    return Export(table, names, time, content, end, form, resolved.stamp == "close")


def _contracts(names: dict[str, str], *tables: Table) -> list[np.ndarray]:
    """Give each contract of the tables a number (int64[n] each); 0 without a column of them."""
    import pandas as pd

    name = names.get("expiry") or names.get("symbol")
    if name is None:
        return [np.zeros(len(table), np.int64) for table in tables]
    codes = pd.factorize(pd.concat([table.texts(name) for table in tables]))[0]
    return np.split(codes.astype(np.int64), np.cumsum([len(table) for table in tables])[:-1])


def _steps(contract: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Compute the seconds since the row before of the same contract (int64[n]); a day for its first."""
    order = np.argsort(contract, kind="stable")
    same = np.append(False, np.diff(contract[order]) == 0)
    step = np.zeros(len(time), np.int64)
    step[order] = np.where(same, np.diff(time[order], prepend=0), 86_400)
    return step


def _content(path: Path, first_line: int) -> tuple[Any, bytes, str]:
    """Return (lines or Arrow table, end of lines, what stands before the rows and between fields)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = path.read_bytes()
    if raw[:4] == b"PAR1":
        data = pq.read_table(pa.BufferReader(raw))
        return data, b"", str(data.schema.remove_metadata())
    if raw[:2] == b"PK":
        raise DataError(f"{path}: nothing is appended to a zip archive. Fix: extract its CSV file")
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, str(path))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raw = raw.decode("utf-16").encode()
    lines = raw.splitlines()
    end = re.search(rb"\r\n|\r|\n|$", raw)
    head = b"\n".join(lines[: first_line - 1]).decode("utf-8-sig")
    return lines, end[0] if end else b"", head + separator_of(lines[first_line - 1].decode())


def _shape(stamp: str) -> str:
    """Return a stamp with the names of its parts in their places; of a number, its digits."""
    form = form_of(stamp, "dmy")
    if form is None:
        return f"a number of {len(stamp.partition('.')[0])} digits"
    for name, (begin, end) in sorted(
        parts_of(form).items(), key=lambda part: part[1], reverse=True
    ):
        stamp = f"{stamp[:begin]}{{{name}}}{stamp[end:]}"
    return stamp


def _check_form(old: Export, new: Export) -> None:
    """Raise DataError unless rows of one file are rows of the other."""
    unsure = len(old.time) < ENOUGH or (len(new.time) < ENOUGH and new.form[STEP] > old.form[STEP])
    other = [
        f"{new.table.source}: {name} is {new.form[name]!r}, and {value!r} in {old.table.source}"
        for name, value in old.form.items()
        if new.form[name] != value and not (unsure and name == STEP)
    ]
    if other:
        raise DataError(
            "\n".join(other) + "\nFix: export both with the same settings, or convert one of them; "
            "data.columns states which columns are read"
        )


def _fresh_rows(old: Export, new: Export) -> np.ndarray:
    """Find the rows of `new` that are later than those of their contract in `old` (int64[k]).

    Raises DataError for rows that are earlier than all of them, and for differences where the two
    overlap.
    """
    ids = _contracts(old.names, old.table, new.table)
    count = 1 + max(each.max() for each in ids)
    last, until = np.full((2, count), -1)  # of each contract in the two files
    begin, since = np.full((2, count), 1 << SHIFT)
    for own, begins, ends, export in ((ids[0], begin, last, old), (ids[1], since, until, new)):
        np.minimum.at(begins, own, export.time)
        np.maximum.at(ends, own, export.time)
    fresh = new.time > last[ids[1]]
    if (early := ~fresh & (new.time < begin[ids[1]])).any():
        raise new.table.refusal(
            f"a bar before the first of {old.table.source} ({iso(int(begin[ids[1]][early][0]))})",
            "name the earlier export first",
            new.names["time"],
            int(early.argmax()),
        )
    both = (old.time >= since[ids[0]]) & (old.time <= until[ids[0]])
    inside = np.flatnonzero(both), np.flatnonzero(~fresh)
    keys = [
        (each[rows] << SHIFT) | export.time[rows]
        for each, rows, export in zip(ids, inside, (old, new), strict=True)
    ]
    _, a, b = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    lost, added = (np.delete(rows, at) for rows, at in zip(inside, (a, b), strict=True))
    _check_overlap(old, new, (inside[0][a], inside[1][b]), lost, added)
    return np.flatnonzero(fresh)


def _check_overlap(
    old: Export,
    new: Export,
    pairs: tuple[np.ndarray, np.ndarray],
    lost: np.ndarray,
    added: np.ndarray,
) -> None:
    """Raise DataError that lists what differs.

    pairs: int64[k] each, the rows of both files with the same contract and stamp.
    lost, added: rows of `old` that `new` lacks, and of `new` that `old` lacks.
    """
    found, count = [], 0  # (second, place and what differs) of the first ones

    def place(export: Export, row: int) -> str:
        return f"{export.table.source}: {export.table.place(row)} ({export.table.cell(export.names['time'], row)})"

    for field, name in new.names.items():
        if field in ("time", "expiry", "symbol"):
            continue
        one, two = (
            export.table.numbers(name)[rows] for export, rows in zip((old, new), pairs, strict=True)
        )
        differ = np.flatnonzero((one != two) & ~(np.isnan(one) & np.isnan(two)))
        count += len(differ)
        for i in differ[:LISTED]:
            a, b = (int(rows[i]) for rows in pairs)
            text = f"{place(new, b)}: column '{name}': found {new.table.cell(name, b)}, expected "
            found.append(
                (new.time[b], f"{text}{old.table.cell(name, a)} as in {old.table.place(a)}")
            )
    for export, other, rows in ((old, new, lost), (new, old, added)):
        count += len(rows)
        found += [
            (export.time[row], f"{place(export, row)}: {other.table.source} has no such bar")
            for row in rows[:LISTED].tolist()
        ]
    if found:
        lines = [text for _, text in sorted(found)[:LISTED]]
        raise DataError(
            "\n".join(lines)
            + f"\n{new.table.source}: {several(count, 'difference')} where it overlaps {old.table.source}; "
            "nothing was written. Fix: find out which export is right, and remove the other's rows there"
        )


def _joined(old: Export, new: Export, fresh: np.ndarray, out: Path) -> bytes:
    """Return the content of the joined file. Raises ConfigError for a name of another kind."""
    is_table = not isinstance(old.content, list)
    if (out.suffix == ".parquet") != is_table:
        kind = "Parquet" if is_table else "text"
        raise ConfigError(
            f"--out {out}: the exports are {kind}; end the name with {'.parquet' if is_table else '.csv or .csv.gz'}"
        )
    if is_table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [
            old.content,
            new.content.take(fresh).replace_schema_metadata(old.content.schema.metadata),
        ]
        buffer = io.BytesIO()
        pq.write_table(pa.concat_tables(parts), buffer)
        return buffer.getvalue()
    top = old.table.first_line - 1
    lines = old.content[: top + len(old.time)]
    later = [new.content[new.table.first_line - 1 + row] for row in fresh.tolist()]
    text = old.end.join([*lines, *later, b""])
    return gzip.compress(text, mtime=0) if out.suffix == ".gz" else text


def _missing_sessions(old: Export, new: Export, contract: Contract, calendar: str) -> list[str]:
    """Write a note on the sessions that lack more than five minutes between the two files."""
    length = min(old.form[STEP], new.form[STEP])
    shift = length * old.closes
    ends = np.array([old.time.max() + length, new.time.min()]) - shift
    if ends[0] >= ends[1]:
        return []
    schedule = schedule_for(calendar, contract, np.append(old.time, new.time), length)
    begin, end = np.maximum(schedule.open, ends[0]), np.minimum(schedule.close, ends[1])
    halt = np.clip(schedule.halts, begin[:, None], end[:, None])
    days = schedule.dates[end - begin - (halt[:, 1] - halt[:, 0]) > HOLE].astype(str)
    if not len(days):
        return []
    return [
        f"note: no bar between {iso(int(ends[0]))} and {iso(int(ends[1]))}: "
        f"{several(len(days), 'session')} missing or cut: {', '.join(days[:SHOWN])}{' ...' * (len(days) > SHOWN)}"
    ]
