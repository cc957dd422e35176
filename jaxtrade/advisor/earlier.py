"""What came before a bar, as the texts of blocks: the last bars, completed longer bars, the
session's levels.

Prices are raw, in the quote unit. Two-sided bars enter by their mid price, as in the market's
features. Nothing is read beyond a bar's own close, and nothing from before its feature window:
there prices may be of another contract.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxtrade.advisor.host.blocks import (
    LEVELS,
    WINDOW,
    PriceBar,
    higher_block,
    levels_block,
    window_block,
)
from jaxtrade.advisor.host.feeds import local
from jaxtrade.config import RunConfig
from jaxtrade.config.service import ContextConfig
from jaxtrade.data.calendar.schedule import run_starts, schedule_for, spread, trade_dates
from jaxtrade.data.calendar.sessions import window_openings
from jaxtrade.data.market import Market, feature_windows

Levels = dict[str, float]


@dataclass(frozen=True)
class Days:
    """The D trade dates of T bars. of: int64[T], the date's number of each bar. first, end:
    int64[D], the rows from the decision window's opening to the date's last bar, `end` excluded.
    opening: int64[D], UTC seconds. close, flat: int64[D], UTC seconds of the scheduled close and of
    the time when positions must be closed; -1 where no session is scheduled."""

    of: np.ndarray
    first: np.ndarray
    end: np.ndarray
    opening: np.ndarray
    close: np.ndarray
    flat: np.ndarray


@dataclass(frozen=True)
class Earlier:
    """The T bars of a market, and the texts about what came before each.

    open, high, low, close: float64[T] in the quote unit. volume: float64[T], or None where the bars
        have none. closes:
    int64[T], UTC seconds. starts: int64[T], first row of each bar's feature window. seconds: length
    of a bar.
    """

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray | None
    closes: np.ndarray
    starts: np.ndarray
    days: Days
    seconds: int
    decimals: int
    zone: str
    chosen: ContextConfig

    def window(self, bar: int) -> str:
        """The block `window`: the bar and those before it, at most `bars`."""
        rows = range(max(int(self.starts[bar]), bar - self.chosen.bars + 1), bar + 1)
        return window_block([self._row(row, row + 1) for row in rows], self.seconds, self.decimals)

    def higher(self, bar: int) -> str:
        """The block `higher`: for each length, the last bars that were complete at the bar's
        close.
        """
        lengths = [
            minutes
            for minutes in self.chosen.higher
            if 60 * minutes > self.seconds and 60 * minutes % self.seconds == 0
        ]
        return higher_block(
            {
                minutes: [self._row(*ends) for ends in self.completed(bar, 60 * minutes)]
                for minutes in lengths
            },
            self.decimals,
        )

    def completed(self, bar: int, period: int) -> list[tuple[int, int]]:
        """Rows [begin, end) of the last `higher_bars` periods that hold bars and had ended at the
        bar's close, oldest first. period: seconds; periods are counted from whole hours UTC."""
        found, end = list[tuple[int, int]](), bar + 1
        while len(found) < self.chosen.higher_bars and end > self.starts[bar]:
            number = (int(self.closes[end - 1]) - self.seconds) // period
            begin = int(np.searchsorted(self.closes[:end], number * period + self.seconds))
            if begin >= self.starts[bar] and (number + 1) * period <= self.closes[bar]:
                found.append((begin, end))
            end = begin
        return found[::-1]

    def levels(self, bar: int) -> str:
        """The block `levels`."""
        days, day = self.days, int(self.days.of[bar])
        first, opening = int(days.first[day]), int(days.opening[day])
        session = None if bar < first else self._levels(first, bar + 1, "open", "high", "low")
        return levels_block(
            session,
            local(opening, self.zone, LEVELS["since"]),
            self._opening_range(bar),
            self.chosen.opening_minutes,
            self._prior(bar),
            self.left(bar, days.close),
            self.decimals,
        )

    def left(self, bar: int, until: np.ndarray) -> int | None:
        """Whole minutes from the bar's close to `until` of its trade date, int64[D]; None where
        none is scheduled or it has passed."""
        seconds = int(until[self.days.of[bar]]) - int(self.closes[bar])
        return None if seconds < 0 else seconds // 60

    def _opening_range(self, bar: int) -> Levels | None:
        day = int(self.days.of[bar])
        first, until = (
            int(self.days.first[day]),
            int(self.days.opening[day]) + 60 * self.chosen.opening_minutes,
        )
        if self.closes[bar] < until:
            return None
        end = first + int(np.searchsorted(self.closes[first : bar + 1], until, side="right"))
        return self._levels(first, end, "high", "low") if end > first else None

    def _prior(self, bar: int) -> Levels | None:
        day = int(self.days.of[bar]) - 1
        if (
            day < 0
            or self.days.first[day] < self.starts[bar]
            or self.days.first[day] >= self.days.end[day]
        ):
            return None
        return self._levels(
            int(self.days.first[day]), int(self.days.end[day]), "high", "low", "close"
        )

    def _levels(self, begin: int, end: int, *names: str) -> Levels:
        row = self._row(begin, end)
        return {name: getattr(row, name) for name in names}

    def _row(self, begin: int, end: int) -> PriceBar:
        """The bars of rows [begin, end) as one bar."""
        layout = WINDOW["stamp"] if self.seconds % 60 == 0 else WINDOW["fine_stamp"]
        volume = None if self.volume is None else float(self.volume[begin:end].sum())
        return PriceBar(
            local(int(self.closes[end - 1]), self.zone, layout),
            float(self.open[begin]),
            float(self.high[begin:end].max()),
            float(self.low[begin:end].min()),
            float(self.close[end - 1]),
            volume,
        )


def earlier_of(market: Market, config: RunConfig) -> Earlier:
    """The texts about a market's bars under `advisor.context`."""
    bars, contract = market.bars.mid, market.contract
    dates = trade_dates(bars.time, contract)
    schedule = schedule_for(
        config.data.calendar, contract, bars.time, bars.bar_seconds, bars.source
    )
    ids, tick = feature_windows(market.bars, schedule, dates, config), float(contract.tick_size)
    begins = run_starts(ids)
    begin = run_starts(dates)
    at = schedule.find(dates[begin])
    opening = window_openings(dates[begin], contract, config.session.overnight)
    end = np.append(begin[1:], len(bars))
    first = np.array(
        [
            low + np.searchsorted(bars.time[low:high], when)
            for low, high, when in zip(begin, end, opening, strict=True)
        ],
        np.int64,
    )
    days = Days(
        spread(np.arange(len(begin)), begin, len(bars)),
        first,
        end,
        opening,
        np.where(at >= 0, schedule.close[at], -1),
        np.where(at >= 0, schedule.flat[at], -1),
    )
    return Earlier(
        bars.open * tick,
        bars.high * tick,
        bars.low * tick,
        bars.close * tick,
        bars.volume if market.has_volume else None,
        bars.time + bars.bar_seconds,
        spread(begins, begins, len(bars)),
        days,
        bars.bar_seconds,
        contract.decimals,
        contract.zone,
        config.advisor.context,
    )
