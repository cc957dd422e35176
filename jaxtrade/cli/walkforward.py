"""`jaxtrade walkforward`: its flags and its handler. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from jaxtrade.cli import flags
from jaxtrade.cli.flags import count, new_folder, whole
from jaxtrade.cli.shared import (
    MARKET,
    data_options,
    loading,
    print_result,
    quiet_option,
    refuse,
    resolve,
)
from jaxtrade.cli.usage import add_command, add_flags
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.data.nulls.spec import TRAINED_DRAWS, NullSpec, parse_null_spec
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import FREE, changes_bits, resumed_config
from jaxtrade.runs.preflight import check_memory

KEYS = (
    "mode",
    "train",
    "test",
    "embargo",
    "groups",
    "test_groups",
    "seeds",
)  # flags for keys of the section `walk`


def embargo(text: str) -> int | str:
    """A whole number of at least 0, or `auto`, for argparse. Raises ArgumentTypeError for any other
    text.
    """
    return text if text == "auto" else whole(text)


def add_parser(commands: Any) -> None:
    """Add the parser of `walkforward`."""
    walk = add_command(
        commands,
        "walkforward",
        "train folds x seeds as one program, each fold tested on days that it has not seen",
        """
        config?  a YAML file or a shipped configuration (default: quickstart)
        --mode {rolling,anchored,cpcv}  rolling: a training block of fixed length before each test
            block; anchored: all sessions before it; cpcv: combinatorial purged cross-validation
            (default: rolling; key walk.mode)
        --train N  training sessions of a fold; of anchored the least (default: 60; key
            walk.train)
        --test N  test sessions of a fold (default: 10; key walk.test)
        --embargo N  sessions left out between training and test, beside those that are purged; or
            auto (key walk.embargo)
        --groups N  of cpcv: blocks that the sessions form (default: 6; key walk.groups)
        --test-groups K  of cpcv: blocks that a fold tests (default: 2; key walk.test_groups)
        --seeds N  agents per fold, the same seeds in every fold (default: 10; key walk.seeds)
        """,
        train=count,
        test=count,
        embargo=embargo,
        groups=count,
        test_groups=count,
        seeds=count,
    )
    data_options(walk)
    flags.key_options(walk, "walk-forward")
    add_flags(
        walk, "--non-interactive  has no effect; accepted for scripts (the command never asks)"
    )
    quiet_option(walk)
    add_flags(
        walk,
        f"""
        --run-dir DIR  folder of the new walk-forward (default: runs/<market-walkforward-utc-id>)
        --nulls KIND:DRAWS  then train and test all of it again on null markets, and print
            p-values: sign:19 (docs/nulls.md); give it again with --resume
        --resume PATH  continue a walk-forward from its newest good checkpoint; of the keys, --set
            takes {FREE[0]} alone
        """,
    )


def run(args: argparse.Namespace) -> int:
    """Handle `walkforward`. Returns the exit code. Raises ConfigError, DataError, and the errors of
    `walk_forward`.
    """
    nulls = None if args.nulls is None else parse_null_spec(args.nulls, TRAINED_DRAWS)
    if args.resume:
        return _resume(args, nulls)
    # Of `train`, --test and --seeds mean something else, so `resolve` must not see them.
    config = resolve(
        args,
        overrides=["walk.on=true", *walk_overrides(args), *args.overrides],
        test=False,
        seeds=None,
    )
    check_memory([config])
    path = new_folder(args, set_name(symbols_of(config)), args.command)
    with loading(args) as screen:
        from jaxtrade.runs.walkforward.run import walk_forward

        result = walk_forward(config, path, screen, nulls)
    print_result(result.table, screen)
    return result.exit_code


def walk_overrides(args: argparse.Namespace) -> list[str]:
    """The flags of the section `walk` as overrides."""
    return [
        f"walk.{name}={json.dumps(value)}"
        for name in KEYS
        if (value := getattr(args, name)) is not None
    ]


def _resume(args: argparse.Namespace, nulls: NullSpec | None) -> int:
    refused = changes_bits(args.overrides)
    kept = dict.fromkeys(
        ("config", "overrides", "modules", *MARKET, *KEYS, *flags.NAMES, "run_dir")
    )
    refuse(
        args,
        [name for name in kept if name != "data" and (refused or name != "overrides")],
        f"--resume {args.resume}: a resumed walk-forward keeps its configuration"
        f"{', except ' + ', '.join(FREE) if refused else ''}",
    )
    path = Path(args.resume)
    resumed_config(
        rundir.read_run(path)[0], args.overrides
    )  # a wrong value is told before JAX loads
    with loading(args) as screen:
        from jaxtrade.runs.walkforward.run import resume_walk

        result = resume_walk(
            path,
            None if args.data is None else Path(args.data),
            screen,
            args.overrides,
            nulls,
        )
    print_result(result.table, screen)
    return result.exit_code
