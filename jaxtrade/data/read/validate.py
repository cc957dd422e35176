"""Columns as fields, rows as one contract, cells as prices: each with the faults that it has.

Nothing is repaired.

The faults of single cells are added to the table, so that one message can list all of them. Where
nothing more can be read, because a column or a contract is missing, a function raises.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrade.config import Roll
from jaxtrade.data.bars import PRICES, Side
from jaxtrade.data.calendar.schedule import most_common, years_of
from jaxtrade.data.contracts import CONTRACTS, Contract, have_same_prices
from jaxtrade.data.read.roll import GIVE_THEM, MONTHS, span
from jaxtrade.data.read.tabular import Table
from jaxtrade.text import did_you_mean, year_runs

# Two-sided bars on the host: bid and ask columns of a table.
#
# Quotes are never invented. A bar that is not quoted on both sides is left out and counted; if more
# than a few bars are affected, an error is raised. Crossed quotes (ask below bid) are widened to
# ask = bid and reported.

SIDES = ("bid", "ask")
QUOTE_FIELDS = tuple(f"{side}_{price}" for side in SIDES for price in PRICES)
MISSING_LIMIT = (
    0.01  # default of data.quotes_tolerance: largest share of bars without a quote on both sides
)
MOST_TOLERATED = 0.5  # an error suggests no limit above this share
SHOWN = 3
TWO_SIDED = "two-sided bars: fills buy at the ask and sell at the bid, features see the mid; no slippage by default"


def side_columns(names: Mapping[str, str], side: str) -> dict[str, str]:
    """Map fields to column names, where open, high, low and close are the columns of one side."""
    return {**names, **{price: names[f"{side}_{price}"] for price in PRICES}}


def quoted_rows(
    table: Table, names: Mapping[str, str], limit: float
) -> tuple[Table, tuple[str, ...]]:
    """Return (the rows that are quoted on both sides, notes).

    A note counts the others, where all four cells of a side are empty, because that side was not
    quoted. A side with only some empty cells counts as quoted; the price checks refuse it later.
    Raises DataError if the share of the others is above `limit`.
    """
    whole = np.ones(len(table), bool)
    for side in SIDES:
        whole &= ~np.all([table.empty(names[f"{side}_{price}"]) for price in PRICES], axis=0)
    lost = np.flatnonzero(~whole)
    if not len(lost):
        return table, ()
    share = len(lost) / len(table)
    counted = f"{len(lost)} of {len(table)} rows"
    if share > limit:
        raise table.refusal(
            f"{counted} ({100 * share:.2f} %, limit {100 * limit:g} %) have no bid or "
            "no ask at all",
            "choose a contract that is quoted throughout (data.expiry), or remove those rows"
            + suggest_limit("leave them out", "quotes_tolerance", share),
            names["time"],
            int(lost[0]),
        )
    return table.select(whole), (
        f"{counted} have no bid or no ask and are left out, as if there were no bar: "
        f"{_places(table, lost)}{' ...' if len(lost) > SHOWN else ''}",
    )


def _places(table: Table, rows: np.ndarray) -> str:
    return ", ".join(map(table.place, rows[:SHOWN].tolist()))


def suggest_limit(what: str, key: str, share: float) -> str:
    """Return the end of a fix: the limit that admits a share of faulty bars.

    Empty if it is most bars: the file is wrong then.
    what: what the flag does with those bars.
    key: of `data`, with a flag of the same name.
    """
    if share > MOST_TOLERATED:
        return ""
    limit = math.ceil(1000 * share) / 1000
    return f"; or {what} with --{key.replace('_', '-')} {limit:g} (data.{key})"


def widen(table: Table, seconds: np.ndarray, bid: Side, ask: Side) -> tuple[Side, tuple[str, ...]]:
    """Raise the ask to the bid wherever it lies below -> (the ask, notes).

    A note counts the crossed bars per date. The maximum is taken field by field. It keeps the high
    the highest and the low the lowest, so the result is a valid bar.
    """
    crossed = np.any([a < b for a, b in zip(ask, bid, strict=True)], axis=0)
    if not crossed.any():
        return ask, ()
    days, counts = np.unique(seconds[crossed] // 86_400, return_counts=True)
    dates = [
        f"{np.datetime64(int(day), 'D')}: {count}" for day, count in zip(days, counts, strict=True)
    ]
    return Side(*map(np.maximum, ask, bid)), (
        f"{int(crossed.sum())} crossed bars (ask below bid), widened to ask = bid: {', '.join(dates[:10])}"
        f"{' ...' if len(dates) > 10 else ''} (UTC dates; first {_places(table, np.flatnonzero(crossed))})",
    )


FIELDS = ("time", *PRICES, *QUOTE_FIELDS, "volume", "expiry", "symbol")
ALIASES = {
    "time": ("time", "ts", "ts_utc", "ts_event", "timestamp", "datetime", "date"),
    "open": ("open", "o"),
    "high": ("high", "h"),
    "low": ("low", "l"),
    "close": ("close", "c", "last"),
    "volume": ("volume", "vol", "v"),
    "expiry": ("expiry",),
    "symbol": ("symbol",),
    **{field: (field,) for field in QUOTE_FIELDS},
}
NO_VOLUME_COLUMN = "no volume column: volume is 0 throughout, marked absent"
SPREAD = re.compile(
    rf"[A-Z0-9]+[{MONTHS}]\d{{1,4}}\s*[-:/]\s*[A-Z0-9]*[{MONTHS}]\d{{1,4}}|\d{{6}}\s*[-:/]\s*\d{{6}}"
    r"|^[A-Z0-9]+:[A-Z0-9]{2}[ :]"  # CME's names of strategies: ES:BF H4-M4-U4
)
NOT_POSITIVE = (
    "remove the row, or check data.columns; real prices at or below zero (oil in April 2020) cannot be "
    "traded here, because features divide by prices: give another expiry or a file without those days"
)
CHECK_ROW = "remove the row, or check data.columns"
MAX_TICKS = (
    1 << 28
)  # well inside int32, with room for stops and targets around a price (`env.state.NO_LEVEL`)


def map_columns(table: Table, given: Mapping[str, str]) -> tuple[dict[str, str], bool, list[str]]:
    """Map fields to column names.

    Returns (field -> column name; whether the prices are bid and ask columns; what was assumed).
    Columns come from the explicit map `given`, then from obvious names, which are noted. A file is
    read as quotes as `given` maps its columns, else if it has all eight of them; one-sided prices
    are then not read.
    """
    names, notes, missing = {}, list[str](), {}
    present = table.names
    one, two = ([key for key in given if key in fields] for fields in (PRICES, QUOTE_FIELDS))
    if one and two:
        table.fault(
            f"data.columns maps {one[0]} (one-sided bars) and {two[0]} (two-sided bars)",
            f"map either {', '.join(PRICES)}, or {', '.join(QUOTE_FIELDS)}",
        )
    quoted = {name.lower() for name in present}.issuperset(QUOTE_FIELDS)
    two_sided = bool(two) or (not one and quoted)
    prices, unread = (QUOTE_FIELDS, PRICES) if two_sided else (PRICES, QUOTE_FIELDS)
    for key in given:
        if key not in FIELDS:
            table.fault(
                f"data.columns: unknown field '{key}'",
                f"use {', '.join(FIELDS)}{did_you_mean(key, FIELDS)}",
            )
    for field in FIELDS:
        if field in unread:
            continue
        hits = [name for alias in ALIASES[field] for name in present if name.lower() == alias]
        if field in given:
            names[field] = given[field]
            if given[field] not in present:
                missing[field] = given[field]
        elif hits:
            names[field] = hits[0]
            if hits[0] != field:
                notes.append(f"column '{hits[0]}' read as {field}")
            if len(hits) > 1:
                joined = (
                    "; date and time of day belong into columns named date and time, or into one"
                )
                table.fault(
                    f"columns {hits} could each be {field}",
                    f"set data.columns={{{field}: NAME}}{joined if field == 'time' else ''}",
                )
        elif field in ("time", *prices):
            missing[field] = field
        elif field == "volume":
            notes.append(NO_VOLUME_COLUMN)
    other = sorted(name for name in present if name.lower() in unread)
    if len(other) == len(unread):
        why = (
            "fills take the bid and ask"
            if two_sided
            else "one-sided bars, as data.columns maps them"
        )
        notes.append(f"columns {', '.join(other)} are not read: {why}")
    for name in sorted(table.twins & {*names.values(), table.layout.date, table.layout.clock}):
        table.fault(f"column '{name}' appears twice", "keep one, or rename the other")
    for field, wanted in missing.items():
        near = [n for n in present if field in n.lower()] or difflib.get_close_matches(
            wanted, present, n=3, cutoff=0.5
        )
        hint = f" (near: {', '.join(near[:3])})" if near else ""
        if field in prices and len(missing) == 1 and len(table):
            # Suggest the one column of numbers that belongs to no field.
            unused = [name for name in present if name not in names.values()]
            numeric = [name for name in unused if np.isfinite(table.numbers(name)).all()]
            if len(numeric) == 1:
                hint = f", where NAME could be {numeric[0]}: the one column of numbers not used"
        table.fault(
            f"no column '{wanted}' for {field}; the file has {', '.join(present[:12])}",
            f"set data.columns={{{field}: NAME}}{hint}",
        )
    return names, two_sided, notes


def product_of(symbol: str, own: str = "") -> str:
    """Return the market of an instrument name such as NQZ5, 'NQ 12-25', NQ=F or EUR/USD.

    Empty if it is unknown.
    own: symbol of a user's market, in addition to the known ones.
    """
    text = symbol.upper().replace("/", "").lstrip("@$")
    for root in sorted({*CONTRACTS, own} - {""}, key=lambda root: (-len(root), root)):
        rest = text[len(root) :]
        dated = re.fullmatch(rf"[{MONTHS}]\d{{1,4}}.*", rest)
        if text.startswith(root) and (not rest or rest[0] in " .-_!#=1" or dated):
            return root
    return ""


def list_spreads(counts: Any) -> list[str]:
    """Return the codes that name a spread between contracts.

    counts: pandas Series, code -> rows.
    """
    return [
        code
        for code in counts.index
        if SPREAD.search(code.upper()) and product_of(code) != code.upper().replace("/", "")
    ]


def drop_spreads(table: Table, names: Mapping[str, str]) -> tuple[Table, list[str]]:
    """Return (the rows that are of no spread, a note that counts the others).

    Rows of spreads stay where there are no others, so that they are refused.
    """
    notes = []
    for key in (names[field] for field in ("expiry", "symbol") if field in names):
        codes = table.texts(key)
        counts = codes.value_counts()
        spreads = list_spreads(counts)
        if 0 < len(spreads) < len(counts):
            notes.append(
                f"data.spreads=drop: {int(counts[spreads].sum())} of {len(table)} rows are of calendar "
                f"spreads and left out: {_list_counts(counts[spreads])}"
            )
            table = table.select(~codes.isin(spreads).to_numpy(bool))
    return table, notes


def one_contract(
    table: Table,
    names: Mapping[str, str],
    contract: Contract,
    expiry: str | None,
    roll: Roll,
    follows: str = "",
) -> Table:
    """Select the rows of the contract to read, or of all contracts that `roll` splices.

    follows: as in `roll_rows`.
    Raises DataError for spreads, other products, unknown contracts, several contracts without a
    roll, and for several values in a column that may hold one only.
    """
    keys = [names[field] for field in ("expiry", "symbol") if field in names]
    if expiry or roll != "off":
        table = _choose(table, keys, expiry, roll, follows)
    for key in keys:
        values = table.texts(key)
        counts = values.value_counts()

        def first(value: str, values: Any = values) -> int:
            return int((values == value).to_numpy().argmax())

        if spreads := list_spreads(counts):
            table.fault(
                f"a calendar spread is mixed in ({int(counts[spreads].sum())} rows)",
                "leave its rows out with data.spreads=drop, or name the one contract with data.expiry",
                key,
                first(spreads[0]),
            )
            continue
        for value in counts.index if key == names.get("symbol") else ():
            product, own = product_of(value, contract.symbol), contract.symbol
            if product not in ("", own) and not have_same_prices(product, own):
                table.fault(
                    f"these are {product} bars but data.market is {own}",
                    f"set data.market={product}, or give the {own} file",
                    key,
                    first(value),
                )
        if len(counts) > 1 and not expiry and roll == "off":
            table.fault(
                f"column '{key}' holds {len(counts)} contracts: {_list_counts(counts)}",
                f"choose one with data.expiry={counts.index[0]}, or splice them with data.roll=volume or "
                "data.roll={EXPIRY: start, EXPIRY: YYYY-MM-DD}",
            )
    for name, what in table.layout.single.items():
        counts = table.texts(name).value_counts()
        if len(counts) > 1:
            table.fault(
                f"column '{name}' holds {len(counts)} {what}: {_list_counts(counts)}",
                "keep the rows of one of them",
            )
    table.check()
    return table


def _list_counts(counts: Any) -> str:
    return ", ".join(f"{value} ({n} rows)" for value, n in counts.head(6).items())


def _choose(table: Table, keys: list[str], expiry: str | None, roll: Roll, follows: str) -> Table:
    """Select the rows of `data.expiry`, or of the contracts that `data.roll` names."""
    if not keys:
        asked = f"data.expiry={expiry} chooses" if expiry else "data.roll splices"
        raise table.refusal(
            f"no expiry or symbol column, but {asked} contracts" + (follows and f" of {follows}"),
            "drop that key, or map the column with data.columns={expiry: NAME}",
        )
    if isinstance(roll, str) and not expiry:  # by volume: every contract may take part
        return table
    wanted = [expiry] if expiry else list(roll)
    found = [key for key in keys if table.texts(key).isin(wanted).any()] if expiry else []
    key = next(iter(found), keys[0])
    codes = table.texts(key)
    known = codes.value_counts().index
    for code in wanted:
        if code in known:
            continue
        missing, fix = f"no row of contract '{code}' in column '{key}'", GIVE_THEM
        if not follows:
            fix = f"name one of {', '.join(known[:8])}"
        elif not isinstance(roll, str):
            missing += f", which is the one in {follows} {span(roll, code)}"
        raise table.refusal(missing, fix)
    return table.select(codes.isin(wanted).to_numpy(bool))


def newest_first(table: Table, name: str, seconds: np.ndarray) -> bool:
    """Return whether most rows are earlier than the row before, which is a fault of the file."""
    backwards = np.diff(seconds) < 0
    if 2 * backwards.sum() <= len(seconds):
        return False
    table.fault(
        "the newest row comes first",
        f"sort the file by time, oldest row first (pandas: frame.sort_values({name!r}))",
        name,
    )
    return True


def check_order(
    table: Table, names: Mapping[str, str], step: np.ndarray, read: np.ndarray | bool = True
) -> None:
    """Find duplicate and unsorted stamps, which are faults of the table.

    step: int64[n], seconds since the row before.
    read: bool[n], where there is such a row, and both stamps were read.
    """
    several = "; or, if the file holds several contracts, add an expiry or symbol column and set data.expiry"
    if "expiry" in names or "symbol" in names:
        several = ""
    name, remove = names["time"], f"remove one of the two rows{several}"
    table.fault("a duplicate stamp", remove, name, read & (step == 0))
    unsorted = "a stamp earlier than the row before: rows are not sorted"
    table.fault(unsorted, f"sort the file by time{several}", name, step < 0)


def parse_steps(table: Table, names: Mapping[str, str], seconds: np.ndarray) -> int:
    """Return the bar length in seconds: the most common step.

    Unsorted, duplicate and irregular stamps are faults.
    """
    if len(seconds) < 2:
        table.fault(
            f"{len(seconds)} bars: too few to know the bar length",
            "give at least one session of bars",
        )
        return 1
    name = names["time"]
    if newest_first(table, name, seconds):
        return int(-np.median(np.diff(seconds)))
    # 0 is a stamp that was not read. The first row has no step.
    read = (seconds != 0) & (np.append(0, seconds[:-1]) != 0)
    step = np.where(read, np.diff(seconds, prepend=0), 0)
    check_order(table, names, step, read)
    ahead = step[step > 0]
    length = most_common(ahead) if len(ahead) else 1
    if length > 3600 or 3600 % length:
        table.fault(
            f"the usual step between bars is {length} s",
            "give intraday bars of 1 second to 1 hour whose length divides an hour",
        )
        return length
    for i in np.flatnonzero((step > 0) & ((step < length) | (step % length != 0))):
        table.fault(
            f"{step[i]} s after the row before, in a file of {length} s bars",
            "give bars of one length, stamped on its grid",
            name,
            i,
        )
    return length


def parse_prices(
    table: Table,
    names: Mapping[str, str],
    seconds: np.ndarray,
    contract: Contract,
    price_scale: float,
) -> tuple[Side, list[str]]:
    """Parse the prices of the rows -> (int32 ticks, what was assumed).

    Raises DataError, with all faults so far, if most bars of a year are implausible: the market or
    the unit is the wrong one, and faults about the tick would only hide the cause.
    """
    points = {}
    for field in PRICES:
        points[field] = parse_numbers(table, names[field], "price") * price_scale
        problem = "a price that is not positive"
        table.fault(problem, NOT_POSITIVE, names[field], points[field] <= 0)
    notes = check_range(table, names, seconds, points, contract, price_scale)
    ticks = []
    for field in PRICES:
        column, single = _ticks(table, names[field], points[field], contract)
        ticks.append(column)
        notes += single
    # NaN passes, because every comparison with it is False; its fault is among them already.
    upside_down = points["high"] < points["low"]
    for i in np.flatnonzero(upside_down):
        problem = f"high is below low ({table.cell(names['low'], int(i))})"
        table.fault(problem, CHECK_ROW, names["high"], i)
    for field in ("open", "close"):
        outside = (points[field] > points["high"]) | (points[field] < points["low"])
        problem = f"{field} is outside low..high"
        table.fault(problem, CHECK_ROW, names[field], outside & ~upside_down)
    return Side(*ticks), notes


def parse_volume(table: Table, names: Mapping[str, str]) -> np.ndarray:
    """Parse the volume (float64[n]): 0 without such a column."""
    if "volume" not in names:
        return np.zeros(len(table))
    volume = parse_numbers(table, names["volume"], "volume")
    table.fault("a negative volume", CHECK_ROW, names["volume"], volume < 0)
    return volume


def parse_numbers(table: Table, name: str, what: str) -> np.ndarray:
    """Parse a column as float64. Cells that are no numbers are faults, and become NaN."""
    values = table.numbers(name)
    bad = ~np.isfinite(values)
    fix = "remove the row or write a plain number with a decimal point"
    table.fault(f"not a finite {what}", fix, name, bad)
    return np.where(bad, np.nan, values)


def _ticks(
    table: Table, name: str, points: np.ndarray, contract: Contract
) -> tuple[np.ndarray, list[str]]:
    """Convert one price column to ticks -> (int32[n], notes).

    Prices off the tick or beyond MAX_TICKS are faults.
    points: float64[n]; NaN, which is a fault already, becomes 1 tick.
    """
    exact = points / float(contract.tick_size)
    ticks = np.round(np.nan_to_num(exact, nan=1.0))
    away = np.abs(np.subtract(exact, ticks, out=exact), out=exact)
    allowed: np.ndarray | float = TICK_NOISE
    notes = []
    if np.nanmax(away, initial=0.0) > TICK_NOISE:
        allowed = allowed_noise(points, float(contract.tick_size))
        if not (away > allowed).any():
            notes = [
                f"column '{name}' holds 32-bit prices (as Yahoo sends them), read to the tick beside them"
            ]
    table.fault(
        f"off the tick of {contract.symbol} ({contract.tick_size})",
        "check data.market and data.price_scale; prices are never rounded",
        name,
        away > allowed,
    )
    beyond = np.flatnonzero(ticks >= MAX_TICKS)
    if len(beyond):
        table.fault(
            f"{ticks[beyond[0]]:.0f} ticks, more than {MAX_TICKS}, the most that are computed with (a tick is "
            f"{contract.tick_size})",
            "check data.price_scale, and tick_size in the contract file",
            name,
            int(beyond[0]),
        )
    return np.clip(ticks, 0, MAX_TICKS, out=ticks).astype(np.int32), notes


# --- prices that were 32-bit floats once, as Yahoo sends them


TICK_NOISE = 1e-4  # ticks: rounding noise of a scaled price, far below any real off-tick price
LARGEST = float(np.finfo(np.float32).max)
MOST = 0.25  # ticks: with half a spacing of 32-bit floats below it, one tick alone can be meant


def allowed_noise(points: np.ndarray, tick: float) -> np.ndarray | float:
    """Return how far each price may lie from its tick, in ticks: float64[n], or one number for all.

    points: float64[n], NaN where a cell was not a number. If every price is exactly a 32-bit float,
        each was rounded to one, so it may lie half a spacing of 32-bit floats from its tick. That
        is allowed as long as the nearest tick is the only one that it can have been.
    """
    read = np.nan_to_num(points, nan=1.0)
    single = np.clip(read, -LARGEST, LARGEST).astype(np.float32)
    if (read != single).any():
        return TICK_NOISE
    half = np.spacing(np.abs(single)).astype(np.float64) / 2 / tick
    return np.where(half < MOST, np.maximum(half * (1 + TICK_NOISE), TICK_NOISE), TICK_NOISE)


SCALES = tuple(10.0**power for power in range(-9, 10) if power)  # between units of prices


def check_range(
    table: Table,
    names: Mapping[str, str],
    seconds: np.ndarray,
    points: Mapping[str, np.ndarray],
    contract: Contract,
    price_scale: float,
) -> list[str]:
    """Check that prices are plausible for the market in their year.

    This refuses bars of another market or unit. Returns notes.
    points: float64[n] for each price field, the file's prices times `price_scale`.
    Raises DataError if most bars of a year are implausible.
    """
    other_market, told, unknown, notes = False, False, list[int](), list[str]()
    years = years_of(seconds)
    for year in np.unique(years[seconds != 0]).tolist():
        bounds, limits = contract.price_range(year), contract.price_limits(year)
        if not bounds or not limits:
            unknown.append(year)
            continue
        of_year = years == year
        low, high, close = (points[field][of_year] for field in ("low", "high", "close"))
        outside = (low < bounds[0]) | (high > bounds[1])
        if not outside.any():
            continue
        far = (low < limits[0]) | (high > limits[1])
        most = max(1 - np.nanmin(low) / bounds[0], np.nanmax(high) / bounds[1] - 1)
        range_ = " and ".join(f"{bound:.{contract.decimals}f}" for bound in bounds)
        known = f"which traded between {range_}"
        if not far.any():
            notes.append(
                f"WARNING: {int(outside.sum())} of {len(outside)} bars of {year} lie outside the known "
                f"range of {contract.symbol}, {known}, by at most {100 * most:.2f} %; check that they "
                "are of this market, and not back-adjusted"
            )
            continue
        first = int(far.argmax())
        others = [
            c.symbol
            for c in CONTRACTS.values()
            if not c.micro
            and (held := c.price_range(year))
            and (low >= held[0]).all()
            and (high <= held[1]).all()
        ]
        hint = f"; they fit {' or '.join(others)}" if others else ""
        table.fault(
            f"{int(outside.sum())} of {len(outside)} bars of {year} contradict {contract.symbol}, "
            f"{known}: they are up to {100 * most:.1f} % outside{hint}",
            _fix(contract, price_scale, bounds, close, told),
            names["low" if low[first] < limits[0] else "high"],
            int(np.flatnonzero(of_year)[first]),
        )
        told = True
        other_market |= bool(2 * far.sum() > len(far))
    if other_market:
        raise table.error()
    if unknown:
        notes.append(
            f"{year_runs(unknown)}: no price range is known for {contract.symbol}; its prices are not "
            "checked against one"
        )
    return notes


def _fix(
    contract: Contract,
    price_scale: float,
    bounds: tuple[float, float],
    close: np.ndarray,
    told: bool,
) -> str:
    """Say what to set.

    Names the unit that the file seems to have if another power of ten brings the closes into
    the range.

    told: another line has said how to read the prices all the same.
    """
    known = close[np.isfinite(close)]
    middle = float(np.median(known)) if len(known) else 0.0
    units = [scale for scale in SCALES if bounds[0] <= middle * scale <= bounds[1]]
    if middle <= 0 or len(units) != 1:
        check = (
            "check data.market and data.price_scale (back-adjusted prices are not tradable prices)"
        )
        own = f"my_{contract.symbol.lower()}.yaml"
        return (
            check
            if told
            else (
                f"{check}; if the prices are right, give a contract file without price_ranges, --contract "
                f"{own}: echo '{contract.file_text()}' > {own}"
            )
        )
    found = f"{price_scale * units[0]:.12f}".rstrip("0").rstrip(".")
    return (
        f"if the file holds {contract.symbol} in another unit, set data.price_scale={found} (for this symbol "
        f"alone, data.per_market.{contract.symbol}.price_scale={found}); otherwise check data.market"
    )
