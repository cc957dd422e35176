"""Every trade on its bars. Without a script the table of trades remains."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.reporting import figures
from jaxtrade.reporting.bars import PlacedTrade
from jaxtrade.reporting.markup import Child, Markup, joined, notes, paragraph, table, tag
from jaxtrade.reporting.names import spoken
from jaxtrade.reporting.schema import ReportData

TITLE = "Trade explorer"
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


def section(data: ReportData, trades: Sequence[PlacedTrade], first: int) -> Markup:
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
