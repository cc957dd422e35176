"""A picture about one agent: price with its trades, equity of all agents, and its account with the drawdown floor."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation.report import EvaluationResult
from jaxtrade.evaluation.result import AgentResult

LONG, SHORT, EXIT, GREY, FLOOR, GRID = "#1b7f5c", "#c0392b", "#39414d", "#9aa1ab", "#b9770e", "#e6e8eb"
AGENT = "#1f4e9c"
OTHERS = ("#8e6bbf", "#6b7280", "#c98f1c", "#2a9d8f", "#b5485d", "#7a8b3f", "#a04000")
MAX_MARKED_TRADES = 1500
ENDS = ((EndReason.TARGET, "passed", LONG), (EndReason.BUST, "bust", SHORT),
        (EndReason.DAILY_LOSS, "failed, daily loss", "#7b241c"))


def load() -> None:
    """Load matplotlib, which takes half a second."""
    importlib.import_module("matplotlib.backends.backend_agg")
    importlib.import_module("matplotlib.figure")


def draw(result: EvaluationResult, agent: AgentResult, path: Path) -> None:
    """Write the PNG. The x axis counts decision bars, so that closed hours take no space."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 10), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    price, equity, account = figure.subplots(3, 1, sharex=True, height_ratios=(1.3, 1, 1))
    s = result.settings
    span = s["first_session"] if s["sessions"] == 1 else f"{s['first_session']} to {s['last_session']}"
    labels = "".join(f"   [{label.split(':')[0]}]" for label in result.labels)
    figure.suptitle(f"{agent.name} on {s['market']}, {span}{labels}", fontsize=13, fontweight="bold", x=0.01, ha="left")
    _draw_price(price, result, agent)
    _draw_equity(equity, result, agent)
    _draw_account(account, result, agent)
    for axis in (price, equity, account):
        _mark_sessions(axis, result)
        axis.grid(True, axis="y", color=GRID, linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
        axis.margins(x=0.01)
    for axis in (equity, account):
        axis.yaxis.set_major_formatter("{x:,.0f}")
    account.set_xlabel(f"time of the bar's close, {result.clock.zone}" if s["sessions"] == 1 else "session")
    figure.savefig(path, format="png", metadata={"Software": "jaxtrade"})


def _title(axis: Any, text: str) -> None:
    """Title on the left, legend above the axes on the right, so that neither hides a line."""
    axis.set_title(text, loc="left", fontsize=10)
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        axis.legend(handles, labels, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1, fontsize=8.5,
                    frameon=False, ncols=len(handles), handletextpad=0.4, columnspacing=1.2)


def _draw_price(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    rows, trades, tick = result.decisions.rows, agent.trades, float(result.clock.tick_size)
    points = result.close[rows + 1] * tick
    for session in range(len(result.decisions.ids)):  # one line per session, so that none crosses closed hours
        inside = np.flatnonzero(result.decisions.session == session)
        axis.plot(inside, points[inside], color=GREY, linewidth=0.9, zorder=1)
    if 0 < len(trades) <= MAX_MARKED_TRADES:
        entered = np.searchsorted(rows, trades.decision_row)
        left = np.searchsorted(rows, trades.exit_row - 1)
        size = 40 if len(trades) < 60 else 16
        for side, marker, color, name in ((1, "^", LONG, "long"), (-1, "v", SHORT, "short")):
            chosen = trades.side == side
            axis.plot(np.stack([entered[chosen], left[chosen]]),
                      np.stack([trades.entry_price[chosen], trades.exit_price[chosen]]) * tick,
                      color=color, linewidth=1.1, alpha=0.6, zorder=2)
            axis.scatter(entered[chosen], trades.entry_price[chosen] * tick, s=size, marker=marker, color=color,
                         zorder=4, label=name, edgecolors="white", linewidths=0.4)
        axis.scatter(left, trades.exit_price * tick, s=size * 0.35, marker="o", color=EXIT, linewidths=0, zorder=3,
                     label="exit")
    axis.set_ylabel("price, points")
    shown = "" if len(trades) <= MAX_MARKED_TRADES else ", too many to mark"
    _title(axis, f"Price and trades: strategy pass, {len(trades):,} trades{shown}")


def _draw_equity(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    others = [other for other in result.agents if other.name != agent.name]
    equity = result.start_balance + agent.strategy.equity / 1000
    axis.plot(equity, color=AGENT, linewidth=1.8, label=agent.name, zorder=3)
    for i, other in enumerate(others):
        axis.plot(result.start_balance + other.strategy.equity / 1000, color=OTHERS[i % len(OTHERS)], linewidth=0.9,
                  alpha=0.85, label=other.name, zorder=2)
    axis.set_ylabel("equity, $")
    _title(axis, "Strategy pass: account rules off, same costs for all")


def _draw_account(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    record, start = agent.account, result.start_balance
    floor = np.where(record.active & (record.event.floor != NO_FLOOR), start + record.event.floor / 1000, np.nan)
    equity = start + record.equity / 1000
    alive = np.where(record.active, equity, np.nan)
    for number in range(int(record.account.max()) + 1):  # one line per account, so that none joins two accounts
        inside = np.flatnonzero(record.account == number)
        first = number == 0
        axis.plot(inside, equity[inside], color=GREY, linewidth=0.9, linestyle=":", zorder=1)
        axis.plot(inside, alive[inside], color=AGENT, linewidth=1.5, label="equity" if first else None, zorder=3)
        if not np.isnan(floor[inside]).all():
            axis.plot(inside, floor[inside], color=FLOOR, linewidth=1.3, label="drawdown floor" if first else None,
                      zorder=2)
    for reason, name, color in ENDS:
        at = np.flatnonzero(record.end == reason)
        if len(at):
            axis.scatter(at, equity[at], color=color, s=42, zorder=4, label=f"{name} ({len(at)})")
    axis.set_ylabel("balance, $")
    _title(axis, f"Account pass: rules on ({result.settings['account']})")


def _mark_sessions(axis: Any, result: EvaluationResult) -> None:
    """Mark session borders, and label the x axis with dates (with times if there is a single session)."""
    decisions = result.decisions
    first = np.concatenate([[0], decisions.last[:-1] + 1])
    if len(first) == 1:
        at = np.linspace(0, len(decisions.rows) - 1, 8).astype(int)
        axis.set_xticks(at, [result.clock.closed(decisions.rows[i] + 1)[11:16] for i in at])
        return
    if len(first) <= 60:
        for x in first[1:]:
            axis.axvline(x - 0.5, color="#d5d9de", linewidth=0.8, zorder=0)
    shown = np.unique(np.linspace(0, len(first) - 1, min(len(first), 8)).astype(int))
    axis.set_xticks(first[shown], [str(decisions.date[i]) for i in shown], ha="left")
