"""The bars of the evaluated sessions, and the trades of the shown agent placed on them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

NO_LEVEL = -1  # in `Bars.stop` and `Bars.target`: there is none (prices are positive)


@dataclass(frozen=True)
class Clock:
    """How the page shows times and prices. zone: IANA zone of the exchange. tick_size: points. decimals: of a price."""

    bar_seconds: int
    zone: str
    tick_size: float
    decimals: int


@dataclass(frozen=True)
class Bars:
    """N bars of the evaluated sessions in time order: every decision bar, and the bar after each session's last one.

    time: int64[N] UTC seconds of the open. open, high, low, close: int64[N] ticks. session: int64[N] number of the
    session in the set. legal: uint8[N] bits of the legal actions at the bar's close (bit i: action i; 0 where nothing
    is decided). stop, target: int64[N] ticks, levels of the open position at the bar's close, `NO_LEVEL` without. They
    are None for a run that did not save them.
    """

    time: np.ndarray
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    session: np.ndarray
    legal: np.ndarray | None = None
    stop: np.ndarray | None = None
    target: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.time)

    def after(self, first: int) -> Bars:
        """The bars from `first` on."""
        each = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: None if value is None else value[first:] for name, value in each.items()})


@dataclass(frozen=True)
class Trade:
    """A trade on the bars. row: its line of `trades.csv`. decision, entry, exit: numbers of bars. side: +1 or -1.

    stop, target: ticks, at the first decision after the entry; None where the position was closed before it, where
    there is none, or where the run saved no levels.
    """

    row: dict[str, str]
    decision: int
    entry: int
    exit: int
    side: int
    stop: int | None = None
    target: int | None = None


def with_levels(trade: Trade, bars: Bars) -> Trade:
    """The trade with the stop and target that its position had at the close of the bar of its entry."""
    def level(of: np.ndarray | None) -> int | None:
        found = NO_LEVEL if of is None or trade.exit <= trade.entry else int(of[trade.entry])
        return None if found == NO_LEVEL else found

    return replace(trade, stop=level(bars.stop), target=level(bars.target))


def placed(rows: list[dict[str, str]], bars: Bars, clock: Clock, fill: str) -> list[Trade]:
    """The lines of `trades.csv` on the bars. fill: `env.fill` of the evaluation.

    Raises ValueError if a time of a trade is the time of no bar: the trades belong to other bars.
    """
    opens, closes = bars.time, bars.time + clock.bar_seconds

    def at(times: np.ndarray, stamp: str) -> int:
        seconds = _seconds(stamp)
        found = int(np.searchsorted(times, seconds))
        if found == len(times) or times[found] != seconds:
            raise ValueError(f"no bar at {stamp}")
        return found

    def left(row: dict[str, str]) -> int:
        if row["exit_reason"] in ("flat", "end_of_data"):
            return at(closes, row["exit_time"])
        if fill == "close" and row["exit_reason"] == "order":
            return at(closes, row["exit_time"]) + 1
        return at(opens, row["exit_time"])

    decided = [at(closes, row["decision_time"]) for row in rows]
    return [with_levels(Trade(row, bar, bar + 1, left(row), 1 if row["side"] == "long" else -1), bars)
            for row, bar in zip(rows, decided, strict=True)]


def _seconds(stamp: str) -> int:
    import datetime

    return int(datetime.datetime.fromisoformat(stamp).timestamp())


def extremes(values: np.ndarray, most: int) -> np.ndarray:
    """int64[M] numbers of at most `most` values that keep the shape: first, last, and least and largest of each group.

    values: float[N]. All N if they are no more than `most`.
    """
    size = len(values)
    if size <= most:
        return np.arange(size)
    groups = np.array_split(np.arange(size), max(1, (most - 2) // 2))
    found: list[Any] = [0, size - 1]
    for group in groups:
        found += [group[np.argmin(values[group])], group[np.argmax(values[group])]]
    return np.unique(found)
