"""Adjust bars for share splits that the user states.

Prices before a split are divided by its ratio in exact integer arithmetic, with one rounding to the
tick: half to even. A price's result depends on that price alone, and a higher price never gets a
lower result. Bars therefore stay valid, an ask stays at or above its bid, and second bars rebuild
adjusted bars exactly where they rebuilt the bars of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from jaxtrade.config.corporate import ShareSplit
from jaxtrade.data.read.validate import MAX_TICKS
from jaxtrade.errors import ConfigError, DataError

MOST = (
    1 << 31
)  # of a numerator or denominator: its product with a price in ticks (below 2^28) fits int64


class Adjusted(NamedTuple):
    """Columns after the adjustment. prices: int32[T] ticks each. volume: float64[T]. notes: what
    was changed.
    """

    prices: tuple[np.ndarray, ...]
    volume: np.ndarray
    notes: tuple[str, ...]


def adjust(
    days: np.ndarray,
    prices: Sequence[np.ndarray],
    volume: np.ndarray,
    splits: tuple[ShareSplit, ...],
    source: str,
) -> Adjusted:
    """Divide the prices before each split by its ratio, and multiply the volumes.

    Args:
        days: datetime64[D][T], the trade date of each bar.
        prices: columns int32[T], ticks.
        source: the name of the bars in errors.
    Raises:
        DataError: a price becomes 0 ticks, or too many of them.
        ConfigError: the ratios multiply beyond exact arithmetic.
    """
    firsts = np.array([split.date for split in splits], "datetime64[D]")
    later = np.searchsorted(firsts, days, side="right")  # splits that each bar has behind it
    columns, volume, rounded = tuple(column.copy() for column in prices), volume.copy(), 0
    for passed in np.unique(later[later < len(splits)]):
        ratio, rows = _product(splits[passed:]), later == passed
        for column in columns:
            column[rows], between = _divided(column[rows], ratio, source)
            rounded += between
        volume[rows] *= float(ratio)
    notes = [
        f"data.splits: {split.ratio} on {split.date}: {int((later <= i).sum())} of {len(days)} bars lie before "
        "it; prices divided by the ratio, volumes multiplied"
        for i, split in enumerate(splits)
    ]
    if rounded:
        cells = len(columns) * int((later < len(splits)).sum())
        notes.append(
            f"data.splits: {rounded} of {cells} adjusted prices fell between two ticks and were rounded to "
            "the nearer one (half to even)"
        )
    return Adjusted(columns, volume, tuple(notes))


def _product(splits: tuple[ShareSplit, ...]) -> Fraction:
    ratio = Fraction(1)
    for split in splits:
        ratio *= split.fraction
    if max(ratio.numerator, ratio.denominator) >= MOST:
        raise ConfigError(
            f"data.splits: the ratios from {splits[0].date} on multiply to {ratio.numerator}:"
            f"{ratio.denominator}, beyond exact arithmetic; check them"
        )
    return ratio


def _divided(ticks: np.ndarray, ratio: Fraction, source: str) -> tuple[np.ndarray, int]:
    """(ticks / ratio, rounded half to even, int32[n]; how many results fell between two ticks)."""
    over = ratio.numerator
    whole, rest = np.divmod(ticks.astype(np.int64) * ratio.denominator, over)
    result = whole + ((2 * rest > over) | ((2 * rest == over) & (whole % 2 == 1)))
    if len(result) and not 0 < result.min() <= result.max() < MAX_TICKS:
        raise DataError(
            f"{source}: data.splits makes prices of {int(result.min())} to {int(result.max())} ticks "
            f"(expected 1 to {MAX_TICKS - 1}). Fix: check the ratios (new shares for one old share), or "
            "choose another tick_size in the contract file"
        )
    return result.astype(np.int32), int((rest != 0).sum())
