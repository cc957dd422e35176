"""`jaxtrade paper`: a run's policy trades on paper, on bars that arrive."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from contextlib import closing
from pathlib import Path

from jaxtrade.cli.shared import MODULES, keep_programs, refuse
from jaxtrade.errors import ConfigError
from jaxtrade.formatting import money
from jaxtrade.registry import import_parts
from jaxtrade.runs.distributed import say as warn
from jaxtrade.text import several, show

PAPER = (
    "a run's policy trades on paper, on bars that arrive",
    """
    RUN  the run's folder
    --feed FILE|-|ws://HOST:PORT  where bars come from: a file of bars, a file of JSON lines (.jsonl),
        standard input or a WebSocket, one JSON object a line or message
    --name NAME [default]  of the session, in RUN/paper/NAME; the same command goes on with it
        (default: default)
    --history FILE  the bars before the feed (default: the run's own bars)
    --rails FILE  YAML of limits beside the account's rules (docs/deploy.md)
    --engine {nautilus}  compare every fill with NautilusTrader's simulated exchange
    --sink ninjatrader:DIR  write the orders as files for NinjaTrader, DIR being its folder with
        incoming and outgoing; the rails name the account (docs/deploy.md)
    --flatten  tell the session that trades to close its position and to stop
    --symbol SYMBOL  which symbol, of a run with several
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --set KEY=VALUE ... -> overrides  how the file is read, e.g. --set data.stamp=open (repeatable)
    --quiet  show only the summary
    --json  print the summary as JSON
    """,
    MODULES,
)


def run(args: Namespace) -> int:
    """Handle `paper`. Return the exit code: 0 at the feed's end, or once flat and stopped."""
    if not args.name or Path(args.name).name != args.name:
        raise ConfigError(f"--name {args.name}: expected the name of a folder, without /")
    folder = Path(args.run) / "paper" / args.name
    if args.flatten:
        refuse(args, ("feed", "rails", "history"), "--flatten speaks to a session that trades")
    elif args.feed is None:
        raise ConfigError("--feed: give a file of bars, - for standard input, or ws://HOST:PORT")
    from jaxtrade.paper.rails import read_paper

    rails = read_paper(args.rails)
    import_parts(args.modules)
    keep_programs()
    from jaxtrade.paper.feed import open_feed
    from jaxtrade.paper.session import JOURNAL, KILL, Session, cut, open_sinks
    from jaxtrade.runs.decide import choose_policy, read_bars

    if args.flatten:
        if not (folder / JOURNAL).is_file():
            raise ConfigError(f"{folder}: no session of paper trading; name it by --name")
        (folder / KILL).touch()
        show(f"wrote {folder / KILL}: the session is flat after one more bar")
        return 0
    config, policy = choose_policy(args.run, args.symbol, args.seed, args.agent)
    items, first = open_feed(args.feed, config, args.overrides)
    history = cut(read_bars(config, args.history, args.overrides), first - 1)
    contract = history.contract.under(config)
    sinks = open_sinks(args.engine, args.sink, rails, contract, config.env.intrabar)
    clock = None if Path(args.feed).is_file() else lambda: int(time.time())
    say = (lambda line: None) if args.quiet or args.json else show
    with closing(Session(folder, config, policy, history, rails, clock, sinks, say)) as session:
        found = session.trade(items)
    if args.engine:
        found["engine"] = sinks[0].counts()  # type: ignore[attr-defined]
    if args.json:
        print(json.dumps(found, allow_nan=False))
        return 0
    counts = [several(found[f"{name}s"], name) for name in ("session", "decision", "trade")]
    show(
        f"{found['symbol']}: {', '.join(counts)}; account {found['account']}, equity {money(found['equity'])}"
    )
    for name in ("faults", "rails", "engine"):
        if found.get(name):
            show(f"{name}: {', '.join(f'{key} {count:,}' for key, count in found[name].items())}")
    if found["position"]:
        warn(f"note: {found['position']:+d} contracts are held; the same command goes on with them")
    return 0
