"""The `jaxtrade` command. Parsing imports neither JAX nor pandas: help and configuration errors answer at once."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxtrade import __version__, rundir
from jaxtrade.commands import ablate, advise
from jaxtrade.config import RunConfig, load_config, make_config, overridden
from jaxtrade.data.contracts import BUNDLED, require_bundled
from jaxtrade.errors import ConfigError, DataError, JaxtradeError

DISK_ERROR, INTERNAL_ERROR = 74, 70
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
# `--test`: about a minute on two cores, compilation included
TEST_OVERRIDES = (
    "data.synthetic_sessions=10",
    "rollout.num_envs=64",
    "rollout.num_steps=64",
    "ppo.num_minibatches=4",
    "train.total_timesteps=200_000",
    "train.chunk_updates=5",
)


ADVISOR = ("who advises on the bars: rules, mock:skilled:0.6, the URL of an OpenAI-compatible server (with --set "
           "advisor.options.model=NAME), table:FILE, none, ... (docs/advisor.md)")


def _data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="set a configuration key, e.g. --set rollout.num_envs=1024 (repeatable)")
    parser.add_argument("--market", help="contract symbol, e.g. NQ; bars are bundled for "
                        f"{' and '.join(BUNDLED)}, synthetic for others unless --data is given")
    parser.add_argument("--contract", metavar="FILE", help="your own contract instead of --market: a YAML file of its "
                        "figures, or a shipped one such as SPY")
    parser.add_argument("--data", metavar="FILE", help="your bars: CSV, CSV.gz or Parquet; state the stamp side with "
                        "--set data.stamp=open (or close), and data.time_zone where stamps carry no offset")
    parser.add_argument("--seconds", metavar="FILE", help="second bars of the same instrument, read with the same keys "
                        "as --data: they must rebuild its bars, and allow --set env.intrabar=path")
    parser.add_argument("--quotes", metavar="FILE", help="bid and ask bars of the same instrument, read with the same "
                        "keys as --data: fills take the quotes, volume stays that of --data")


def build_parser() -> argparse.ArgumentParser:
    """Every command and flag."""
    parser = argparse.ArgumentParser(prog="jaxtrade", description="Intraday-trading reinforcement learning in JAX.")
    parser.add_argument("--version", action="version", version=f"jaxtrade {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a policy and evaluate it on the held-out sessions")
    train.add_argument("config", nargs="?", help="a YAML file or a shipped configuration (default: quickstart)")
    _data_options(train)
    train.add_argument("--test", action="store_true", help="a run of about a minute, to see that everything works")
    train.add_argument("--non-interactive", action="store_true",
                       help="never ask (training never does; accepted for scripts)")
    train.add_argument("--run-dir", metavar="DIR", help="directory of the new run (default: runs/<market-task-utc-id>)")
    train.add_argument("--from", metavar="RUN", dest="source", help="begin with another run's policy, widened to this "
                       "run's slots and actions by name (transfer.*)")
    train.add_argument("--continue", metavar="RUN", dest="onward", help="a new run from another one's policy and "
                       "optimiser, with its configuration and what --set changes of it")
    train.add_argument("--advisor", metavar="KIND|URL", help=ADVISOR)
    train.add_argument("--resume", metavar="RUN", help="continue a run from its newest good checkpoint")

    course = commands.add_parser("curriculum", help="train a policy through several tasks, each phase behind a gate")
    course.add_argument("config", nargs="?", help="a YAML file or a shipped curriculum (default: curriculum)")
    _data_options(course)
    course.add_argument("--test", action="store_true", help="short phases whose gates are reported only, to see that "
                        "everything works")
    course.add_argument("--non-interactive", action="store_true",
                        help="never ask (a curriculum never does; accepted for scripts)")
    course.add_argument("--run-dir", metavar="DIR", help="folder of the new curriculum (default: "
                        "runs/<market-curriculum-utc-id>)")
    course.add_argument("--from", metavar="RUN", dest="source", help="begin after an earlier run's task with its "
                        "policy, instead of at the first phase")
    course.add_argument("--advisor", metavar="KIND|URL", help=ADVISOR + "; of the phases whose task is advised")
    course.add_argument("--phase", metavar="NAME", help="with --from: the phase to begin with")
    course.add_argument("--resume", metavar="DIR", help="go on with a curriculum at the phase and update it was "
                        "stopped in")

    evaluate = commands.add_parser("evaluate", help="evaluate a run's policy against the baselines")
    evaluate.add_argument("run", metavar="RUN")
    evaluate.add_argument("--split", choices=("train", "validation", "test", "all"), default="test",
                          help="sessions to evaluate on (default: test)")
    evaluate.add_argument("--intrabar-grid", action="store_true",
                          help="net profit under each intrabar order and the spread, instead of the table")
    evaluate.add_argument("--cost-grid", action="store_true",
                          help="net profit over commission and slippage and the spread, instead of the table")
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of the table")
    evaluate.add_argument("--advisor", metavar="KIND|URL", help="who advises, instead of the run's own advisor")
    evaluate.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                          help="of that advisor, e.g. --set advisor.options.model=NAME (repeatable)")
    evaluate.add_argument("--seed", type=int, help="one policy of a run with several (default: all; grids need one)")

    data = commands.add_parser("data", help="check or describe market data")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="read and validate files; exit 2 if any of them has a fault")
    check.add_argument("files", nargs="+", metavar="FILE")
    check.add_argument("--market", help="contract symbol (default: ES)")
    check.add_argument("--contract", metavar="FILE", help="your own contract, instead of --market")
    check.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                       help="how to read the files, e.g. --set data.stamp=open --set data.time_zone=UTC")
    describe = actions.add_parser("describe", help="sessions, stops, costs and ambiguous bars of a market")
    describe.add_argument("config", nargs="?")
    _data_options(describe)

    replay = commands.add_parser("replay", help="one session bar by bar: seen, masked, chosen, filled")
    replay.add_argument("run", metavar="RUN")
    replay.add_argument("--session", required=True, metavar="DATE", help="trade date, YYYY-MM-DD")
    replay.add_argument("--seed", type=int, help="which policy, of a run with several")

    advise.add_parser(commands, _data_options)
    ablate.add_parser(commands, _data_options)

    bench = commands.add_parser("bench", help="measure speed and memory; a JSON line on stdout and a file each")
    bench.add_argument("names", nargs="*", metavar="NAME", help="benches (default: all, each in a process of its "
                       "own); an unknown name answers with the list")
    bench.add_argument("--quick", action="store_true", help="small shapes and few repeats, to see that it works; "
                       "written to bench/results/quick unless --out is given")
    bench.add_argument("--compare", type=Path, metavar="FILE", help="an earlier result, or a folder of them: also "
                       "print new against old, and what else differs between the two")
    bench.add_argument("--out", type=Path, metavar="DIR", help="folder of the results (default: bench/results)")
    bench.add_argument("--repeats", type=int, metavar="N", help="repeats of every side (default: 7, at least 5)")
    bench.add_argument("--purejaxrl", type=Path, metavar="DIR", help="your checkout of PureJaxRL, which is no package; "
                       "its side is left out without it")

    doctor = commands.add_parser("doctor", help="examine this machine; every finding has its fix")
    doctor.add_argument("--json", action="store_true", help="print JSON instead of the table")
    doctor.add_argument("--run-dir", metavar="DIR", default="runs", help="folder of runs to examine (default: runs)")
    return parser


def resolve(config: str | None, overrides: Sequence[str], market: str | None, data: str | None,
            test: bool = False, seconds: str | None = None, quotes: str | None = None,
            contract: str | None = None, own_files: bool = False, advisor: str | None = None) -> RunConfig:
    """Configuration of a command: file, then `--test`, `--market`, `--contract`, `--data`, `--seconds`, `--quotes`,
    `--advisor`, then `--set`. own_files: the command reads files of its own, not the bars that the configuration
    names."""
    flags = [*(TEST_OVERRIDES if test else ()), *_data_flags(market, data, contract), *advisor_flags(advisor)]
    chosen = load_config(config or "quickstart", [*flags, *overrides])
    return _completed(chosen, {"file": data, "seconds": seconds, "quotes": quotes, "contract": contract}, own_files)


def _data_flags(market: str | None, data: str | None, contract: str | None) -> list[str]:
    """`--market` and `--data` as overrides. Raises ConfigError for `--contract` beside a market."""
    flags = []
    if market is not None and contract is not None:
        raise ConfigError(f"--market {market} and --contract {contract}: the contract's symbol is the market; give one")
    if market is not None:
        symbol = market.upper()
        flags.append(f"data.market={symbol}")
        flags.append(f"data.source={'bundled' if symbol in BUNDLED else 'synthetic'}")
    if data is not None:
        flags.append("data.source=file")
    return flags


def advisor_flags(advisor: str | None) -> list[str]:
    """`--advisor` as overrides; in quotes, as YAML may read a path or a URL as something else."""
    return [] if advisor is None else [f"advisor.kind={json.dumps(advisor)}"]


def _completed(chosen: RunConfig, given: dict[str, str | None], own_files: bool = False) -> RunConfig:
    """The configuration with the paths that flags gave, and its names looked up. Raises ConfigError, DataError."""
    paths = {key: path for key, path in given.items() if path is not None}
    chosen = _with_data(chosen, paths)  # a path is not YAML: as it is
    if chosen.data.contract is not None:
        from jaxtrade.data.contract_file import load_contract

        chosen = _with_data(chosen, {"market": load_contract(chosen.data.contract).symbol})
    if chosen.data.source == "file" and chosen.data.file is None:
        raise ConfigError("data.source=file: no file given; use --data FILE or set data.file")
    if chosen.env.intrabar == "path" and chosen.data.seconds is None:
        raise ConfigError("env.intrabar=path: no second bars given; use --seconds FILE or set data.seconds")
    check_names(chosen, own_files)
    return chosen


def _with_data(config: RunConfig, values: dict[str, str]) -> RunConfig:
    return config.model_copy(update={"data": config.data.model_copy(update=values)})


def check_names(config: RunConfig, own_files: bool = False) -> None:
    """Market, account preset, reward and features must exist: asked of the tables, before anything heavy loads."""
    from jaxtrade.data.contract_file import contract_of
    from jaxtrade.data.schema import table_columns
    from jaxtrade.env.presets import resolve_account
    from jaxtrade.env.reward_presets import resolve_reward

    contract = contract_of(config.data)
    if config.data.source == "bundled" and not own_files:
        require_bundled(contract.symbol)
    resolve_account(config.account)
    resolve_reward(config.reward)
    table_columns(config.env.features)
    if config.data.source == "file" and not Path(str(config.data.file)).exists():
        raise DataError(f"{config.data.file}: there is no such file; check --data (or data.file)")
    if config.data.seconds is not None and not Path(config.data.seconds).exists():
        raise DataError(f"{config.data.seconds}: there is no such file; check --seconds (or data.seconds)")
    if config.data.quotes is not None and not Path(config.data.quotes).exists():
        raise DataError(f"{config.data.quotes}: there is no such file; check --quotes (or data.quotes)")


def _keep_programs() -> None:
    from jaxtrade.compilation import use_cache

    if problem := use_cache():
        print(f"note: {problem}", file=sys.stderr)


def _train(args: argparse.Namespace) -> int:
    if args.resume:
        clash = [flag for flag, value in (("CONFIG", args.config), ("--set", args.overrides), ("--market", args.market),
                                          ("--contract", args.contract), ("--data", args.data),
                                          ("--seconds", args.seconds), ("--quotes", args.quotes), ("--test", args.test),
                                          ("--run-dir", args.run_dir), ("--from", args.source),
                                          ("--continue", args.onward), ("--advisor", args.advisor))
                 if value]
        if clash:
            raise ConfigError(f"--resume {args.resume}: a resumed run keeps its configuration; drop {', '.join(clash)}")
        rundir.read_run(Path(args.resume))
        from jaxtrade.experiment import resume

        _keep_programs()
        result = resume(Path(args.resume))
        print(result.table)
        return result.exit_code
    if args.onward:
        return _continue(args)
    config = resolve(args.config, args.overrides, args.market, args.data, args.test, args.seconds, args.quotes,
                     args.contract, advisor=args.advisor)
    if args.source:
        rundir.read_run(Path(args.source))
    path = Path(args.run_dir) if args.run_dir else rundir.new_run_path(config.data.market, config.env.task)
    rundir.check_new(path)
    from jaxtrade.experiment import run
    from jaxtrade.source import load_source

    _keep_programs()
    _pin_threads()
    result = run(config, path, load_source(Path(args.source)) if args.source else None)
    print(result.table)
    return result.exit_code


def _pin_threads() -> None:
    """What `experiment.run` does, before loading a source starts JAX: the number of threads changes bits on a CPU."""
    os.environ.setdefault("NPROC", str(os.cpu_count() or 1))


def _continue(args: argparse.Namespace) -> int:
    """A new run from where another one stands: its configuration, its slots and actions, its optimiser's moments."""
    if clash := [flag for flag, value in (("CONFIG", args.config), ("--from", args.source), ("--market", args.market),
                                          ("--contract", args.contract), ("--test", args.test)) if value]:
        raise ConfigError(f"--continue {args.onward}: goes on with that run's configuration; drop {', '.join(clash)} "
                          "(change single keys by --set)")
    source = Path(args.onward)
    rundir.read_run(source)
    config = resolve(str(source / "config.yaml"), ["transfer.moments=true", *args.overrides], None, args.data,
                     seconds=args.seconds, quotes=args.quotes, advisor=args.advisor)
    path = Path(args.run_dir) if args.run_dir else rundir.new_run_path(config.data.market, config.env.task)
    rundir.check_new(path)
    from jaxtrade.experiment import run
    from jaxtrade.source import load_source, require_same

    _keep_programs()
    _pin_threads()
    begun = load_source(source)
    require_same(begun, config)
    result = run(config, path, begun)
    print(result.table)
    return result.exit_code


def _curriculum(args: argparse.Namespace) -> int:
    if args.resume:
        if clash := [flag for flag, value in (("CONFIG", args.config), ("--set", args.overrides), ("--test", args.test),
                                              ("--market", args.market), ("--contract", args.contract),
                                              ("--data", args.data), ("--seconds", args.seconds),
                                              ("--quotes", args.quotes), ("--run-dir", args.run_dir),
                                              ("--from", args.source), ("--phase", args.phase),
                                              ("--advisor", args.advisor)) if value]:
            raise ConfigError(f"--resume {args.resume}: a resumed curriculum keeps its configuration; drop "
                              f"{', '.join(clash)}")
        from jaxtrade.curriculum.config import read_curriculum

        read_curriculum(Path(args.resume))
        from jaxtrade.curriculum.phases import resume_curriculum

        _keep_programs()
        result = resume_curriculum(Path(args.resume))
        print(result.report)
        return result.exit_code
    from jaxtrade.curriculum.config import load_curriculum

    given = {"file": args.data, "seconds": args.seconds, "quotes": args.quotes, "contract": args.contract}
    tested, own = (TEST_OVERRIDES, ["enforce_gates=false"]) if args.test else ((), [])
    course = load_curriculum(args.config or "curriculum", [*own, *args.overrides],
                             [*tested, *_data_flags(args.market, args.data, args.contract)],
                             lambda sections, where: _completed(_advised(sections, where, args.advisor), given))
    if args.source:
        rundir.read_run(Path(args.source))
    market = course.phases[0].config.data.market
    path = Path(args.run_dir) if args.run_dir else rundir.new_run_path(market, "curriculum")
    rundir.check_new(path)
    from jaxtrade.curriculum.phases import run_curriculum

    _keep_programs()
    result = run_curriculum(course, path, Path(args.source) if args.source else None, args.phase)
    print(result.report)
    return result.exit_code


def _advised(sections: Mapping[str, Any], where: str, advisor: str | None) -> RunConfig:
    """A phase's configuration; `--advisor` is for the phases whose task is `advised`."""
    config = make_config(sections, where)
    return config if config.env.task != "advised" else make_config(overridden(sections, advisor_flags(advisor)), where)


def _evaluate(args: argparse.Namespace) -> int:
    rundir.read_run(Path(args.run))
    from jaxtrade.evaluating import evaluate_run, grid_run

    _keep_programs()
    if args.intrabar_grid or args.cost_grid:
        print(grid_run(Path(args.run), args.split, args.intrabar_grid, args.cost_grid, args.json,
                       args.seed, args.advisor, args.overrides))
        return 0
    print(evaluate_run(Path(args.run), args.split, as_json=args.json, seed=args.seed, advisor=args.advisor,
                       overrides=args.overrides))
    return 0


def _data(args: argparse.Namespace) -> int:
    if args.action == "check":
        config, failed = resolve(None, args.overrides, args.market, None, contract=args.contract,
                                 own_files=True), False
        from jaxtrade.data.describe import check

        for name in args.files:
            try:
                print(check(name, config))
            except DataError as error:
                failed = True
                print(f"error: {error}", file=sys.stderr)
        return DataError.exit_code if failed else 0
    config = resolve(args.config, args.overrides, args.market, args.data, seconds=args.seconds, quotes=args.quotes,
                     contract=args.contract)
    from jaxtrade.data.describe import describe_text
    from jaxtrade.data.market import load_market

    print(describe_text(load_market(config), config))
    return 0


def _replay(args: argparse.Namespace) -> int:
    rundir.read_run(Path(args.run))
    from jaxtrade.evaluating import replay_run

    _keep_programs()
    for line in replay_run(Path(args.run), args.session, args.seed):
        print(line)
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from jaxtrade.doctor import main as examine

    return examine([*(["--json"] if args.json else []), "--run-dir", args.run_dir])


def _bench(args: argparse.Namespace) -> int:
    command = bench_module("command")
    return command.run(command.request(args.names, args.quick, args.repeats, args.out, args.compare, args.purejaxrl))


def bench_module(name: str) -> ModuleType:
    """A module of the benches: inside the installed package, or of `bench/` at the top of this source checkout.

    Raises ConfigError where this installation has neither.
    """
    package = Path(__file__).resolve().parent
    if (package / "bench").is_dir():
        return importlib.import_module(f"jaxtrade.bench.{name}")
    root = package.parent
    if not (root / "bench" / "catalogue.py").is_file():
        raise ConfigError(f"the benches are missing: there is neither {package / 'bench'} nor {root / 'bench'}; "
                          "reinstall jaxtrade")
    if str(root) not in sys.path:  # an editable install finds the package without its folder's being on the path
        sys.path.insert(0, str(root))
    return importlib.import_module(f"bench.{name}")


COMMANDS = {"train": _train, "curriculum": _curriculum, "evaluate": _evaluate, "data": _data, "replay": _replay,
            "bench": _bench, "doctor": _doctor, "advise": lambda args: advise.run(args, resolve),
            "ablate": lambda args: ablate.run(args, resolve)}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (0 done, 1 a check failed, 2 usage, config or data, 70 internal, 73 run
    locked, 74 disk, 75 preempted, 76 diverged, 130 Ctrl-C)."""
    args = build_parser().parse_args(argv)
    try:
        return COMMANDS[args.command](args)
    except JaxtradeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output went away: not a fault of the run
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            return _internal(error)
        flag = "--out" if args.command in ("bench", "advise", "ablate") else "--run-dir"
        print(f"error: {error}; free some space, or name another {flag}", file=sys.stderr)
        return DISK_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # anything else is a fault of ours, and is shown whole
        return _internal(error)


def _internal(error: Exception) -> int:
    traceback.print_exception(error)
    print(f"this is a bug in jaxtrade {__version__}; please report the lines above", file=sys.stderr)
    return INTERNAL_ERROR


if __name__ == "__main__":
    sys.exit(main())
