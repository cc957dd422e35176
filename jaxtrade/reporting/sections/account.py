"""The evaluation account: its drawdown floor, how its accounts ended, and the probability to pass
one.
"""

from __future__ import annotations

from typing import Any

from jaxtrade.reporting import figures, svg
from jaxtrade.reporting.markup import Child, Markup, joined, missing, notes, paragraph, table, tag
from jaxtrade.reporting.names import kinds, spoken
from jaxtrade.reporting.schema import ChallengeFigures, ReportData, command
from jaxtrade.text import several

ENDS = {"passed": "passed", "bust": "bust", "time_out": "out of time"}  # of simulated accounts
TITLE = "Account floor and pass probability"
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


def section(data: ReportData) -> Markup:
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
