"""`jaxtrade report`: one page of a finished run or walk-forward, from its files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jaxtrade.cli.usage import add_command
from jaxtrade.text import show


def add_report(commands: Any) -> None:
    """Add the command."""
    add_command(
        commands,
        "report",
        "make one HTML page of a run's results, and the same figures as JSON",
        """
        RUN  the folder of a run or of a walk-forward
        --split {test,validation,train,all} [test]  sessions that the page is about (default: test); they
            must have been evaluated
        --seed SEED  one seed of a run with several (default: the first)
        --agent N  one agent of a run with several, by its number in agents.json
        --symbol SYMBOL  one symbol of a run with several
        --out FOLDER  folder of the files (default: RUN/report)
        --max-mb MB [3.0]  largest size of the page; the oldest bars are left out beyond it, and the
            page says so (default: 3)
        --open  show the page in the browser
        """,
        seed=int,
        agent=int,
        out=Path,
        max_mb=float,
    )


def report(args: argparse.Namespace) -> int:
    """Make the report -> exit code."""
    from jaxtrade.reporting.make import MB
    from jaxtrade.reporting.walk import is_walk
    from jaxtrade.runs import rundir

    if args.out is not None:
        rundir.check_place(args.out, f"--out {args.out}")  # before anything is drawn
    paths = _of_walk(args) if is_walk(Path(args.run)) else _of_run(args)
    for path in paths.values():
        show(f"{path}  {path.stat().st_size / MB:.2f} MB")
    if args.open:
        import webbrowser

        webbrowser.open(paths["report.html"].resolve().as_uri())
    return 0


def _of_run(args: argparse.Namespace) -> dict[str, Path]:
    from jaxtrade.reporting import collect, make

    choice = collect.choose(Path(args.run), args.split, args.seed, args.agent, args.symbol)
    found = collect.collect(choice)
    return make.write(make.make(found, args.max_mb), args.out or choice.run / "report")


def _of_walk(args: argparse.Namespace) -> dict[str, Path]:
    """Raises ConfigError for flags that choose one of several: the page of a walk-forward shows
    all.
    """
    from jaxtrade.errors import ConfigError
    from jaxtrade.reporting import make, walk

    given = [f"--{name}" for name in ("seed", "agent", "symbol") if getattr(args, name) is not None]
    given += ["--split"] if args.split != "test" else []
    if given:
        raise ConfigError(
            f"{args.run}: the page of a walk-forward shows all seeds on the test days of all folds: drop "
            f"{', '.join(given)}"
        )
    run = Path(args.run)
    return make.write(walk.make(walk.collect(run), args.max_mb), args.out or run / "report")
