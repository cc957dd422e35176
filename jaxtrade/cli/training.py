"""`jaxtrade train`, `curriculum` and `walkforward`: the rules of their flags, and their handlers.

No heavy library is loaded before the configuration has been checked.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.cli.flags import (
    COMMON,
    NAMES,
    SEED,
    add_flags,
    chosen_folder,
    name_flag,
    new_folder,
    require_unused,
)
from jaxtrade.cli.shared import (
    DATA,
    MARKET,
    QUIET,
    advisor_flags,
    complete_config,
    flag_overrides,
    keep_programs,
    loading,
    named_too,
    print_result,
    refuse,
    refuse_kept,
    resolve,
    screen_of,
)
from jaxtrade.config import RunConfig, apply_overrides, make_config
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.data.nulls.spec import TRAINED_DRAWS, NullSpec, parse_null_spec
from jaxtrade.errors import ConfigError
from jaxtrade.runs import files, rundir
from jaxtrade.runs.agents import (
    FREE,
    FolderChoice,
    how_to_start,
    require_own,
    resumed_config,
)
from jaxtrade.runs.distributed import ProcessFlags, ProcessGroup, explain_loss, find_process_group
from jaxtrade.runs.distributed import join as join_others
from jaxtrade.runs.memory import check_memory
from jaxtrade.runs.plan import RunPlan, plan_new, plan_resumed
from jaxtrade.text import show
from jaxtrade.training.multiprocess import from_main, is_main, process_count

if TYPE_CHECKING:
    from jaxtrade.progress.screen import Screen
    from jaxtrade.runs.stored_run import RunResult


# Flags of a run that several processes train together. Imports no heavy library at load time.

ENGINES = "SLURM, Open MPI, Kubernetes, Kubeflow Trainer and SkyPilot"


def process_flags(parser: ArgumentParser, join_seconds: int, *texts: str) -> None:
    """Add the flags that name the processes of a run, and those of the texts, as a group.

    join_seconds: how long they wait for each other.
    """
    add_flags(
        parser.add_argument_group("several processes (docs/scale.md)"),
        f"""
        --coordinator HOST:PORT  where process 0 listens, for runs of several processes (found by
            itself on {ENGINES})
        --num-processes N : count  how many processes train this run together; 1: this one alone,
            whatever the environment says
        --process-id I : whole  the number of this process, from 0; process 0 writes the run's
            folder
        --join-seconds S [{join_seconds}] : count  how long processes wait for each other at the start
            (default: {join_seconds})
        """,
        *texts,
    )


def read_process_flags(args: Namespace) -> ProcessFlags:
    """Read the flags that name the processes."""
    return ProcessFlags(args.coordinator, args.num_processes, args.process_id)


def join(args: Namespace, processes: ProcessGroup, screen: Screen) -> None:
    """Join the other processes, if there are any and this one has not joined them yet.

    Raises ProcessLostError, ConfigError.
    """
    if processes.alone or process_count() > 1:
        return
    screen.phase("joining", str(processes))
    _results_alone()
    join_others(processes, args.heartbeat_seconds, args.join_seconds)


def _results_alone() -> None:
    """Keep standard output for results.

    What a library writes to its file (gloo prints which processes it has met) goes to standard
    error from now on.
    """
    if sys.stdout is not sys.__stdout__:  # inside another program, which looks after its output
        return
    sys.stdout.flush()
    sys.stdout = os.fdopen(
        os.dup(sys.stdout.fileno()),
        "w",
        buffering=1,
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
    )
    os.dup2(sys.stderr.fileno(), 1)


# Flags that --resume refuses, because the folder holds these settings, and those that --continue
# takes from its source.
_KEPT = (
    "config",
    "overrides",
    "modules",
    *MARKET,
    *NAMES,
    "test",
    "run_dir",
    "source",
    "advisor",
)
_INHERITED = ("config", "source", "market", "contract", "test")


def train(args: Namespace) -> int:
    """Handle `train`. Return the exit code.

    Raises ConfigError, DataError, and the errors of `runs.train.train`.
    """
    plan = _auto(args) if args.auto_resume else _resume(args) if args.resume else _new(args)
    silent = plan.processes.process_id > 0
    if plan.start is FolderChoice.DONE and plan.processes.alone:
        return _report_finished(plan)
    with screen_of(args, silent) as screen:
        if plan.start is FolderChoice.NEW:
            plan = plan.ask_models(
                screen.message
            )  # a server that is absent is told before JAX loads
        screen.phase("loading", "JAX")
        keep_programs()
        join(args, plan.processes, screen)
        if args.auto_resume:  # another process may see the folder later, or earlier
            plan = replace(plan, start=FolderChoice(from_main(partial(str, plan.start))))
            if plan.start is FolderChoice.DONE:
                return _report_finished(plan)
        from jaxtrade.runs.train import train as train_run

        with explain_loss():
            result = train_run(plan, screen)
    return _print_result(result, args, screen)


def _new(args: Namespace, auto: bool = False) -> RunPlan:
    """Plan a new run.

    auto: whether its folder may hold this run already.
    """
    if args.onward:
        refuse(
            args,
            _INHERITED,
            f"--continue {args.onward}: goes on with that run's configuration",
            " (change single keys by --set)",
        )
        source = Path(args.onward)
        located = files.file_values(rundir.read_run(source)[0])
        overrides = [
            f"{key}={json.dumps(value)}"
            for key, value in located.items()
            if key != "advisor.kind" or args.advisor is None
        ]
        config = resolve(
            args,
            later=True,
            config=str(source / "config.yaml"),
            values=rundir.written_values(source),
            overrides=[*overrides, "transfer.moments=true", *args.overrides],
        )
    else:
        source = Path(args.source) if args.source else None
        config = resolve(args, later=True)
    path, processes = chosen_folder(args), find_process_group(read_process_flags(args), os.environ)
    if path is not None and not auto and processes.process_id == 0:
        require_unused(args, path)
    return plan_new(config, path, source, keeps=bool(args.onward), processes=processes)


def _resume(args: Namespace) -> RunPlan:
    refuse_kept(args, (*_KEPT, "onward", "eager"), "run")
    changes = list(args.overrides)
    if args.devices is not None:
        changes.append(f"parallel.devices={args.devices}")
    data = None if args.data is None else Path(args.data)
    return plan_resumed(
        Path(args.resume), changes, data, find_process_group(read_process_flags(args), os.environ)
    )


def _auto(args: Namespace) -> RunPlan:
    """Plan to continue the run in the folder that the command names, or to start it there."""
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
    start = how_to_start(path)
    if start is FolderChoice.NEW:
        plan = _new(args, auto=True)
    else:
        config = resolve(args)
        require_own(config, path)
        plan = plan_resumed(
            path, _free(config), processes=find_process_group(read_process_flags(args), os.environ)
        )
    return replace(plan, start=start, changes=_free(plan.config))


def _free(config: RunConfig) -> tuple[str, ...]:
    """Return the overrides that a continued run is given: the limit of time and the devices."""
    return (
        f"control.wall_clock={json.dumps(config.control.wall_clock)}",
        f"parallel.devices={config.parallel.devices}",
    )


def _report_finished(plan: RunPlan) -> int:
    if is_main():
        show(f"{plan.path}: this run has finished; nothing is left to do")
    return 0


def _print_result(result: RunResult, args: Namespace, screen: Screen) -> int:
    """Print the result of a run, and with `--perf` what was measured of it.

    Return the exit code.

    Of several processes, process 0 prints.
    """
    if not is_main():
        return result.exit_code
    text = result.summary
    if args.perf or args.perf_one:
        from jaxtrade.runs.trainer import lines, performance_info

        text = "\n".join([text, "", *lines(performance_info(result, args.perf_one))])
    print_result(text, screen)
    return result.exit_code


def curriculum(args: Namespace) -> int:
    """Handle `curriculum`. Return the exit code.

    Raises ConfigError, DataError, and the errors of `run_curriculum`.
    """
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
    path = new_folder(args, course.phases[0].config.data.market, "curriculum")
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


def names_advisor(args: Namespace) -> bool:
    """Return whether the user chose the advisor of a curriculum: by a flag, a key, or a file.

    The file is one of their own.
    """
    keys = (override.partition("=")[0] for override in args.overrides)
    return (
        args.advisor is not None
        or any(key.endswith("advisor.kind") for key in keys)
        or args.config not in (None, "curriculum")
    )


def _resume_curriculum(args: Namespace) -> int:
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


def _phase(sections: Mapping[str, Any], where: str, args: Namespace) -> RunConfig:
    """Check and return the configuration of a phase.

    `--advisor` applies to the phases whose task is `advised`. Raises ConfigFaultsError with all
    its faults.
    """
    with named_too(args):
        chosen = make_config(sections, where)
        if chosen.env.task == "advised":
            chosen = make_config(apply_overrides(sections, advisor_flags(args.advisor)), where)
    return complete_config(chosen, args)


# `jaxtrade walkforward`: its flags and its handler. Imports no heavy library at load time.

WALK_KEYS = (
    "mode",
    "train",
    "test",
    "embargo",
    "groups",
    "test_groups",
    "seeds",
)  # flags for keys of the section `walk`


WALKFORWARD = (
    "train folds x seeds as one program, each fold tested on days that it has not seen",
    """
    config?  a YAML file or a shipped configuration (default: quickstart)
    --mode {rolling,anchored,cpcv}  rolling: a training block of fixed length before each test
        block; anchored: all sessions before it; cpcv: combinatorial purged cross-validation
        (default: rolling; key walk.mode)
    --train N : count  training sessions of a fold; of anchored the least (default: 60; key
        walk.train)
    --test N : count  test sessions of a fold (default: 10; key walk.test)
    --embargo N : whole or auto  sessions left out between training and test, beside those that are purged; or
        auto (key walk.embargo)
    --groups N : count  of cpcv: blocks that the sessions form (default: 6; key walk.groups)
    --test-groups K : count  of cpcv: blocks that a fold tests (default: 2; key walk.test_groups)
    --seeds N : count  agents per fold, the same seeds in every fold (default: 10; key walk.seeds)
    """,
    DATA,
    SEED,
    COMMON,
    name_flag("walk-forward"),
    "--non-interactive  has no effect; accepted for scripts (the command never asks)",
    QUIET,
    f"""
    --run-dir DIR  folder of the new walk-forward (default: runs/<market-walkforward-utc-id>)
    --nulls KIND:DRAWS  then train and test all of it again on null markets, and print
        p-values: sign:19 (docs/believe.md); give it again with --resume
    --resume PATH  continue a walk-forward from its newest good checkpoint; of the keys, --set
        takes {FREE[0]} alone
    """,
)


def walkforward(args: Namespace) -> int:
    """Handle `walkforward`. Return the exit code.

    Raises ConfigError, DataError, and the errors of `walk_forward`.
    """
    nulls = None if args.nulls is None else parse_null_spec(args.nulls, TRAINED_DRAWS)
    if args.resume:
        return _resume_walk(args, nulls)
    given = {name: getattr(args, name) for name in WALK_KEYS}
    own = [f"walk.{name}={json.dumps(value)}" for name, value in given.items() if value is not None]
    # Of `train`, --test and --seeds mean something else, so `resolve` must not see them.
    config = resolve(
        args,
        overrides=["walk.on=true", *own, *args.overrides],
        test=False,
        seeds=None,
    )
    check_memory([config])
    path = new_folder(args, set_name(symbols_of(config)), args.command)
    with loading(args) as screen:
        from jaxtrade.runs.walkforward import walk_forward

        result = walk_forward(config, path, screen, nulls)
    print_result(result.table, screen)
    return result.exit_code


def _resume_walk(args: Namespace, nulls: NullSpec | None) -> int:
    kept = ("config", "overrides", "modules", *MARKET, *WALK_KEYS, *NAMES, "run_dir")
    refuse_kept(args, kept, "walk-forward")
    path = Path(args.resume)
    resumed_config(
        rundir.read_run(path)[0], args.overrides
    )  # a wrong value is told before JAX loads
    with loading(args) as screen:
        from jaxtrade.runs.walkforward import resume_walk

        result = resume_walk(
            path,
            None if args.data is None else Path(args.data),
            screen,
            args.overrides,
            nulls,
        )
    print_result(result.table, screen)
    return result.exit_code
