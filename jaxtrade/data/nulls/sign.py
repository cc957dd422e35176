"""Bars whose moves have random signs: the default null market.

Each bar, with its gap, is mirrored about the previous close with probability 1/2. With two sides
the mirror lies in the middle of the previous bid and ask closes, and bid and ask change places:

    bid' = S - ask,  ask' = S - bid,  where S = bid close + ask close of the bar before,

and a mirrored high is the low of the other side. A bar that begins a series (the first, and the
first of each contract of a spliced series) is mirrored about its own open. All later bars move by
what the close has moved, so every step is exact in integers.

This keeps the stamp, the volume, the spread and the true range of every bar. Given these
magnitudes, the closes are a martingale. Under the hypothesis that the signs of the moves are fair
coins whatever the magnitudes, the real market is one more draw, so the Monte-Carlo p-value is
exact, whatever the statistic.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.nulls.prices import anchors, prices_of, with_prices
from jaxtrade.data.read.bars import Bars
from jaxtrade.types import IntrabarPath


def random_signs(count: int, generator: np.random.Generator, after: int = 0) -> np.ndarray:
    """bool[count]: True, with probability 1/2, for each bar that is mirrored. Rows before `after`
    are not.
    """
    mask = generator.random(count) < 0.5
    mask[:after] = False
    return mask


def sign_flipped(bars: Bars, mask: np.ndarray) -> Bars:
    """The bars with those of `mask` (bool[T]) mirrored. Twice with one mask gives the bars again.

    With D[t] = bid' close - bid close (and the same of the ask), D[t] = D[t-1] + mask[t] (S[t] -
    bid close[t] - ask close[t]). A bar that is not mirrored moves by D[t-1]; one that is becomes
    D[t-1] + S[t] - (the other side).

    Raises DataError if a price is below one tick or passes int32.
    """
    bid, ask = prices_of(bars)
    start = anchors(bars)
    total = bid[3] + ask[3]
    centre = np.where(start, bid[0] + ask[0], np.concatenate([[0], total[:-1]]))  # S
    steps = np.where(mask, centre - total, 0)
    # D restarts at 0 with each series: the sum of its own steps alone.
    summed = np.cumsum(steps)
    first = np.maximum.accumulate(np.where(start, np.arange(len(bars)), 0))
    shift = summed - steps - (summed[first] - steps[first])  # D[t-1]

    def side(own: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        mirrored = (other[0], other[2], other[1], other[3])
        return tuple(
            np.where(mask, centre - there, here) + shift
            for here, there in zip(own, mirrored, strict=True)
        )

    return with_prices(bars, side(bid, ask), None if bars.ask is None else side(ask, bid))


def sign_flipped_path(path: IntrabarPath, mask: np.ndarray) -> IntrabarPath:
    """The intrabar path of `sign_flipped`, with NumPy leaves.

    Falls are measured from the bar's own open, those of a short on the inverted bar. So in a
    mirrored bar those of the long and of the short change places, exactly.
    """
    falls, ambiguous = np.asarray(path.falls), np.asarray(path.ambiguous)
    falls = np.where(mask[:, None, None, None], falls[:, ::-1], falls)
    ambiguous = np.where(mask[:, None], ambiguous[:, ::-1], ambiguous)
    return IntrabarPath(falls, ambiguous)  # type: ignore[arg-type]  # host leaves
