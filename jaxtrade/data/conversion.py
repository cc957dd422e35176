"""The dollar value of a tick in each bar, for markets whose profits arise in another currency.

A bar uses the rate that was known at its open, before any decision in the bar. The same rate
applies to every fill and mark in the bar. Rates are exact: a tick's value is a fraction of two
integers, and `muldiv` rounds once per fill or mark.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np

from jaxtrade.config import DataConfig
from jaxtrade.data.calendar.schedule import table_schedule, trade_dates
from jaxtrade.data.contracts import CONTRACTS, Contract
from jaxtrade.data.read.bars import Bars, load_bars
from jaxtrade.data.read.stamps import iso
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.types import TickValue

ACCOUNT = "USD"
INT32 = 1 << 31


def rate_contract(currency: str) -> Contract | None:
    """The known market between a currency and the dollar, such as EURUSD or USDJPY. None if there
    is none.
    """
    return CONTRACTS.get(currency + ACCOUNT) or CONTRACTS.get(ACCOUNT + currency)


def converts_itself(contract: Contract) -> bool:
    """Whether the market's own price is the rate: USDJPY earns JPY and is quoted in JPY per
    dollar.
    """
    return contract.symbol == ACCOUNT + contract.currency


def needs_rates(contract: Contract) -> bool:
    """Whether bars of a rate are needed to convert profits to dollars."""
    return contract.currency != ACCOUNT and not converts_itself(contract)


def describe_conversion(contract: Contract) -> str | None:
    """The conversion rule in a sentence, for notes and reports. None if profits arise in
    dollars.
    """
    if contract.currency == ACCOUNT:
        return None
    rate = contract if converts_itself(contract) else rate_contract(contract.currency)
    source = f"{rate.symbol}" if rate is not None else contract.currency
    return (
        f"profits arise in {contract.currency} and are converted to {ACCOUNT} at the {source} rate known at each "
        "bar's open"
    )


def load_rates(data: DataConfig, contract: Contract) -> Bars | None:
    """The bars of the rate in `data.conversion`. None if no rate is needed.

    The file is read with the bars' `data.time_zone` and `data.stamp`. Its columns must have obvious
    names, and its prices are in points.

    Raises:
        ConfigError: a file that is not needed, a missing file, or a currency without a known rate.
        DataError: faults in the file.
    """
    where = f"{contract.symbol}: profits arise in {contract.currency}"
    if not needs_rates(contract):
        if data.conversion is not None:
            raise ConfigError(
                f"data.conversion = '{data.conversion}': {where}, which needs no file; drop it"
            )
        return None
    rate = rate_contract(contract.currency)
    if rate is None:
        known = sorted(
            {c.symbol.replace(ACCOUNT, "") for c in CONTRACTS.values() if c.kind == "fx"}
        )
        raise ConfigError(
            f"{where}, and conversion to {ACCOUNT} is known for {', '.join(known)} only, or for a "
            f"market {ACCOUNT}{contract.currency} by its own price"
        )
    if data.conversion is None:
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
    """Dollar mills per tick and contract in each bar, as a fraction with NumPy leaves int32[T].

    None if profits arise in dollars.

    Raises:
        DataError: a bar has no rate, or only one that is older than one session.
        ConfigError: missing rates, or some that are not needed; a value that int32 cannot hold
            exactly, or a tick that is worth less than a mill.
    """
    contract = bars.contract
    alone = contract.currency == ACCOUNT or converts_itself(contract)
    if alone and rates is not None:
        raise ConfigError(
            f"{contract.symbol}: profits arise in {contract.currency}, which needs no rates; drop "
            f"{rates.source} (rates=... in Python)"
        )
    if contract.currency == ACCOUNT:
        return None
    if alone:
        price, rate = bars.open, contract
    elif rates is None:
        raise ConfigError(
            f"{contract.symbol}: profits arise in {contract.currency}; give the bars of its rate to "
            "the dollar (data.conversion, or rates=... in Python)"
        )
    else:
        price, rate = rates.close[rows_known(bars, rates)], rates.contract
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
    """For each bar, the row of the last rate whose bar had closed by the bar's open. int64[T].

    Raises DataError if a bar has no such rate, or only one that is older than one session.
    """
    rate_dates = trade_dates(rates.time, rates.contract)
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
    """Dollars per tick and contract. If profits are converted, the median over `rows`."""
    if value is None:
        return contract.tick_mills / 1000
    return float(np.median(np.asarray(value.times)[rows] / np.asarray(value.over)[rows])) / 1000
