"""Net profit under other costs, other orders of prices within a bar, and later orders."""

from __future__ import annotations

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Child, Markup, joined, missing, notes, paragraph, table, tag
from jaxtrade.reporting.schema import GridFigures, ReportData, command

TITLE = "Other assumptions"
GRIDS = (
    ("costs", "Costs", "Commission and slippage as multiples of the run's own."),
    (
        "intrabar",
        "Order of prices within a bar",
        "Which of stop and target a bar reaches first is not known from its four prices.",
    ),
    ("latency", "Latency", "Orders that arrive whole bars later."),
)


def section(data: ReportData) -> Markup:
    """A picture and a table for each grid that was computed."""
    agent = data["title"]["agent"]
    parts: list[Child] = [
        paragraph("A result that holds only under one assumption is a result about the assumption.")
    ]
    for key, title, about in GRIDS:
        found: GridFigures | None = data[key]  # type: ignore[literal-required]
        parts.append(tag("h3", title))
        parts += (
            [missing(command(key, data["title"]))]
            if found is None
            else [paragraph(about), _grid(found, title, agent)]
        )
    return joined(parts)


def _grid(found: GridFigures, title: str, agent: str) -> Markup:
    names = list(next(iter(found["rows"].values())))
    own = [
        svg.Dot(row, cells.get(agent), figures.plain_money(cells.get(agent), plus=True), "s0")
        for row, cells in found["rows"].items()
    ]
    rows = [
        (row, *(figures.signed(cells[name]) for name in names))
        for row, cells in found["rows"].items()
    ]
    rows.append(
        ("Largest less smallest", *(figures.money(found["spread"][name]) for name in names))
    )
    return joined(
        [
            svg.dots(
                f"Net profit of {agent} by {title.lower()}, in dollars",
                own,
                lambda value: figures.plain_money(value, 0),
            ),
            table(f"Net profit by {title.lower()}", ("Assumption", *names), rows),
            notes(found["notes"]),
        ]
    )
