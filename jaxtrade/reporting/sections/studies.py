"""Sections that studies beside an evaluation fill: grids, breakdown, attribution; and the explorer of its days."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.bars import PlacedTrade
from jaxtrade.reporting.markup import (
    Child,
    Markup,
    capital,
    joined,
    missing,
    notes,
    paragraph,
    sentence,
    spoken,
    table,
    tag,
)
from jaxtrade.reporting.schema import (
    AttributionMethod,
    BreakdownTable,
    GridFigures,
    ReportData,
    command,
)

GRIDS = (
    ("costs", "Costs", "Commission and slippage as multiples of the run's own."),
    (
        "intrabar",
        "Order of prices within a bar",
        "Which of stop and target a bar reaches first is not known from its four prices.",
    ),
    ("latency", "Latency", "Orders that arrive whole bars later."),
)


def grids(data: ReportData) -> Markup:
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


def breakdown(data: ReportData) -> Markup:
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
        parts += [tag("h3", f"By {each['by']}"), _breakdown_picture(each), _breakdown_table(each)]
    return joined([*parts, notes(found["notes"])])


def _breakdown_picture(each: BreakdownTable) -> Markup:
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


def _breakdown_table(each: BreakdownTable) -> Markup:
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


FORMS = {"share": ("share", 1), "dollars": ("signed", 2)}  # unit -> how its values are shown


def attribution(data: ReportData) -> Markup:
    """A picture and a table for each method."""
    found = data["attribution"]
    if found is None:
        return missing(command("attribution", data["title"]))
    parts: list[Child] = [paragraph("The methods measure different things, and need not agree.")]
    for each in found["methods"]:
        parts += [
            tag("h3", capital(each["name"])),
            paragraph(sentence(each["about"])),
            _method(each),
        ]
    return joined([*parts, notes(found["notes"])])


def _method(each: AttributionMethod) -> Markup:
    form, digits = FORMS.get(each["unit"], ("number", 3))
    show = figures.FORMS[form]
    rows = [
        svg.Dot(
            part["name"],
            part["value"]["value"],
            show(part["value"]["value"], digits),
            "s0",
            part["value"].get("low"),
            part["value"].get("high"),
        )
        for part in each["parts"]
    ]
    cells = [
        (part["name"], figures.interval(part["value"], form, digits)) for part in each["parts"]
    ]
    return joined(
        [
            svg.dots(
                f"{each['name']}: {each['unit']} by part of the observation",
                rows,
                lambda value: show(value, 0 if form != "number" else 2),
            ),
            table(
                f"{capital(each['name'])}, by part of the observation",
                ("Part", each["unit"]),
                cells,
                tall=len(cells) > 14,
            ),
        ]
    )


HEAD = (
    "Trade",
    "Session",
    "Side",
    "Contracts",
    "Entry",
    "Price",
    "Exit",
    "Price",
    "Reason",
    "Ticks",
    "Net profit",
)


def explorer(data: ReportData, trades: Sequence[PlacedTrade], first: int) -> Markup:
    """Filters, the chart and its facts, which a script fills; and the table of trades. first:
    number of the first.
    """
    explorer = data["explorer"]
    if not explorer["trades"]:
        return paragraph(f"{data['title']['agent']} did not trade in these sessions.", "missing")
    head = paragraph(
        joined(
            [
                "Each trade on its bars: decision, entry, stop, target and exit, and which actions were "
                "legal at the decision. ",
                tag("kbd", "j"),
                " and ",
                tag("kbd", "k"),
                " go to the next and the previous trade.",
            ]
        ),
        "script",
    )
    rows = [_row(first + i, trade) for i, trade in enumerate(trades)]
    return joined(
        [
            head,
            _controls(trades),
            table(
                "Trades of the strategy pass",
                HEAD,
                rows,
                words=(1, 2, 4, 6, 8),
                tall=len(rows) > 14,
                id_="trades",
            ),
            notes(explorer["notes"]),
        ]
    )


def _row(number: int, trade: PlacedTrade) -> tuple[Child, ...]:
    row = trade.row
    return (
        f"{number:,}",
        row["session"],
        row["side"],
        row["contracts"],
        clock_of(row["entry_time"]),
        row["entry_price"],
        clock_of(row["exit_time"]),
        row["exit_price"],
        spoken(row["exit_reason"]),
        figures.number(float(row["ticks"]), 0),
        figures.signed(float(row["net_pnl"])),
    )


def clock_of(stamp: str) -> str:
    """The time of day of an ISO 8601 stamp, in the zone of the exchange: `09:32`, with seconds if
    it has any.
    """
    clock = stamp[11:19]
    return clock[:5] if clock.endswith(":00") else clock


def _controls(trades: Sequence[PlacedTrade]) -> Markup:
    """What needs a script, hidden until it runs."""
    sessions = list(dict.fromkeys(trade.row["session"] for trade in trades))
    reasons = sorted({trade.row["exit_reason"] for trade in trades})
    filters = tag(
        "form",
        _choice("side", "Side", (("long", "long"), ("short", "short"))),
        _choice("result", "Result", (("won", "won"), ("lost", "lost"))),
        _choice("reason", "Exit", [(each, spoken(each)) for each in reasons]),
        _choice("session", "Session", [(each, each) for each in sessions]),
        class_="filters",
        id="filters",
        aria_label="Which trades are listed",
    )
    steps = tag(
        "div",
        _button("previous", "Previous", "k"),
        _button("next", "Next", "j"),
        _button("closer", "Closer", "+"),
        _button("wider", "Wider", "-"),
        tag("output", id="which", aria_live="polite"),
        class_="steps",
    )
    return tag(
        "div",
        filters,
        steps,
        tag(
            "div",
            id="price",
            class_="live",
            tabindex="0",
            role="group",
            aria_label="Bars around the trade; the facts below say the same in words",
        ),
        tag("dl", id="trade-facts", class_="facts"),
        id="trade-view",
        hidden=True,
    )


def _choice(name: str, label: str, options: Sequence[tuple[str, str]]) -> Markup:
    every = tag("option", "all", value="")
    return tag(
        "label",
        f"{label} ",
        tag(
            "select",
            every,
            *(tag("option", text, value=value) for value, text in options),
            name=name,
        ),
    )


def _button(name: str, label: str, key: str) -> Markup:
    return tag(
        "button",
        f"{label} ",
        tag("kbd", key),
        type="button",
        id=f"go-{name}",
        aria_keyshortcuts=key,
    )
