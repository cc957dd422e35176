"""An evaluation as a console table, a JSON document and a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.result import AgentResult, EvaluationResult

NOT_AVAILABLE = "n/a"
FORMAT = 1


def _money(value: float) -> str:
    return f"{value:,.2f}"


def _dollars(value: float) -> str:
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


Row = tuple[str, str, Callable[[Any], str]]
STRATEGY_ROWS: tuple[Row, ...] = (
    ("net profit ($)", "net_profit", _money),
    ("return", "return_pct", _percent),
    ("daily Sharpe", "sharpe_daily", _ratio),
    ("max drawdown ($)", "max_drawdown", _money),
    ("trades", "trades", _count),
    ("win rate", "win_rate", _share),
    ("profit factor", "profit_factor", _ratio),
    ("average trade ($)", "average_trade", _money),
    ("sides per session", "turnover", _ratio),
    ("time in market", "exposure", _share),
    ("commission ($)", "commission", _money),
    ("slippage ($)", "slippage", _money),
)
ACCOUNT_ROWS: tuple[Row, ...] = (
    ("net profit ($)", "net_profit", _money),
    ("accounts opened", "accounts", _count),
    ("  passed", "passed", _count),
    ("  bust", "bust", _count),
    ("  failed, daily loss", "failed_daily_loss", _count),
    ("  open at end", "open_at_end", _count),
    ("breaches", "breaches", _count),
)


def _cell(figures: dict[str, Any], key: str, form: Callable[[Any], str], sessions: int) -> str:
    value = figures[key]
    if value is not None:
        return form(value)
    if key == "sharpe_daily" and sessions < MIN_SESSIONS:
        return f"{NOT_AVAILABLE} ({_number(sessions, 'session')})"
    return NOT_AVAILABLE


def _block(result: EvaluationResult, title: str, rows: tuple[Row, ...], which: str) -> list[list[str]]:
    lines = [[title] + [""] * len(result.agents)]
    for label, key, form in rows:
        cells = [_cell(getattr(agent, which), key, form, len(result.schedule.ids)) for agent in result.agents]
        lines.append([f"  {label}", *cells])
    return lines


def _rules_text(rules: dict[str, Any]) -> str:
    limits = [f"{name.replace('_', ' ')} ${rules[name]:,.0f}" for name in ("drawdown", "daily_loss", "profit_target")
              if rules[name] is not None]
    return ", ".join(limits) or "no limits"


def header(result: EvaluationResult) -> list[str]:
    """What was evaluated, under which conventions and costs."""
    s = result.settings
    span = s["first_session"] if s["sessions"] == 1 else f"{s['first_session']} .. {s['last_session']}"
    return [
        f"Evaluation on {s['market']}, {_number(s['sessions'], 'session')} ({span}), "
        f"{s['decision_bars']:,} decision bars, coverage {100 * s['coverage']:.0f} %",
        f"costs: ${s['commission_per_side']:.2f} commission per side and contract, "
        f"{_number(s['slippage_ticks'], 'tick')} slippage per market or stop fill (${s['tick_value']:.2f} per tick)",
        f"fills: {s['fill'].replace('_', ' ')}; intrabar order: {s['intrabar']}; marks: {s['mark']}; "
        f"{_number(s['contracts_per_entry'], 'contract')} per entry",
    ] + [f"NOTE: {label}" for label in result.labels]


def verdict(result: EvaluationResult) -> str:
    """One line on the first agent against staying flat, without any claim of profitability."""
    first = result.agents[0]
    profit = first.strategy_figures["net_profit"]
    span = _number(len(result.schedule.ids), "session")
    if not len(first.trades):
        return f"'{first.name}' stayed flat over {span}. Staying flat can be the right answer."
    if profit <= 0:
        return (f"'{first.name}' did not beat staying flat over {span} ({_dollars(profit)} after costs). "
                "Staying flat can be the right answer.")
    return (f"'{first.name}' ended {_dollars(profit)} above staying flat over {span}; so little is no evidence of an edge, "
            "and staying flat can still be the right answer.")


def table(result: EvaluationResult) -> str:
    """The console table: agents as columns, the two passes as labelled blocks."""
    lines = [["", *(agent.name for agent in result.agents)]]
    lines += _block(result, "Strategy (account rules off)", STRATEGY_ROWS, "strategy_figures")
    title = f"Account (rules on: {result.settings['account']})"
    lines += _block(result, title, ACCOUNT_ROWS, "account_figures")
    names = max(len(line[0]) for line in lines if any(line[1:]))
    widths = [max(len(line[i]) for line in lines) for i in range(1, len(result.agents) + 1)]
    body = []
    for line in lines:
        cells = "  ".join(cell.rjust(width) for cell, width in zip(line[1:], widths, strict=True))
        body.append(f"{line[0]:<{names}}  {cells}".rstrip())
    rule = "-" * max(len(line) for line in body)
    body.insert(1, rule)
    legend = [f"{agent.name}: {agent.about}" for agent in result.agents]
    rules = f"account rules: {_rules_text(result.settings['rules'])}"
    return "\n".join([*header(result), rules, "", *body, rule, *legend, "", verdict(result)])


def to_json(result: EvaluationResult) -> dict[str, Any]:
    """The evaluation as plain data; undefined figures are None."""
    return {
        "format": FORMAT,
        "settings": result.settings,
        "labels": list(result.labels),
        "passes": {
            "strategy": "account rules off: drawdown, daily loss and target; contract cap stays",
            "account": "account rules on; a new account opens at the session after one ended",
        },
        "agents": {
            agent.name: {"about": agent.about, "strategy": agent.strategy_figures, "account": agent.account_figures}
            for agent in result.agents
        },
        "verdict": verdict(result),
        "provenance": result.provenance,
    }


# --- picture ---------------------------------------------------------------------------------------------------------

LONG, SHORT, GREY, FLOOR = "#1b7f5c", "#c0392b", "#8a8f98", "#b9770e"
LINES = ("#1f4e9c", "#7d5ba6", "#8a8f98", "#c98f1c", "#2a9d8f", "#b5485d", "#5d6d7e", "#a04000")
MAX_MARKED_TRADES = 1500


def draw(result: EvaluationResult, agent: AgentResult, path: Path) -> None:
    """PNG of one agent: price with its trades, equity of all agents (rules off), its account with the floor (rules on).

    The x axis counts decision bars, so that closed hours take no room.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    price, equity, account = figure.subplots(3, 1, sharex=True, height_ratios=(1.2, 1, 1))
    s = result.settings
    figure.suptitle(f"{agent.name} on {s['market']}: {_number(s['sessions'], 'session')}, "
                    f"{s['first_session']} to {s['last_session']}", fontsize=13, x=0.01, ha="left")
    _draw_price(price, result, agent)
    _draw_equity(equity, result, agent)
    _draw_account(account, result, agent)
    for axis in (price, equity, account):
        _sessions_on(axis, result)
        axis.grid(True, axis="y", color="#e6e8eb", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    account.set_xlabel(f"decision bars, time zone {result.clock.zone}")
    if result.labels:
        figure.text(0.99, 0.995, " | ".join(label.split(":")[0] for label in result.labels), ha="right", va="top",
                    fontsize=10, color=SHORT)
    figure.savefig(path, format="png", metadata={"Software": "jaxtrade"})


def _draw_price(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    rows, trades = result.schedule.rows, agent.trades
    points = result.close[rows + 1] * float(result.clock.tick_size)
    x = np.arange(len(rows))
    for session in range(len(result.schedule.ids)):  # a line per session: none across closed hours
        inside = result.schedule.session == session
        axis.plot(x[inside], points[inside], color=GREY, linewidth=0.9, zorder=1)
    axis.set_ylabel("price, points")
    axis.set_title(f"Price and trades (strategy pass, {len(trades)} trades)", loc="left", fontsize=10)
    if not 0 < len(trades) <= MAX_MARKED_TRADES:
        return
    tick = float(result.clock.tick_size)
    entered = np.searchsorted(rows, trades.decision_row)
    left = np.searchsorted(rows, trades.exit_row - 1)
    size = 34 if len(trades) < 200 else 12
    for side, marker, color, name in ((1, "^", LONG, "long entry"), (-1, "v", SHORT, "short entry")):
        chosen = trades.side == side
        axis.plot(np.stack([entered[chosen], left[chosen]]),
                  np.stack([trades.entry_price[chosen], trades.exit_price[chosen]]) * tick,
                  color=color, linewidth=1.0, alpha=0.55, zorder=2)
        axis.scatter(entered[chosen], trades.entry_price[chosen] * tick, s=size, marker=marker, color=color, zorder=3,
                     label=name, edgecolors="white", linewidths=0.5)
    axis.scatter(left, trades.exit_price * tick, s=size * 0.8, marker="x", color="#333a44", linewidths=1.0, zorder=3,
                 label="exit")
    axis.legend(loc="best", fontsize=8, frameon=False, ncols=3)


def _draw_equity(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    for color, other in zip(LINES, result.agents, strict=False):
        mine = other.name == agent.name
        axis.plot(result.start_balance + other.strategy.equity / 1000, color=color, linewidth=1.8 if mine else 0.9,
                  alpha=1.0 if mine else 0.75, label=other.name, zorder=3 if mine else 2)
    axis.set_ylabel("equity, $")
    axis.set_title("Strategy pass: account rules off, all agents after the same costs", loc="left", fontsize=10)
    axis.legend(loc="upper left", fontsize=8, frameon=False, ncols=len(result.agents))


def _draw_account(axis: Any, result: EvaluationResult, agent: AgentResult) -> None:
    record, start = agent.account, result.start_balance
    floor = np.where(record.active & (record.event.floor != NO_FLOOR), start + record.event.floor / 1000, np.nan)
    equity = start + record.equity / 1000
    for number in range(int(record.account.max()) + 1):  # a line per account: none across a new one
        inside = np.flatnonzero(record.account == number)
        axis.plot(inside, equity[inside], color=LINES[0], linewidth=1.5, label="equity" if number == 0 else None)
        axis.plot(inside, floor[inside], color=FLOOR, linewidth=1.2, label="drawdown floor" if number == 0 else None)
    for reason, color in ((EndReason.BUST, SHORT), (EndReason.DAILY_LOSS, SHORT), (EndReason.TARGET, LONG)):
        at = np.flatnonzero(record.end == reason)
        if len(at):
            name = {EndReason.TARGET: "passed", EndReason.BUST: "bust"}.get(reason, "failed, daily loss")
            axis.scatter(at, equity[at], color=color, s=40, zorder=4, label=f"{name} ({len(at)})")
    axis.set_ylabel("balance, $")
    axis.set_title(f"Account pass: rules on ({result.settings['account']})", loc="left", fontsize=10)
    axis.legend(loc="best", fontsize=8, frameon=False, ncols=4)


def _sessions_on(axis: Any, result: EvaluationResult) -> None:
    """Session borders, and dates (or, for one session, times) on the x axis."""
    schedule = result.schedule
    first = np.concatenate([[0], schedule.last[:-1] + 1])
    if len(first) == 1:
        at = np.linspace(0, len(schedule.rows) - 1, 8).astype(int)
        axis.set_xticks(at, [result.clock.closed(schedule.rows[i])[11:16] for i in at])
        return
    if len(first) <= 60:
        for x in first[1:]:
            axis.axvline(x - 0.5, color="#d5d9de", linewidth=0.8, zorder=0)
    shown = np.unique(np.linspace(0, len(first) - 1, min(len(first), 10)).astype(int))
    axis.set_xticks(first[shown], [str(schedule.date[i]) for i in shown])
