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
from typing import Any

import numpy as np

from jaxtrade.env.state import ExitReason
from jaxtrade.evaluation.result import EvaluationResult
from jaxtrade.evaluation.statistics import (
    MIN_DAYS,
    IntervalEstimate,
    block_days,
    day_lots,
    holm,
    interval,
)
from jaxtrade.evaluation.statistics.resampling import block_count
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


Cell = dict[str, Any]  # metrics of the trades of one value of a property, see `trade_cell`


def breakdown(result: EvaluationResult, market: MarketData) -> dict[str, Any]:
    """Break down the trades of the first agent, the policy, in the schema of the report's section.

    `whole` has all trades together, without a correction, `tables` one table for each property.

    market: the bars of the evaluation.
    """
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
    tables = {by: trade_cells(names, trades, order) for by, names, order in properties}
    return {
        "agent": chosen.name,
        "whole": trade_cell("all trades", trades),
        "tables": [{"by": by, "cells": cells} for by, cells in tables.items()],
        "notes": _notes(tables["volatility"]),
    }


def _notes(by_volatility: Sequence[Cell]) -> list[str]:
    notes = [
        "half hour: of the entry, on the exchange's clock; weekday: of the trade date",
        f"volatility: the ATR at the decision among those of the {PAST} sessions before, in thirds; it is known at the "
        "entry",
        "exit reason: known only after the trade (targets win and stops lose), so it describes and predicts nothing",
        f"cells with fewer than {MIN_TRADES} trades are blank; intervals need {MIN_DAYS} days; p is corrected for the "
        "cells of its table (Holm)",
    ]
    if any(cell["name"] == UNKNOWN for cell in by_volatility):
        notes.append(f"volatility {UNKNOWN}: fewer than {MIN_PAST} sessions came before")
    return notes


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


def trade_cells(names: Sequence[str], trades: Trades, order: Callable[[str], Any]) -> list[Cell]:
    """Make one cell for each name that occurs, sorted by `order`, with p corrected for all of them.

    names: one for each trade.
    """
    column = np.asarray(names, dtype=str)
    cells = [
        trade_cell(name, trades.where(column == name)) for name in sorted(set(names), key=order)
    ]
    tested = [cell for cell in cells if cell["p"] is not None]
    for cell, p in zip(tested, holm(np.array([each["p"] for each in tested])), strict=True):
        cell["p"] = float(p)
    return cells


def trade_cell(name: str, trades: Trades, seed: int = 0) -> Cell:
    """Compute the metrics of some trades: count, days, total and mean in dollars, p.

    The mean has value, low, high (95 %), and `why`, the reason of what is None; p is the one before
    any correction.

    seed: of the draws of days.
    """
    count, days = len(trades), len(np.unique(trades.session))
    total, p = int(trades.net.sum()) / 1000, None
    if count < MIN_TRADES:
        why = f"{several(count, 'trade')}; a figure needs {MIN_TRADES}"
        total, mean = None, IntervalEstimate(why=why)
    elif days < MIN_DAYS:
        why = f"{several(days, 'day')}; an interval needs {MIN_DAYS}"
        mean = IntervalEstimate(total / count, why=why)
    else:
        mean, p = _mean_by_days(trades, total / count, seed)
    return {
        "name": name,
        "count": count,
        "days": days,
        "total": total,
        "p": p,
        "mean": mean._asdict(),
    }


def _mean_by_days(trades: Trades, mean: float, seed: int) -> tuple[IntervalEstimate, float | None]:
    """Resample the days: the interval of the mean, and the two-sided p of a mean of 0.

    p is from Student's t; None where the days show no spread.
    """
    from scipy.special import stdtr  # takes a moment to load

    session, place = np.unique(trades.session, return_inverse=True)
    days = len(session)
    profit, number = np.bincount(place, trades.net / 1000), np.bincount(place).astype(np.float64)
    block = block_days(days)
    lots = day_lots(np.random.default_rng([seed, days, block]), days, block, DRAWS)
    means = (lots @ profit) / (lots @ number)
    spread, freedom = float(means.std()), block_count(days, block) - 1.0
    if spread <= 1e-9 * max(1.0, abs(mean)):
        why = "every day has the same mean, so the days show no spread"
        return IntervalEstimate(mean, why=why), None
    error = spread * math.sqrt((freedom + 1) / freedom)
    return (
        IntervalEstimate(mean, *interval(means, mean, freedom)),
        float(2 * stdtr(freedom, -abs(mean) / error)),
    )


def table(document: dict[str, Any]) -> str:
    """Format the breakdown as text, one table below the other."""
    blocks = [
        [f"net profit of '{document['agent']}' by trade, account rules off"],
        _lines("", [document["whole"]]),
    ]
    blocks += [_lines(**each) for each in document["tables"] if each["cells"]]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "".join(
        f"\nNOTE: {note}" for note in document["notes"]
    )


def _lines(by: str, cells: Sequence[Cell]) -> list[str]:
    head = (by, "trades", "days", "total", "per trade", "95 % interval", "p (Holm)" if by else "p")
    return align([head, *(_row(cell) for cell in cells)])


def _row(cell: Cell) -> tuple[str, ...]:
    mean, p = cell["mean"], cell["p"]
    ends = [mean["low"]] if mean["low"] is None else [mean["low"], mean["high"]]
    return (
        f"  {cell['name'].replace('_', ' ')}",
        f"{cell['count']:,}",
        f"{cell['days']:,}",
        money(cell["total"]),
        money(mean["value"]),
        " to ".join(map(money, ends)),
        "<0.001" if p is not None and p < 0.001 else format_number(p, "ratio", 3),
    )
