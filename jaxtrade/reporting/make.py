"""Make the report of a run: `report.html`, `report.json` and `trades.csv`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.trades import TRADE_COLUMNS
from jaxtrade.reporting.bars import NO_LEVEL, Bars, Trade, extremes
from jaxtrade.reporting.bundle import packed
from jaxtrade.reporting.collect import Collected
from jaxtrade.reporting.page import json_of, page
from jaxtrade.storage.staged import staged
from jaxtrade.text import several

MB = 1_000_000
MOST_ROWS = 1_000  # trades in the table of the page
EQUITY_POINTS = 6_000  # of the chart that zooms


@dataclass(frozen=True)
class Report:
    """The three files as text. bars, dropped: numbers of bars that the page holds, and of older ones that it leaves out.
    """

    html: str
    json: str
    trades: str
    bars: int
    dropped: int


def make(found: Collected, max_mb: float = 3.0) -> Report:
    """The report of what was collected.

    max_mb: largest size of the page in millions of bytes. Where it would be larger, the oldest bars are left out, whole
    sessions at a time, and the page says so. Raises ConfigError if it is larger without any bars.
    """
    shown = found.trades[-MOST_ROWS:]
    first_trade = len(found.trades) - len(shown)
    limit = round(max_mb * MB)

    def document(first: int) -> tuple[dict[str, Any], str]:
        data = {**found.data, "explorer": found.data["explorer"] | {
            "held": len(found.bars) - first, "notes": _notes(found, first, len(shown), max_mb)}}
        live = {"bars": _bars(found.bars.after(first), first), "clock": _clock(found), "equity": _equity(found),
                "trades": [_drawn(found, trade, first) for trade in shown]}
        return data, page(data, shown, first_trade + 1, live)  # type: ignore[arg-type]

    first = _fitting(found.bars, limit, lambda at: len(document(at)[1].encode()))
    if first is None:
        size = len(document(len(found.bars))[1].encode()) / MB
        raise ConfigError(f"--max-mb {max_mb:g}: without any bars the page takes {size:.2f} MB already; give at least "
                          f"--max-mb {size + 0.1:.1f}")
    data, html = document(first)
    return Report(html, json.dumps(data, indent=2, allow_nan=False) + "\n", _csv(found), len(found.bars) - first, first)


def _fitting(bars: Bars, limit: int, size_of: Any) -> int | None:
    """The first bar from which on the page is within the limit: 0, the start of a session, or N (no bars). None if not
    even then."""
    if size_of(0) <= limit:
        return 0
    starts = np.append(0, np.flatnonzero(np.diff(bars.session)) + 1).tolist()
    places = [*starts, len(bars)]
    if size_of(places[-1]) > limit:
        return None
    low, high = 0, len(places) - 1  # `high` fits
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if size_of(places[middle]) <= limit else (middle + 1, high)
    return places[high]


def _notes(found: Collected, first: int, rows: int, max_mb: float) -> list[str]:
    """What the page leaves out, and what the run did not save."""
    bars, trades, notes = found.bars, len(found.trades), []
    if first:
        kept = len(bars) - first
        notes.append(f"The page holds the latest {kept:,} of {several(len(bars), 'bar')}, so that it stays within "
                     f"{max_mb:g} MB (--max-mb). The trades before them have no chart.")
    if rows < trades:
        notes.append(f"The table holds the latest {rows:,} of {trades:,} trades; trades.csv has all of them.")
    if bars.legal is None:
        notes.append("Stops, targets and the legal actions at the decisions are not shown: this evaluation did not save "
                     "them. Evaluate the run again: jaxtrade evaluate RUN")
    return notes


def _clock(found: Collected) -> dict[str, Any]:
    clock = found.clock
    return {"seconds": clock.bar_seconds, "zone": clock.zone, "tick": clock.tick_size, "decimals": clock.decimals}


def _bars(bars: Bars, first: int) -> dict[str, Any]:
    """The bars, packed. Times count from the first bar in units that divide all differences."""
    start = int(bars.time[0]) if len(bars) else 0
    unit = int(np.gcd.reduce(bars.time - start)) or 1 if len(bars) else 1
    columns = {"time": (bars.time - start) // unit, "close": bars.close, "open": bars.open, "high": bars.high,
               "low": bars.low}
    above = {name: "close" for name in ("open", "high", "low")}
    return {"first": first, "start": start, "unit": unit, **packed(columns, above)}


def _equity(found: Collected) -> dict[str, Any]:
    """Equity and drawdown in cents at some decision bars, with the time of each, packed."""
    marked, bars = found.marked, found.bars
    chosen = extremes(marked.equity, EQUITY_POINTS)
    return packed({"at": marked.at[chosen],
                   "time": (bars.time[marked.at[chosen]] + found.clock.bar_seconds) // 60,
                   "equity": np.round(100 * marked.equity[chosen]).astype(np.int64),
                   "drawdown": np.round(100 * marked.drawdown[chosen]).astype(np.int64)})


def _drawn(found: Collected, trade: Trade, first: int) -> dict[str, Any]:
    """A trade for the scripts: numbers of bars, prices in points, and what the facts beside the chart say."""
    tick, row = found.clock.tick_size, trade.row
    levels = {name: None if level is None else round(level * tick, found.clock.decimals)
              for name, level in (("stop", trade.stop), ("target", trade.target))}
    facts = [["Decision", f"{row['decision_time'][11:19]} at {row['decision_price']}"],
             ["Entry", f"{row['side']} {row['contracts']} at {row['entry_price']}"],
             ["Exit", f"{row['exit_reason'].replace('_', ' ')} at {row['exit_price']}"],
             *([name.capitalize(), f"{level:.{found.clock.decimals}f}"]
               for name, level in levels.items() if level is not None),
             ["Bars held", f"{trade.exit - trade.entry + 1:,}"],
             ["Furthest against, in favour", f"{row['mae_ticks']} and {row['mfe_ticks']} ticks"],
             ["Commission, slippage", f"${row['commission']}, ${row['slippage']}"]]
    if found.bars.legal is not None:
        facts.append(["Legal at the decision", ", ".join(legal(found, trade))])
    return {"decision": trade.decision, "entry": trade.entry, "exit": trade.exit, "side": trade.side,
            "paid": float(row["entry_price"]), "got": float(row["exit_price"]), "net": float(row["net_pnl"]),
            "reason": row["exit_reason"], "session": row["session"], "held": trade.decision >= first, **levels,
            "facts": facts}


def legal(found: Collected, trade: Trade) -> list[str]:
    """The names of the actions that were legal at a trade's decision. Empty if the run saved none."""
    if found.bars.legal is None:
        return []
    bits = int(found.bars.legal[trade.decision])
    return [name for i, name in enumerate(found.actions) if bits >> i & 1]


def _csv(found: Collected) -> str:
    """All trades: the columns of the evaluation's `trades.csv`, then `stop`, `target` and `legal`, empty if unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("trade", *TRADE_COLUMNS, "stop", "target", "legal"))
    form = f".{found.clock.decimals}f"
    for i, trade in enumerate(found.trades, 1):
        levels = ["" if level is None else format(level * found.clock.tick_size, form)
                  for level in (trade.stop, trade.target)]
        writer.writerow((i, *(trade.row[name] for name in TRADE_COLUMNS), *levels, " ".join(legal(found, trade))))
    return out.getvalue()


def write(report: Report, folder: Path) -> dict[str, Path]:
    """Write the three files into a folder, all or none of them -> their paths. Raises OSError (disk)."""
    texts = {"report.html": report.html, "report.json": report.json, "trades.csv": report.trades}
    with staged(folder) as new:
        for name, text in texts.items():
            (new / name).write_bytes(text.encode("utf-8"))
    return {name: folder / name for name in texts}
