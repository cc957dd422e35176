"""`jaxtrade train` and `jaxtrade curriculum`: the rules of their flags, and their handlers.

No heavy library is loaded before the configuration has been checked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.cli import distributed, flags
from jaxtrade.cli.flags import chosen_folder, new_folder
from jaxtrade.cli.shared import (
    MARKET,
    advisor_flags,
    completed,
    flag_overrides,
    keep_programs,
    loading,
    named_too,
    print_result,
    refuse,
    resolve,
    screen_of,
)
from jaxtrade.config import RunConfig, make_config, overridden
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.errors import ConfigError
from jaxtrade.runs import files, rundir
from jaxtrade.runs.agents import (
    FREE,
    Start,
    changes_bits,
    groups_of,
    how_to_start,
    is_sweep,
    read_sweep,
    require_own,
    resumed_config,
)
from jaxtrade.runs.preflight import check_memory
from jaxtrade.runs.processes import explained
from jaxtrade.text import show
from jaxtrade.training.together import from_main, is_main

if TYPE_CHECKING:
    from jaxtrade.curriculum.config import Curriculum
    from jaxtrade.progress.screen import Screen
    from jaxtrade.runs.processes import Layout
    from jaxtrade.runs.stored import RunResult

# Flags that --resume refuses, because the folder holds these settings, and those that --continue
# takes from its source.
_KEPT = (
    "config",
    "overrides",
    "modules",
    *MARKET,
    *flags.NAMES,
    "test",
    "run_dir",
    "source",
    "advisor",
)
_INHERITED = ("config", "source", "market", "contract", "test")


def train(args: argparse.Namespace) -> int:
    """Handle `train`. Returns the exit code. Raises ConfigError, DataError, and the errors of
    `runs.train.run`.
    """
    if args.auto_resume:
        return _auto_resume(args)
    if args.resume:
        return _resume(args)
    if args.onward:
        return _continue(args)
    config = resolve(args)
    if args.source:
        rundir.read_run(Path(args.source))
    return _begin(args, config, args.source)


def _auto_resume(args: argparse.Namespace) -> int:
    """Continue the run in the folder that the command names, or start it there."""
    refuse(
        args,
        ("resume", "onward"),
        "--auto-resume: starts the run, or continues the one in --run-dir",
    )
    path = chosen_folder(args)
    if path is None:
        raise ConfigError(
            "--auto-resume: the folder of the run is missing; add --run-dir DIR, the same each time"
        )
    config = resolve(args)
    processes = distributed.layout(args, config)
    start = how_to_start(path)
    if start is not Start.NEW:
        require_own(config, path)
    elif args.source:
        rundir.read_run(Path(args.source))
    if processes.alone and start is not Start.DONE:
        return (
            _begin(args, config, args.source, path)
            if start is Start.NEW
            else _go_on(args, path, processes, _limit(config))
        )
    with screen_of(args, processes.process_id > 0) as screen:
        distributed.join(args, processes, screen)
        start = Start(
            from_main(lambda: str(start))
        )  # another one may see the folder later, or earlier
    if start is Start.DONE:
        if is_main():
            show(f"{path}: this run has finished; nothing is left to do")
        return 0
    if start is Start.NEW:
        return _begin(args, config, args.source, path)
    return _go_on(args, path, processes, _limit(config))


def _limit(config: RunConfig) -> list[str]:
    """The limit of time and the devices of a configuration, as what a resumed run may be given."""
    return [
        f"control.wall_clock={json.dumps(config.control.wall_clock)}",
        f"parallel.devices={config.parallel.devices}",
    ]


def _begin(
    args: argparse.Namespace, config: RunConfig, source: str | None, path: Path | None = None
) -> int:
    """Train a new run. source: the path of its source run, if any. path: of its folder, where it
    need not be new.
    """
    groups = groups_of(config)
    check_memory([group.config for group in groups])
    processes = distributed.layout(args, config)
    if processes.process_id == 0:  # the others are told
        if path is None:
            path = new_folder(
                args, set_name(symbols_of(config)), config.env.task if len(groups) == 1 else "sweep"
            )
        else:
            rundir.check_new(path)
    with screen_of(args, processes.process_id > 0) as screen:
        config = with_model(
            config, screen.message
        )  # a server that does not answer is said before JAX loads
        screen.phase("loading", "JAX")
        keep_programs()
        distributed.join(args, processes, screen)
        from jaxtrade.runs.beginning import load_source, require_same
        from jaxtrade.runs.preflight import settle
        from jaxtrade.runs.train import run

        settle(
            [group.config for group in groups]
        )  # must precede JAX, which loading a source starts
        loaded = load_source(Path(source)) if source else None
        if loaded is not None and args.onward:
            require_same(loaded, config)
        with explained():
            result = run(config, path, loaded, screen)
    return _ended(result, args, screen)


def _ended(result: RunResult, args: argparse.Namespace, screen: Screen) -> int:
    """Print the result of a run, and with `--perf` what was measured of it. Returns the exit code.

    Of several processes, process 0 prints.
    """
    if not is_main():
        return result.exit_code
    text = result.table
    if args.perf or args.perf_one:
        from jaxtrade.runs.training_job import lines, performance_info

        text = "\n".join([text, "", *lines(performance_info(result, args.perf_one))])
    print_result(text, screen)
    return result.exit_code


def _resume(args: argparse.Namespace) -> int:
    refused = changes_bits(args.overrides)
    kept = [
        name
        for name in (*_KEPT, "onward", "eager")
        if name != "data" and (refused or name != "overrides")
    ]
    refuse(
        args,
        kept,
        f"--resume {args.resume}: a resumed run keeps its configuration"
        f"{', except ' + ', '.join(FREE) if refused else ''}",
    )
    path = Path(args.resume)
    config = read_sweep(path) if is_sweep(path) else rundir.read_run(path)[0]
    if args.devices is not None:
        args.overrides = [*args.overrides, f"parallel.devices={args.devices}"]
    config = resumed_config(config, args.overrides)  # a wrong value is told before JAX loads
    return _go_on(args, path, distributed.layout(args, config), args.overrides)


def _go_on(
    args: argparse.Namespace, path: Path, processes: Layout, overrides: Sequence[str]
) -> int:
    """Continue the run at `path`. overrides: what it may be given anew."""
    data = Path(args.data) if args.resume and args.data is not None else None
    with loading(args, processes.process_id > 0) as screen:
        distributed.join(args, processes, screen)
        from jaxtrade.runs.train import resume

        with explained():
            result = resume(path, data, screen, overrides)
    return _ended(result, args, screen)


def _continue(args: argparse.Namespace) -> int:
    """Train a new run that continues another one, with its configuration, slots, actions and
    optimiser moments.
    """
    refuse(
        args,
        _INHERITED,
        f"--continue {args.onward}: goes on with that run's configuration",
        " (change single keys by --set)",
    )
    source = Path(args.onward)
    located = files.values(rundir.read_run(source)[0])
    overrides = [
        f"{key}={json.dumps(value)}"
        for key, value in located.items()
        if key != "advisor.kind" or args.advisor is None
    ]
    config = resolve(
        args,
        config=str(source / "config.yaml"),
        values=rundir.written_values(source),
        overrides=[*overrides, "transfer.moments=true", *args.overrides],
    )
    return _begin(args, config, args.onward)


def curriculum(args: argparse.Namespace) -> int:
    """Handle `curriculum`. Returns the exit code. Raises ConfigError, DataError, and the errors of
    `run_curriculum`."""
    if args.resume:
        return _resume_curriculum(args)
    from jaxtrade.curriculum.config import load_curriculum

    own = ["enforce_gates=false"] if args.test else []
    given = [
        override for flag, override in flag_overrides(args) if flag != "--advisor"
    ]  # not of every phase
    course = load_curriculum(
        args.config or "curriculum",
        [*own, *args.overrides],
        given,
        lambda sections, where: _phase(sections, where, args),
    )
    if args.source:
        rundir.read_run(Path(args.source))
    check_memory([phase.config for phase in course.phases])
    path = new_folder(args, market_of(course), "curriculum")
    with loading(args) as screen:
        from jaxtrade.curriculum.phases import run_curriculum

        result = run_curriculum(
            course,
            path,
            Path(args.source) if args.source else None,
            args.phase,
            screen,
            optional=not names_advisor(args),
        )
    print_result(result.report, screen)
    return result.exit_code


def names_advisor(args: argparse.Namespace) -> bool:
    """Whether the user chose the advisor of a curriculum: by a flag, a key, or a file of their
    own.
    """
    keys = (override.partition("=")[0] for override in args.overrides)
    return (
        args.advisor is not None
        or any(key.endswith("advisor.kind") for key in keys)
        or args.config not in (None, "curriculum")
    )


def market_of(course: Curriculum) -> str:
    """The symbol that the folder of a curriculum is named after."""
    return course.phases[0].config.data.market


def _resume_curriculum(args: argparse.Namespace) -> int:
    refuse(
        args,
        (*_KEPT, "phase"),
        f"--resume {args.resume}: a resumed curriculum keeps its configuration",
    )
    from jaxtrade.curriculum.config import read_curriculum

    read_curriculum(Path(args.resume))
    with loading(args) as screen:
        from jaxtrade.curriculum.phases import resume_curriculum

        result = resume_curriculum(Path(args.resume), screen)
    print_result(result.report, screen)
    return result.exit_code


def _phase(sections: Mapping[str, Any], where: str, args: argparse.Namespace) -> RunConfig:
    """The checked configuration of a phase. Raises ConfigFaultsError with all its faults."""
    with named_too(args):
        chosen = _advised(sections, where, args.advisor)
    return completed(chosen, args)


def _advised(sections: Mapping[str, Any], where: str, advisor: str | None) -> RunConfig:
    """The configuration of a phase. `--advisor` applies to the phases whose task is `advised`."""
    config = make_config(sections, where)
    return (
        config
        if config.env.task != "advised"
        else make_config(overridden(sections, advisor_flags(advisor)), where)
    )
