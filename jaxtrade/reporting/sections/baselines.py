"""The policy beside agents that have learned nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Markup, joined, notes, paragraph, table, tag
from jaxtrade.reporting.names import kinds, spoken
from jaxtrade.reporting.schema import Estimate, NullFigures, ReportData, StatisticsFigures

TITLE = "Baselines"
HEAD = (
    "Agent",
    "Net profit",
    "Per session",
    "Largest drawdown",
    "Sharpe, annual",
    "Trades",
    "Win rate",
    "Profit factor",
    "In market",
    "Costs",
)


def section(data: ReportData) -> Markup:
    """Net profit of all agents as a picture and a table, and what each agent does."""
    agents, sessions = data["agents"], data["settings"]["sessions"]
    colours = kinds(agents)
    judged = data["statistics"]
    daily = judged.get("agents")
    rows = [(name, *_cells(each["strategy"], sessions)) for name, each in agents.items()]
    parts = [
        paragraph("All agents trade the same bars under the same costs, account rules off."),
        _picture(agents, colours) if not daily else _daily(daily, colours, judged["seeds"]),
        table("Figures of all agents", HEAD, rows, marked=(0,)),
        notes([f"{name}: {each['about']}" for name, each in agents.items()]),
    ]
    if daily:
        parts += _judged(judged, daily)
    if data["seeds"]:
        nets = data["seeds"]["net"]
        parts.append(
            table(
                "The policies of this run",
                ("Policy", "Net profit"),
                [(spoken(name), figures.signed(net)) for name, net in nets.items()],
                marked=[list(nets).index(data["seeds"]["shown"])],
                tall=len(nets) > 14,
            )
        )
    parts += [_nulls(each) for each in (data["nulls"], *data["other_nulls"]) if each]
    return joined(parts)


def _judged(found: StatisticsFigures, daily: Mapping[str, Estimate]) -> list[Markup]:
    """What a day earns and how often the policy does better; below the table why a figure or an
    interval is absent.
    """
    better = found.get("improvement") or {}
    several_seeds = any(each["value"] is not None for each in better.values())
    head = (
        "Agent",
        "Net profit of a day",
        *(["Policy does better, probability"] if several_seeds else []),
    )
    rows = [
        (
            name,
            figures.bare(each, "signed", 2),
            *([figures.bare(better.get(name), "share", 1)] if several_seeds else []),
        )
        for name, each in daily.items()
    ]
    whys = figures.reasons("net profit of a day", daily) + figures.reasons(
        "probability that the policy does better", better
    )
    return [
        table(
            f"Net profit of a day by agent, with intervals of {100 * found['level']:.0f} %",
            head,
            rows,
            marked=(0,),
        ),
        notes(whys),
    ]


def _nulls(found: NullFigures) -> Markup:
    """The real result among those of the null markets."""
    rows = [
        ("real", figures.signed(found["real"])),
        *((f"null {i:,}", figures.signed(value)) for i, value in enumerate(found["nulls"], 1)),
    ]
    return joined(
        [
            tag("h3", "Null markets"),
            paragraph(
                f"Net profit of a day on the real market (full disc) and on {found['draws_made']:,} null markets "
                f"({found['kind']}), whose bars hold no pattern."
            ),
            svg.strip(
                "Net profit of a day on the real market and on null markets, in dollars",
                found["nulls"],
                found["real"],
                lambda value: figures.plain_money(value, 0),
            ),
            table(
                "Net profit of a day by market",
                ("Market", "Net profit of a day"),
                rows,
                marked=(0,),
                tall=len(rows) > 14,
            ),
        ]
    )


def _cells(each: dict[str, Any], sessions: int) -> tuple[Markup, ...]:
    return (
        figures.signed(each["net_profit"]),
        figures.signed(each["net_profit"] / sessions),
        figures.money(each["max_drawdown"]),
        figures.number(each["sharpe_daily"] if sessions >= MIN_SESSIONS else None),
        figures.count(each["trades"]),
        figures.share(each["win_rate"]),
        figures.number(each["profit_factor"]),
        figures.share(each["exposure"]),
        figures.money(each["commission"] + each["slippage"]),
    )


def _picture(agents: dict[str, Any], colours: dict[str, str]) -> Markup:
    rows = [
        svg.Dot(
            name,
            each["strategy"]["net_profit"],
            figures.plain_money(each["strategy"]["net_profit"], plus=True),
            colours[name],
        )
        for name, each in agents.items()
    ]
    return svg.dots(
        "Net profit of each agent in dollars", rows, lambda value: figures.plain_money(value, 0)
    )


def _daily(found: Mapping[str, Estimate], colours: dict[str, str], seeds: int) -> Markup:
    rows = [
        svg.Dot(
            name,
            each["value"],
            figures.plain_money(each["value"], plus=True),
            colours.get(name, "s2"),
            each.get("low"),
            each.get("high"),
        )
        for name, each in found.items()
    ]
    of = "" if seeds == 1 else f", interquartile mean over {seeds} seeds"
    return joined(
        [
            paragraph(f"Net profit of a day{of}. A bar is the interval."),
            svg.dots(
                "Net profit of a day by agent, with intervals, in dollars",
                rows,
                lambda value: figures.plain_money(value, 0),
            ),
        ]
    )
