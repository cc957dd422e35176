"""The bars of the evaluated sessions, and the trades of the shown agent placed on them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.evaluation.records import ABSENT, BarRecords


@dataclass(frozen=True)
class PageClock:
    """How the page shows times and prices. zone: IANA zone of the exchange. tick_size: points.
    decimals: of a price.
    """

    bar_seconds: int
    zone: str
    tick_size: float
    decimals: int

    def points(self, ticks: int) -> float:
        """A price in points."""
        return round(ticks * self.tick_size, self.decimals)

    def time_of_day(self, seconds: int) -> str:
        """UTC seconds as `09:32` at the exchange."""
        return f"{datetime.datetime.fromtimestamp(seconds, ZoneInfo(self.zone)):%H:%M}"


@dataclass(frozen=True)
class PlacedTrade:
    """A trade on the bars. row: its line of `trades.csv`. decision, entry, exit: numbers of bars.
    side: +1 or -1.

    legal: names of the actions that were legal at the decision. stops: (bar, ticks), the levels of
        the stop from the
    close of that bar on, as it was moved; empty without a stop, and where the position was closed
    in the bar of its entry. target: ticks, None likewise.
    """

    row: dict[str, str]
    decision: int
    entry: int
    exit: int
    side: int
    legal: tuple[str, ...]
    stops: tuple[tuple[int, int], ...] = ()
    target: int | None = None

    @property
    def stop(self) -> int | None:
        """The first stop, in ticks."""
        return self.stops[0][1] if self.stops else None


def placed(
    lines: Sequence[dict[str, str]], bars: BarRecords, shown: str, actions: Sequence[str]
) -> list[PlacedTrade]:
    """The trades of the agent `shown` on the bars. lines: of its `trades.csv`. actions: names by
    id.

    Raises ValueError if the lines are not those trades.
    """
    columns = bars.trades[shown]
    if len(lines) != len(columns["side"]):
        raise ValueError(f"{len(lines):,} trades, but {len(columns['side']):,} in records.npz")
    decision, entry, left = (
        np.searchsorted(bars.row, columns[name])
        for name in ("decision_row", "entry_row", "exit_row")
    )
    number = np.searchsorted(bars.decision, decision)  # of the decision bar
    return [
        PlacedTrade(
            line,
            int(decision[k]),
            int(entry[k]),
            int(left[k]),
            int(columns["side"][k]),
            tuple(
                name
                for name, allowed in zip(actions, bars.strategy.mask[number[k]], strict=True)
                if allowed
            ),
            *_levels(bars, int(number[k]), int(left[k] - entry[k])),
        )
        for k, line in enumerate(lines)
    ]


def _levels(
    bars: BarRecords, first: int, held: int
) -> tuple[tuple[tuple[int, int], ...], int | None]:
    """(stops, target) of a position. first: number of its decision bar; held: closes of bars at
    which it is open.
    """
    if not held:
        return (), None
    stop, target = bars.strategy.stop[first : first + held], int(bars.strategy.target[first])
    changed = [
        i for i in range(len(stop)) if stop[i] != ABSENT and (i == 0 or stop[i] != stop[i - 1])
    ]
    at = bars.decision[first : first + held] + 1
    return tuple((int(at[i]), int(stop[i])) for i in changed), None if target == ABSENT else target


def extremes(values: np.ndarray, most: int) -> np.ndarray:
    """int64[M] numbers of at most `most` values that keep the shape: first, last, and least and
    largest of each group.

    values: float[N]. All N if they are no more than `most`.
    """
    size = len(values)
    if size <= most:
        return np.arange(size)
    found: list[Any] = [0, size - 1]
    for group in np.array_split(np.arange(size), max(1, (most - 2) // 2)):
        found += [group[np.argmin(values[group])], group[np.argmax(values[group])]]
    return np.unique(found)
