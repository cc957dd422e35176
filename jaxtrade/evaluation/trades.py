"""Round turns assembled on the host from the events of a record, in exact integers."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.env.money import muldiv_host, tick_mills
from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EndReason, EnvParams, ExitReason
from jaxtrade.evaluation.backtest import DecisionBars, Record

Whole = Any  # int or a NumPy integer


@dataclass(frozen=True)
class Trades:
    """K round turns in order of entry; int64[K] each. Prices ticks, money mills, rows market rows.

    session: position in the session set. side: +1 or -1. contracts: > 0. decision_row: bar at whose close the entry
    was decided. entry_row, exit_row: bars in which the fills happened. entry_price, exit_price: fills, slippage
    included. reason: ExitReason. ticks: gained per contract. commission, slippage: both sides, all contracts.
    net: profit after commission. mae, mfe: largest move against and for the position from its entry fill, ticks per
    contract, at least 0, from unslipped prices between the fills (a bar that exits counts up to its exit level).
    """

    session: np.ndarray
    side: np.ndarray
    contracts: np.ndarray
    decision_row: np.ndarray
    entry_row: np.ndarray
    entry_price: np.ndarray
    exit_row: np.ndarray
    exit_price: np.ndarray
    reason: np.ndarray
    ticks: np.ndarray
    commission: np.ndarray
    slippage: np.ndarray
    net: np.ndarray
    mae: np.ndarray
    mfe: np.ndarray

    def __len__(self) -> int:
        return len(self.side)

    def where(self, keep: np.ndarray) -> Trades:
        """The trades of a selection bool[K]."""
        return Trades(**{field.name: getattr(self, field.name)[keep] for field in fields(self)})


def _exits(record: Record) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(bar index, quantity, price, reason) of every exit in time order; an exit by order precedes the bar's others."""
    event = record.event
    ordered, left = np.flatnonzero(event.order_exit_quantity), np.flatnonzero(event.exit_quantity)
    bar = np.concatenate([ordered, left])
    order = np.lexsort((np.repeat([0, 1], [len(ordered), len(left)]), bar))
    quantity = np.concatenate([event.order_exit_quantity[ordered], event.exit_quantity[left]])
    price = np.concatenate([event.order_exit_price[ordered], event.exit_price[left]])
    reason = np.concatenate([np.full(len(ordered), ExitReason.ORDER), event.exit_reason[left]])
    return tuple(column[order].astype(np.int64) for column in (bar, quantity, price, reason))  # type: ignore[return-value]


def _extremes(record: Record, first: int, last: int, side: int, exit_mark: int | None) -> tuple[int, int]:
    """Best and worst unslipped price of a trade that was held in bars first..last (indices).

    exit_mark: price of an exit by order, which left bar `last` at its opening and saw nothing else of it.
    """
    stop = last if exit_mark is not None else last + 1
    marks = np.concatenate([record.event.favourable[first:stop], record.event.adverse[first:stop],
                            [] if exit_mark is None else [exit_mark]]) * side
    return int(marks.max()), int(marks.min())


def mills_at(ticks: np.ndarray, rows: np.ndarray, params: EnvParams) -> np.ndarray:
    """int64[K] mills that `ticks` (price change times contracts) are worth in bars `rows`: `money_of` on the host."""
    value = params.market.tick_value
    if value is None:
        return ticks * int(tick_mills(params.contract))
    return muldiv_host(ticks, np.asarray(value.times)[rows], np.asarray(value.over)[rows])


def assemble_trades(record: Record, decisions: DecisionBars, params: EnvParams) -> Trades:
    """Pair every entry with the exit that follows it. Money is that of the exit's bar.

    Raises RuntimeError where entries and exits do not alternate (a bug: every position leaves at the flat bar).
    """
    event, contract = record.event, params.contract
    entry = np.flatnonzero(event.entry_quantity)
    exit_, exit_quantity, exit_price, reason = _exits(record)
    quantity = event.entry_quantity[entry].astype(np.int64)
    if len(entry) != len(exit_) or np.any(exit_ < entry) or not np.array_equal(quantity, exit_quantity):
        raise RuntimeError(f"{len(entry)} entries and {len(exit_)} exits do not pair")
    side, size = np.sign(quantity), np.abs(quantity)
    entry_price = event.entry_price[entry].astype(np.int64)
    ticks = side * (exit_price - entry_price)
    slip = int(contract.slippage)
    by_order = reason == ExitReason.ORDER
    marks = [
        _extremes(record, int(a), int(b), int(s), int(p + s * slip) if o else None)
        for a, b, s, p, o in zip(entry, exit_, side, exit_price, by_order, strict=True)
    ]
    best, worst = (np.array(marks, np.int64).reshape(-1, 2)).T
    commission = 2 * size * int(contract.commission)
    rows = decisions.rows
    exit_row = rows[exit_] + 1
    return Trades(
        session=decisions.session[entry],
        side=side,
        contracts=size,
        decision_row=rows[entry],
        entry_row=rows[entry] + 1,
        entry_price=entry_price,
        exit_row=exit_row,
        exit_price=exit_price,
        reason=reason,
        ticks=ticks,
        commission=commission,
        slippage=mills_at(size * slip * (2 - (reason == ExitReason.TARGET)), exit_row, params),
        net=mills_at(ticks * size, exit_row, params) - commission,
        mae=np.maximum(side * entry_price - worst, 0),
        mfe=np.maximum(best - side * entry_price, 0),
    )


@dataclass(frozen=True)
class BarClock:
    """How rows and ticks are printed. time: int64[T] UTC seconds of each bar's open. zone: the exchange's, IANA."""

    time: np.ndarray
    bar_seconds: int
    tick_size: Decimal
    decimals: int
    zone: str

    def opened(self, row: Whole) -> str:
        """ISO 8601 stamp, with offset, of a bar's open."""
        return self._stamp(int(self.time[row]))

    def closed(self, row: Whole) -> str:
        """ISO 8601 stamp, with offset, of a bar's close."""
        return self._stamp(int(self.time[row]) + self.bar_seconds)

    def _stamp(self, seconds: int) -> str:
        return datetime.datetime.fromtimestamp(seconds, ZoneInfo(self.zone)).isoformat()

    def price(self, ticks: Whole) -> str:
        """Exact decimal price in points."""
        return f"{int(ticks) * self.tick_size:.{self.decimals}f}"


def dollars(mills: Whole) -> str:
    """Exact decimal money, three digits."""
    return f"{Decimal(int(mills)) / 1000:.3f}"


TRADE_COLUMNS = (
    "session", "side", "contracts", "decision_time", "decision_price", "entry_time", "entry_price", "exit_time",
    "exit_price", "exit_reason", "ticks", "commission", "slippage", "net_pnl", "mae_ticks", "mfe_ticks",
)


AT_CLOSE = (ExitReason.FLAT, ExitReason.END_OF_DATA)


def _exit_time(reason: int, row: Whole, clock: BarClock, fill: str) -> str:
    if reason in AT_CLOSE:
        return clock.closed(row)
    return clock.closed(row - 1) if fill == "close" and reason == ExitReason.ORDER else clock.opened(row)


def trade_rows(
    trades: Trades, decisions: DecisionBars, clock: BarClock, close: np.ndarray, fill: str = "next_open"
) -> Iterator[tuple[Any, ...]]:
    """Rows of `trades.csv` (TRADE_COLUMNS).

    decision_time and decision_price: close of the bar decided at. entry_time, exit_time: *open* stamps of the bars in
    which the fills happened; exits at the flat bar or the end of data fill at that bar's close and have its *close*
    stamp. With `fill=close` entries and exits by order fill at the close decided at and have its stamp. `session` is
    the trade date.
    """
    for k in range(len(trades)):
        decision, entered, left = trades.decision_row[k], trades.entry_row[k], trades.exit_row[k]
        yield (
            str(decisions.date[trades.session[k]]),
            "long" if trades.side[k] > 0 else "short",
            int(trades.contracts[k]),
            clock.closed(decision),
            clock.price(close[decision]),
            clock.closed(decision) if fill == "close" else clock.opened(entered),
            clock.price(trades.entry_price[k]),
            _exit_time(int(trades.reason[k]), left, clock, fill),
            clock.price(trades.exit_price[k]),
            ExitReason(int(trades.reason[k])).name.lower(),
            int(trades.ticks[k]),
            dollars(trades.commission[k]),
            dollars(trades.slippage[k]),
            dollars(trades.net[k]),
            int(trades.mae[k]),
            int(trades.mfe[k]),
        )


EQUITY_COLUMNS = (
    "time", "session", "strategy_equity", "strategy_position", "account", "account_equity", "account_position",
    "drawdown_floor", "high_water", "account_end",
)


def equity_rows(
    strategy: Record, account: Record, decisions: DecisionBars, clock: BarClock, start_balance: float
) -> Iterator[tuple[Any, ...]]:
    """Rows of `equity.csv` (EQUITY_COLUMNS), one per decision bar, as things stood at the close of the bar after it.

    Equity, floor and high-water mark are dollars of balance. The floor is empty where there is none, and floor and
    high-water mark are empty once the account has ended. account_end names how it ended, in the bar where it did.
    """
    start = int(Decimal(str(start_balance)) * 1000)
    for i, row in enumerate(decisions.rows):
        floor, active = int(account.event.floor[i]), bool(account.active[i])
        yield (
            clock.closed(row + 1),
            str(decisions.date[decisions.session[i]]),
            dollars(start + int(strategy.equity[i])),
            int(strategy.quantity[i]),
            int(account.account[i]) + 1,
            dollars(start + int(account.equity[i])),
            int(account.quantity[i]),
            dollars(start + floor) if active and floor != NO_FLOOR else "",
            dollars(start + int(account.high_water[i])) if active else "",
            EndReason(int(account.end[i])).name.lower() if account.end[i] else "",
        )


def write_csv(path: Path, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """Write a header of `columns` and the rows as UTF-8 CSV with Unix line ends. Raises OSError (disk)."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
