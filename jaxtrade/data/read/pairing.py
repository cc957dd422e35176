"""Combine trade bars with quotes from a second file. Fills use the quotes; volume comes from the
trades.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import MISSING_LIMIT, PRICES, QUOTE_FIELDS, SHOWN, way_out
from jaxtrade.data.read.stamps import iso
from jaxtrade.data.read.validate import NO_VOLUME_COLUMN
from jaxtrade.errors import DataError


def attach(bars: Bars, quotes: Bars, tolerance: float = MISSING_LIMIT) -> Bars:
    """Two-sided bars: stamps and volume of the trade bars, prices of the quotes.

    Bars without a quote on both sides are left out and counted.

    Args:
        tolerance: largest share of the trade bars that may have no quote.
    Raises:
        DataError: the quotes have one side, the trade bars have two, bar lengths or contracts differ, or more than
            `tolerance` of the bars have no quote.
    """
    if bars.ask is not None:
        raise DataError(
            f"{bars.source}: has bid and ask itself, and data.quotes names {quotes.source}. Fix: drop "
            "data.quotes (--quotes), or map data.columns={open: NAME, ...} to the trade prices"
        )
    if quotes.ask is None:
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
    if lost > tolerance * len(bars):
        first = ", ".join(iso(t) for t in bars.time[~found][:SHOWN])
        raise DataError(
            f"{quotes.source}: no quote of both sides for {lost} of {len(bars)} bars of {bars.source} "
            f"({100 * lost / len(bars):.2f} %, limit {100 * tolerance:g} %), the first at {first}; "
            f"quotes span {iso(quotes.time[0])}..{iso(quotes.time[-1])}. Fix: give the quotes of the "
            "same instrument and days, stamped like the bars (data.stamp, data.time_zone and data.expiry "
            "apply to both files), or narrow data.start and data.end"
            + way_out("leave those bars out", "quotes_tolerance", lost / len(bars))
        )
    notes = [f"prices are the quotes of {quotes.source}; stamps and volume are of {bars.source}"]
    if lost:
        first = ", ".join(iso(t) for t in bars.time[~found][:SHOWN])
        notes.append(
            f"{lost} of {len(bars)} bars have no quote of both sides and are left out, as if there were no "
            f"bar: {first}{' ...' if lost > SHOWN else ''}"
        )
    unused = len(quotes) - int(found.sum())
    if unused:
        notes.append(f"{unused} of {len(quotes)} quote bars have no trade bar and are not used")
    kept, sides = bars.rows(found), quotes.rows(at[found])
    return replace(
        kept,
        places=sides.places,
        **{name: getattr(sides, name) for name in (*PRICES, "ask", "contract")},
        notes=(*bars.notes, *(note for note in quotes.notes if note != NO_VOLUME_COLUMN), *notes),
    )
