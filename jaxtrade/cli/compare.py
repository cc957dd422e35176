"""`jaxtrade compare`: runs against each other, day by day. Starts no JAX."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from jaxtrade.cli.usage import add_command
from jaxtrade.errors import ConfigError
from jaxtrade.text import show


def add_compare(commands: Any) -> None:
    """Add the parser of `compare`."""
    add_command(
        commands,
        "compare",
        "runs against each other, paired by held-out day: differences with intervals",
        """
        RUN+ -> runs  folders of runs or walk-forwards; the others are compared with the first
        --split {test,validation,train,all} [test]  whose days (default: test); each run must have been
            evaluated on it
        --shared-days  compare on the days that all have, although some have others too, as a run
            and a walk-forward
        --json  print JSON instead of the table
        """,
    )


def compare(args: argparse.Namespace) -> int:
    """Handle `compare`. Returns the exit code. Raises ConfigError and DataError for runs that
    cannot be compared.
    """
    if len(args.runs) < 2:
        raise ConfigError(
            f"compare: one run ({args.runs[0]}) has nothing to be compared with; name two or more"
        )
    from jaxtrade.evaluation.run_days import compared, on_shared_days, read_run_days, table, to_json

    days = [read_run_days(Path(each), args.split) for each in args.runs]
    found = compared(on_shared_days(days, args.shared_days))
    show(
        json.dumps(to_json(found), indent=2, allow_nan=False)
        if args.json
        else "\n".join(table(found))
    )
    return 0
