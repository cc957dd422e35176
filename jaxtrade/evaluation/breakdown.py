"""Where the profit of an agent comes from.

Its trades are split by half hour, weekday, volatility and exit reason.

The trades are those of the strategy pass, net of costs. A trade belongs to the day on which it was
made, and trades of one day resemble each other. So intervals and p-values come from a bootstrap of
days, not of trades: with the profits x_d and the numbers k_d of trades on the days of a cell, drawn
together in blocks of consecutive days,

    mean per trade = sum(x_d) / sum(k_d),    t = mean / (s sqrt((f + 1) / f)),

where s is the standard deviation of the drawn means and f + 1 the number of blocks. The p-value of
a mean of 0 is two-sided, from Student's t with f degrees of freedom; the interval is
`statistics.interval`. With many cells some look good by chance: the p-values of each table are
corrected for their number (`statistics.holm`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtrade.env.state import ExitReason
from jaxtrade.evaluation.result import EvaluationResult
from jaxtrade.evaluation.statistics import MIN_DAYS, Interval, block_days, day_lots, holm, interval
from jaxtrade.evaluation.trades import Trades
from jaxtrade.formatting import at, format_number, money
from jaxtrade.text import align, several
from jaxtrade.types import MarketData

MIN_TRADES = 10  # a cell with fewer is blank
DRAWS = 2_000
PAST, MIN_PAST = (
    20,
    5,
)  # sessions with which the volatility at an entry is compared, and how many are needed
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TERCILES = ("low", "middle", "high")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class TradeCell:
    """Trades of one kind, in dollars net of costs.

    trades: their number.
    days: trade dates with such a trade.
    total, mean: their sum, and per trade.
    interval: 95 %, of the mean.
    p: of a mean of 0, two-sided, corrected for the cells of the table. Each is None where `why`
        says so.
    """

    name: str
    trades: int
    days: int
    total: float | None = None
    mean: float | None = None
    interval: Interval | None = None
    p: float | None = None
    why: str | None = None


@dataclass(frozen=True)
class TradeTable:
    """All trades by one property. by: its name."""

    by: str
    cells: tuple[TradeCell, ...]


@dataclass(frozen=True)
class Breakdown:
    """The trades of one agent by several properties.

    whole: all of them together, without a correction.
    """

    agent: str
    whole: TradeCell
    tables: tuple[TradeTable, ...]
    notes: tuple[str, ...]


def breakdown(result: EvaluationResult, market: MarketData) -> Breakdown:
    """Break down the trades of the first agent, the policy. market: the bars of the evaluation."""
    chosen = result.agents[0]
    trades = chosen.trades
    properties: list[tuple[str, list[str], Callable[[str], Any]]] = [
        ("half hour", half_hours(result, trades), str),
        ("weekday", _weekdays(result, trades), WEEKDAYS.index),
        ("volatility", volatility_terciles(result, market, trades), (*TERCILES, UNKNOWN).index),
        (
            "exit reason",
            [ExitReason(int(reason)).name.lower() for reason in trades.reason],
            lambda name: ExitReason[name.upper()],
        ),
    ]
    tables = tuple(trade_table(by, names, trades, order) for by, names, order in properties)
    return Breakdown(chosen.name, trade_cell("all trades", trades), tables, _notes(tables))


def _notes(tables: Sequence[TradeTable]) -> tuple[str, ...]:
    notes = [
        "half hour: of the entry, on the exchange's clock; weekday: of the trade date",
        f"volatility: the ATR at the decision among those of the {PAST} sessions before, in thirds; it is known at the "
        "entry",
        "exit reason: known only after the trade (targets win and stops lose), so it describes and predicts nothing",
        f"cells with fewer than {MIN_TRADES} trades are blank; intervals need {MIN_DAYS} days; p is corrected for the "
        "cells of its table (Holm)",
    ]
    if any(cell.name == UNKNOWN for table in tables for cell in table.cells):
        notes.append(f"volatility {UNKNOWN}: fewer than {MIN_PAST} sessions came before")
    return tuple(notes)


def half_hours(result: EvaluationResult, trades: Trades) -> list[str]:
    """Return the half hour of each trade's entry, as "09:30", on the clock of the exchange."""
    clock = result.clock
    if result.settings["fill"] == "close":
        seconds = clock.time[trades.decision_row] + clock.bar_seconds
    else:
        seconds = clock.time[trades.entry_row]
    times = [at(int(each), result.clock.zone) for each in seconds]
    return [f"{each.hour:02d}:{30 * (each.minute // 30):02d}" for each in times]


def _weekdays(result: EvaluationResult, trades: Trades) -> list[str]:
    number = (
        result.decisions.date[trades.session].astype(np.int64) + 3
    ) % 7  # 1970-01-01 was a Thursday
    return [WEEKDAYS[day] for day in number]


def volatility_terciles(result: EvaluationResult, market: MarketData, trades: Trades) -> list[str]:
    """Return the tercile of volatility in which each trade was decided, or UNKNOWN.

    Volatility is the sum of the last 14 true ranges at the close of the decision bar. The terciles
    are those of the decision bars of the `PAST` sessions of the market before the trade's own, so
    all of it is known at the entry.
    """
    sum_, first = np.asarray(market.tr_sum, np.int64), np.asarray(market.sessions.first, np.int64)
    last = np.asarray(market.sessions.last, np.int64)

    def limits(session: int) -> np.ndarray:
        before = [sum_[first[i] : last[i] + 1] for i in range(max(0, session - PAST), session)]
        known = [each[each >= 0] for each in before if (each >= 0).any()]
        return (
            np.quantile(np.concatenate(known), [1 / 3, 2 / 3])
            if len(known) >= MIN_PAST
            else np.zeros(0)
        )

    found = {
        int(number): limits(int(result.decisions.ids[number]))
        for number in np.unique(trades.session)
    }
    names = []
    for number, row in zip(trades.session, trades.decision_row, strict=True):
        edges = found[int(number)]
        names.append(TERCILES[int(np.searchsorted(edges, sum_[row]))] if len(edges) else UNKNOWN)
    return names


def trade_table(
    by: str, names: Sequence[str], trades: Trades, order: Callable[[str], Any]
) -> TradeTable:
    """Make one cell for each name that occurs, sorted by `order`. names: one for each trade."""
    column = np.asarray(names, dtype=str)
    cells = [
        trade_cell(name, trades.where(column == name)) for name in sorted(set(names), key=order)
    ]
    tested = {i: cell.p for i, cell in enumerate(cells) if cell.p is not None}
    for i, p in zip(tested, holm(np.array(list(tested.values()))), strict=True):
        cells[i] = replace(cells[i], p=float(p))
    return TradeTable(by, tuple(cells))


def trade_cell(name: str, trades: Trades, seed: int = 0) -> TradeCell:
    """Compute the metrics of some trades, with p before any correction.

    seed: of the draws of days.
    """
    from scipy.special import stdtr  # takes a moment to load

    session, place = np.unique(trades.session, return_inverse=True)
    count, days = len(trades), len(session)
    if count < MIN_TRADES:
        return TradeCell(
            name, count, days, why=f"{several(count, 'trade')}; a figure needs {MIN_TRADES}"
        )
    net = trades.net / 1000
    total = int(trades.net.sum()) / 1000
    cell = TradeCell(name, count, days, total, total / count)
    if days < MIN_DAYS:
        return replace(cell, why=f"{several(days, 'day')}; an interval needs {MIN_DAYS}")
    profit, number = np.bincount(place, net), np.bincount(place).astype(np.float64)
    block = block_days(days)
    lots = day_lots(np.random.default_rng([seed, days, block]), days, block, DRAWS)
    means = (lots @ profit) / (lots @ number)
    spread, freedom = float(means.std()), max(days / block, 2.0) - 1.0
    if spread <= 1e-9 * max(1.0, abs(total / count)):
        return replace(cell, why="every day has the same mean, so the days show no spread")
    return replace(
        cell,
        interval=interval(means, total / count, freedom),
        # Two-sided p of a mean of 0, from Student's t.
        p=float(
            2 * stdtr(freedom, -abs(total / count) / (spread * math.sqrt((freedom + 1) / freedom)))
        ),
    )


def table(found: Breakdown) -> str:
    """Format the breakdown as text, one table below the other."""
    blocks = [
        [f"net profit of '{found.agent}' by trade, account rules off"],
        _lines("", [found.whole]),
    ]
    blocks += [_lines(each.by, each.cells) for each in found.tables if each.cells]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "".join(
        f"\nNOTE: {note}" for note in found.notes
    )


def _lines(by: str, cells: Sequence[TradeCell]) -> list[str]:
    head = (by, "trades", "days", "total", "per trade", "95 % interval", "p (Holm)" if by else "p")
    return align([head, *(_row(cell) for cell in cells)])


def _row(cell: TradeCell) -> tuple[str, ...]:
    ends = cell.interval or (None,)
    return (
        f"  {cell.name.replace('_', ' ')}",
        f"{cell.trades:,}",
        f"{cell.days:,}",
        money(cell.total),
        money(cell.mean),
        " to ".join(money(end) for end in ends),
        "<0.001" if cell.p is not None and cell.p < 0.001 else format_number(cell.p, "ratio", 3),
    )


def to_json(found: Breakdown) -> dict[str, Any]:
    """Return JSON values, in the schema of the report's section.

    Money is dollars. `why` is the reason of what is None.
    """
    return {
        "agent": found.agent,
        "whole": _cell(found.whole),
        "tables": [
            {"by": each.by, "cells": [_cell(cell) for cell in each.cells]} for each in found.tables
        ],
        "notes": list(found.notes),
    }


def _cell(cell: TradeCell) -> dict[str, Any]:
    low, high = cell.interval or (None, None)
    return {
        "name": cell.name,
        "count": cell.trades,
        "days": cell.days,
        "total": cell.total,
        "p": cell.p,
        "mean": {"value": cell.mean, "low": low, "high": high, "why": cell.why},
    }
