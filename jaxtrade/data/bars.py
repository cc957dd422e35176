"""Bars of one contract on the host: prices in integer ticks, stamped by their open in UTC seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.data.calendar.schedule import DAY, local_seconds, run_starts, trade_dates
from jaxtrade.data.contracts import Contract
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import local
from jaxtrade.text import several, short_repr

PRICES = ("open", "high", "low", "close")
INT32 = 1 << 31  # what whole numbers on the device stay below


def place_of(source: str, first_line: int, row: int) -> str:
    """Return the place of a data row, counted from 0.

    It is `file.csv:12`, or `frame: row 10 (0-based)` if the source has no lines (`first_line`
    is 0).
    """
    return f"{source}:{row + first_line}" if first_line else f"{source}: row {row} (0-based)"


class Side(NamedTuple):
    """Prices of one side, int32[T] ticks each."""

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray


@dataclass(frozen=True)
class Leg:
    """One contract of a spliced series.

    first: the trade date (ISO) from which it is front; `start` for the first contract.
    step: its close minus the previous contract's close, in points.
    common: UTC seconds of the bar at which `step` is measured, the last one before the splice that
        both contracts have. step and common are None if they have no bar in common.
    """

    expiry: str
    first: str
    step: float | None = None
    common: int | None = None


def splice_dates(legs: tuple[Leg, ...]) -> np.ndarray:
    """Return the trade dates on which a new contract becomes front (datetime64[D])."""
    return np.array([leg.first for leg in legs[1:]], "datetime64[D]")


@dataclass(frozen=True)
class Places:
    """The places of T bars in one source.

    rows: int32[T], the data row of each bar, counted from 0.
    first_line: the line of data row 0; 0 if the source has no lines (Parquet, a frame).
    """

    source: str
    rows: np.ndarray
    first_line: int

    def select(self, keep: np.ndarray | slice) -> Places:
        """Return the places of the selected bars."""
        return replace(self, rows=self.rows[keep])

    def text(self, bar: int) -> str:
        """Return the place of one bar: `file.csv:12`, or `frame: row 10 (0-based)`."""
        return place_of(self.source, self.first_line, int(self.rows[bar]))


@dataclass(frozen=True)
class Bars:
    """T bars of one contract in time order.

    time: int64[T], UTC seconds of each bar's open.
    open, high, low, close: int32[T], ticks; the bid if the bars have two sides.
    volume: float64[T], zeros if the source has none.
    ask: the ask prices of two-sided bars, never below the bid; None for one-sided bars.
    contract: its slippage is 0 for two-sided bars, because their fills pay the spread.
    source: the name of the file.
    notes: what was assumed while reading.
    legs: the contracts of a spliced series in time order; empty for a single contract.
    places: where the bars stand in their file (prices of a second file: in that one); None if they
        come from no file, or from a market that was kept.
    """

    time: np.ndarray
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    bar_seconds: int
    contract: Contract
    source: str
    notes: tuple[str, ...] = ()
    synthetic: bool = False
    ask: Side | None = None
    legs: tuple[Leg, ...] = ()
    places: Places | None = None

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        ends = [local(int(self.time[i]), self.contract.zone) for i in (0, -1) if len(self)]
        return short_repr(
            "Bars",
            self.contract.symbol,
            f"{several(len(self), 'bar')} of {self.bar_seconds} s",
            f"{' .. '.join(ends)} {self.contract.zone}",
            "bid and ask" if self.ask else "one side",
            *(["synthetic"] if self.synthetic else []),
            f"source: {self.source}",
        )

    def rows(self, keep: np.ndarray | slice) -> Bars:
        """Return the selected bars."""
        sides = (Side(*(prices[keep] for prices in side)) for side in self.quotes)
        return self.with_quotes(
            *sides,
            time=self.time[keep],
            volume=self.volume[keep],
            places=self.places and self.places.select(keep),
        )

    @property
    def quotes(self) -> tuple[Side, ...]:
        """The prices of each side: of one, or of bid and ask."""
        first = Side(self.open, self.high, self.low, self.close)
        return (first, self.ask) if self.ask else (first,)

    def with_quotes(self, first: Side, ask: Side | None = None, **others: Any) -> Bars:
        """Return the bars with other prices, and with other values of the fields `others`."""
        return replace(self, **first._asdict(), ask=ask, **others)

    @cached_property
    def trade_dates(self) -> np.ndarray:
        """The trade date of each bar, datetime64 of days, of shape T."""
        return trade_dates(self.time, self.contract)

    @cached_property
    def date_starts(self) -> np.ndarray:
        """The first row of each trade date, int64."""
        return run_starts(self.trade_dates)

    @cached_property
    def date_ends(self) -> np.ndarray:
        """The row after the last of each trade date, int64."""
        return np.append(self.date_starts[1:], len(self))

    @property
    def minutes(self) -> np.ndarray:
        """int64[T], the minute of the exchange day of each open stamp."""
        return local_seconds(self.time, self.contract.zone) % DAY // 60

    @property
    def sides(self) -> tuple[Bars, Bars]:
        """(bid, ask), each as one-sided bars. One-sided bars are returned twice."""
        if not self.ask:
            return self, self
        return replace(self, ask=None), self.with_quotes(self.ask)

    @property
    def mid(self) -> Bars:
        """Bars with floor((bid + ask) / 2) in each field. Features are computed from these.

        One-sided bars are returned unchanged.
        """
        if not self.ask:
            return self
        bid, ask = self.quotes
        return self.with_quotes(
            Side(*((one + other) // 2 for one, other in zip(bid, ask, strict=True)))
        )

    def between(self, start: str | None, end: str | None) -> Bars:
        """Return the bars of trade dates start..end (ISO, inclusive).

        Raises DataError if none is left.
        """
        if not start and not end:
            return self
        days = self.trade_dates
        first = _date(start, "data.start") if start else days[0]
        last = _date(end, "data.end") if end else days[-1]
        keep = (days >= first) & (days <= last)
        if not keep.any():
            raise DataError(
                f"{self.source}: no bars of trade dates {start or 'first'}..{end or 'last'}; the file has "
                f"{days[0]}..{days[-1]}. Fix: set data.start and data.end inside it"
            )
        return self.rows(keep)


def _date(text: str, key: str) -> np.datetime64:
    try:
        return np.datetime64(text, "D")
    except ValueError:
        raise ConfigError(f"{key} = '{text}': not a date; write YYYY-MM-DD") from None
