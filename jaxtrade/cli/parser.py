"""The command-line parser: every command and flag. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.cli import (
    ablate,
    advise,
    compare,
    completion,
    config_command,
    distributed,
    init,
    launch,
    listing,
    report,
    runs,
    studying,
    walkforward,
    watch,
)
from jaxtrade.cli.flags import agent_options, count_or_all, key_options
from jaxtrade.cli.shared import ADVISOR, data_options, quiet_option, tolerance_option, trust_option
from jaxtrade.cli.suggesting import Parser
from jaxtrade.version import __version__

# Commands that read the folders of runs.
OF_RUNS = (
    "train",
    "walkforward",
    "curriculum",
    "evaluate",
    "report",
    "replay",
    "runs",
    "compare",
    "watch",
)
# Heading -> commands. A command that no group names stands in the last one.
GROUPS = {
    "train": ("train", "walkforward", "curriculum", "launch"),
    "data": ("init", "data"),
    "advisor": ("advise", "ablate"),
    "evaluate": ("evaluate", "replay", "runs", "compare", "report", "watch"),
    "tools": ("menu", "list", "config", "doctor", "bench", "completion"),
}
EPILOG = """most used:
  jaxtrade train quickstart                        train on the bundled week of ES bars and evaluate
  jaxtrade train --market ES --data bars.csv --set data.stamp=open
                                                   train on your own bars
  jaxtrade evaluate runs/NAME                      evaluate a run again

jaxtrade COMMAND --help shows the flags of a command; docs/cli.md explains all of them."""


class GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """A formatter that lists the commands by `GROUPS`."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        known = {choice.dest: choice for choice in action._get_subactions()}
        blocks = []
        self._indent()
        self._action_max_length += (
            self._indent_increment
        )  # computed for commands that are not indented
        for heading, names in grouped(known).items():
            lines = "".join(super(GroupedHelp, self)._format_action(known[name]) for name in names)
            blocks.append(f"  {heading}\n{lines}")
        self._dedent()
        return "\n".join(blocks)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Heading -> the commands of that group, in the order of `GROUPS`. Groups without a command are
    left out.
    """
    left = list(names)
    found = {heading: [name for name in group if name in left] for heading, group in GROUPS.items()}
    placed = [name for group in found.values() for name in group]
    found[list(found)[-1]] += [name for name in left if name not in placed]
    return {heading: group for heading, group in found.items() if group}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser with every command and flag."""
    parser = Parser(
        prog="jaxtrade",
        description="Intraday-trading reinforcement learning in JAX.",
        formatter_class=GroupedHelp,
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"jaxtrade {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    for add_parser in (
        _add_train,
        walkforward.add_parser,
        _add_curriculum,
        _add_evaluate,
        report.add_parser,
        _add_data,
        _add_replay,
        runs.add_parser,
        compare.add_parser,
        watch.add_parser,
        init.add_parser,
        advise.add_parser,
        ablate.add_parser,
        config_command.add_parser,
        listing.add_parser,
        _add_menu,
        launch.add_parser,
        _add_bench,
        _add_doctor,
        completion.add_parser,
    ):
        add_parser(commands)
    for name in OF_RUNS:
        trust_option(commands.choices[name])
    return parser


def refuse_empty(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with an error in usage if a word of the command line, or the value of a flag, is empty:
    no argument may be, and an empty folder would silently be another one."""
    for number, word in enumerate(words, 1):
        if not word.strip() or re.fullmatch(r"--[a-z-]+=\s*", word):
            before = word or (words[number - 2] if number > 1 else "")
            parser.error(
                f"argument {number} is empty{f' ({before.strip()})' if before.strip() else ''}; give it a "
                "value, or leave it out (a variable of the shell may be unset)"
            )


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train", help="train a policy and evaluate it on the held-out sessions"
    )
    train.add_argument(
        "config", nargs="?", help="a YAML file or a shipped configuration (default: quickstart)"
    )
    data_options(train)
    key_options(train, "run")
    agent_options(train)
    train.add_argument(
        "--test", action="store_true", help="a run of about a minute, to see that everything works"
    )
    train.add_argument(
        "--non-interactive",
        action="store_true",
        help="has no effect; accepted for scripts (the command never asks)",
    )
    quiet_option(train)
    train.add_argument(
        "--run-dir",
        metavar="DIR",
        help="directory of the new run (default: runs/<market-task-utc-id>)",
    )
    train.add_argument(
        "--from",
        metavar="RUN",
        dest="source",
        help="start from another run's policy, widened to this "
        "run's slots and actions by name (transfer.*)",
    )
    train.add_argument(
        "--continue",
        metavar="RUN",
        dest="onward",
        help="start from another run's policy, "
        "optimiser state and configuration; --set changes its keys",
    )
    train.add_argument("--advisor", metavar="KIND|URL", help=ADVISOR)
    train.add_argument(
        "--resume",
        metavar="RUN",
        help="continue a run from its newest good checkpoint; of the keys, "
        "--set takes control.wall_clock alone",
    )
    train.add_argument(
        "--perf",
        action="store_true",
        help="also print what was measured of the run: steps per second, "
        "seconds of compilation and of each phase, devices, bytes",
    )
    train.add_argument(
        "--perf-one",
        action="store_true",
        help="as --perf, and time one update with a single environment too, to compare",
    )
    train.add_argument(
        "--devices",
        type=count_or_all,
        metavar="N",
        help="devices to train on, or all that JAX sees; a "
        "CPU counts as N devices (key parallel.devices)",
    )
    train.add_argument(
        "--eager",
        action="store_true",
        help="compile nothing, which is very slow: to find a fault with "
        "print or a debugger (key compute.eager); each update is a chunk of its own",
    )
    distributed.add_options(train)


def _add_curriculum(commands: Any) -> None:
    course = commands.add_parser(
        "curriculum", help="train a policy through several tasks, each phase behind a gate"
    )
    course.add_argument(
        "config", nargs="?", help="a YAML file or a shipped curriculum (default: curriculum)"
    )
    data_options(course)
    key_options(course, "curriculum")
    course.add_argument(
        "--test",
        action="store_true",
        help="short phases whose gates are reported only, to see that everything works",
    )
    course.add_argument(
        "--non-interactive",
        action="store_true",
        help="has no effect; accepted for scripts (the command never asks)",
    )
    quiet_option(course)
    course.add_argument(
        "--run-dir",
        metavar="DIR",
        help="folder of the new curriculum (default: runs/<market-curriculum-utc-id>)",
    )
    course.add_argument(
        "--from",
        metavar="RUN",
        dest="source",
        help="start from an earlier run's policy, at the phase after that run's task",
    )
    course.add_argument(
        "--advisor", metavar="KIND|URL", help=ADVISOR + "; applies to phases whose task is advised"
    )
    course.add_argument("--phase", metavar="NAME", help="with --from: the phase to begin with")
    course.add_argument(
        "--resume",
        metavar="DIR",
        help="continue a curriculum at the phase and update at which it stopped",
    )


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="evaluate a run's policy against the baselines")
    evaluate.add_argument("run", metavar="RUN", help="the run's folder")
    evaluate.add_argument(
        "--split",
        choices=("train", "validation", "test", "all"),
        default="test",
        help="sessions to evaluate on (default: test)",
    )
    evaluate.add_argument(
        "--intrabar-grid",
        action="store_true",
        help="print net profit by intrabar order, and its range, instead of the table",
    )
    evaluate.add_argument(
        "--cost-grid",
        action="store_true",
        help="print net profit at multiples of the run's costs, and its range, instead of the table",
    )
    evaluate.add_argument(
        "--nulls",
        metavar="KIND:DRAWS",
        help="print p-values against null markets instead of the "
        "table: sign:99, sessions:99, phase:99 or martingale:99 (docs/nulls.md)",
    )
    evaluate.add_argument(
        "--latency-grid",
        action="store_true",
        help="print net profit with decisions executed 0 to 3 "
        "bars late, its range, and how many came too late, instead of the table",
    )
    evaluate.add_argument(
        "--attribution",
        action="store_true",
        help="print which parts of its observation the policy "
        "uses, by gradient, permutation and ablation, instead of the table",
    )
    studying.add_options(evaluate)
    quiet_option(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of the table")
    evaluate.add_argument(
        "--advisor", metavar="KIND|URL", help="the advisor, instead of the run's own"
    )
    evaluate.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="a key of that advisor, e.g. --set advisor.options.model=NAME (repeatable)",
    )
    evaluate.add_argument(
        "--data", type=Path, metavar="FILE", help="the run's own bars at another place"
    )
    evaluate.add_argument(
        "--seed", type=int, help="one seed of a run with several (default: all; a grid needs one)"
    )
    evaluate.add_argument(
        "--agent",
        type=int,
        metavar="N",
        help="one agent of a run with several, by its number in agents.json",
    )


def _add_data(commands: Any) -> None:
    data = commands.add_parser("data", help="check or describe market data")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="read and validate files; exit 2 if any of them has a fault"
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="bars: CSV, CSV.gz or Parquet")
    check.add_argument("--market", help="contract symbol (default: ES)")
    check.add_argument("--contract", metavar="FILE", help="your own contract, instead of --market")
    check.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="how to read the files, e.g. --set data.stamp=open --set data.time_zone=UTC",
    )
    tolerance_option(check)
    describe = actions.add_parser(
        "describe", help="sessions, stops, costs and ambiguous bars of a market"
    )
    describe.add_argument(
        "config", nargs="?", help="a YAML file or a shipped configuration (default: quickstart)"
    )
    data_options(describe)


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay", help="one session bar by bar: seen, masked, chosen, filled"
    )
    replay.add_argument("run", metavar="RUN", help="the run's folder")
    replay.add_argument("--session", required=True, metavar="DATE", help="trade date, YYYY-MM-DD")
    replay.add_argument(
        "--data", type=Path, metavar="FILE", help="the run's own bars at another place"
    )
    replay.add_argument("--seed", type=int, help="which policy, of a run with several")
    replay.add_argument(
        "--agent", type=int, metavar="N", help="which policy, by its number in agents.json"
    )
    replay.add_argument("--symbol", help="which symbol, of a run with several")


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench", help="measure speed and memory: a JSON line on stdout and a file per bench"
    )
    bench.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="benches (default: all, each in a process of its "
        "own); an unknown name prints the list",
    )
    bench.add_argument(
        "--quick",
        action="store_true",
        help="small shapes and few repeats, to see that it works; "
        "written to bench/results/quick unless --out is given",
    )
    bench.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="an earlier result, or a folder of them: also "
        "print new against old, and what else differs between the two",
    )
    bench.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the results (default: bench/results)"
    )
    bench.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="repeats of every side (default: 7, at least 5; with --quick default 2)",
    )
    bench.add_argument(
        "--purejaxrl",
        type=Path,
        metavar="DIR",
        help="your checkout of PureJaxRL (it is no "
        "package; docs/benchmarks.md says how to fetch it); without it, that side is left out",
    )
    bench.add_argument(
        "--force",
        action="store_true",
        help="write full results although the machine is not idle "
        "(load average above 0.3, steal time above 1 %% during a side); they are marked",
    )
    bench.add_argument(
        "--code",
        type=Path,
        metavar="DIR",
        help="a checkout of another version, which `versions` compares with this one",
    )
    _add_bench_groups(bench)


def _add_bench_groups(bench: argparse.ArgumentParser) -> None:
    compiled = bench.add_argument_group(
        "of the bench `accelerator`, which compiles for devices that are not here"
    )
    compiled.add_argument(
        "--target",
        action="append",
        dest="targets",
        default=[],
        metavar="NAME",
        help="a device: h200, v5e; may be repeated (default: all)",
    )
    compiled.add_argument(
        "--shape",
        action="append",
        dest="shapes",
        default=[],
        metavar="NAME",
        help="a program: reference, tf32, bfloat16 (the reference in that precision), default, gru, "
        "env, evaluation, dqn, dqn_prioritised, pqn, divided, agents (both over eight devices); may be "
        "repeated (default: all)",
    )
    compiled.add_argument(
        "--install",
        action="store_true",
        help="put the compilers' packages into a folder of their "
        "own first (JAXTRADE_COMPILERS, default in the cache folder; about 1.4 GB for all)",
    )
    suite = bench.add_argument_group(
        "of the bench `device`, which measures a GPU or TPU part by part and goes on "
        "after an interruption"
    )
    suite.add_argument(
        "--part",
        action="append",
        dest="parts",
        default=[],
        metavar="NAME",
        help="correctness, env_step, ppo_train, population, precision, compile, command_buffers, "
        "determinism, memory; may be repeated (default: all)",
    )
    suite.add_argument(
        "--again", action="store_true", help="measure parts too whose result is there already"
    )


def _add_menu(commands: Any) -> None:
    menu = commands.add_parser(
        "menu", help="choose what to do from numbered lists; prints each command that it runs"
    )
    menu.add_argument("--non-interactive", action="store_true", help="refuse, because a menu asks")


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor", help="examine this machine; every problem comes with a fix"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON instead of the table")
    doctor.add_argument(
        "--run-dir", metavar="DIR", default="runs", help="folder of runs to examine (default: runs)"
    )
    doctor.add_argument(
        "--distributed",
        action="store_true",
        help="examine instead the processes that this one would "
        "join for a run: start it in all of them, as the run would be",
    )
    distributed.process_options(doctor, 60)
