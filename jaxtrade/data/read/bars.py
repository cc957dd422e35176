"""Bars are read from files, frames and the files that the package contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jaxtrade.config import Roll, ShareSplit
from jaxtrade.data.bars import Bars, Leg, Places, Side
from jaxtrade.data.contracts import Contract, contract_named, require_bundled
from jaxtrade.data.formats.recognise import (
    StatedKeys,
    describe_layout,
    find_missing_keys,
    plain_name,
    resolve_keys,
)
from jaxtrade.data.members import ES_EXPIRY, ES_WEEK
from jaxtrade.data.read.grammar import Order
from jaxtrade.data.read.roll import roll_notes, roll_rows
from jaxtrade.data.read.stamps import parse_stamps
from jaxtrade.data.read.tabular import (
    Fault,
    Table,
    read_table,
    stamp_column,
    table_of_frame,
)
from jaxtrade.data.read.validate import (
    MAX_TICKS,
    MISSING_LIMIT,
    TWO_SIDED,
    drop_spreads,
    map_columns,
    one_contract,
    parse_prices,
    parse_steps,
    parse_volume,
    quoted_rows,
    side_columns,
    widen,
)
from jaxtrade.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

MOST = (
    1 << 31
)  # of a numerator or denominator: its product with a price in ticks (below 2^28) fits int64


def _product(splits: tuple[ShareSplit, ...]) -> Fraction:
    ratio = Fraction(1)
    for split in splits:
        ratio *= split.fraction
    if max(ratio.numerator, ratio.denominator) >= MOST:
        raise ConfigError(
            f"data.splits: the ratios from {splits[0].date} on multiply to {ratio.numerator}:"
            f"{ratio.denominator}, beyond exact arithmetic; check them"
        )
    return ratio


def _divide_ticks(ticks: np.ndarray, ratio: Fraction, source: str) -> tuple[np.ndarray, int]:
    """Divide ticks by a ratio, rounded half to even.

    Returns (int32[n], how many results fell between two ticks).
    """
    over = ratio.numerator
    whole, rest = np.divmod(ticks.astype(np.int64) * ratio.denominator, over)
    result = whole + ((2 * rest > over) | ((2 * rest == over) & (whole % 2 == 1)))
    if len(result) and not 0 < result.min() <= result.max() < MAX_TICKS:
        raise DataError(
            f"{source}: data.splits makes prices of {int(result.min())} to {int(result.max())} ticks "
            f"(expected 1 to {MAX_TICKS - 1}). Fix: check the ratios (new shares for one old share), or "
            "choose another tick_size in the contract file"
        )
    return result.astype(np.int32), int((rest != 0).sum())


Stamp = Literal["open", "close"]


def adjust_for_splits(bars: Bars, splits: tuple[ShareSplit, ...]) -> Bars:
    """Divide prices before each split by its ratio, and multiply volumes.

    Notes say what was changed. Raises DataError if a price becomes 0 ticks, or too many of them;
    ConfigError if the ratios multiply beyond exact arithmetic.
    """
    if not splits:
        return bars
    days = bars.trade_dates
    firsts = np.array([split.date for split in splits], "datetime64[D]")
    later = np.searchsorted(firsts, days, side="right")  # splits that each bar has behind it
    sides = [Side(*(column.copy() for column in side)) for side in bars.quotes]
    columns = [column for side in sides for column in side]
    volume, rounded = bars.volume.copy(), 0
    for passed in np.unique(later[later < len(splits)]):
        ratio, rows = _product(splits[passed:]), later == passed
        for column in columns:
            column[rows], between = _divide_ticks(column[rows], ratio, bars.source)
            rounded += between
        volume[rows] *= float(ratio)
    notes = [
        f"data.splits: {split.ratio} on {split.date}: {int((later <= i).sum())} of {len(days)} bars lie before "
        "it; prices divided by the ratio, volumes multiplied"
        for i, split in enumerate(splits)
    ]
    if rounded:
        cells = len(columns) * int((later < len(splits)).sum())
        notes.append(
            f"data.splits: {rounded} of {cells} adjusted prices fell between two ticks and were rounded to "
            "the nearer one (half to even)"
        )
    return bars.with_quotes(*sides, volume=volume, notes=(*bars.notes, *notes))


def load_bars(
    path: str | Path,
    contract: Contract | str,
    *,
    columns: Mapping[str, str] | None = None,
    time_zone: str | None = None,
    stamp: Stamp | None = None,
    price_scale: float = 1.0,
    expiry: str | None = None,
    roll: Roll = "off",
    start: str | None = None,
    end: str | None = None,
    missing: float = MISSING_LIMIT,
    follows: str = "",
    date_order: Order | None = None,
    splits: tuple[ShareSplit, ...] = (),
    spreads: Literal["refuse", "drop"] = "refuse",
) -> Bars:
    """Read and validate bars from CSV, CSV.gz, zip or Parquet. Prices are never repaired.

    A vendor's layout is recognised by header and first rows, and the first note says which. What it
    defines (time zone, stamp side, unit of prices) need not be given; an argument overrides it.

    Args:
        path: the file. Gzip, zip and Parquet are recognised by content.
        contract: a contract, the symbol of a market (ES), the name of a shipped contract (SPY), or
            a contract file.
        columns: field -> column name. The fields are time, open, high, low, close, volume, expiry and symbol, and
            bid_open .. ask_close for two-sided bars. A field that is not mapped is looked for under obvious names, and
            a note says which name was used. A file with all of bid_open .. ask_close is read as two-sided, unless
            `columns` maps open, high, low or close.
        time_zone: IANA zone of stamps without offset, optionally with a fixed shift
            (America/New_York+7h).
        stamp: whether a stamp names the bar's open or its close.
        price_scale: points per unit of the file's prices.
        expiry: the contract to read, if an expiry or symbol column holds several.
        roll: how to splice several contracts: 'volume', or expiry -> first trade date ('start' for
            the first).
        start: first trade date (ISO).
        end: last trade date (ISO).
        missing: largest share of two-sided rows that may lack a whole side. Such rows are left out
            and counted.
        follows: the source of the bars whose roll dates `roll` repeats. Only used in messages.
        date_order: of dates such as 10/07/2013: 'mdy' or 'dmy'. None: a day above 12 in the file
            must show it.
        splits: share splits for which the prices are adjusted (`adjust_for_splits`).
        spreads: whether rows of calendar spreads are an error or left out.

    Raises:
        DataError: lists the faults with file, line, column, value and fix.
        ConfigError: no contract has the name that is given, or both expiry and roll are.
    """
    contract = contract_named(contract)  # before a large file is read
    stated = StatedKeys(columns or {}, time_zone, stamp, price_scale, date_order, spreads)
    bars = _read(read_table(path), contract, stated, expiry, roll, missing, follows)
    return adjust_for_splits(bars.between(start, end), splits)


def from_frame(
    frame: pd.DataFrame,
    contract: Contract | str,
    *,
    columns: Mapping[str, str] | None = None,
    time_zone: str | None = None,
    stamp: Stamp | None = None,
    price_scale: float = 1.0,
    expiry: str | None = None,
    roll: Roll = "off",
    source: str = "frame",
    date_order: Order | None = None,
    splits: tuple[ShareSplit, ...] = (),
    spreads: Literal["refuse", "drop"] = "refuse",
) -> Bars:
    """Make bars from a pandas frame.

    Checks and errors are those of `load_bars`; rows are counted from 0.

    contract: as for `load_bars`; `from_frame(frame, "SPY", stamp="open")`.
    """
    stated = StatedKeys(columns or {}, time_zone, stamp, price_scale, date_order, spreads)
    bars = _read(table_of_frame(frame, source), contract_named(contract), stated, expiry, roll)
    return adjust_for_splits(bars, splits)


def keys_of(table: Table, stated: StatedKeys) -> tuple[StatedKeys, list[str]]:
    """Return (the keys with which a table is read, notes on its layout)."""
    layout, columns = table.layout, {}
    notes = [*describe_layout(layout, stated), *_unused_spread(table, stated)]
    if layout.clock:
        columns["time"] = stamp_column(layout)
    if layout.volumes:
        first = layout.volumes[0]
        traded = [name for name in layout.volumes if (table.numbers(name) != 0).any()]
        columns["volume"] = used = [*traded, layout.volumes[-1]][0]
        if len(layout.volumes) > 1 and "volume" not in stated.columns:
            why = "" if traded[:1] == [first] else f", because {first} is 0 throughout"
            notes.append(f"volume is read from {used}{why}")
    found = resolve_keys(layout, stated)
    return found._replace(columns={**columns, **found.columns}), notes


def _unused_spread(table: Table, stated: StatedKeys) -> list[str]:
    """Note a column of spreads, as MetaTrader exports it.

    Says what becomes of it, and what stands for the spread.
    """
    plain = {plain_name(name): name for name in table.names}
    name = plain.get("spread", "")
    if not name or name in stated.columns.values() or any(each.startswith("bid") for each in plain):
        return []
    values = table.numbers(name)
    values = values[np.isfinite(values)]
    usual = f" (median {np.median(values):g})" if len(values) else ""
    return [
        f"column '{name}'{usual} is not used: fills pay costs.slippage, in ticks per side, which stands "
        "for half the spread; for fills at real quotes give bid and ask bars (data.quotes)"
    ]


def parse(
    table: Table,
    contract: Contract,
    stated: StatedKeys,
    expiry: str | None = None,
    roll: Roll = "off",
    missing: float = MISSING_LIMIT,
    follows: str = "",
) -> tuple[Bars, list[Fault]]:
    """Parse the bars of a table, and the faults of its cells. Bars that have faults are of no use.

    The arguments are those of `load_bars`. Raises DataError where nothing more can be read: keys,
    columns, a contract or its rows are missing.
    """
    if expiry and roll != "off":
        raise ConfigError(
            f"expiry={expiry} reads one contract and roll splices several; give one of them"
        )
    keys, notes = keys_of(table, stated)
    if missing_keys := find_missing_keys(table.layout, stated):
        table.fault(*missing_keys)
    names, two_sided, mapped = map_columns(table, keys.columns)
    table.check()
    notes += [*table.notes, *mapped]
    scale, close = keys.price_scale, keys.stamp == "close"
    if keys.spreads == "drop":
        table, left_out = drop_spreads(table, names)
        notes += left_out
    table = one_contract(table, names, contract, expiry, roll, follows)
    prices = side_columns(names, "bid") if two_sided else names
    legs: tuple[Leg, ...] = ()
    if roll != "off":
        seconds, _ = parse_stamps(table, names["time"], keys.time_zone, keys.date_order)
        table.check()
        inside = seconds - close
        places, legs = roll_rows(table, prices, contract, inside, roll, scale, follows)
        table = table.select(places)
    if two_sided:
        table, left_out = quoted_rows(table, names, missing)
        notes += left_out
    seconds, assumed = parse_stamps(table, names["time"], keys.time_zone, keys.date_order)
    bid, found = parse_prices(table, prices, seconds, contract, scale)
    notes += [*assumed, *found]
    volume, ask = parse_volume(table, names), None
    if two_sided:
        prices = side_columns(names, "ask")
        ask, _ = parse_prices(table, prices, seconds, contract, scale)
        ask, crossed = widen(table, seconds, bid, ask)
        contract = replace(contract, slippage_ticks=0)
        notes += [*crossed, TWO_SIDED]
    bar_seconds = parse_steps(table, names, seconds)
    bars = Bars(
        time=seconds - bar_seconds if close else seconds,
        **bid._asdict(),
        volume=volume,
        bar_seconds=bar_seconds,
        contract=contract,
        source=table.source,
        notes=(*notes, *roll_notes(legs, contract)),
        ask=ask,
        legs=legs,
        places=Places(table.source, table.rows, table.first_line),
    )
    return bars, table.faults


def _read(table: Table, *keys: Any) -> Bars:
    """Read the bars of a table. Raises DataError with all of its faults."""
    bars, _ = parse(table, *keys)
    table.check()
    return bars


# --- bars that the package contains


# An MT5 broker: server time is New York plus seven hours, and prices are whole points.
BROKER: dict[str, Any] = {
    "time_zone": "America/New_York+7h",
    "columns": {"time": "Date", "volume": "tick_volume"},
}
# symbol -> (file, what its bars are called in notes and errors, how it is read)
_FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ES": ("es_1m_trade.csv.gz", "bars", {}),
    "EURUSD": ("eurusd_hour_bidask.csv.gz", "bid and ask bars", {}),
    "GBPUSD": ("gbpusd_hour.csv.gz", "bars", {"price_scale": 1e-5, **BROKER}),
    "USDJPY": ("usdjpy_hour.csv.gz", "bars", {"price_scale": 1e-3, **BROKER}),
    "USDCHF": ("usdchf_hour.csv.gz", "bars", {"price_scale": 1e-5, **BROKER}),
}


def load_bundled(
    contract: Contract,
    *,
    expiry: str | None = None,
    roll: Roll = "off",
    start: str | None = None,
    end: str | None = None,
) -> Bars:
    """Load the bundled bars of a market.

    They are ES (1 minute), EURUSD (1 hour, bid and ask), or GBPUSD, USDJPY, USDCHF (1 hour, one
    side). The default for ES is expiry 201312 on trade dates 2013-10-07..11. Raises ConfigError for
    a market without bundled bars, and DataError if the selection is empty.
    """
    require_bundled(contract.symbol)
    if contract.symbol == "ES":
        if not expiry and roll == "off" and not start and not end:
            start, end = ES_WEEK  # the one full week in the file
        expiry = expiry or (ES_EXPIRY if roll == "off" else None)
    name, called, keys = _FILES[contract.symbol]
    with resources.as_file(resources.files("jaxtrade.data.bundled") / name) as path:
        bars = load_bars(path, contract, stamp="open", expiry=expiry, roll=roll, **keys)
    source = f"bundled {contract.symbol} {called} ({name})"
    return replace(bars, source=source).between(start, end)
