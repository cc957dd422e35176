"""Phase-randomised bars: `data.synthetic.surrogate`, for any bars. Each contract of a spliced
series is randomised by itself.

It keeps variance and linear autocorrelation of close-to-close returns, and destroys the intraday
shape of volatility. A policy that trades by the clock meets another market there, so this is no
default.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.nulls.prices import Prices, anchors, prices_of, with_prices
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import Side
from jaxtrade.data.synthetic.surrogate import LEAST, phase_randomised_prices, spread_kept
from jaxtrade.errors import DataError


def phase_randomised(bars: Bars, generator: np.random.Generator, after: int = 0) -> Bars:
    """The bars with phase-randomised returns. Rows before `after` stay real, and the first close
    after them too.

    Raises DataError if a series has fewer than three bars, or a price falls below one tick or
    passes int32.
    """
    begins = np.flatnonzero(anchors(bars))
    edges = np.unique(np.concatenate([begins[begins >= after], [after, len(bars)]]))
    bid = np.stack(prices_of(bars)[0])
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if end - first < LEAST:
            raise DataError(
                f"{bars.source}: {end - first} bars of one contract are too few for a phase-randomised "
                f"copy ({LEAST} are needed). Fix: use the kind sign, or leave that contract out "
                "(data.start, data.end)"
            )
        bid[:, first:end] = phase_randomised_prices(bars.rows(slice(first, end)), generator)
    made: Prices = tuple(bid)
    ask: Prices | None = None if bars.ask is None else tuple(spread_kept(bars, Side(*made)))
    return with_prices(bars, made, ask)
