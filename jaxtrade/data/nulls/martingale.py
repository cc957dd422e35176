"""Bars of a martingale whose volatility by the minute of the day is that of the real bars.

For each minute of the exchange day, the real bars give two figures: the root mean square of their
relative gap (open over previous close - 1) and of their relative body (close over open - 1). A
generated bar draws a gap and SUBSTEPS moves from normal distributions of these sizes, times the
price at the start of the trade date, rounded to ticks. The moves make its high and low. Every step
is symmetric about zero given what came before, so the price is a martingale in whole ticks.

Stamps, volume and spread are the real ones. The intraday shape of volatility stays. Fat tails,
volatility clusters, the link between volume and volatility, and every pattern are gone.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.calendar.clock import DAY, local_seconds, run_starts
from jaxtrade.data.nulls.prices import Prices, anchors, prices_of, with_prices
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.read.quotes import Side
from jaxtrade.data.synthetic.nq_like import SUBSTEPS
from jaxtrade.data.synthetic.surrogate import spread_kept

MINUTES = 1440


def minute_volatility(bars: Bars) -> tuple[np.ndarray, np.ndarray]:
    """(relative gap, relative body) as root mean squares by minute of the exchange day,
    float64[1440] each; 0 where the bars have no such minute. Of two sides: of the mid price. The
    gap to a series' first bar is left out."""
    mid = bars.mid
    minute = local_seconds(bars.time, bars.contract.zone) % DAY // 60
    opened, closed = mid.open.astype(np.float64), mid.close.astype(np.float64)
    before = np.concatenate([opened[:1], closed[:-1]])
    known = ~anchors(bars)
    return (
        _root_mean_square(opened[known] / before[known] - 1, minute[known]),
        _root_mean_square(closed / opened - 1, minute),
    )


def _root_mean_square(values: np.ndarray, minute: np.ndarray) -> np.ndarray:
    count = np.bincount(minute, minlength=MINUTES)
    return np.sqrt(np.bincount(minute, values * values, MINUTES) / np.maximum(count, 1))


def martingale_bars(
    bars: Bars, days: np.ndarray, generator: np.random.Generator, after: int = 0
) -> Bars:
    """Generated bars with the stamps, volume and spread of `bars`. Rows before `after` stay real.

    days: datetime64[D][T], the trade date of each bar. Raises DataError if a price falls below one
        tick or passes
    int32.
    """
    gap, body = minute_volatility(bars)
    minute = local_seconds(bars.time, bars.contract.zone) % DAY // 60
    bid = np.stack(prices_of(bars)[0])  # int64[4, T]: the real prices, replaced date by date
    start, rows = anchors(bars), run_starts(days)
    for first, end in zip(rows.tolist(), np.append(rows[1:], len(bars)).tolist(), strict=True):
        begin = max(first, after)
        if begin >= end:
            continue
        level = int(bid[0, begin] if start[begin] else bid[3, begin - 1])
        part = slice(begin, end)
        gaps = np.rint(level * gap[minute[part]] * generator.standard_normal(end - begin)).astype(
            np.int64
        )
        if start[begin]:
            gaps[0] = 0
        sizes = level * body[minute[part]] / np.sqrt(SUBSTEPS)
        moves = sizes[:, None] * generator.standard_normal((end - begin, SUBSTEPS))
        bid[:, part] = _chained(level, gaps, np.rint(np.cumsum(moves, axis=1)).astype(np.int64))
    made: Prices = tuple(bid)
    return with_prices(bars, made, None if bars.ask is None else _asks(bars, made))


def _chained(level: int, gaps: np.ndarray, path: np.ndarray) -> np.ndarray:
    """int64[4, n]: open, high, low and close of consecutive bars, from their gaps [n] and their
    paths from the open [n, SUBSTEPS]."""
    close = level + np.cumsum(gaps + path[:, -1])
    open_ = close - path[:, -1]
    return np.stack(
        [
            open_,
            open_ + np.maximum(path.max(axis=1), 0),
            open_ + np.minimum(path.min(axis=1), 0),
            close,
        ]
    )


def _asks(bars: Bars, bid: Prices) -> Prices:
    return tuple(spread_kept(bars, Side(*bid)))
