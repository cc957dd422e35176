"""The report on all phases of a curriculum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtrade.curriculum.start import start_line
from jaxtrade.runs.advice import closing_line
from jaxtrade.text import aligned, ruled

HEAD = (
    "phase",
    "task",
    "slots",
    "actions",
    "steps",
    "all steps",
    "transfer",
    "gate",
    "net, validation",
    "trades",
    "net, test",
    "trades",
)


def _money(value: float) -> str:
    return f"${value:,.2f}"


def _row(row: dict[str, Any], steps: int) -> list[str]:
    gate = (
        "passed"
        if row["passed"]
        else "failed: " + ", ".join(c["name"] for c in row["gate"] if not c["passed"])
    )
    return [
        row["phase"],
        row["task"],
        str(row["slots"]),
        str(row["actions"]),
        f"{row['steps']:,}",
        f"{steps:,}",
        "-" if row["start"] is None else row["start"]["coverage"],
        gate,
        _money(row["validation"]["net_profit"]),
        str(row["validation"]["trades"]),
        _money(row["test"]["net_profit"]),
        str(row["test"]["trades"]),
    ]


def report_text(document: dict[str, Any]) -> str:
    """The report as text: a table of the phases, then what each transfer did and which inputs never
    varied, and at the end one line about the advisor of each phase that had one."""
    steps = 0
    rows: list[Sequence[str]] = [HEAD]
    for row in document["phases"]:
        steps += row["steps"]
        rows.append(_row(row, steps))
    table = ruled(aligned(rows, range(len(HEAD))))
    notes = []
    for row in document["phases"]:
        if row["start"] is not None:
            new = row["start"]["transfer"]
            notes.append(
                f"{row['phase']}: transfer coverage {row['start']['coverage']}, {len(new['new_slots'])} new "
                f"slots, {len(new['new_actions'])} new actions; {start_line(row['start'])}"
            )
        if "movement" in row:
            still, constant = row["movement"]["still"], row["movement"]["constant"]
            notes.append(
                f"{row['phase']}: {row['movement']['moved']} parameter groups moved; did not move: "
                f"{', '.join(still) or 'none'}; input constant: {', '.join(constant) or 'none'}"
            )
        notes.append(
            f"{row['phase']}: test figures of {row['test']['sessions']} sessions ({row['test']['split']}), "
            f"coverage {100 * row['test']['coverage']:.0f} %; files in {row['folder']}"
        )
    if not document["enforced"]:
        notes.append("gates were reported, not enforced (enforce_gates=false)")
    if document["stopped"]:
        notes.append(document["stopped"])
    # Phases that an earlier version finished have no figures about their advisor.
    notes += [closing_line(row["advice"]) for row in document["phases"] if "advice" in row]
    return "\n".join([*table, "", *notes])
