"""`jaxtrade advise precompute`, `inspect` and `replay`: flags and handlers. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jaxtrade.cli.shared import MARKET, data_options, resolve
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.preflight import run_all


def add_parser(commands: Any) -> None:
    """Add the parser of `advise`."""
    advise = commands.add_parser("advise", help="ask an advisor about a range of bars, look at what was answered, or "
                                 "replay a run")
    actions = advise.add_subparsers(dest="action", required=True, metavar="ACTION")

    precompute = actions.add_parser("precompute", help="ask about every bar of a split and write a snapshot, usable "
                                    "with advisor.kind=table:FILE")
    precompute.add_argument("config", nargs="?", help="a YAML file or a shipped configuration (default: quickstart)")
    data_options(precompute)
    precompute.add_argument("--advisor", metavar="KIND|URL", help="the advisor, instead of advisor.kind: rules, "
                            "mock:KIND[:NUMBER], recorded:FILE, or the URL of a server (with --set "
                            "advisor.options.model=NAME)")
    precompute.add_argument("--out", required=True, type=Path, metavar="FILE.npz", help="the snapshot; a server's "
                            "answers are kept beside it, and running again goes on from them")
    precompute.add_argument("--split", choices=("train", "validation", "test", "all"), default="all",
                            help="sessions whose bars are asked about (default: all)")
    precompute.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of those bars (default: 1)")
    precompute.add_argument("--plan", action="store_true", help="print what it would ask and cost at most, and stop")
    precompute.add_argument("--yes", action="store_true", help="confirm the plan's cost; required if prices are set")

    inspect = actions.add_parser("inspect", help="rows, directions and confidence of a snapshot, a journal or a run")
    inspect.add_argument("path", type=Path, metavar="PATH", help="a snapshot (.npz), a journal (.jsonl) or a run")
    inspect.add_argument("config", nargs="?", help="configuration of the snapshot's market, to print hit rates too "
                         "(or name the market by the flags)")
    data_options(inspect)
    inspect.add_argument("--json", action="store_true", help="print JSON instead of the table")

    replay = actions.add_parser("replay", help="train a run again from its journal, without an advisor; exit 1 if "
                                "any bit of the last state or any figure of the report differs")
    replay.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    replay.add_argument("--run-dir", type=Path, metavar="DIR", help="folder of the replay (default: RUN-replay)")


def run(args: argparse.Namespace) -> int:
    """Handle `advise`. Returns the exit code."""
    if args.action == "replay":
        from jaxtrade.cli.replaying import replay

        return replay(args.run, args.run_dir or args.run.with_name(f"{args.run.name}-replay"))
    if args.action == "inspect":
        from jaxtrade.cli.inspection import inspect

        chosen = any(getattr(args, name) for name in ("config", "overrides", *MARKET))
        print(inspect(args.path, resolve(args) if chosen else None, args.json))
        return 0
    if args.every < 1:
        raise ConfigError(f"--every {args.every}: expected 1 or more")
    _, config = run_all([lambda: _check_out(args.out), lambda: resolve(args)])
    from jaxtrade.cli.precompute import Request, precompute

    return precompute(config, Request(args.out, args.split, args.every, args.plan, args.yes))


def _check_out(out: Path) -> None:
    """Check the output file before anything is paid for. Raises ConfigError, StorageError."""
    if out.suffix != ".npz" or out.is_dir():
        raise ConfigError(f"--out {out}: expected a file whose name ends in .npz")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it first")
    rundir.check_place(out.parent, f"--out {out}")
