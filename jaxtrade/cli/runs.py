"""Commands about runs: `runs`, `report`, `compare`, `watch`, and the studies of `evaluate`.

`runs` prints one line each, `report` makes a page, `compare` goes by day and `watch` is live.
Imports no heavy library at load time.
"""

from __future__ import annotations

import errno
import getpass
import html
import json
import platform
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrade.cli.flags import columns, table
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.account_draws import ACCOUNTS, DRAWS, HORIZON, AccountDraws, check_draws
from jaxtrade.text import printable, several, show

if TYPE_CHECKING:
    from jaxtrade.runs.inventory import RunEntry

ORDERS = ("age", "name", "status", "net", "days", "steps")  # what `inventory.sort_entries` knows
HEAD = ("run", "status", "market", "learner", "task", "steps", "net/day ($)", "days", "age")
FIGURES = (5, 6, 7, 8)  # columns that are aligned to the right


RUNS = (
    "the runs in a folder, one line each: status, steps, held-out figures, age",
    f"""
    FOLDER? [runs]  the folder that holds the runs, or one run (default: runs)
    --sort BY [age] : {" or ".join(ORDERS)}  one of {", ".join(ORDERS)} (default: age, the latest
        sign of life first; net, days and steps: the largest first)
    --reverse  the other way round; what has no such figure stays last
    --json  print JSON instead of the table
    """,
)


def list_runs(args: Namespace) -> int:
    """Handle `runs`. Return the exit code. Raises ConfigError if there is no such folder."""
    from jaxtrade.runs.inventory import (
        entries_in,
        sort_entries,
    )  # loads NumPy, which the parser needs no more than JAX

    found = sort_entries(entries_in(Path(args.folder)), args.sort, args.reverse)
    if args.json:
        print(json.dumps([entry.to_json() for entry in found], indent=2, allow_nan=False))
    else:
        print("\n".join(lines(found, args.folder, columns())))
    return 0


def lines(entries: list[RunEntry], folder: str, wide: int | None) -> list[str]:
    """Format the table, then one line for each run that needs a remark.

    wide: as in `flags.table`.
    """
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
        entry.status + (", early" if entry.early else ""),
        entry.market or "-",
        entry.learner or "-",
        entry.task or "-",
        _steps(entry),
        "-" if entry.net_per_day is None else f"{entry.net_per_day:,.2f}",
        days,
        _age(entry.age),
    ]


def _steps(entry: RunEntry) -> str:
    """Format the steps done, and their share of all that were planned."""
    if entry.steps is None:
        return "-"
    share = "" if not entry.total_steps else f" ({min(1.0, entry.steps / entry.total_steps):.0%})"
    return f"{entry.steps:,}{share}"


def _age(seconds: float | None) -> str:
    """Format a time in its largest unit: `45 s`, `3 min`, `2 h`, `5 days`."""
    if seconds is None:
        return "-"
    for size, unit in ((60, "s"), (60, "min"), (24, "h")):
        if seconds < size:
            return f"{int(seconds)} {unit}"
        seconds /= size
    return several(int(seconds), "day")


# `jaxtrade report`: one page of a finished run or walk-forward, from its files.


REPORT = (
    "make one HTML page of a run's results, and the same figures as JSON",
    """
    RUN?  the folder of a run or of a walk-forward (default: the newest in runs that was evaluated)
    --split SPLIT [test]  sessions that the page is about: test, validation, train, all, or a folder of
        RUN/evaluation that evaluate --on made (default: test); they must have been evaluated
    --seed SEED : int  one seed of a run with several (default: the first)
    --agent N : int  one agent of a run with several, by its number in agents.json
    --symbol SYMBOL  one symbol of a run with several
    --out FOLDER : Path  folder of the files (default: RUN/report)
    --max-mb MB [3.0] : float  largest size of the page; the oldest bars are left out beyond it, and the
        page says so (default: 3)
    --open  show the page in the browser
    """,
)


def report(args: Namespace) -> int:
    """Make the report and return the exit code.

    Raises ConfigError for flags that choose one of several with a walk-forward, whose page
    shows all.
    """
    from jaxtrade.reporting import collect, make, walk
    from jaxtrade.runs import rundir

    if args.out is not None:
        rundir.check_place(args.out, f"--out {args.out}")  # before anything is drawn
    run = find_newest(Path("runs")) if args.run is None else Path(args.run)
    if walk.is_walk(run):
        given = [name for name in ("seed", "agent", "symbol") if getattr(args, name) is not None]
        given += ["split"] if args.split != "test" else []
        if given:
            raise ConfigError(
                f"{run}: the page of a walk-forward shows all seeds on the test days of all folds: "
                f"drop --{', --'.join(given)}"
            )
        made = walk.make(walk.collect(run), args.max_mb)
    else:
        choice = collect.choose(run, args.split, args.seed, args.agent, args.symbol)
        made = make.make(collect.collect(choice), args.max_mb)
    paths = make.write(made, args.out or run / "report")
    for path in paths.values():
        show(f"{path}  {_format_size(path.stat().st_size)}")
    if args.open:
        import webbrowser

        page = paths["report.html"].resolve()
        opened = webbrowser.open(page.as_uri())
        show("opened in the browser" if opened else f"no browser here; open {page}")
    return 0


def _format_size(size: int) -> str:
    """Format the size of a file: kB below a tenth of a megabyte."""
    return f"{size / 1e6:.2f} MB" if size >= 100_000 else f"{size / 1000:.1f} kB"


def find_newest(folder: Path) -> Path:
    """Return the evaluated run in a folder with the latest sign of life. Raises ConfigError: none."""
    from jaxtrade.runs.inventory import entries_in, sort_entries

    for entry in sort_entries(entries_in(folder), "age"):
        if entry.split in ("test", "walk-forward"):
            return folder / entry.name
    raise ConfigError(f"{folder}: no run in it was evaluated. Fix: name a run's folder")


# `jaxtrade export`: a policy that runs without jaxtrade.


EXPORT = (
    "write a policy for NumPy, ONNX or StableHLO, checked against the run, with a card",
    """
    RUN  the run's folder
    --format {npz,onnx,stablehlo} !  npz: NumPy and one file of Python; onnx: any ONNX runtime;
        stablehlo: this version of JAX or a newer one
    --out FOLDER : Path  folder of the export (default: RUN/export/FORMAT)
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --symbol SYMBOL  whose observation statistics, of a run with several
    --data FILE : Path  the run's own bars at another place
    --no-evaluation -> unevaluated  leave out the check that the held-out trades are the same, which
        needs the run's bars
    """,
)


# `jaxtrade compare`: runs against each other, day by day. Starts no JAX.


COMPARE = (
    "runs against each other, paired by held-out day: differences with intervals",
    """
    RUN+ -> runs  folders of runs or walk-forwards; the others are compared with the first
    --split SPLIT [test]  whose days: test, validation, train, all, or a folder of RUN/evaluation that
        evaluate --on made (default: test); each run must have been evaluated on it
    --shared-days  compare on the days that all have, although some have others too, as a run
        and a walk-forward
    --json  print JSON instead of the table
    """,
)


def compare(args: Namespace) -> int:
    """Handle `compare`. Return the exit code.

    Raises ConfigError and DataError for runs that cannot be compared.
    """
    if len(args.runs) < 2:
        raise ConfigError(
            f"compare: one run ({args.runs[0]}) has nothing to be compared with; name two or more"
        )
    from jaxtrade.evaluation.comparison_table import changed_keys, same_trades, table
    from jaxtrade.evaluation.run_days import compare_runs, on_shared_days, read_run_days, to_json

    days = [read_run_days(Path(each), args.split) for each in args.runs]
    found = compare_runs(on_shared_days(days, args.shared_days))
    if args.json:
        also = {"changed": changed_keys(found), "same_trades": same_trades(found)}
        show(json.dumps(to_json(found) | also, indent=2, allow_nan=False))
    else:
        show("\n".join(table(found)))
    return 0


# `jaxtrade watch`: a live page about a run that trains, or about all runs of a folder. Imports no
# heavy library.


WATCH = (
    "open a live page about runs while they train, for this machine alone",
    """
    RUN|DIR? [runs] -> folder  a run's folder, or a folder of runs (default: runs)
    --port N [0] : whole  port to listen on (default: a free one)
    --open -> browse  also open the page in a browser
    """,
)


def watch(args: Namespace) -> int:
    """Serve until Ctrl-C. Raises ConfigError if there is no such folder, or the port is taken."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder; name a run's folder, or the folder of your runs"
        )
    from jaxtrade.watching.metrics import Reader
    from jaxtrade.watching.server import WatchServer, new_token, routes

    try:
        server = WatchServer(routes(folder, Reader(), make_page), new_token(), args.port)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        raise ConfigError(
            f"--port {args.port}: {'another program listens on it' if taken else error}; leave --port "
            "out for a free one"
        ) from None
    for line in lines_of(server.address, server.port):
        print(line, flush=True)
    with ExitStack() as stack:
        stack.callback(server.server_close)
        if args.browse:
            import webbrowser

            if not webbrowser.open(
                stack.enter_context(page_that_leads_to(server.address)).as_uri()
            ):
                print(
                    "note: no browser could be opened; open the address yourself", file=sys.stderr
                )
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stopped")
    return 0


def make_page(run: Path, symbol: str) -> str:
    """Return the report of a run as HTML; nothing is written. Raises JaxtradeError."""
    from jaxtrade.reporting import collect, make  # with JAX, once a report is asked for

    return make.make(collect.collect(collect.choose(run, symbol=symbol or None))).html


@contextmanager
def page_that_leads_to(address: str) -> Iterator[Path]:
    """Write a page that only this user can read, and that leads to an address.

    On a browser's command line every user of the machine could read the secret in it.
    """
    with tempfile.TemporaryDirectory(prefix="jaxtrade-watch-") as folder:  # mode 0700
        page = Path(folder) / "open.html"
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">'
            f'<a href="{html.escape(address)}">open</a>\n',
            encoding="utf-8",
        )
        yield page


def lines_of(address: str, port: int) -> list[str]:
    """Return what the command prints: the address, and how to see the page from another machine."""
    host, user = platform.node() or "THIS_MACHINE", _user()
    return [
        f"open {address}",
        "The address holds a secret: whoever has it, on this machine, sees your runs.",
        "From another machine, first:",
        f"  ssh -L {port}:127.0.0.1:{port} {user}@{host}",
        "then open the same address there. Ctrl-C ends the page; runs go on.",
    ]


def _user() -> str:
    """Return the name of the user.

    YOU where the system knows none, as in a container that runs under a number.
    """
    try:
        return getpass.getuser()
    except (
        OSError,
        KeyError,
        ImportError,
    ):  # Python before 3.13 lets KeyError through, on Windows ImportError
        return "YOU"


# The flags of `jaxtrade evaluate` that ask what stands behind its figures (`runs.studies`).

USUAL = {"horizon": HORIZON, "draws": DRAWS, "accounts": ACCOUNTS}
GRIDS = {  # flag -> title of the grid
    "intrabar_grid": "intrabar order",
    "cost_grid": "costs",
    "latency_grid": "latency",
    "attribution": "attribution",
}


# The flags of `evaluate`.
STUDIES = f"""
    --pass-probability  print the probability to pass the run's account, with its errors, instead
        of the table
    --horizon SESSIONS : int  with --pass-probability: sessions after which an account is out of
        time (default: {HORIZON})
    --draws N : int  with --pass-probability: how often the sessions themselves are drawn anew
        (default: {DRAWS})
    --accounts N : int  with --pass-probability: simulated accounts for each of these draws
        (default: {ACCOUNTS})
    --breakdown  print the profit by half hour, weekday, volatility and exit reason, instead of the
        table
    """


def studies_wanted(args: Namespace) -> bool:
    """Return whether a study is asked for.

    Raises ConfigError (flags that do not go together, a number that is too small).
    """
    given = [f"--{name}" for name in _numbers(args)]
    if given and not args.pass_probability:
        raise ConfigError(
            f"{', '.join(given)}: belongs to --pass-probability; add it, or leave this out"
        )
    if not (args.pass_probability or args.breakdown):
        return False
    if (asked := draws(args)) is not None:
        check_draws(asked)
    grids = [f"--{name.replace('_', '-')}" for name in (*GRIDS, "nulls") if getattr(args, name)]
    if grids:
        asked = "--pass-probability" if args.pass_probability else "--breakdown"
        raise ConfigError(
            f"{asked} with {', '.join(grids)}: these are different tables; ask for them one by one"
        )
    return True


def draws(args: Namespace) -> AccountDraws | None:
    """Return what `--pass-probability` simulates; None without it."""
    return AccountDraws(**USUAL | _numbers(args)) if args.pass_probability else None


def _numbers(args: Namespace) -> dict[str, int]:
    return {name: value for name in USUAL if (value := getattr(args, name)) is not None}
