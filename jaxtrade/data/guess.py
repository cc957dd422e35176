"""Guesses about a file of bars, for a person to confirm: its market, the unit of its prices, its
clock.

Nothing here decides how a file is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from jaxtrade.data.calendar.schedule import in_session, schedule_for, trade_dates
from jaxtrade.data.contract_file import load_contract
from jaxtrade.data.contracts import CONTRACTS, Contract, shipped_contracts
from jaxtrade.data.examine import Examined
from jaxtrade.data.read.stamps import known_zone
from jaxtrade.data.read.validate import product_of
from jaxtrade.data.zones import USUAL
from jaxtrade.errors import ConfigError, DataError

SCALES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PROBES = 50_000  # bars whose hours are compared with the calendar
CLEAR = 4  # times as many bars in closed hours make a clock worse than the best one


class Candidate(NamedTuple):
    """A market that a file may be of. why: "the file", "the file's name" or "prices"."""

    symbol: str
    why: tuple[str, ...]


def market_named(text: str) -> str | None:
    """The known market or shipped contract of an instrument's name (ESZ3, ES=F, spy); None if there
    is none.
    """
    upper = text.upper()
    return upper if upper in shipped_contracts() else product_of(upper)


def candidates(seen: Examined) -> list[Candidate]:
    """Markets that the file names, that its own name contains, or whose prices it has; the best one
    first.
    """
    of_file = {market for name in seen.names if (market := market_named(name)) is not None}
    words = re.split(r"[^A-Za-z0-9]+", Path(seen.file).name)
    of_name = {market for word in words if (market := market_named(word)) is not None}
    of_prices = {contract.symbol for contract in CONTRACTS.values() if fits(seen, contract)}
    found = []
    for symbol in sorted(
        of_file | of_name | of_prices,
        key=lambda symbol: (
            symbol not in of_file,
            symbol not in of_name,
            symbol not in of_prices,
            symbol in CONTRACTS and CONTRACTS[symbol].micro,
            symbol,
        ),
    ):
        why = [
            reason
            for reason, group in (
                ("the file", of_file),
                ("the file's name", of_name),
                ("prices", of_prices),
            )
            if symbol in group
        ]
        found.append(Candidate(symbol, tuple(why)))
    return found


def fits(seen: Examined, contract: Contract, scale: float = 1.0) -> bool:
    """Whether prices times `scale` lie in the contract's range in every year of the file, and on
    its tick.
    """
    for year, (low, high) in seen.years.items():
        bounds = contract.price_range(year)
        if bounds is None or low * scale < bounds[0] or high * scale > bounds[1]:
            return False
    steps = seen.step * scale / float(contract.tick_size)
    return abs(steps - round(steps)) < 1e-6 and round(steps) >= 1


def contradicts(seen: Examined, contract: Contract) -> bool:
    """Whether prices lie outside the contract's range in a year of which the range is known."""
    known = [
        (span, bounds)
        for year, span in seen.years.items()
        if (bounds := contract.price_range(year)) is not None
    ]
    return any(low < bounds[0] or high > bounds[1] for (low, high), bounds in known)


def price_unit(seen: Examined, contract: Contract) -> float | None:
    """Points per unit of the file, if one power of ten alone makes the prices fit; None
    otherwise.
    """
    found = [scale for scale in SCALES if fits(seen, contract, scale)]
    return found[0] if len(found) == 1 else None


class Clock(NamedTuple):
    """A time zone and a stamp side. closed: share of the bars that would lie in hours when the
    market is closed.
    """

    time_zone: str
    stamp: Literal["open", "close"]
    closed: float


def clocks(seen: Examined, contract: Contract) -> list[Clock]:
    """How well usual time zones and both stamp sides fit the market's hours, the best first; for
    stamps in UTC, the sides alone. Empty if the calendar has no hours for these dates."""
    at = seen.wall[np.linspace(0, len(seen.wall) - 1, min(PROBES, len(seen.wall))).astype(np.int64)]
    zones = (
        [seen.keys.time_zone]
        if seen.keys.time_zone is not None
        else list(USUAL)
        if seen.naive
        else ["UTC"]
    )
    sides: tuple[Literal["open", "close"], ...] = (
        ("open", "close") if seen.keys.stamp is None else (seen.keys.stamp,)
    )
    found = []
    for zone in zones:
        utc = at if not seen.naive else _utc(at, zone)
        for side in sides:
            closed = _closed(
                utc - (seen.bar_seconds if side == "close" else 0), seen.bar_seconds, contract
            )
            if closed is None:
                return []
            found.append(Clock(zone, side, closed))
    return sorted(found, key=lambda clock: clock.closed)


def clear_winner(found: list[Clock]) -> Clock | None:
    """The best clock, if every other one puts many times as many bars into closed hours."""
    if not found or found[0].closed > 0.05:
        return None
    best, *others = found
    return best if all(clock.closed > CLEAR * best.closed + 1e-3 for clock in others) else None


def _utc(wall: np.ndarray, zone: str) -> np.ndarray:
    """Wall seconds of a zone (perhaps shifted) -> UTC seconds. Hours that the clock repeats are
    left out.
    """
    import pandas as pd

    name, shift = known_zone(zone)
    naive = pd.Series((wall - 3600 * shift).astype("datetime64[s]"))
    local = naive.dt.tz_localize(name, ambiguous="NaT", nonexistent="NaT").dropna()
    return (
        local.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("datetime64[s]").astype(np.int64)
    )


def _closed(utc: np.ndarray, bar_seconds: int, contract: Contract) -> float | None:
    """The share of bars that open while the market is closed. None if the calendar lacks the
    dates.
    """
    try:
        schedule = schedule_for("table", contract, utc, bar_seconds)
    except DataError:
        return None
    inside = in_session(schedule, utc, trade_dates(utc, contract))[1]
    return float(1 - inside.mean())


def known_contract(symbol: str) -> Contract | None:
    """The built-in market or shipped contract of this symbol; None if there is none."""
    symbol = symbol.upper()
    if symbol in CONTRACTS:
        return CONTRACTS[symbol]
    return load_contract(symbol) if symbol in shipped_contracts() else None


def require_known(symbol: str) -> Contract:
    """The contract of a symbol. Raises ConfigError with the known ones."""
    contract = known_contract(symbol)
    if contract is None:
        raise ConfigError(
            f"market '{symbol}': not one that jaxtrade knows (known: {', '.join(CONTRACTS)}; shipped "
            f"contracts: {', '.join(shipped_contracts())}); write its figures into a file and give "
            "--contract FILE (docs/data.md, Markets), or run jaxtrade init on a terminal, which asks for "
            "them"
        )
    return contract
