"""Which bars lay behind the days of an evaluation: a digest of each symbol and trade date. Loads no
JAX.

The data's own digest covers features, windows and every day of the file, so two runs that looked at
the same Monday often have different ones. The digest of a day depends on that day's bars alone. It
is made of the day's open, high, low and close, so it is the same for bars of one minute and of
five.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.data.calendar.schedule import trade_dates

DIGITS = 16  # hex digits of a digest
NO_BARS = ""  # the digest of a day on which the symbol has no bar
AROUND = 3 * 86400  # seconds: a trade date's bars lie within so much of its midnight UTC

DayBars = Mapping[str, tuple[str, ...]]  # symbol -> digest of each day


class HeldOutDays(NamedTuple):
    """Days that somebody looked at. data: sha256 of the data. dates: ISO, ascending. bars: the
    digests of each symbol on these dates (`day_bars`); empty if they were written down by a version
    without digests."""

    data: str
    dates: tuple[str, ...]
    bars: DayBars

    def meets(self, other: HeldOutDays) -> bool:
        """Whether some day of some symbol is in both. Days without digests meet if the data are the
        same.
        """
        if not self.bars or not other.bars:
            return self.data == other.data and not set(self.dates).isdisjoint(other.dates)
        return any(
            not found.isdisjoint(_days_of(other, symbol))
            for symbol in self.bars
            if (found := _days_of(self, symbol))
        )

    def within(self, other: HeldOutDays) -> bool:
        """Whether the other has all of these days, with the same symbols and the same bars."""
        place = {day: number for number, day in enumerate(other.dates)}
        if not all(day in place for day in self.dates):
            return False
        if not self.bars or not other.bars:
            return self.data == other.data
        return self.bars.keys() == other.bars.keys() and all(
            digest == other.bars[symbol][place[day]]
            for symbol, digests in self.bars.items()
            for day, digest in zip(self.dates, digests, strict=True)
        )


def _days_of(days: HeldOutDays, symbol: str) -> set[tuple[str, str]]:
    """(date, digest) of the days on which the symbol has bars."""
    return {
        (day, digest)
        for day, digest in zip(days.dates, days.bars.get(symbol, ()), strict=False)
        if digest != NO_BARS
    }


def day_bars(market: Any, dates: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The digests of the days of each symbol; `NO_BARS` where it has no bar.

    Args:
        market: a `Market`, `MarketSet` or `Portfolio`. dates: ISO trade dates, ascending.
    """
    return {
        member.contract.symbol: _of_symbol(member.bars, member.contract, dates)
        for member in market.members
    }


def _of_symbol(bars: Any, contract: Any, dates: Sequence[str]) -> tuple[str, ...]:
    days = np.array(dates, "datetime64[D]")
    first, last = days[[0, -1]].astype("datetime64[s]").astype(np.int64)
    near = slice(
        *np.searchsorted(bars.time, [first - AROUND, last + AROUND])
    )  # the others' dates are not needed
    found = trade_dates(bars.time[near], contract)
    start, end = np.searchsorted(found, days), np.searchsorted(found, days, side="right")
    price = {name: getattr(bars, name)[near] for name in ("open", "high", "low", "close")}

    def digest(rows: slice) -> str:
        if rows.start == rows.stop:
            return NO_BARS
        figures = (
            price["open"][rows][0],
            price["high"][rows].max(),
            price["low"][rows].min(),
            price["close"][rows][-1],
        )
        text = " ".join([str(contract.tick_size), *(str(int(each)) for each in figures)])
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]

    return tuple(digest(slice(a, b)) for a, b in zip(start.tolist(), end.tolist(), strict=True))
