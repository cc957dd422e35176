"""`jaxtrade decide`: what a run's policy does on new bars, one JSON line each."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from jaxtrade.cli.shared import MODULES, keep_programs, refuse
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.registry import import_parts
from jaxtrade.runs import rundir
from jaxtrade.text import printable, several

ACCOUNT = ("equity", "high_water", "session_equity")
OF_POSITION = ("stop", "target", "trailing", "held", "quantity")

DECIDE = (
    "what a run's policy does on new bars: a JSON line each",
    """
    RUN  the run's folder
    --bars FILE|-  bars, of which the last one is decided on; or -: bars on standard input, one JSON
        object a line, and a line out for each (default: the run's own bars)
    --history FILE  with --bars -: the bars before them (default: the run's own bars)
    --last N : count  decide on the last N bars of the file
    --all -> every  decide on all bars that have enough history
    --position SIDE@PRICE  the position that the broker reports at the last bar, such as
        long@1650.25 (default: flat)
    --quantity N : count  contracts of that position (default: 1)
    --stop PRICE  its stop
    --target PRICE  its target
    --trailing  its stop trails
    --held BARS : count  bars closed since its entry, that of the entry included (default: 1)
    --equity DOLLARS  the account's equity, open profit included
    --high-water DOLLARS  its highest equity so far
    --session-equity DOLLARS  its equity when the session began
    --symbol SYMBOL  which symbol, of a run with several
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --set KEY=VALUE ... -> overrides  how the file is read, e.g. --set data.stamp=open (repeatable)
    """,
    MODULES,
)


def run(args: Namespace) -> int:
    """Handle `decide`. Return the exit code: 2 if a line of standard input was refused."""
    report = report_of(args)
    live = args.bars == "-"
    if live:
        names = ("last", "every", "position", *ACCOUNT)
        refuse(args, names, "--bars -: each line may have its own position, equity and high_water")
    else:
        refuse(args, ("history",), "belongs to --bars -; the bars of a file are their own history")
    if args.last and args.every:
        raise ConfigError("--last and --all: give one of them")
    if report and (args.every or (args.last or 1) > 1):
        raise ConfigError(
            "--position and the account are those of the last bar: drop --last, --all"
        )
    import_parts(args.modules)
    rundir.read_run(Path(args.run))
    keep_programs()
    from jaxtrade.runs.decide import choose_policy, decide_bars, decide_line, read_bars, read_lines
    from jaxtrade.stream import Stream

    config, policy = choose_policy(args.run, args.symbol, args.seed, args.agent)
    bars = read_bars(config, args.history if live else args.bars, args.overrides)
    if not live:
        last = None if args.every else args.last or 1
        for each in decide_bars(config, policy, bars, last, report):
            print(json.dumps(each, allow_nan=False), flush=True)
        return 0
    stream, refused = Stream(config, bars, policy), 0
    for number, line in enumerate(read_lines(), 1):
        try:
            found = decide_line(stream, line)
        except DataError as error:
            refused += 1
            found = {"line": number, "error": str(error)}
            print(printable(f"error: line {number}: {error}"), file=sys.stderr, flush=True)
        print(json.dumps(found, allow_nan=False), flush=True)
    if refused:
        print(f"{several(refused, 'line')} refused", file=sys.stderr)
    return DataError.exit_code if refused else 0


def report_of(args: Namespace) -> dict[str, Any] | None:
    """Return the flags of the broker's report; None without any. Raises ConfigError."""
    report = {key: value for key in ACCOUNT if (value := getattr(args, key)) is not None}
    if args.position is None:
        refuse(args, OF_POSITION, "belongs to --position SIDE@PRICE")
        return report or None
    side, sign, price = args.position.partition("@")
    if not sign or side not in ("long", "short"):
        raise ConfigError(f"--position {args.position}: expected long@PRICE or short@PRICE")
    position = {"side": side, "entry": price, "trailing": args.trailing, "bars": args.held or 1}
    position |= {"quantity": args.quantity or 1, "stop": args.stop, "target": args.target}
    return report | {"position": position}
