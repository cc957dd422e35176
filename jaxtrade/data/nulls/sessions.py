"""Bars whose sessions stand in another order.

Sessions are permuted within equal calendar class. A class holds sessions with the same scheduled
hours (open, halt, close and flat time on the exchange clock, so half days and early Fridays are
classes of their own), the same number of days since the last session (a weekend or a holiday stays
before the sessions that follow one), and the same number of decision bars (so every program steps
as many bars as on the real market).

A session moves whole: its bars, their times of day, volume and intrabar paths. Prices are chained
by their returns: all prices of a session are multiplied by

    f = (null close before it) / (real close before it in the real series),

with the mid of two sides, and rounded to ticks. What happens inside a session stays, to the tick;
what links one session to the next is destroyed. Sessions that stay where they are: those without a
place in the session table, and the first of the series, of each contract of a spliced series, and
after `after`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from jaxtrade.data.calendar.clock import run_starts
from jaxtrade.data.calendar.schedule import Schedule, local_seconds
from jaxtrade.data.nulls.prices import Prices, anchors, prices_of, with_prices
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import DataError
from jaxtrade.types import IntrabarPath

LEAST_ORDERS = 1_000  # fewer orders than this would repeat themselves among the draws


def session_classes(
    bars: Bars, days: np.ndarray, rows: np.ndarray, decisions: np.ndarray, schedule: Schedule
) -> np.ndarray:
    """The calendar class of each trade date, int64[N]; -1 for one that stays where it is.

    days: datetime64[D][N], every trade date of the bars. rows: int64[N], its first row. decisions:
        int64[N], its number
    of decision bars; 0 if it is not in the session table.
    """
    at = schedule.find(days)
    midnight = days.astype("datetime64[s]").astype(np.int64)
    hours = np.stack(
        [schedule.open[at], schedule.close[at], schedule.flat[at], *schedule.halts[at].T]
    )
    local = local_seconds(hours.reshape(-1), bars.contract.zone).reshape(hours.shape) - midnight
    since = np.diff(schedule.dates, prepend=schedule.dates[:1]).astype(np.int64)[at]
    keys = np.column_stack([*local, since, decisions])
    classes = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where((at < 0) | (decisions == 0) | anchors(bars)[rows], -1, classes)


def session_order(classes: np.ndarray, generator: np.random.Generator, source: str) -> np.ndarray:
    """int64[N]: for each place, the number of the session that comes to stand there.

    Raises DataError if the classes allow fewer than LEAST_ORDERS orders.
    """
    order, orders = np.arange(len(classes)), 0.0
    for each in np.unique(classes[classes >= 0]):
        places = np.flatnonzero(classes == each)
        orders += math.lgamma(len(places) + 1)
        order[places] = generator.permutation(places)
    if orders < math.log(LEAST_ORDERS):
        raise DataError(
            f"{source}: null markets of kind sessions need sessions that can change places, and the "
            f"{len(classes)} trade dates here have {math.exp(orders):.0f} orders (at least {LEAST_ORDERS:,}"
            " are needed). Fix: give more sessions, or use the kind sign"
        )
    return order


def permuted_sessions(
    bars: Bars,
    path: IntrabarPath | None,
    days: np.ndarray,
    decisions: np.ndarray,
    schedule: Schedule,
    generator: np.random.Generator,
    after: int = 0,
) -> tuple[Bars, IntrabarPath | None]:
    """The bars with their sessions in a random order, and their intrabar paths with NumPy leaves.

    Args:
        path: of the bars; None without second bars.
        days: datetime64[D][T], the trade date of each bar.
        decisions: int64[T], the number of decision bars of each bar's session; 0 outside the
            session table.
        after: sessions that begin before this row stay where they are.
    Raises:
        DataError: too few sessions can change places, or a price leaves the range of prices.
    """
    rows = run_starts(days)
    classes = session_classes(bars, days[rows], rows, decisions[rows], schedule)
    classes[rows < after] = -1
    order = session_order(classes, generator, bars.source)
    lengths = np.diff(rows, append=len(bars))
    source = np.concatenate([np.arange(int(rows[k]), int(rows[k] + lengths[k])) for k in order])
    opens = schedule.open[schedule.find(days[rows])]
    moved = np.repeat(
        np.where(order == np.arange(len(order)), 0, opens - opens[order]), lengths[order]
    )
    factors = np.repeat(_factors(bars, rows, lengths, order), lengths[order])
    bid, ask = ([_scaled(prices[source], factors) for prices in side] for side in prices_of(bars))
    made = replace(bars, time=bars.time[source] + moved, volume=bars.volume[source])
    made = with_prices(made, tuple(bid), None if bars.ask is None else tuple(ask))
    return made, None if path is None else _moved_path(path, bars, source, factors, bid[0], ask[0])


def _scaled(ticks: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Ticks times factors, rounded half up, int64. It never changes which of two prices of a
    session is higher.
    """
    return np.floor(ticks * factors + 0.5).astype(np.int64)


def _factors(bars: Bars, rows: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> np.ndarray:
    """f of each place, float64[N]. It is 1 where a series begins."""
    bid, ask = prices_of(bars)
    start, middle = anchors(bars)[rows], (bid[3] + ask[3]) / 2
    ends = rows + lengths - 1
    factors, close = np.ones(len(order)), 0.0
    for place, k in enumerate(order.tolist()):
        if not start[place]:
            factors[place] = close / middle[rows[k] - 1]
        last = np.array([bid[3][ends[k]], ask[3][ends[k]]])
        close = float(_scaled(last, factors[place]).sum()) / 2
    return factors


def _moved_path(
    path: IntrabarPath,
    bars: Bars,
    source: np.ndarray,
    factors: np.ndarray,
    bid_open: np.ndarray,
    ask_open: np.ndarray,
) -> IntrabarPath:
    """The falls of each bar in its new place: the prices that they stand for, scaled as all prices
    are.
    """
    falls, times = np.asarray(path.falls)[source].astype(np.int64), factors[:, None, None]
    bid, ask = (opens[source].astype(np.int64)[:, None, None] for opens in _opens(bars))
    long = _scaled(bid + falls[:, 0], times) - bid_open[:, None, None]
    short = ask_open[:, None, None] - _scaled(ask - falls[:, 1], times)
    moved = np.stack([long, short], axis=1).astype(np.int32)
    return IntrabarPath(moved, np.asarray(path.ambiguous)[source])  # type: ignore[arg-type]  # host leaves


def _opens(bars: Bars) -> Prices:
    bid, ask = bars.sides
    return bid.open, ask.open
