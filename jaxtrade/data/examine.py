"""What a file of bars shows before its market, time zone and stamp side are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.data.calendar.schedule import (
    find_sessions,
    most_common,
    schedule_for,
    trade_dates,
    years_of,
)
from jaxtrade.data.contracts import CONTRACTS, Contract, shipped_contracts
from jaxtrade.data.formats.recognise import FileLayout, StatedKeys
from jaxtrade.data.read.bars import Stamp, keys_of
from jaxtrade.data.read.grammar import LAST, has_offset
from jaxtrade.data.read.stamps import USUAL, known_zone, parse_stamps, proven_order, utc_of
from jaxtrade.data.read.tabular import Table, read_table
from jaxtrade.data.read.validate import drop_spreads, map_columns, newest_first, product_of
from jaxtrade.errors import DataError

SAMPLE = 20_000  # prices by which decimals and the smallest step are found
MOST_DECIMALS = 12
NOISE = 1e-4  # of the last decimal
SHORTEST = 60  # seconds assumed between bars if the file has fewer than two


@dataclass(frozen=True)
class FileFacts:
    """A file's facts.

    n rows of one contract are examined: all rows, or those of the most frequent one.

    file: the path.
    layout: the vendor's, or `PLAIN`.
    columns: field -> column.
    rows: of the whole file.
    contracts: (code, rows) of the expiry or symbol column, the most frequent first.
    names: instruments that the file itself names.
    naive: whether stamps carry no offset.
    ordered: whether the order of day and month is known.
    keys: what layout and user state.
    wall: int64[n], stamps in seconds since 1970, in UTC or on the unknown clock.
    text: the first and the last stamp as written.
    bar_seconds: the usual step.
    years: year -> (low, high) in points.
    step: the smallest price step.
    decimals: of prices.
    sides: 1 or 2.
    notes: what was assumed.
    spreads: whether it also has rows of calendar spreads; they are not examined.
    """

    file: str
    layout: FileLayout
    columns: Mapping[str, str]
    rows: int
    contracts: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    naive: bool
    ordered: bool
    keys: StatedKeys
    wall: np.ndarray
    text: tuple[str, str]
    bar_seconds: int
    years: Mapping[int, tuple[float, float]]
    step: float
    decimals: int
    sides: int
    notes: tuple[str, ...]
    spreads: bool


def examine(path: str | Path, stated: StatedKeys, expiry: str | None = None) -> FileFacts:
    """Examine a file.

    stated: what the user says about it.
    expiry: the contract to examine.
    Raises DataError if the file cannot be read, or if a column that every market needs is missing.
    """
    table = read_table(path)
    keys, about = keys_of(table, stated)  # what is not stated is asked for later
    names, two_sided, mapped = map_columns(table, keys.columns)
    rows = len(table)
    if not rows:
        table.fault("no bars", "export the bars again")
    table.check()
    table, spreads = drop_spreads(table, names)
    contracts, table = _contracts(table, names, expiry)
    time = names["time"]
    first, last = (str(table.cell(time, at)) for at in (0, len(table) - 1))
    ordered = bool(keys.date_order or not LAST.match(first) or proven_order(table, time)[0])
    order = keys.date_order if ordered else "mdy"
    wall, _ = parse_stamps(table, time, "UTC", order)
    newest_first(table, time, wall)
    table.check()
    prices = {
        field: table.numbers(names[f"bid_{field}" if two_sided else field]) * keys.price_scale
        for field in ("low", "high", "close")
    }
    # Numbers count from 1970 in UTC, and so do datetimes with a zone.
    naive = not (
        getattr(table.data.column(time).type, "tz", None)
        or has_offset(first)
        or first.strip().replace(".", "", 1).isdigit()
    )
    years, of = {}, years_of(wall)
    for year in np.unique(of).tolist():
        low, high = (prices[name][of == year] for name in ("low", "high"))
        years[year] = float(np.nanmin(low)), float(np.nanmax(high))
    ahead = np.diff(wall)
    ahead = ahead[ahead > 0]
    step, decimals = price_step(prices["close"])
    named = [table.layout.symbol] if table.layout.symbol else []
    if "symbol" in names:
        named.append(str(table.cell(names["symbol"], 0)))
    return FileFacts(
        str(path),
        table.layout,
        names,
        rows,
        contracts,
        tuple(named),
        naive,
        ordered,
        keys,
        wall,
        (first, last),
        most_common(ahead) if len(ahead) else SHORTEST,
        years,
        step,
        decimals,
        2 if two_sided else 1,
        (*about, *table.notes, *mapped, *spreads),
        bool(spreads),
    )


def _contracts(
    table: Table, names: Mapping[str, str], expiry: str | None
) -> tuple[tuple[tuple[str, int], ...], Table]:
    """Return (code and rows of each contract, the rows of the chosen or most frequent one)."""
    for field in ("expiry", "symbol"):
        if field in names:
            codes = table.texts(names[field])
            counts = codes.value_counts()
            chosen = expiry if expiry in counts.index else counts.index[0]
            return (
                tuple((str(code), int(count)) for code, count in counts.items()),
                table.select((codes == chosen).to_numpy(bool)),
            )
    return (), table


def price_step(prices: np.ndarray) -> tuple[float, int]:
    """Return (the smallest step between prices, their decimals).

    Prices that were 32-bit floats are read as such.
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
        if near.all():
            break
    whole = np.unique(np.round(scaled).astype(np.int64))
    gcd = int(np.gcd.reduce(np.diff(whole))) if len(whole) > 1 else 1
    return round(gcd / 10.0**decimals, decimals), decimals


SCALES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PROBES = 50_000  # bars whose hours are compared with the calendar
MOST_CLOSED = 0.05  # share of bars in closed hours under the right clock
CLEAR = 4  # times as many bars in closed hours make a clock worse than the best one


class Candidate(NamedTuple):
    """A market that a file may be of.

    why: "the file", "the file's name" or "prices".
    """

    symbol: str
    why: tuple[str, ...]


def market_named(text: str) -> str:
    """Return the known market or shipped contract of an instrument's name (ESZ3, ES=F, spy).

    Empty if there is none.
    """
    upper = text.upper()
    return upper if upper in shipped_contracts() else product_of(upper)


def candidates(seen: FileFacts) -> list[Candidate]:
    """List markets that the file names, that its own name contains, or whose prices it has.

    The best one comes first.
    """
    words = re.split(r"[^A-Za-z0-9]+", Path(seen.file).name)
    groups = {
        "the file": {market_named(name) for name in seen.names},
        "the file's name": {market_named(word) for word in words},
        "prices": {contract.symbol for contract in CONTRACTS.values() if fits(seen, contract)},
    }
    named = set.union(*groups.values()) - {""}

    def rank(symbol: str) -> tuple[Any, ...]:
        missing = [symbol not in group for group in groups.values()]
        return *missing, symbol in CONTRACTS and CONTRACTS[symbol].micro, symbol

    return [
        Candidate(symbol, tuple(why for why, group in groups.items() if symbol in group))
        for symbol in sorted(named, key=rank)
    ]


def fits(seen: FileFacts, contract: Contract, scale: float = 1.0) -> bool:
    """Return whether prices fit the contract in every year of the file.

    Times `scale`, they must lie in its range and on its tick.
    """
    for year, (low, high) in seen.years.items():
        bounds = contract.price_range(year)
        if not bounds or low * scale < bounds[0] or high * scale > bounds[1]:
            return False
    steps = seen.step * scale / float(contract.tick_size)
    return abs(steps - round(steps)) < 1e-6 and round(steps) >= 1


def contradicts(seen: FileFacts, contract: Contract) -> bool:
    """Return whether the reader would refuse the prices, in any year of known range."""
    ranges = ((contract.price_limits(year), held) for year, held in seen.years.items())
    return any(range_ and (low < range_[0] or high > range_[1]) for range_, (low, high) in ranges)


def price_unit(seen: FileFacts, contract: Contract) -> float | None:
    """Return the points per unit of the file, or None.

    None: not exactly one power of ten makes the prices fit.
    """
    found = [scale for scale in SCALES if fits(seen, contract, scale)]
    return found[0] if len(found) == 1 else None


class Clock(NamedTuple):
    """A time zone and a stamp side.

    closed: share of the bars that would lie in hours when the market is closed.
    """

    time_zone: str
    stamp: Stamp
    closed: float


def clocks(seen: FileFacts, contract: Contract) -> list[Clock]:
    """Rank usual time zones and both stamp sides by how well they fit the market's hours.

    The best comes first; for stamps in UTC, the sides alone. Empty if the calendar has no hours for
    these dates.
    """
    at = seen.wall[np.linspace(0, len(seen.wall) - 1, min(PROBES, len(seen.wall))).astype(np.int64)]
    zones = [seen.keys.time_zone or "UTC"]
    if seen.naive and not seen.keys.time_zone:
        zones = list(USUAL)
    sides: list[Stamp] = [seen.keys.stamp] if seen.keys.stamp else ["open", "close"]
    found = []
    for zone in zones:
        utc = at
        if seen.naive:  # hours that the clock repeats are left out
            utc, clash = utc_of(at, known_zone(zone))
            utc = utc[~clash]
        for side in sides:
            closed = _compute_closed_share(
                utc - (seen.bar_seconds if side == "close" else 0), seen.bar_seconds, contract
            )
            if closed is None:
                return []
            found.append(Clock(zone, side, closed))
    return sorted(found, key=lambda clock: clock.closed)


def clear_winner(found: list[Clock]) -> Clock | None:
    """Return the best clock, if every other one puts many times as many bars into closed hours."""
    if not found or found[0].closed > MOST_CLOSED:
        return None
    best, *others = found
    return best if all(clock.closed > CLEAR * best.closed + 1e-3 for clock in others) else None


def _compute_closed_share(utc: np.ndarray, bar_seconds: int, contract: Contract) -> float | None:
    """Compute the share of bars that open while the market is closed.

    None if the calendar lacks the dates.
    """
    try:
        schedule = schedule_for("table", contract, utc, bar_seconds)
    except DataError:
        return None
    inside = find_sessions(schedule, utc, trade_dates(utc, contract))[1]
    return float(1 - inside.mean())
