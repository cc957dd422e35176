"""What a file of bars shows before its market, time zone and stamp side are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxtrade.data.formats.layout import Layout
from jaxtrade.data.formats.recognise import Stated
from jaxtrade.data.read.bars import keys_of
from jaxtrade.data.read.faults import Faults
from jaxtrade.data.read.grammar import LAST, has_offset
from jaxtrade.data.read.quotes import is_two_sided
from jaxtrade.data.read.stamps import parse_stamps, proven_order
from jaxtrade.data.read.tabular import Table, read_table
from jaxtrade.data.read.validate import check_order, map_columns

SAMPLE = 20_000  # prices by which decimals and the smallest step are found
MOST_DECIMALS = 12
NOISE = 1e-4  # of the last decimal
SHORTEST = 60  # seconds assumed between bars if the file has fewer than two


@dataclass(frozen=True)
class Examined:
    """A file's facts. n rows of one contract are looked at: all rows, or those of the most frequent
    one.

    file: the path. layout: the vendor's, if recognised. columns: field -> column. rows: of the
        whole file. contracts:
    (code, rows) of the expiry or symbol column, the most frequent first. names: instruments that
    the file itself names. naive: whether stamps carry no offset. ordered: whether the order of day
    and month is known. keys: what layout and user state. wall: int64[n], stamps in seconds since
    1970, in UTC or on the unknown clock. text: the first and the last stamp as written.
    bar_seconds: the usual step. years: year -> (low, high) in points. step: the smallest price
    step. decimals: of prices. sides: 1 or 2. notes: what was assumed.
    """

    file: str
    layout: Layout | None
    columns: Mapping[str, str]
    rows: int
    contracts: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    naive: bool
    ordered: bool
    keys: Stated
    wall: np.ndarray
    text: tuple[str, str]
    bar_seconds: int
    years: Mapping[int, tuple[float, float]]
    step: float
    decimals: int
    sides: int
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the file is, for messages."""
        return "a file with a header line" if self.layout is None else self.layout.title


def examine(path: str | Path, stated: Stated, expiry: str | None = None) -> Examined:
    """Look at a file. Raises DataError if it cannot be read, or if a column that every market needs
    is missing.

    stated: what the user says about it. expiry: the contract to look at.
    """
    table = read_table(path)
    open_faults = Faults(table.source, table.first_line)  # what is not stated is asked for later
    keys, about = keys_of(table, stated, open_faults)
    faults = Faults(table.source, table.first_line)
    two_sided = is_two_sided(table, keys.columns, faults)
    names, notes = map_columns(table, keys.columns, two_sided, faults)
    if not len(table):
        faults.add("no bars", "export the bars again")
    faults.stop()
    contracts, rows = _contracts(table, names, expiry)
    time = names["time"]
    first, last = (str(table.cell(time, int(rows[i]))) for i in (0, -1))
    ordered = (
        keys.date_order is not None
        or not LAST.match(first)
        or proven_order(table, time, rows)[0] is not None
    )
    wall = parse_stamps(table, time, rows, "UTC", faults, [], keys.date_order if ordered else "mdy")
    check_order(table, time, rows, wall, faults)
    faults.stop()
    prices = {
        field: table.numbers(names[f"bid_{field}" if two_sided else field], rows) * keys.price_scale
        for field in ("low", "high", "close")
    }
    step, decimals = price_step(prices["close"])
    named = [] if table.layout is None or table.layout.symbol is None else [table.layout.symbol]
    if "symbol" in names:
        named += [str(name) for name in table.series(names["symbol"], rows[:1])]
    return Examined(
        str(path),
        table.layout,
        names,
        len(table),
        contracts,
        tuple(named),
        _naive(table, time, first),
        ordered,
        keys,
        wall,
        (first, last),
        _step(wall),
        _years(wall, prices["low"], prices["high"]),
        step,
        decimals,
        2 if two_sided else 1,
        (*about, *table.notes, *notes),
    )


def _contracts(
    table: Table, names: Mapping[str, str], expiry: str | None
) -> tuple[tuple[tuple[str, int], ...], np.ndarray]:
    """(code and rows of each contract, the rows of the chosen or most frequent one)."""
    for field in ("expiry", "symbol"):
        if field in names:
            codes = table.series(names[field]).astype(str)
            counts = codes.value_counts()
            chosen = expiry if expiry in counts.index else counts.index[0]
            return (
                tuple((str(code), int(count)) for code, count in counts.items()),
                np.flatnonzero((codes == chosen).to_numpy()),
            )
    return (), np.arange(len(table))


def _naive(table: Table, name: str, first: str) -> bool:
    """Whether a column's stamps carry no offset. Numbers count from 1970 in UTC."""
    column = table.columns[name]
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        return False
    return not (has_offset(first) or first.strip().replace(".", "", 1).isdigit())


def _step(wall: np.ndarray) -> int:
    ahead = np.diff(wall)
    ahead = ahead[ahead > 0]
    if not len(ahead):
        return SHORTEST
    values, counts = np.unique(ahead, return_counts=True)
    return int(values[np.argmax(counts)])


def _years(wall: np.ndarray, low: np.ndarray, high: np.ndarray) -> dict[int, tuple[float, float]]:
    years = wall.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    return {
        int(year): (float(np.nanmin(low[years == year])), float(np.nanmax(high[years == year])))
        for year in np.unique(years)
    }


def price_step(prices: np.ndarray) -> tuple[float, int]:
    """(the smallest step between prices, their decimals). Prices that were 32-bit floats are read
    as such.
    """
    finite = prices[np.isfinite(prices)]
    sample = finite[np.linspace(0, len(finite) - 1, min(SAMPLE, len(finite))).astype(np.int64)]
    if not len(sample):
        return 1.0, 0
    if (sample == sample.astype(np.float32)).all():
        sample = np.array([float(str(np.float32(price))) for price in sample])
    for decimals in range(MOST_DECIMALS + 1):
        scaled = sample * 10.0**decimals
        near = (np.abs(scaled - np.round(scaled)) < NOISE) & (
            (np.round(scaled) != 0) | (sample == 0)
        )
        if near.all() or decimals == MOST_DECIMALS:
            whole = np.unique(np.round(scaled).astype(np.int64))
            gcd = int(np.gcd.reduce(np.diff(whole))) if len(whole) > 1 else 1
            return round(gcd / 10.0**decimals, decimals), decimals
    raise AssertionError("the last turn of the loop returns")
