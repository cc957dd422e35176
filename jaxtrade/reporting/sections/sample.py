"""The policy on sessions that it has not seen, beside those that it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures
from jaxtrade.reporting.markup import Child, Markup, joined, missing, paragraph, table
from jaxtrade.reporting.names import SPLITS
from jaxtrade.reporting.schema import ReportData, command

TITLE = "Out of sample and in sample"
Side = dict[str, Any]  # settings, and figures of the strategy pass


def _each(key: str) -> Callable[[Side], float | None]:
    return lambda side: side["figures"][key]


def _per_session(key: str) -> Callable[[Side], float | None]:
    return lambda side: side["figures"][key] / side["sessions"]


def _sharpe(side: Side) -> float | None:
    return side["figures"]["sharpe_daily"] if side["sessions"] >= MIN_SESSIONS else None


def _costs(side: Side) -> float:
    return (side["figures"]["commission"] + side["figures"]["slippage"]) / side["sessions"]


ROWS: tuple[tuple[str, Callable[[Side], float | None], Callable[..., Child]], ...] = (
    ("Sessions", lambda side: side["sessions"], figures.count),
    ("Net profit", _each("net_profit"), figures.signed),
    ("Net profit per session", _per_session("net_profit"), figures.signed),
    ("Best session", _each("best_session"), figures.signed),
    ("Worst session", _each("worst_session"), figures.signed),
    ("Daily Sharpe ratio, annual", _sharpe, figures.number),
    ("Largest drawdown", _each("max_drawdown"), figures.money),
    ("Trades", _each("trades"), figures.count),
    ("Trades per session", _per_session("trades"), figures.number),
    ("Win rate", _each("win_rate"), figures.share),
    ("Profit factor", _each("profit_factor"), figures.number),
    ("Average trade", _each("average_trade"), figures.signed),
    ("Time in market", _each("exposure"), figures.share),
    ("Costs per session", _costs, figures.money),
)


def sides(data: ReportData) -> list[tuple[str, Side]]:
    """(name, figures) of each set of sessions that was evaluated: the report's own first."""
    agent = data["title"]["agent"]
    own = (
        SPLITS[data["title"]["split"]],
        {"sessions": data["settings"]["sessions"], "figures": data["agents"][agent]["strategy"]},
    )
    other = data["in_sample"]
    if other is None:
        return [own]
    return [
        own,
        (
            SPLITS["train"],
            {
                "sessions": other["settings"]["sessions"],
                "figures": other["agents"][agent]["strategy"],
            },
        ),
    ]


def section(data: ReportData) -> Markup:
    """The table of both, or what is missing of it."""
    found = sides(data)
    rows = [(label, *(form(of(side)) for _, side in found)) for label, of, form in ROWS]
    heads = [f"{name[0].upper()}{name[1:]}" for name, _ in found]
    parts: list[Child] = [
        paragraph(
            "The same policy on both sets, account rules off. A policy that has learned something keeps most of "
            "its profit per session on days that it has not seen. Totals grow with the number of sessions, so "
            "compare the figures per session."
        ),
        table("Figures of the policy on both sets of sessions", ("Figure", *heads), rows),
    ]
    if data["in_sample"] is None and data["title"]["split"] != "train":
        parts.append(
            missing(command("in_sample", data["title"]), "In-sample figures are not computed")
        )
    return joined(parts)
