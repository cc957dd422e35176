"""Where the profit comes from: by half hour, weekday, volatility and exit reason."""

from __future__ import annotations

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Child, Markup, joined, missing, notes, paragraph, table, tag
from jaxtrade.reporting.names import spoken
from jaxtrade.reporting.schema import BreakdownTable, ReportData, command

TITLE = "Breakdown"


def section(data: ReportData) -> Markup:
    """A picture and a table for each property."""
    found = data["breakdown"]
    if found is None:
        return missing(command("breakdown", data["title"]))
    parts: list[Child] = [
        paragraph(
            "Net profit per trade. With many cells, some are good or bad by chance: the last "
            "column is corrected for their number (Holm)."
        )
    ]
    for each in found["tables"]:
        parts += [tag("h3", f"By {each['by']}"), _picture(each), _table(each)]
    return joined([*parts, notes(found["notes"])])


def _picture(each: BreakdownTable) -> Markup:
    rows = [
        svg.Dot(
            spoken(cell["name"]),
            cell["mean"]["value"],
            figures.plain_money(cell["mean"]["value"], plus=True),
            "loss" if (cell["mean"]["value"] or 0) < 0 else "gain",
            cell["mean"].get("low"),
            cell["mean"].get("high"),
        )
        for cell in each["cells"]
    ]
    return svg.dots(
        f"Net profit per trade by {each['by']}, in dollars",
        rows,
        lambda value: figures.plain_money(value, 0),
    )


def _table(each: BreakdownTable) -> Markup:
    rows = [
        (
            spoken(cell["name"]),
            figures.count(cell["count"]),
            figures.interval(cell["mean"], "signed"),
            figures.signed(cell.get("total")),
            figures.number(cell.get("p"), 3),
        )
        for cell in each["cells"]
    ]
    return table(
        f"Net profit per trade by {each['by']}",
        (
            f"{each['by'][0].upper()}{each['by'][1:]}",
            "Trades",
            "Net per trade",
            "Total",
            "p, corrected",
        ),
        rows,
    )
