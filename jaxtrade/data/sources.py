"""The bars that a configuration names, with quotes, seconds and exchange rates.

They are bundled, synthetic, from files or from memory.
"""

from __future__ import annotations

import gzip
import hashlib
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.config import DataConfig, RunConfig, changed_config
from jaxtrade.data.bars import INT32, PRICES, Bars
from jaxtrade.data.calendar.schedule import table_schedule, trade_dates
from jaxtrade.data.contracts import CONTRACTS, Contract, contract_of, known_contract
from jaxtrade.data.read.bars import from_frame, load_bars, load_bundled
from jaxtrade.data.read.roll import explicit
from jaxtrade.data.read.validate import (
    MISSING_LIMIT,
    NO_VOLUME_COLUMN,
    QUOTE_FIELDS,
    SHOWN,
    suggest_limit,
)
from jaxtrade.data.synthetic import bars_of_kind
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso
from jaxtrade.storage.digests import write_whole
from jaxtrade.types import TickValue

if TYPE_CHECKING:
    import pandas as pd


# Keys of `data` that `load_bars` takes under the same name, whatever the file.
SAME = (
    "columns",
    "time_zone",
    "stamp",
    "date_order",
    "price_scale",
    "expiry",
    "roll",
    "spreads",
    "start",
    "end",
    "splits",
)


def read_keys(config: RunConfig, quotes: bool, like: Bars | None = None) -> dict[str, Any]:
    """Return the keyword arguments with which `load_bars` reads a file of this configuration.

    quotes: whether the file is `data.quotes`, or has its columns.
    like: bars that the file accompanies. It must follow their roll dates, and any number of its
        rows may lack a side: what that means for the bars is counted later.

    `data.columns` may name columns of two files: trade bars and quotes. Price and volume columns of
    the trade bars are left out for the quotes, and quote columns are left out for the trade bars.
    """
    data = config.data
    others = (*PRICES, "volume") if quotes else QUOTE_FIELDS
    keys = {key: getattr(data, key) for key in SAME}
    if data.quotes:
        keys["columns"] = {key: name for key, name in data.columns.items() if key not in others}
    if like:
        roll = explicit(like.legs, like.trade_dates)
        return keys | {"roll": roll, "follows": like.source, "missing": 1.0}
    return keys | {"missing": data.quotes_tolerance}


def bars_of(config: RunConfig) -> Bars:
    """Load the bars that `config.data` names.

    They are bundled, synthetic or from a file, with the quotes of `data.quotes`. Raises ConfigError
    (unknown market, contradictory keys) or DataError (faults in the files).
    """
    bars, data = _bars_alone(config), config.data
    if not data.quotes:
        return bars
    # A quote that lacks a side matters only if there is a trade bar at its stamp. `attach` counts
    # those cases.
    return attach(
        bars,
        load_bars(data.quotes, contract_of(data), **read_keys(config, True, bars)),
        data.quotes_tolerance,
    )


# Keys of `data` that have an effect with some sources only.
SOURCES_OF = {
    "file": ("file",),
    "splits": ("file",),
    "roll": ("file", "bundled"),
    "quotes": ("file", "bundled"),
    "seconds": ("file", "bundled"),
    "synthetic": ("synthetic",),
}


def _bars_alone(config: RunConfig) -> Bars:
    data = config.data
    contract = contract_of(data)
    for key, sources in SOURCES_OF.items():
        value = getattr(data, key)
        if value != DataConfig.model_fields[key].default and data.source not in sources:
            raise ConfigError(
                f"data.{key} = {value} is given but data.source = {data.source}; it belongs to bars of "
                f"another source: set data.source={sources[0]}, or drop data.{key}"
            )
    if data.source == "synthetic":
        return bars_of_kind(contract, data)
    if data.source == "bundled":
        return load_bundled(
            contract, expiry=data.expiry, roll=data.roll, start=data.start, end=data.end
        )
    if not data.file:
        raise ConfigError("data.source = file needs data.file (--data FILE)")
    return load_bars(data.file, contract, **read_keys(config, False))


def seconds_of(config: RunConfig, bars: Bars) -> Bars | None:
    """Load the second bars that `data.seconds` names, or None if it names none.

    They are read with the keys of `data.file` (of `data.quotes` if that is given) and rolled on the
    same dates as `bars`. Raises DataError (faults in the file).
    """
    data = config.data
    if not data.seconds:
        return None
    # A second that lacks a side is left out. If that changes a bar, `first_passages` finds that the
    # bar is not rebuilt.
    return load_bars(data.seconds, contract_of(data), **read_keys(config, True, bars))


def attach(bars: Bars, quotes: Bars, tolerance: float = MISSING_LIMIT) -> Bars:
    """Join two-sided bars: stamps and volume of the trade bars, prices of the quotes.

    Bars without a quote on both sides are left out and counted.

    Args:
        tolerance: largest share of the trade bars that may have no quote.

    Raises:
        DataError: the quotes have one side, the trade bars have two, bar lengths or contracts
            differ, or more than `tolerance` of the bars have no quote.
    """
    if bars.ask:
        raise DataError(
            f"{bars.source}: has bid and ask itself, and data.quotes names {quotes.source}. Fix: drop "
            "data.quotes (--quotes), or map data.columns={open: NAME, ...} to the trade prices"
        )
    if not quotes.ask:
        raise DataError(
            f"{quotes.source}: has one side only. Fix: give data.quotes (--quotes) bars with the columns "
            f"{', '.join(QUOTE_FIELDS)}, or map them with data.columns"
        )
    if quotes.bar_seconds != bars.bar_seconds:
        raise DataError(
            f"{quotes.source}: bars of {quotes.bar_seconds} s, but {bars.source} has bars of "
            f"{bars.bar_seconds} s. Fix: give quotes of the same length"
        )
    at = np.minimum(np.searchsorted(quotes.time, bars.time), len(quotes) - 1)
    found = quotes.time[at] == bars.time
    lost = int((~found).sum())
    first = ", ".join(iso(t) for t in bars.time[~found][:SHOWN])
    if lost > tolerance * len(bars):
        raise DataError(
            f"{quotes.source}: no quote of both sides for {lost} of {len(bars)} bars of {bars.source} "
            f"({100 * lost / len(bars):.2f} %, limit {100 * tolerance:g} %), the first at {first}; "
            f"quotes span {iso(quotes.time[0])}..{iso(quotes.time[-1])}. Fix: give the quotes of the "
            "same instrument and days, stamped like the bars (data.stamp, data.time_zone and data.expiry "
            "apply to both files), or narrow data.start and data.end"
            + suggest_limit("leave those bars out", "quotes_tolerance", lost / len(bars))
        )
    notes = [f"prices are the quotes of {quotes.source}; stamps and volume are of {bars.source}"]
    if lost:
        notes.append(
            f"{lost} of {len(bars)} bars have no quote of both sides and are left out, as if there were no "
            f"bar: {first}{' ...' if lost > SHOWN else ''}"
        )
    unused = len(quotes) - int(found.sum())
    if unused:
        notes.append(f"{unused} of {len(quotes)} quote bars have no trade bar and are not used")
    kept, sides = bars.rows(found), quotes.rows(at[found])
    return kept.with_quotes(
        *sides.quotes,
        places=sides.places,
        contract=quotes.contract,
        notes=(*bars.notes, *(note for note in quotes.notes if note != NO_VOLUME_COLUMN), *notes),
    )


# Bars from memory for a run: they are written to a file first, so that the run can be evaluated
# and resumed later.

# Keys that say how a source is read, with their values for a file that `write_bars` wrote. The
# other keys of the section (start, end, splits, ...) say what a run makes of the bars, and keep
# their meaning.
READING = {
    "columns": {},
    "time_zone": None,
    "stamp": "open",
    "date_order": None,
    "price_scale": 1.0,
    "expiry": None,
    "roll": "off",
    "spreads": "refuse",
}


def bars_from(frame: pd.DataFrame, config: RunConfig) -> Bars:
    """Read the bars of a frame with the keys of `config.data`.

    Raises DataError with every fault, ConfigError.
    """
    keys = read_keys(config, quotes=False)
    return from_frame(frame, contract_of(config.data), **{name: keys[name] for name in READING})


def with_bars(config: RunConfig, bars: Bars, folder: Path) -> RunConfig:
    """Return `config` with `bars` as its data.

    Writes them to a file in `folder`, named by its content, and states how to read it.

    Raises:
        ConfigError: the bars are synthetic or spliced, or their contract is not that of
            the configuration.
    """
    if bars.synthetic:
        raise ConfigError(
            "data=: these bars are synthetic, and a run from them would be reported as one of real bars; "
            "generate them in the run: data={'source': 'synthetic', ...}"
        )
    if bars.legs:
        raise ConfigError(
            "data=: these bars are spliced from several contracts; give their file and the roll: "
            "data='FILE', roll=..."
        )
    own, symbol = config.data.contract, bars.contract.symbol
    known = contract_of(config.data) if own else known_contract(symbol)
    if not known or replace(known, slippage_ticks=bars.contract.slippage_ticks) != bars.contract:
        hint = f"contract={own!r} is another" if own else "it is not a market of jaxtrade"
        raise ConfigError(
            f"data=: the contract of these bars is {symbol}, and {hint}; give "
            "contract='FILE' with its figures"
        )
    path = write_bars(bars, folder)
    read = {"source": "file", "file": str(path.resolve()), **READING}
    if not own:
        read |= {"market": symbol} if symbol in CONTRACTS else {"contract": symbol}
    return changed_config(config, {f"data.{key}": value for key, value in read.items()})


def write_bars(bars: Bars, folder: Path) -> Path:
    """Write one-sided or two-sided bars as CSV.gz -> the path `<symbol>-<sha256>.csv.gz`.

    A file that is there stays. `load_bars(path, contract, stamp="open")` reads equal bars back.
    Raises OSError (disk).
    """
    text = _text(bars).encode("ascii")
    path = folder / f"{bars.contract.symbol}-{hashlib.sha256(text).hexdigest()[:16]}.csv.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, gzip.compress(text, compresslevel=1, mtime=0))
    return path


def _text(bars: Bars) -> str:
    import pandas as pd

    contract = bars.contract

    def points(ticks: np.ndarray) -> np.ndarray:
        return np.char.mod(f"%.{contract.decimals}f", ticks * float(contract.tick_size))

    columns: dict[str, Any] = {
        "time": np.char.add(np.datetime_as_string(bars.time.astype("datetime64[s]")), "Z")
    }
    for prefix, side in zip(("bid_", "ask_") if bars.ask else ("",), bars.quotes, strict=True):
        columns |= {f"{prefix}{name}": points(ticks) for name, ticks in side._asdict().items()}
    columns["volume"] = [repr(volume) for volume in bars.volume.tolist()]
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")


# The dollar value of a tick in each bar, for markets whose profits arise in another currency.
#
# A bar uses the rate that was known at its open, before any decision in the bar. The same rate
# applies to every fill and mark in the bar. Rates are exact: a tick's value is a fraction of two
# integers, and `muldiv` rounds once per fill or mark.

ACCOUNT = "USD"


def rate_of(contract: Contract) -> Contract | None:
    """Return the market whose price converts profits to dollars.

    It is the contract itself if it is quoted per dollar: USDJPY earns JPY. None if profits arise in
    dollars, or if no market between their currency and the dollar is known.
    """
    currency = contract.currency
    if contract.symbol == ACCOUNT + currency:
        return contract
    return CONTRACTS.get(currency + ACCOUNT) or CONTRACTS.get(ACCOUNT + currency)


def needs_rates(contract: Contract) -> bool:
    """Return whether bars of a rate are needed to convert profits to dollars."""
    return contract.currency != ACCOUNT and rate_of(contract) is not contract


def describe_conversion(contract: Contract) -> str | None:
    """State the conversion rule in a sentence, for notes and reports.

    None if profits arise in dollars.
    """
    if contract.currency == ACCOUNT:
        return None
    rate = rate_of(contract)
    source = rate.symbol if rate else contract.currency
    return (
        f"profits arise in {contract.currency} and are converted to {ACCOUNT} at the {source} rate known at each "
        "bar's open"
    )


def load_rates(data: DataConfig, contract: Contract) -> Bars | None:
    """Load the bars of the rate in `data.conversion`. None if no rate is needed.

    The file is read with the bars' `data.time_zone` and `data.stamp`. Its columns must have obvious
    names, and its prices are in points.

    Raises:
        ConfigError: a file that is not needed, a missing file, or a currency without a known rate.
        DataError: faults in the file.
    """
    where = f"{contract.symbol}: profits arise in {contract.currency}"
    if not needs_rates(contract):
        if data.conversion:
            raise ConfigError(
                f"data.conversion = '{data.conversion}': {where}, which needs no file; drop it"
            )
        return None
    rate = rate_of(contract)
    if not rate:
        known = sorted(
            {c.symbol.replace(ACCOUNT, "") for c in CONTRACTS.values() if c.kind == "fx"}
        )
        raise ConfigError(
            f"{where}, and conversion to {ACCOUNT} is known for {', '.join(known)} only, or for a "
            f"market {ACCOUNT}{contract.currency} by its own price"
        )
    if not data.conversion:
        raise ConfigError(
            f"{where}: give bars of {rate.symbol} with data.conversion=FILE (read with data.time_zone "
            f"and data.stamp), so that they can be converted to {ACCOUNT}"
        )
    if not Path(data.conversion).is_file():
        raise ConfigError(
            f"data.conversion = '{data.conversion}': no such file (expected bars of {rate.symbol})"
        )
    return load_bars(
        data.conversion,
        rate,
        time_zone=data.time_zone,
        stamp=data.stamp,
        date_order=data.date_order,
    )


def tick_values(bars: Bars, rates: Bars | None) -> TickValue | None:
    """Compute dollar mills per tick and contract in each bar, as a fraction.

    The leaves are NumPy int32[T]. None if profits arise in dollars.

    Raises:
        DataError: a bar has no rate, or only one that is older than one session.
        ConfigError: missing rates, or some that are not needed; a value that int32 cannot hold
            exactly, or a tick that is worth less than a mill.
    """
    contract = bars.contract
    if rates and not needs_rates(contract):
        raise ConfigError(
            f"{contract.symbol}: profits arise in {contract.currency}, which needs no rates; drop "
            f"{rates.source} (rates=... in Python)"
        )
    if contract.currency == ACCOUNT:
        return None
    if rates:
        price, rate = rates.close[rows_known(bars, rates)], rates.contract
    elif needs_rates(contract):
        raise ConfigError(
            f"{contract.symbol}: profits arise in {contract.currency}; give the bars of its rate to "
            "the dollar (data.conversion, or rates=... in Python)"
        )
    else:
        price, rate = bars.open, contract
    per_unit = rate.symbol.startswith(
        ACCOUNT
    )  # the price is in units of the currency per dollar, so divide by it
    money, tick = Fraction(contract.tick_mills), Fraction(rate.tick_size)
    fixed = money / tick if per_unit else money * tick
    price = price.astype(np.int64)
    times = np.full(len(price), fixed.numerator) if per_unit else price * fixed.numerator
    over = price * fixed.denominator if per_unit else np.full(len(price), fixed.denominator)
    common = math.gcd(int(np.gcd.reduce(times)), int(np.gcd.reduce(over)))
    times, over = times // common, over // common
    if max(int(times.max()), int(over.max())) >= INT32 or np.any(times < over):
        raise ConfigError(
            f"{contract.symbol}: a tick of {contract.tick_mills / 1000} {contract.currency} at "
            f"{rate.symbol} {rate.tick_size * int(price.min())}..{rate.tick_size * int(price.max())} is "
            "worth less than a mill or cannot be held exactly in int32; check tick_value and tick_size"
        )
    return TickValue(times.astype(np.int32), over.astype(np.int32))  # type: ignore[arg-type]  # host leaves


def rows_known(bars: Bars, rates: Bars) -> np.ndarray:
    """Find for each bar the row of the last rate whose bar had closed by the bar's open (int64[T]).

    Raises DataError if a bar has no such rate, or only one that is older than one session.
    """
    rate_dates = rates.trade_dates
    at = np.searchsorted(rates.time + rates.bar_seconds, bars.time, side="right") - 1
    given = rate_dates[np.maximum(at, 0)]
    wanted = trade_dates(bars.time, rates.contract)
    sessions = table_schedule(
        rates.contract, min(given[0], wanted[0]), max(given[-1], wanted[-1])
    ).dates
    age = np.searchsorted(sessions, wanted) - np.searchsorted(sessions, given)
    old = np.flatnonzero((at < 0) | (age > 1))
    if len(old):
        stamp = iso(int(bars.time[old[0]]))
        dates, lacking = np.unique(wanted), np.unique(wanted[old])
        whole = np.flatnonzero(~np.isin(dates, lacking))
        fix = "give rates that cover them"
        if len(whole) and whole[-1] - whole[0] + 1 == len(
            whole
        ):  # dates at the ends lack rates: they can be left out
            ends = ([f"data.start={dates[whole[0]]}"] if whole[0] else []) + (
                [f"data.end={dates[whole[-1]]}"] if whole[-1] + 1 < len(dates) else []
            )
            fix += f", or leave those dates out: {' '.join(ends)}"
        raise DataError(
            f"{rates.source}: no {rates.contract.symbol} rate of the session or the one before for "
            f"{len(old)} of {len(bars)} bars of {bars.source}, first {stamp}; rates span "
            f"{rate_dates[0]}..{rate_dates[-1]}, bars {wanted[0]}..{wanted[-1]}, and a rate is known once "
            f"its bar has closed. Fix: {fix}"
        )
    return at


def dollars_per_tick(contract: Contract, value: TickValue | None, rows: np.ndarray) -> float:
    """Compute dollars per tick and contract.

    If profits are converted, it is the median over `rows`.
    """
    if value is None:
        return contract.tick_mills / 1000
    return float(np.median(np.asarray(value.times)[rows] / np.asarray(value.over)[rows])) / 1000
