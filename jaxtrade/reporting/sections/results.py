"""Sections about what an evaluation earned: accounts, equity, and the baselines beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import (
    Child,
    Markup,
    joined,
    kinds,
    missing,
    notes,
    paragraph,
    spoken,
    table,
    tag,
)
from jaxtrade.reporting.schema import (
    ChallengeFigures,
    Estimate,
    NullFigures,
    ReportData,
    StatisticsFigures,
    command,
)
from jaxtrade.text import several

ENDS = {"passed": "passed", "bust": "bust", "time_out": "out of time"}  # of simulated accounts


HEAD = (
    "Agent",
    "Net profit",
    "Accounts",
    "Passed",
    "Bust",
    "Daily loss",
    "Open at end",
    "Breaches",
)


def account(data: ReportData) -> Markup:
    """The account pass: picture, tables of accounts and agents; then the simulated accounts."""
    floor, agents = data["floor"], data["agents"]
    rows = [(name, *_cells(each["account"])) for name, each in agents.items()]
    parts: list[Child] = [
        paragraph(
            f"The same agents with the account's rules on: {floor['rules']}. After an account has ended, the "
            "next session opens a new one."
        ),
        _picture(floor, data["title"]["agent"]),
        table("How the accounts of each agent ended", HEAD, rows, marked=(0,)),
        table(
            f"Accounts of {data['title']['agent']}",
            (
                "Account",
                "First session",
                "Last session",
                "Sessions",
                "Net profit",
                "Last floor",
                "End",
            ),
            [
                (
                    str(each["number"]),
                    each["first"],
                    each["last"],
                    figures.count(each["sessions"]),
                    figures.signed(each["net"]),
                    figures.money(each["floor"]),
                    spoken(each["end"] or "open"),
                )
                for each in data["accounts"]
            ],
            words=(1, 2, 6),
            tall=len(data["accounts"]) > 14,
        ),
        tag("h3", "Probability to pass"),
    ]
    challenge = data["challenge"]
    parts.append(
        missing(command("challenge", data["title"])) if challenge is None else _challenge(challenge)
    )
    return joined(parts)


def _cells(each: dict[str, Any]) -> tuple[Markup, ...]:
    return (
        figures.signed(each["net_profit"]),
        *(
            figures.count(each[key])
            for key in (
                "accounts",
                "passed",
                "bust",
                "failed_daily_loss",
                "open_at_end",
                "breaches",
            )
        ),
    )


def _picture(floor: dict[str, Any], agent: str) -> Markup:
    drawn = [svg.Line("account equity", floor["equity"], "s0")]
    if any(each is not None for each in floor["floor"]):
        drawn.append(svg.Line("drawdown floor", floor["floor"], "floor", steps=True))
    return svg.lines(
        f"Account equity of {agent} and the floor below it, in dollars",
        floor["at"],
        drawn,
        lambda value: figures.plain_money(value, 0),
        floor["marks"],
    )


def _challenge(found: ChallengeFigures) -> Markup:
    colours = kinds(found["agents"])
    rows = [
        svg.Dot(
            name,
            each["passed"]["value"],
            figures.plain_share(each["passed"]["value"]),
            colours[name],
            each["passed"].get("low"),
            each["passed"].get("high"),
        )
        for name, each in found["agents"].items()
    ]
    cells = [
        (
            name,
            *(figures.bare(each[key], "share", 1) for key in ENDS),
            figures.number(each["days_to_pass"], 0),
            figures.share(each["monte_carlo"], 2),
        )
        for name, each in found["agents"].items()
    ]
    return joined(
        [
            paragraph(
                f"{found['rules'][:1].upper()}{found['rules'][1:]}. {found['accounts']:,} accounts over sessions "
                f"that were drawn in blocks from {several(found['days'], 'session')}; {found['resamples']:,} times "
                "with the sessions themselves drawn anew, which gives the intervals."
            ),
            svg.dots(
                "Probability to pass, by agent",
                rows,
                lambda value: figures.plain_share(value, 0),
                low=0.0,
                high=1.0,
            ),
            table(
                "Simulated accounts",
                (
                    "Agent",
                    "Passed",
                    "Bust",
                    "Out of time",
                    "Median days to pass",
                    "Monte Carlo error",
                ),
                cells,
                marked=(0,),
            ),
            notes(
                [
                    *(
                        line
                        for key, label in ENDS.items()
                        for line in figures.reasons(
                            label, {name: each[key] for name, each in found["agents"].items()}
                        )
                    ),
                    *found.get("notes", []),
                ]
            ),
        ]
    )


def equity(data: ReportData) -> Markup:
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


BASELINES_HEAD = (
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


def baselines(data: ReportData) -> Markup:
    """Net profit of all agents as a picture and a table, and what each agent does."""
    agents, sessions = data["agents"], data["settings"]["sessions"]
    colours = kinds(agents)
    judged = data["statistics"]
    daily = judged.get("agents")
    rows = [(name, *_figure_cells(each["strategy"], sessions)) for name, each in agents.items()]
    parts = [
        paragraph("All agents trade the same bars under the same costs, account rules off."),
        _baselines_picture(agents, colours)
        if not daily
        else _daily(daily, colours, judged["seeds"]),
        table("Figures of all agents", BASELINES_HEAD, rows, marked=(0,)),
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


def _figure_cells(each: dict[str, Any], sessions: int) -> tuple[Markup, ...]:
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


def _baselines_picture(agents: dict[str, Any], colours: dict[str, str]) -> Markup:
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
