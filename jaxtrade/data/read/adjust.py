"""Adjust bars for share splits that the user states.

Prices before a split are divided by its ratio in exact integer arithmetic, with one rounding to the tick: half to even.
A price's result depends on that price alone, and a higher price never gets a lower result. Bars therefore stay valid,
an ask stays at or above its bid, and second bars rebuild adjusted bars exactly where they rebuilt the bars of the file.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from jaxtrade.config.corporate import ShareSplit
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.read.quotes import PRICES, Side
from jaxtrade.data.read.validate import MAX_TICKS
from jaxtrade.errors import ConfigError, DataError

if TYPE_CHECKING:
    from jaxtrade.data.read.bars import Bars

MOST = 1 << 31  # of a numerator or denominator: its product with a price in ticks (below 2^28) fits int64


def adjusted(bars: Bars, splits: tuple[ShareSplit, ...]) -> Bars:
    """The bars with prices before each split divided by its ratio, and volumes multiplied by it.

    A note says what was changed. Raises DataError if a price becomes 0 ticks or too many of them, and ConfigError if
    the ratios multiply beyond exact arithmetic.
    """
    if not splits:
        return bars
    days = trade_dates(bars.time, bars.contract)
    firsts = np.array([split.date for split in splits], "datetime64[D]")
    later = np.searchsorted(firsts, days, side="right")  # splits that each bar has behind it
    columns = {name: getattr(bars, name).copy() for name in PRICES}
    asks = None if bars.ask is None else Side(*(prices.copy() for prices in bars.ask))
    volume, rounded = bars.volume.copy(), 0
    for passed in np.unique(later[later < len(splits)]):
        ratio = _product(splits[passed:])
        rows = later == passed
        for prices in (*columns.values(), *(asks or ())):
            prices[rows], between = _divided(prices[rows], ratio, bars.source)
            rounded += between
        volume[rows] *= float(ratio)
    notes = (*bars.notes, *_notes(bars, splits, later, rounded))
    return replace(bars, **columns, volume=volume, ask=asks, notes=notes)


def _product(splits: tuple[ShareSplit, ...]) -> Fraction:
    ratio = Fraction(1)
    for split in splits:
        ratio *= split.fraction
    if max(ratio.numerator, ratio.denominator) >= MOST:
        raise ConfigError(f"data.splits: the ratios from {splits[0].date} on multiply to {ratio.numerator}:"
                          f"{ratio.denominator}, beyond exact arithmetic; check them")
    return ratio


def _divided(ticks: np.ndarray, ratio: Fraction, source: str) -> tuple[np.ndarray, int]:
    """(ticks / ratio, rounded half to even, int32[n]; how many results fell between two ticks)."""
    over = ratio.numerator
    whole, rest = np.divmod(ticks.astype(np.int64) * ratio.denominator, over)
    result = whole + ((2 * rest > over) | ((2 * rest == over) & (whole % 2 == 1)))
    if len(result) and not 0 < result.min() <= result.max() < MAX_TICKS:
        raise DataError(f"{source}: data.splits makes prices of {int(result.min())} to {int(result.max())} ticks "
                        f"(expected 1 to {MAX_TICKS - 1}). Fix: check the ratios (new shares for one old share), or "
                        "choose another tick_size in the contract file")
    return result.astype(np.int32), int((rest != 0).sum())


def _notes(bars: Bars, splits: tuple[ShareSplit, ...], later: np.ndarray, rounded: int) -> list[str]:
    """One note per split, and one on rounding."""
    notes = []
    for i, split in enumerate(splits):
        changed = int((later <= i).sum())
        notes.append(f"data.splits: {split.ratio} on {split.date}: {changed} of {len(bars)} bars lie before it; prices "
                     "divided by the ratio, volumes multiplied")
    if rounded:
        cells = 4 * int((later < len(splits)).sum()) * (1 if bars.ask is None else 2)
        notes.append(f"data.splits: {rounded} of {cells} adjusted prices fell between two ticks of "
                     f"{bars.contract.tick_size} and were rounded to the nearer one (half to even)")
    return notes
