"""What all kinds of null markets share: where a series begins anew, and the check of the prices
that were made.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import PRICES, Side
from jaxtrade.data.read.roll import splice_dates
from jaxtrade.data.read.stamps import iso
from jaxtrade.errors import DataError

INT32 = 1 << 31
Prices = tuple[np.ndarray, ...]  # open, high, low, close: int64[T] ticks


def anchors(bars: Bars) -> np.ndarray:
    """bool[T], True at rows whose step from the previous close is no move of the market: the first
    row, and the first row of each later contract of a spliced series."""
    found = np.zeros(len(bars), bool)
    found[:1] = True
    legs = np.searchsorted(
        splice_dates(bars.legs), trade_dates(bars.time, bars.contract), side="right"
    )
    found[1:] |= legs[1:] != legs[:-1]
    return found


def prices_of(bars: Bars) -> tuple[Prices, Prices]:
    """(bid, ask), each open, high, low, close as int64[T]. One-sided bars are returned twice."""
    bid, ask = ([getattr(side, name).astype(np.int64) for name in PRICES] for side in bars.sides)
    return tuple(bid), tuple(ask)


def with_prices(bars: Bars, bid: Prices, ask: Prices | None) -> Bars:
    """The bars with other prices, as int32. ask: None for one-sided bars.

    Raises DataError, naming the first bar, if a price is below one tick or above what int32 holds.
    """
    for side in (bid, *([] if ask is None else [ask])):
        low, high = side[2], side[1]
        bad = np.flatnonzero((low < 1) | (high >= INT32))
        if len(bad):
            row = int(bad[0])
            raise DataError(
                f"{bars.source}: the null market's prices run from {int(low[row])} to {int(high[row])} ticks in the "
                f"bar of {iso(bars.time[row])}, the first of {len(bad)} outside 1 .. {INT32 - 1}. Fix: choose the kind "
                "sessions or phase, whose returns are relative, or leave out the years in which prices were low "
                "(data.start). Another seed is no fix: it would choose nulls by their result"
            )
    sides = [
        [prices.astype(np.int32) for prices in side]
        for side in ([bid] if ask is None else [bid, ask])
    ]
    return replace(
        bars,
        **dict(zip(PRICES, sides[0], strict=True)),
        ask=None if ask is None else Side(*sides[1]),
    )
