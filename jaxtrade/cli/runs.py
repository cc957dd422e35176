"""`jaxtrade runs`: the runs in a folder, one line each. Loads no heavy library."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.cli.tables import columns, table
from jaxtrade.cli.usage import add_command
from jaxtrade.text import printable, several

if TYPE_CHECKING:
    from jaxtrade.runs.inventory import RunEntry

ORDERS = ("age", "name", "status", "net", "days", "steps")  # what `inventory.ordered` knows
HEAD = ("run", "status", "market", "learner", "task", "steps", "net/day ($)", "days", "age")
FIGURES = (5, 6, 7, 8)  # columns that are aligned to the right


def add_runs(commands: Any) -> None:
    """Add the parser of `runs`."""
    add_command(
        commands,
        "runs",
        "the runs in a folder, one line each: status, steps, held-out figures, age",
        f"""
        FOLDER? [runs]  the folder that holds the runs, or one run (default: runs)
        --sort BY [age]  one of {", ".join(ORDERS)} (default: age, the latest sign of life first; net, days and steps:
            the largest first)
        --reverse  the other way round; what has no such figure stays last
        --json  print JSON instead of the table
        """,
        sort={"choices": ORDERS},
    )


def list_runs(args: argparse.Namespace) -> int:
    """Handle `runs`. Returns the exit code. Raises ConfigError if there is no such folder."""
    from jaxtrade.runs.inventory import (
        entries_in,
        ordered,
    )  # loads NumPy, which the parser needs no more than JAX

    found = ordered(entries_in(Path(args.folder)), args.sort, args.reverse)
    if args.json:
        print(json.dumps([entry.to_json() for entry in found], indent=2, allow_nan=False))
    else:
        print("\n".join(lines(found, args.folder, columns())))
    return 0


def lines(entries: list[RunEntry], folder: str, wide: int | None) -> list[str]:
    """The table, then one line for each run that needs a word more. wide: as in `tables.table`."""
    if not entries:
        return [printable(f"{folder}: no runs")]
    told = [
        printable(f"{entry.name}: {entry.fault}") for entry in entries if entry.fault is not None
    ]
    return [*table([HEAD, *map(_cells, entries)], wide, FIGURES), *([""] if told else []), *told]


def _cells(entry: RunEntry) -> list[str]:
    days = (
        "-"
        if entry.days is None
        else str(entry.days) + ("" if entry.split == "test" else f" {entry.split}")
    )
    return [
        entry.name,
        entry.status,
        entry.market or "-",
        entry.learner or "-",
        entry.task or "-",
        _steps(entry),
        "-" if entry.net_per_day is None else f"{entry.net_per_day:,.2f}",
        days,
        _age(entry.age),
    ]


def _steps(entry: RunEntry) -> str:
    """Steps done, and their share of all that were planned."""
    if entry.steps is None:
        return "-"
    share = "" if not entry.total_steps else f" ({min(1.0, entry.steps / entry.total_steps):.0%})"
    return f"{entry.steps:,}{share}"


def _age(seconds: float | None) -> str:
    """A time in its largest unit: `45 s`, `3 min`, `2 h`, `5 days`."""
    if seconds is None:
        return "-"
    for size, unit in ((60, "s"), (60, "min"), (24, "h")):
        if seconds < size:
            return f"{int(seconds)} {unit}"
        seconds /= size
    return several(int(seconds), "day")
