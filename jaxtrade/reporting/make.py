"""Make the report of a run: `report.html`, `report.json` and `trades.csv`."""

from __future__ import annotations

import bisect
import csv
import functools
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.frames import TRADE_COLUMNS
from jaxtrade.evaluation.records import BarRecords
from jaxtrade.formatting import cost, points, price
from jaxtrade.reporting.bars import PageClock, PlacedTrade, extremes, pack_columns
from jaxtrade.reporting.collect import ReportData
from jaxtrade.reporting.page import page
from jaxtrade.storage.staging import stage_files
from jaxtrade.text import json_text, several

MB = 1_000_000
MOST_ROWS = 1_000  # trades in the table of the page
EQUITY_POINTS = 6_000  # of the chart that zooms


@dataclass(frozen=True)
class ReportFiles:
    """The files as text.

    trades: empty in the report of a walk-forward.
    bars: number of bars that the page holds.
    dropped: of older ones that it leaves out.
    """

    html: str
    json: str
    trades: str = ""
    bars: int = 0
    dropped: int = 0


def make(found: ReportData, max_mb: float = 3.0) -> ReportFiles:
    """Make the report of what was collected.

    max_mb: largest size of the page in millions of bytes. Where it would be larger, the oldest bars
        are left out, whole sessions at a time, and the page says so. Raises ConfigError if it is
        larger without any bars, or `max_mb` is not above 0.
    """
    check_limit(max_mb)
    shown = found.trades[-MOST_ROWS:]
    first_trade = len(found.trades) - len(shown)
    limit = round(max_mb * MB)

    equity = _equity(found)

    @functools.lru_cache(maxsize=1)  # the one that fits is mostly the last that was tried
    def document(first: int) -> tuple[dict[str, Any], str]:
        data = {
            **found.data,
            "explorer": found.data["explorer"]
            | {
                "held": len(found.bars.row) - first,
                "notes": _notes(found, first, len(shown), max_mb),
            },
        }
        live = {
            "bars": _bars(found.bars, first),
            "clock": {
                "seconds": found.clock.bar_seconds,
                "zone": found.clock.zone,
                "tick": found.clock.tick_size,
                "decimals": found.clock.decimals,
            },
            "equity": equity,
            "trades": [_describe_trade(found, trade, first) for trade in shown],
        }
        return data, page(data, shown, first_trade + 1, live)

    first = _fitting(found.bars, limit, lambda at: len(document(at)[1].encode()))
    if first is None:
        size = len(document(len(found.bars.row))[1].encode()) / MB
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: without any bars the page takes {size:.2f} MB already; give "
            f"{size + 0.1:.1f} or more"
        )
    data, html = document(first)
    return ReportFiles(
        html,
        json_text(data) + "\n",
        found.fills or _csv(found),
        len(found.bars.row) - first,
        first,
    )


def _fitting(bars: BarRecords, limit: int, size_of: Callable[[int], int]) -> int | None:
    """Find the first bar from which on the page is within the limit.

    It is 0, the start of a session, or N (no bars). None if not even then.
    """
    if size_of(0) <= limit:
        return 0
    places = [*(np.flatnonzero(np.diff(bars.session)) + 1).tolist(), len(bars.row)]
    at = bisect.bisect_left(places, True, key=lambda first: size_of(first) <= limit)
    return places[at] if at < len(places) else None


def _notes(found: ReportData, first: int, rows: int, max_mb: float) -> list[str]:
    """Say what the page leaves out."""
    bars, trades, notes = len(found.bars.row), len(found.trades), []
    if first:
        notes.append(
            f"The page holds the latest {bars - first:,} of {several(bars, 'bar')}, so that it stays within "
            f"{max_mb:g} MB (--max-mb). The trades before them have no chart."
        )
    if rows < trades:
        notes.append(
            f"The table holds the latest {rows:,} of {trades:,} trades; trades.csv has all of them."
        )
    return notes


def _bars(bars: BarRecords, first: int) -> dict[str, Any]:
    """Pack the bars from `first` on.

    Times count from the first of them in units that divide all differences.
    """
    time = bars.time[first:]
    start = int(time[0]) if len(time) else 0
    unit = int(np.gcd.reduce(time - start)) or 1
    columns = {"time": (time - start) // unit} | {
        name: getattr(bars, name)[first:] for name in ("close", "open", "high", "low")
    }
    return {
        "first": first,
        "start": start,
        "unit": unit,
        **pack_columns(columns, dict.fromkeys(("open", "high", "low"), "close")),
    }


def _equity(found: ReportData) -> dict[str, Any]:
    """Pack equity and drawdown in cents at some decision bars, with the time of each."""
    marked = found.marked
    chosen = extremes(marked.equity, EQUITY_POINTS)
    return pack_columns(
        {
            "at": marked.at[chosen],
            "time": marked.time[chosen] // 60,
            "equity": np.round(100 * marked.equity[chosen]).astype(np.int64),
            "drawdown": np.round(100 * marked.drawdown[chosen]).astype(np.int64),
        }
    )


def _describe_trade(found: ReportData, trade: PlacedTrade, first: int) -> dict[str, Any]:
    """Describe a trade for the scripts.

    It has numbers of bars, prices in points, and what the facts beside the chart say.
    """
    clock, row = found.clock, trade.row
    levels = [[bar, points(level, clock)] for bar, level in trade.stops]
    target = None if trade.target is None else points(trade.target, clock)
    facts = [
        ["Decision", f"{row['decision_time'][11:19]} at {row['decision_price']}"],
        ["Entry", f"{row['side']} {row['contracts']} at {row['entry_price']}"],
        ["Exit", f"{row['exit_reason'].replace('_', ' ')} at {row['exit_price']}"],
        ["Stop", _stop_fact(clock, levels)],
        ["Target", "none" if target is None else price(trade.target, clock)],
        ["Bars held", f"{trade.exit - trade.entry + 1:,}"],
        ["Furthest against, in favour", f"{row['mae_ticks']} and {row['mfe_ticks']} ticks"],
        [
            "Commission, slippage",
            f"{cost(float(row['commission']))}, {cost(float(row['slippage']))}",
        ],
        ["Legal at the decision", ", ".join(trade.legal)],
    ]
    return {
        "decision": trade.decision,
        "entry": trade.entry,
        "exit": trade.exit,
        "side": trade.side,
        "paid": float(row["entry_price"]),
        "got": float(row["exit_price"]),
        "net": float(row["net_pnl"]),
        "reason": row["exit_reason"],
        "session": row["session"],
        "held": trade.decision >= first,
        "stops": levels,
        "target": target,
        "facts": facts,
    }


def _stop_fact(clock: PageClock, levels: list[list[Any]]) -> str:
    if not levels:
        return "none"
    first, last = (f"{level:.{clock.decimals}f}" for _, level in (levels[0], levels[-1]))
    return (
        first
        if len(levels) == 1
        else f"{first}, moved to {last} in {several(len(levels) - 1, 'step')}"
    )


def _csv(found: ReportData) -> str:
    """Format all trades as CSV.

    It has the columns of the evaluation's `trades.csv`, then the first stop, the target (empty
    without one) and the actions that were legal at the decision.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("trade", *TRADE_COLUMNS, "stop", "target", "legal"))
    for i, trade in enumerate(found.trades, 1):
        levels = [
            "" if level is None else price(level, found.clock)
            for level in (trade.stop, trade.target)
        ]
        writer.writerow(
            (i, *(trade.row[name] for name in TRADE_COLUMNS), *levels, " ".join(trade.legal))
        )
    return out.getvalue()


def check_limit(max_mb: float) -> None:
    """Raise ConfigError unless the largest size of the page is above 0."""
    if not 0 < max_mb < math.inf:
        raise ConfigError(
            f"max_mb (--max-mb) {max_mb:g}: expected a size above 0, in millions of bytes"
        )


def write(report: ReportFiles, folder: Path) -> dict[str, Path]:
    """Write the files into a folder, all or none of them, and return their paths.

    Raises OSError (disk).
    """
    texts = {"report.html": report.html, "report.json": report.json}
    if report.trades:
        texts["trades.csv"] = report.trades
    with stage_files(folder, noted=False) as new:
        for name, text in texts.items():
            (new / name).write_bytes(text.encode("utf-8"))
    return {name: folder / name for name in texts}
