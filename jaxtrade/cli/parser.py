"""The command-line parser: every command and flag. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

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
from jaxtrade.cli.flags import AGENTS, COMMON, SEED, add_commands, add_flags, name_flag
from jaxtrade.cli.shared import ADVISOR, DATA, MODULES, QUIET, TOLERANCE, TRUST
from jaxtrade.config.faults import last_part
from jaxtrade.config.learners import LEARNER, SECTIONS
from jaxtrade.config.load import keys_named
from jaxtrade.config.sb3 import INSTEAD
from jaxtrade.runs.distributed import HEARTBEAT_S, JOIN_S
from jaxtrade.text import did_you_mean
from jaxtrade.version import __version__

# An argument parser that suggests the command or flag that was probably meant. Imports no heavy
# library.

_CHOICE = re.compile(r"invalid choice: '?([^'\s]*)'? \(choose from (.*)\)$")


def key_of_flag(flag: str) -> str:
    """Suggest the configuration key that has the name of an unknown flag, as the end of a message.

    Returns nothing if no key has it.

    A key that several learners have is named `learner.KEY`, which is that of the chosen learner.
    """
    name = flag.removeprefix("--").replace("-", "_")
    if name in INSTEAD:
        return f"; {flag}: {INSTEAD[name]}"
    found = keys_named(name)
    last = {last_part(key) for key in found}
    if len(found) > 1 and len(last) == 1 and all(key.split(".")[0] in SECTIONS for key in found):
        found = [f"{LEARNER}.{last.pop()}"]
    return f"; set the key: --set {'=VALUE or --set '.join(found)}=VALUE" if found else ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors about a mistyped command or flag name the nearest one.

    Exit code 2, as usual.

    An error is one line: the usage of a command with many flags would hide it. A flag is not
    completed: `--timestep` is a mistake and not `--timesteps`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        found = _CHOICE.search(message)
        if found is not None:
            message += did_you_mean(found[1], re.findall(r"[\w-]+", found[2]), "")
        elif message.endswith("required: COMMAND"):
            super().error(f"give a command; `{self.prog} --help` lists them")
        if "--help" not in message:
            message += f" (see {self.prog} --help)"
        self.exit(2, f"error: {message}\n")

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse as ArgumentParser does, but let a command refuse unknown flags itself.

        It knows which ones it has.
        """
        known, others = super().parse_known_args(args, namespace)
        flags = [word.partition("=")[0] for word in others if word.startswith("-")]
        if flags and self._subparsers is None:
            hint = key_of_flag(flags[0]) if {"overrides", "algorithm"} <= vars(known).keys() else ""
            known_flags = [name for name in self._option_string_actions if name[:2] == "--"]
            hint = hint or did_you_mean(flags[0], known_flags, "")
            self.error(f"there is no flag {', '.join(flags)}{hint}")
        return known, others


# Commands that read the folders of runs.
OF_RUNS = (
    "train",
    "walkforward",
    "curriculum",
    "evaluate",
    "report",
    "export",
    "replay",
    "decide",
    "paper",
    "certify",
    "runs",
    "compare",
    "watch",
)
# Heading -> commands, each in one group.
GROUPS = {
    "train": ("train", "walkforward", "curriculum", "launch"),
    "data": ("init", "data"),
    "advisor": ("advise", "ablate"),
    "evaluate": ("evaluate", "replay", "runs", "compare", "report", "watch"),
    "deploy": ("export", "decide", "paper", "certify"),
    "tools": ("menu", "list", "config", "doctor", "bench", "completion"),
}
EPILOG = """most used:
  jaxtrade train quickstart                        train on the bundled week of ES bars and evaluate
  jaxtrade train --market ES --data bars.csv --set data.stamp=open
                                                   train on your own bars
  jaxtrade evaluate runs/NAME                      evaluate a run again

jaxtrade COMMAND --help explains the flags of a command; docs/cli.md has common jobs and exit codes."""


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
        for heading, names in GROUPS.items():
            lines = "".join(super(GroupedHelp, self)._format_action(known[name]) for name in names)
            blocks.append(f"  {heading}\n{lines}")
        self._dedent()
        return "\n".join(blocks)


TRAIN = (
    "train a policy and evaluate it on the held-out sessions",
    "config?  a YAML file or a shipped configuration (default: quickstart)",
    DATA,
    SEED,
    COMMON,
    name_flag("run"),
    AGENTS,
    """
    --test  a run of about a minute, to see that everything works
    --non-interactive  has no effect; accepted for scripts (the command never asks)
    """,
    QUIET,
    f"""
    --run-dir DIR  directory of the new run (default: runs/<market-task-utc-id>)
    --from RUN -> source  start from another run's policy, widened to this run's slots and
        actions by name (transfer.*)
    --continue RUN -> onward  start from another run's policy, optimiser state and
        configuration; --set changes its keys
    --advisor KIND|URL  {ADVISOR}
    --resume RUN  continue a run from its newest good checkpoint; of the keys, --set takes
        control.wall_clock alone
    --perf  also print what was measured of the run: steps per second, seconds of compilation
        and of each phase, devices, bytes
    --perf-one  as --perf, and time one update with a single environment too, to compare
    --devices N : count or all or auto  devices to train on, or all that JAX sees; a CPU counts as N devices (key
        parallel.devices)
    --eager  compile nothing, which is very slow: to find a fault with print or a debugger
        (key compute.eager); each update is a chunk of its own
    --auto-resume  continue the run in --run-dir if there is one, else start it; the same
        command again and again is right
    """,
)


CURRICULUM = (
    "train a policy through several tasks, each phase behind a gate",
    "config?  a YAML file or a shipped curriculum (default: curriculum)",
    DATA,
    SEED,
    COMMON,
    name_flag("curriculum"),
    """
    --test  short phases whose gates are reported only, to see that everything works
    --non-interactive  has no effect; accepted for scripts (the command never asks)
    """,
    QUIET,
    f"""
    --run-dir DIR  folder of the new curriculum (default: runs/<market-curriculum-utc-id>)
    --from RUN -> source  start from an earlier run's policy, at the phase after that run's
        task
    --advisor KIND|URL  {ADVISOR}; applies to phases whose task is advised
    --phase NAME  with --from: the phase to begin with
    --resume DIR  continue a curriculum at the phase and update at which it stopped
    """,
)


EVALUATE = (
    "evaluate a run's policy against the baselines",
    """
    RUN  the run's folder
    --split {train,validation,test,all}  sessions to evaluate on (default: test)
    --on FILE : Path  evaluate on new bars instead, without the days that the run was trained or
        chosen on; for a run on several symbols a folder with a file of each
    --from DATE -> first_day  with --on: the first trade date to evaluate, YYYY-MM-DD
    --to DATE -> last_day  with --on: the last one
    --allow-overlap  with --on: keep the days that the run was trained or chosen on, and label the
        result in sample
    --intrabar-grid  print net profit by intrabar order, and its range, instead of the table
    --cost-grid  print net profit at multiples of the run's costs, and its range, instead of
        the table
    --nulls KIND:DRAWS  print p-values against null markets instead of the table: sign:99,
        sessions:99, phase:99 or martingale:99 (docs/believe.md)
    --latency-grid  print net profit with decisions executed 0 to 3 bars late, its range, and
        how many came too late, instead of the table
    --attribution  print which parts of its observation the policy uses, by gradient,
        permutation and ablation, instead of the table
    """,
    runs.STUDIES,
    MODULES,
    QUIET,
    """
    --json  print JSON instead of the table
    --advisor KIND|URL  the advisor, instead of the run's own
    --set KEY=VALUE ... -> overrides  a key of that advisor, e.g. --set
        advisor.options.model=NAME; with --on, how its file is read, e.g. --set
        data.market=GBPUSD (repeatable)
    --account NAME[,NAME]  evaluate under the rules of other accounts, one after the other, without
        training again: presets, or YAML files with account keys; only where env.task does not show
        the account
    --data FILE : Path  the run's own bars at another place
    --seed SEED : int  one seed of a run with several (default: all; a grid needs one)
    --agent N : int  one agent of a run with several, by its number in agents.json
    """,
)


MARKET_DATA = (
    "check, join or describe market data",
    "action",
    {
        "check": (
            "read and validate files; exit 2 if any of them has a fault",
            """
            FILE+ -> files  bars (CSV, CSV.gz or Parquet), or the YAML file of a configuration that
                reads them
            --market MARKET  contract symbol (default: ES)
            --contract FILE  your own contract, instead of --market
            --set KEY=VALUE ... -> overrides  how to read the files, e.g. --set data.stamp=open --set
                data.time_zone=UTC
            """,
            TOLERANCE,
        ),
        "append": (
            "join a later export of an instrument to an earlier one, after comparing where they overlap",
            """
            OLD : Path  the earlier export (CSV, CSV.gz or Parquet)
            NEW : Path  the later one, in the same format
            config?  a YAML file whose keys read both
            --out FILE ! : Path  the whole; OLD itself is replaced by it, and no other file that exists
            --market MARKET  contract symbol (default: ES)
            --contract FILE  your own contract, instead of --market
            --set KEY=VALUE ... -> overrides  how to read the files, e.g. --set data.time_zone=UTC
            """,
        ),
        "describe": (
            "sessions, stops, costs and ambiguous bars of a market",
            "config?  a YAML file, a shipped configuration, or a file of bars as with --data (default: quickstart)",
            DATA,
        ),
    },
)


REPLAY = (
    "one session bar by bar: seen, masked, chosen, filled",
    """
    RUN  the run's folder
    --session DATE !  trade date, YYYY-MM-DD
    --data FILE : Path  the run's own bars at another place
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --symbol SYMBOL  which symbol, of a run with several
    """,
    MODULES,
)


BENCH = (
    "measure speed and memory: a JSON line on stdout and a file per bench",
    """
    NAME* -> names  benches (default: all, each in a process of its own); an unknown name
        prints the list
    --quick  small shapes and few repeats, to see that it works; written to
        bench/results/quick unless --out is given
    --compare FILE : Path  an earlier result, or a folder of them: also print new against old, and
        what else differs between the two
    --out DIR : Path  folder of the results (default: bench/results)
    --repeats N : int  repeats of every side (default: 7, at least 5; with --quick default 2)
    --purejaxrl DIR : Path  your checkout of PureJaxRL (it is no package; docs/benchmarks.md says how
        to fetch it); without it, that side is left out
    --force  write full results although the machine is not idle (load average above 0.3,
        steal time above 1 %% during a side); they are marked
    --code DIR : Path  a checkout of another version, which `versions` compares with this one
    """,
)


def _add_bench_groups(bench: argparse.ArgumentParser) -> None:
    compiled = bench.add_argument_group(
        "of the bench `accelerator`, which compiles for devices that are not here"
    )
    add_flags(
        compiled,
        """
        --target NAME ... -> targets  a device: h200, v5e; may be repeated (default: all)
        --shape NAME ... -> shapes  a program: reference, tf32, bfloat16 (the reference in that
            precision), default, gru, env, evaluation, dqn, dqn_prioritised, pqn, divided, agents
            (both over eight devices); may be repeated (default: all)
        --install  put the compilers' packages into a folder of their own first
            (JAXTRADE_COMPILERS, default in the cache folder; about 1.4 GB for all)
        """,
    )
    suite = bench.add_argument_group(
        "of the bench `device`, which measures a GPU or TPU part by part and goes on "
        "after an interruption"
    )
    add_flags(
        suite,
        """
        --part NAME ... -> parts  correctness, env_step, ppo_train, population, precision, compile,
            command_buffers, determinism, memory; may be repeated (default: all)
        --again  measure parts too whose result is there already
        """,
    )


MENU = (
    "choose what to do from numbered lists; prints each command that it runs",
    "--non-interactive  refuse, because a menu asks",
)


DOCTOR = (
    "examine this machine; every problem comes with a fix",
    """
    --json  print JSON instead of the table
    --run-dir DIR [runs]  folder of runs to examine (default: runs)
    --distributed  examine instead the processes that this one would join for a run: start it
        in all of them, as the run would be
    """,
)


COMMANDS = {
    "train": TRAIN,
    "walkforward": training.WALKFORWARD,
    "curriculum": CURRICULUM,
    "evaluate": EVALUATE,
    "report": runs.REPORT,
    "export": (*runs.EXPORT, MODULES, QUIET),
    "data": MARKET_DATA,
    "replay": REPLAY,
    "decide": decide.DECIDE,
    "paper": paper.PAPER,
    "certify": certify.CERTIFY,
    "runs": runs.RUNS,
    "compare": runs.COMPARE,
    "watch": runs.WATCH,
    "init": init.INIT,
    "advise": advise.ADVISE,
    "ablate": advise.ABLATE,
    "config": config_command.CONFIG,
    "list": listing.LIST,
    "menu": MENU,
    "launch": launch.LAUNCH,
    "bench": BENCH,
    "doctor": DOCTOR,
    "completion": listing.COMPLETION,
}


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
    add_commands(commands, COMMANDS)
    training.process_flags(
        commands.choices["train"],
        JOIN_S,
        f"""
        --heartbeat-seconds S [{HEARTBEAT_S}] : count  silence after which a process counts as dead, and
            the others end (default: {HEARTBEAT_S})
        """,
    )
    training.process_flags(commands.choices["doctor"], 60)
    _add_bench_groups(commands.choices["bench"])
    for name in OF_RUNS:
        add_flags(commands.choices[name], TRUST)
    return parser


def refuse_empty(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with an error in usage if a word of the command line, or the value of a flag, is empty.

    No argument may be, and an empty folder would silently be another one.
    """
    for number, word in enumerate(words, 1):
        if not word.strip() or re.fullmatch(r"--[a-z-]+=\s*", word):
            before = word or (words[number - 2] if number > 1 else "")
            parser.error(
                f"argument {number} is empty{f' ({before.strip()})' if before.strip() else ''}; give it a "
                "value, or leave it out (a variable of the shell may be unset)"
            )
