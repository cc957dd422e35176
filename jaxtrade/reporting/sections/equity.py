"""Equity and drawdown of the shown agent. The picture needs no script; with one, a chart that zooms
replaces it.
"""

from __future__ import annotations

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Markup, joined, paragraph, table, tag
from jaxtrade.reporting.schema import ReportData

TITLE = "Equity and drawdown"


def section(data: ReportData) -> Markup:
    """Equity and drawdown over the decision bars, and a table of the sessions."""
    curve, agent = data["explorer"]["curve"], data["title"]["agent"]
    static = tag(
        "div",
        svg.lines(
            f"Equity of {agent} over the decision bars, in dollars",
            curve["at"],
            [svg.Line("equity", curve["equity"], "s0")],
            lambda value: figures.plain_money(value, 0),
            curve["marks"],
        ),
        svg.lines(
            "Drawdown below the highest equity so far, in dollars",
            curve["at"],
            [svg.Line("drawdown", [-each for each in curve["drawdown"]], "loss", filled=True)],
            lambda value: figures.plain_money(value, 0),
            curve["marks"],
            height=150,
            zero=True,
        ),
        id="equity-static",
    )
    live = tag(
        "div",
        id="equity-live",
        class_="live",
        hidden=True,
        role="group",
        aria_label="Equity and drawdown, a chart that zooms; the table below has the figures",
    )
    rows = [
        (
            each["date"],
            figures.count(each["trades"]),
            figures.signed(each["net"]),
            figures.money(each["equity"]),
            figures.money(each["drawdown"]),
        )
        for each in data["sessions"]
    ]
    return joined(
        [
            paragraph(
                f"Equity of {agent} at the close of every decision bar, account rules off, and its drop below the "
                "highest equity so far. Nights and weekends are left out."
            ),
            live,
            static,
            table(
                "Sessions",
                ("Session", "Trades", "Net profit", "Equity at the end", "Deepest drawdown"),
                rows,
                tall=len(rows) > 14,
            ),
        ]
    )
