"""The `jaxtrade` command. Parsing imports neither JAX nor pandas, so help and configuration errors
appear at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import shlex
import signal
import subprocess
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any

from jaxtrade import interrupt
from jaxtrade.cli import advise, config_command, init, launch, listing, runs, training
from jaxtrade.cli.parser import build_parser, refuse_empty
from jaxtrade.cli.shared import keep_programs, loading, print_result, refuse, resolve
from jaxtrade.data.nulls.spec import parse_null_spec
from jaxtrade.errors import (
    ConfigError,
    DataError,
    InterruptedRunError,
    JaxtradeError,
    OutOfMemoryError,
)
from jaxtrade.runs import files, rundir
from jaxtrade.runs.memory import first_line, is_exhausted
from jaxtrade.runs.processes import layout_of, leave, say
from jaxtrade.text import pairs, printable, show
from jaxtrade.version import __version__

# `jaxtrade menu`: a table of keys that end in a command, which is printed and then run in a process
# of its own. `3`, `1`, `NQ` tests the whole curriculum, as in RL-Trainer. Answers may be piped; the
# command checks them. The last key of the first list, `q` or the end of the input leaves.

FILE = "'{File of bars (CSV, CSV.gz or Parquet)}'"
STAMP = "--set 'data.stamp={Are stamps the time of the open or of the close of a bar:open}'"
ZONE = "--set 'data.time_zone={Time zone of the stamps (null, they carry an offset):null}'"
BARS = f"{FILE} --market {{Market:ES}} {STAMP} {ZONE}"
RUN = "'{Folder of the run:runs/*/config.yaml}'"
MENU = {  # keys -> title, and for a leaf the command, with {question:default} where one is asked
    "": ("jaxtrade", ""),
    "1": ("Check this machine", "doctor"),
    "2": ("Data", ""),
    "21": ("Check a file of bars", f"data check {BARS}"),
    "22": ("Describe a market: sessions, stops, costs", "data describe --market {Market:ES}"),
    "3": ("Train", ""),
    "31": ("Test: the curriculum, in minutes", "curriculum --test --market {Market:NQ}"),
    "32": ("Full training", ""),
    "321": ("The bundled week of ES bars", "train quickstart"),
    "322": ("Your own bars", f"train --data {BARS}"),
    "323": ("Three tasks, one after the other (curriculum)", "curriculum"),
    "33": ("Continue", ""),
    "331": ("A run that was stopped, from its newest checkpoint", f"train --resume {RUN}"),
    "332": ("A curriculum that was stopped", "curriculum --resume {Folder:runs/*/curriculum.yaml}"),
    "333": ("A finished run, as a new one", f"train --continue {RUN} --timesteps {{Steps:1M}}"),
    "4": ("Evaluate", ""),
    "41": ("Evaluate a run against the baselines", f"evaluate {RUN}"),
    "42": ("Print one session bar by bar", f"replay {RUN} --session '{{Date, YYYY-MM-DD}}'"),
}


def walk(runner: Callable[[list[str]], int]) -> int:
    """Ask and run until the user leaves -> exit code of the last command; 0 if none was run."""
    code, keys = 0, ""
    while code != 130:  # Ctrl-C
        title, command = MENU[keys]
        try:
            if command:
                words = [_filled(word) for word in shlex.split(command)]
                print(f"\n$ jaxtrade {shlex.join(words)}\n", flush=True)
                code, keys = runner(words), ""
                print(f"\n(exit code {code})", flush=True)
                continue
            below = {key: MENU[key][0] for key in MENU if key and key[:-1] == keys}
            leave = f"{keys}{len(below) + 1}"
            below[leave] = "Back" if keys else "Exit"
            print("\n".join(["", title, *(f"  {key[-1]}  {below[key]}" for key in below)]))
            chosen = keys + _ask("Your choice")
        except EOFError:
            break
        if chosen not in below:
            print(f"  expected one of {', '.join(key[-1] for key in below)}")
        elif chosen == leave and not keys:
            break
        else:
            keys = keys[:-1] if chosen == leave else chosen
    return code


def _filled(word: str) -> str:
    """A word of a command, with the answer to its question. The default of a pattern is the folder
    of its newest file.
    """
    [(text, question, default, _)] = Formatter().parse(word)
    if question is not None and default and "*" in default:
        found = sorted(Path().glob(default), key=os.path.getmtime)
        default = str(found[-1].parent) if found else ""
    return text if question is None else text + _ask(question, default or "")


def _ask(question: str, default: str = "") -> str:
    """Ask. Enter means the default. Raises EOFError to leave."""
    given = input(f"{question}{f' [{default}]' if default else ''}: ")
    given = "".join(filter(str.isprintable, given)).strip() or default
    if not sys.stdin.isatty():  # a transcript shows the answers too
        print(given, flush=True)
    if given.lower() == "q":
        raise EOFError
    return given


def run_command(words: list[str]) -> int:
    """Run `jaxtrade WORDS` -> exit code. It gets Ctrl-C, but not the answers that are piped."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "jaxtrade", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=None if sys.stdin.isatty() else subprocess.DEVNULL,
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        returned = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return returned if returned >= 0 else 128 - returned  # as a shell says that a signal ended it


DISK_ERROR, INTERNAL_ERROR = 74, 70
FULL, CLOSED = "free some space", "change its rights"
DISK_FAULTS = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EROFS: "it is read-only",
    errno.EACCES: CLOSED,
    errno.EPERM: CLOSED,
    errno.EIO: "the disk has a fault",
}
# Command -> the flag that names where it writes. The others write beside what they read.
PLACES = pairs(
    """
    train  --run-dir
    curriculum  --run-dir
    walkforward  --run-dir
    bench  --out
    advise  --out
    ablate  --out
    report  --out
    init  --out
    """
)


def _evaluate(args: Namespace) -> int:
    studies = runs.studies_wanted(args)
    spec = None if args.nulls is None else parse_null_spec(args.nulls)
    if spec is not None:
        refuse(
            args,
            (*runs.GRIDS, "pass_probability", "breakdown", "advisor", "overrides"),
            f"--nulls {spec}: tests the run as it is",
        )
    rundir.read_run(Path(args.run))
    with loading(args) as screen:
        from jaxtrade.runs.evaluate import evaluate_run
        from jaxtrade.runs.studies import grid_run, nulls_run, study_run

        asked: dict[str, Any] = {
            "path": Path(args.run),
            "split": args.split,
            "as_json": args.json,
            "seed": args.seed,
            "data": args.data,
            "screen": screen,
            "agent": args.agent,
        }
        advised = asked | {"advisor": args.advisor, "overrides": args.overrides}
        if studies:
            text = study_run(draws=runs.draws(args), broken_down=args.breakdown, **advised)
        elif spec is not None:
            text = nulls_run(spec=spec, **asked)
        elif any(getattr(args, name) for name in runs.GRIDS):
            text = grid_run(
                intrabar=args.intrabar_grid,
                costs=args.cost_grid,
                latency=args.latency_grid,
                attribution=args.attribution,
                **advised,
            )
        else:
            text = evaluate_run(**advised)
    print_result(text, screen)
    return 0


def _data(args: Namespace) -> int:
    if args.action == "check":
        config, failed = resolve(args, own_files=True), False
        from jaxtrade.data.describe import check

        for name in args.files:
            try:
                show(check(name, config))
            except DataError as error:
                failed = True
                print(printable(f"error: {error}"), file=sys.stderr)
        return DataError.exit_code if failed else 0
    config = resolve(args, training=False)
    from jaxtrade.data.describe import describe_text
    from jaxtrade.data.market import load_market
    from jaxtrade.data.members import member_configs

    show(
        "\n\n".join(describe_text(load_market(member), member) for member in member_configs(config))
    )
    return 0


def _replay(args: Namespace) -> int:
    rundir.read_run(Path(args.run))
    keep_programs()
    from jaxtrade.runs.evaluate import replay_run

    for line in replay_run(
        Path(args.run), args.session, args.seed, args.data, args.symbol, args.agent
    ):
        show(line)
    return 0


def _doctor(args: Namespace) -> int:
    from jaxtrade.doctor import examine

    if args.distributed:
        layout = layout_of(training.given(args), os.environ)
        return examine.report(examine.join(layout, args.join_seconds), args.json)
    refuse(
        args,
        ("coordinator", "num_processes", "process_id"),
        "these name the processes of --distributed",
    )
    return examine.examine(args.run_dir, args.json)


def _bench(args: Namespace) -> int:
    command = bench_module("command")
    names = command.Options._fields
    return command.run(command.request(**{name: getattr(args, name) for name in names}))


def _in_automation() -> bool:
    """Whether the variable CI says that nobody is there to answer."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _menu(args: Namespace) -> int:
    if args.non_interactive or (_in_automation() and sys.stdin.isatty()):
        why = "--non-interactive" if args.non_interactive else "the variable CI"
        raise ConfigError(
            f"{why}: nothing may be asked, and a menu asks; name a command, such as "
            "'jaxtrade train --test --market NQ' (all: jaxtrade --help)"
        )
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are no text are a wrong answer
    return walk(run_command)


def _launch(args: Namespace) -> int:
    return launch.run(args, build_parser().parse_args)


def _completion(args: Namespace) -> int:
    print(listing.script(args.shell, build_parser()))
    return 0


def bench_module(name: str) -> ModuleType:
    """Import a benchmark module, from the installed package or from `bench/` at the top of the
    source checkout.

    Raises ConfigError if this installation has neither.
    """
    package = Path(__file__).resolve().parent.parent
    if (package / "bench").is_dir():
        return importlib.import_module(f"jaxtrade.bench.{name}")
    root = package.parent
    if not (root / "bench" / "catalogue.py").is_file():
        raise ConfigError(
            f"the benches are missing: there is neither {package / 'bench'} nor {root / 'bench'}; "
            "reinstall jaxtrade"
        )
    if str(root) not in sys.path:  # an editable install does not put this folder on the path
        sys.path.insert(0, str(root))
    return importlib.import_module(f"bench.{name}")


COMMANDS = {
    "train": training.train,
    "curriculum": training.curriculum,
    "evaluate": _evaluate,
    "data": _data,
    "replay": _replay,
    "bench": _bench,
    "doctor": _doctor,
    "init": init.run,
    "advise": advise.run,
    "ablate": advise.run_ablation,
    "config": config_command.run,
    "list": listing.run,
    "menu": _menu,
    "completion": _completion,
    "launch": _launch,
    "report": runs.report,
    "runs": runs.list_runs,
    "compare": runs.compare,
    "watch": runs.watch,
    "walkforward": training.walkforward,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code. argv: default: the process's own command line.

    0 done, 1 a check failed, 2 error in usage, configuration or data, 70 internal error, 73 run
    locked, 74 disk error, 69 another process of the run was lost, 71 out of memory, 75 preempted,
    76 diverged, 130 Ctrl-C.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if argv is None and len(sys.argv) == 1 and terminal and not _in_automation():
        argv = ["menu"]  # a person is there to answer
    parser = build_parser()
    refuse_empty(parser, sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(argv)
    files.allow_all(getattr(args, "trust_imports", False))
    files.allow(getattr(args, "modules", ()))
    return leave(_run(args))


def _run(args: Namespace) -> int:
    """Run a parsed command -> exit code. Errors are printed."""
    try:
        return COMMANDS[args.command](args)
    except InterruptedRunError as error:
        interrupt.say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        interrupt.say(interrupt.line())
        return interrupt.EXIT_CODE
    except Exception as error:
        if (
            interrupt.received()
        ):  # XLA, for example, turns the KeyboardInterrupt of a callback into an error of its own
            interrupt.say(interrupt.line())
            return interrupt.EXIT_CODE
        return _failed(error, args.command)


def _failed(error: Exception, command: str) -> int:
    """Print an error -> the exit code. A `JaxtradeError` is the user's to mend; any other exception
    is a bug, so its traceback is shown."""
    match error:
        case JaxtradeError():
            say(printable(f"error: {error}"))
            return error.exit_code
        case BrokenPipeError():  # the reader of the output closed the pipe; the run has no fault
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError() if error.errno in DISK_FAULTS:
            flag = PLACES.get(command)
            other = f", or name another place ({flag})" if flag else ""
            print(printable(f"error: {error}; {DISK_FAULTS[error.errno]}{other}"), file=sys.stderr)
            return DISK_ERROR
        case _ if is_exhausted(error):
            print(
                f"error: memory ran out ({first_line(error)}); free some, or make the work smaller "
                "(rollout.num_envs, train.num_seeds, fewer settings of a sweep, less data)",
                file=sys.stderr,
            )
            return OutOfMemoryError.exit_code
    traceback.print_exception(error)
    print(
        f"this is a bug in jaxtrade {__version__}; please report the lines above", file=sys.stderr
    )
    return INTERNAL_ERROR
