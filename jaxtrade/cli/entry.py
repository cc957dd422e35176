"""The `jaxtrade` command.

Parsing imports neither JAX nor pandas, so help and configuration errors appear at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from jaxtrade import interrupt
from jaxtrade.cli import (
    advise,
    certify,
    config_command,
    decide,
    init,
    launch,
    listing,
    paper,
    runs,
    training,
)
from jaxtrade.cli.parser import build_parser, refuse_empty
from jaxtrade.cli.shared import keep_programs, loading, print_result, refuse, resolve
from jaxtrade.config.accounts import read_account
from jaxtrade.data.nulls.spec import parse_null_spec
from jaxtrade.errors import (
    ConfigError,
    DataError,
    InterruptedRunError,
    JaxtradeError,
    OutOfMemoryError,
)
from jaxtrade.export import check_format
from jaxtrade.registry import import_parts
from jaxtrade.runs import files, rundir
from jaxtrade.runs.distributed import find_process_group, leave, say
from jaxtrade.runs.memory import first_line, is_exhausted
from jaxtrade.text import json_text, pairs, printable, show
from jaxtrade.version import __version__

DISK_ERROR, INTERNAL_ERROR = 74, 70
YAML = (".yaml", ".yml")
INSTALLED = {"site-packages", "dist-packages"}  # folders of modules that are not the user's
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
    export  --out
    certify  --out
    init  --out
    """
)


def _evaluate(args: Namespace) -> int:
    studies = runs.studies_wanted(args)
    spec = None if args.nulls is None else parse_null_spec(args.nulls)
    if spec is not None:
        refuse(
            args,
            (*runs.GRIDS, "pass_probability", "breakdown", "advisor", "overrides", "account"),
            f"--nulls {spec}: tests the run as it is",
        )
    _check_new_bars(args)
    accounts = [None] if args.account is None else args.account.split(",")
    for name in accounts:
        if name is not None:
            read_account(name)  # before anything slow
    import_parts(args.modules)
    rundir.read_run(Path(args.run))
    with loading(args) as screen:
        from jaxtrade.runs.evaluate import Request, evaluate_run
        from jaxtrade.runs.new_bars import NewBars
        from jaxtrade.runs.studies import grid_run, nulls_run, study_run

        reading = [key for key in args.overrides if args.on and key.strip().startswith("data.")]
        asked = [key for key in args.overrides if key not in reading]
        on = args.on and NewBars(
            args.on, args.first_day, args.last_day, args.allow_overlap, reading
        )
        titles, texts = [title for flag, title in runs.GRIDS.items() if getattr(args, flag)], []
        for account in accounts:
            request = Request(
                Path(args.run),
                on.split if on else args.split or "test",
                args.json,
                args.seed,
                args.advisor,
                asked,
                args.data,
                screen,
                args.agent,
                account,
                on,
            )
            if studies:
                texts.append(study_run(request, runs.draws(args), args.breakdown))
            elif spec is not None:
                texts.append(nulls_run(request, spec))
            elif titles:
                texts.append(grid_run(request, titles))
            else:
                texts.append(evaluate_run(request))
    if args.json and len(texts) > 1:
        texts = [json_text(dict(zip(accounts, map(json.loads, texts), strict=True)))]
    print_result("\n\n".join(texts), screen)
    return 0


def _check_new_bars(args: Namespace) -> None:
    if args.on is None:
        refuse(
            args,
            ("first_day", "last_day", "allow_overlap"),
            "without --on FILE there are no new bars",
        )
    else:
        refuse(args, ("split", "nulls"), f"--on {args.on}: its sessions are a split of their own")


def _data(args: Namespace) -> int:
    from jaxtrade.data.members import member_configs

    if args.action == "check":
        return _check_files(args)
    if args.action == "append":
        config = resolve(args, own_files=True)
        from jaxtrade.data.append import append

        show(append(args.old, args.new, args.out, config))
        return 0
    given = Path(args.config or "")
    bars = given.is_file() and given.suffix not in ("", *YAML)  # and no configuration
    own = {"config": None, "data": args.config} if bars else {}
    config = resolve(args, training=False, **own)
    from jaxtrade.data.describe import describe_text
    from jaxtrade.data.market import load_market

    show(
        "\n\n".join(describe_text(load_market(member), member) for member in member_configs(config))
    )
    return 0


def _check_files(args: Namespace) -> int:
    """Check files of bars, and the bars of configurations. Returns the exit code."""
    from jaxtrade.data.members import member_configs

    configs = {  # all of them before anything is read
        name: member_configs(resolve(args, training=False, config=name))
        if Path(name).suffix in YAML
        else (resolve(args, own_files=True),)
        for name in args.files
    }
    failed = False
    from jaxtrade.data.describe import check, check_text
    from jaxtrade.data.sources import bars_of

    for name, members in configs.items():
        try:
            for each in members:
                own = Path(name).suffix in YAML
                show(check_text(bars_of(each), each) if own else check(name, each))
        except DataError as error:
            failed = True
            print(printable(f"error: {error}"), file=sys.stderr)
    return DataError.exit_code if failed else 0


def _replay(args: Namespace) -> int:
    import_parts(args.modules)
    rundir.read_run(Path(args.run))
    keep_programs()
    from jaxtrade.runs.evaluate import Request, replay_run

    request = Request(Path(args.run), seed=args.seed, data=args.data, agent=args.agent)
    for line in replay_run(request, args.session, args.symbol):
        show(line)
    return 0


def _export(args: Namespace) -> int:
    check_format(args.format)
    import_parts(args.modules)
    rundir.read_run(Path(args.run))
    with loading(args) as screen:
        from jaxtrade.export.make import describe, export_policy

        screen.phase("exporting", "the policy, and checking it")
        which = {name: getattr(args, name) for name in ("seed", "agent", "symbol", "data")}
        folder = export_policy(
            args.run, args.format, args.out, **which, evaluation=not args.unevaluated
        )
    print_result(describe(folder), screen)
    return 0


def _doctor(args: Namespace) -> int:
    from jaxtrade import doctor

    if args.distributed:
        layout = find_process_group(training.read_process_flags(args), os.environ)
        return doctor.report(doctor.check_process_group(layout, args.join_seconds), args.json)
    refuse(
        args,
        ("coordinator", "num_processes", "process_id"),
        "these name the processes of --distributed",
    )
    return doctor.examine(args.run_dir, args.json)


def _bench(args: Namespace) -> int:
    command = bench_module("command")
    names = command.Options._fields
    return command.run(command.request(**{name: getattr(args, name) for name in names}))


def _in_automation() -> bool:
    """Return whether the variable CI says that nobody is there to answer."""
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
    from jaxtrade.cli import menu

    return menu.walk(menu.run_command)


def _completion(args: Namespace) -> int:
    print(listing.script(args.shell, build_parser()))
    return 0


def bench_module(name: str) -> ModuleType:
    """Import a benchmark module.

    It is from the installed package or from `bench/` at the top of the source checkout.

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
    "decide": decide.run,
    "paper": paper.run,
    "certify": certify.run,
    "bench": _bench,
    "doctor": _doctor,
    "init": init.run,
    "advise": advise.run,
    "ablate": advise.run_ablation,
    "config": config_command.run,
    "list": listing.run,
    "menu": _menu,
    "completion": _completion,
    "launch": lambda args: launch.run(args, build_parser().parse_args),
    "report": runs.report,
    "export": _export,
    "runs": runs.list_runs,
    "compare": runs.compare,
    "watch": runs.watch,
    "walkforward": training.walkforward,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    argv: default: the process's own command line.

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
    try:
        code = COMMANDS[args.command](args)
    except (Exception, KeyboardInterrupt) as error:
        code = _report_error(error, args.command)
    return leave(code)


def _report_error(error: BaseException, command: str) -> int:
    """Print an error and return the exit code.

    A `JaxtradeError` is the user's to mend; any other exception is a bug, here or in a module
    of the user, so its traceback is shown.
    """
    if isinstance(error, InterruptedRunError):
        interrupt.say(f"error: {error}")
        return error.exit_code
    # XLA, for example, turns the KeyboardInterrupt of a callback into an error of its own.
    if isinstance(error, KeyboardInterrupt) or interrupt.was_received():
        interrupt.say(interrupt.line())
        return interrupt.EXIT_CODE
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
    said = f"this is a bug in jaxtrade {__version__}; please report the lines above"
    if (module := _users_module(error)) is not None:
        said = f"the error is in your module {module}, see the lines above"
    print(said, file=sys.stderr)
    return INTERNAL_ERROR


def _users_module(error: BaseException) -> str | None:
    """Return the module of the user in which an error arose; None if it arose in jaxtrade.

    What Python and installed packages do is laid to whoever called them.
    """
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__"))
        top = name.partition(".")[0]
        if top == "jaxtrade":
            found = None
        elif top not in sys.stdlib_module_names and INSTALLED.isdisjoint(
            Path(frame.f_code.co_filename).parts
        ):
            found = name
    return found
