"""`jaxtrade ablate advisor`: its flags and its handler. Imports no heavy library at load time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtrade import interrupt
from jaxtrade.cli.flags import chosen_folder, key_flags, key_options, require_unused
from jaxtrade.cli.shared import (
    data_options,
    keep_programs,
    print_result,
    quiet_option,
    resolve,
    screen_of,
)
from jaxtrade.cli.usage import add_flags
from jaxtrade.config import RunConfig
from jaxtrade.config.learners import Q_FUSIONS, Q_LEARNERS, SECTIONS
from jaxtrade.data.members import require_one
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.preflight import check_memory, run_all

SEEDS = 10  # used if neither --seeds nor the configuration asks for more than one
# `--test` takes a few minutes on two cores, with compilation.
TEST_KINDS = "mock:random,mock:shifted/mock:skilled:0.7,mock:skilled:0.7,mock:oracle"
TEST_FUSIONS, TEST_SEEDS = "trust", 3  # fewer seeds have no intervals
TEST_OVERRIDES = (
    "data.source=synthetic",
    "data.synthetic_sessions=14",
    "split.test_sessions=6",
    "rollout.num_envs=32",
    "rollout.num_steps=64",
    "ppo.num_minibatches=4",
    "network.hidden=[32,32]",
    "train.total_timesteps=40_960",
    "train.chunk_updates=5",
)


def add_parser(commands: Any) -> None:
    """Add the parser of `ablate`."""
    ablate = commands.add_parser(
        "ablate", help="train the same agents with and without a part, and compare them"
    )
    parts = ablate.add_subparsers(dest="part", required=True, metavar="PART")
    advisor = parts.add_parser(
        "advisor",
        help="advisors x fusions x seeds, compared day by day with no advice and "
        "with the same advice of other days",
    )
    add_flags(
        advisor, "config?  a YAML file or a shipped configuration (default: advisor_ablation)"
    )
    data_options(advisor)
    key_options(advisor, "ablation", seed=False)
    add_flags(
        advisor,
        f"""
        --kinds A,B,...  advisors: rules, mock:KIND[:NUMBER][/OTHER], turn[:Q], recorded:FILE,
            table:FILE; none is always among them (default: a matrix of known skill)
        --fusions A,B,...  how the policy uses advice: trust, slots, gate, rules, none (default:
            trust,slots)
        --seeds N -> repeats  agents of each kind and fusion (default: train.num_seeds, or {SEEDS}
            where it is 1)
        """,
        repeats=int,
    )
    quiet_option(advisor)
    add_flags(
        advisor,
        """
        --out DIR  folder of ablation.json, .txt and .png (default: runs/<market-ablation-utc-id>)
        --resume  go on with the ablation in --out (or --name), which was killed; give the other
            flags again
        --test  a small matrix on synthetic bars, to see that everything works
        """,
        out=Path,
    )


def run(args: argparse.Namespace) -> int:
    """Handle `ablate`. Returns 0 for every outcome, because a market may simply offer nothing to
    gain.

    Raises ConfigError or DataError before anything is trained.
    """
    from jaxtrade.ablation.folder import BEGIN, check_new, reopen, settings_of
    from jaxtrade.ablation.kinds import parse_fusions, parse_kinds

    # These bars are synthetic even if --market names a market with bundled ones: a week is too
    # short.
    own = [*TEST_OVERRIDES, *(override for _, override in key_flags(args))] if args.test else []
    kinds, fusions, config = run_all(
        [
            lambda: parse_kinds(args.kinds or (TEST_KINDS if args.test else None)),
            lambda: parse_fusions(args.fusions or (TEST_FUSIONS if args.test else None)),
            lambda: with_seeds(
                resolve(
                    args,
                    config=args.config or "advisor_ablation",
                    overrides=[*own, *args.overrides],
                    test=False,
                ),
                TEST_SEEDS if args.repeats is None and args.test else args.repeats,
            ),
        ]
    )
    _check_learner(config, fusions)
    require_one(config, "the ablation")
    if config.sweep.on:
        raise ConfigError(
            "sweep: the ablation compares advisors at equal settings; drop sweep.keys and sweep.settings"
        )
    if config.advisor.panel:
        raise ConfigError(
            "advisor.panel: the ablation compares single advisors, named by --kinds; set "
            "advisor.panel=[] and advisor.kind=none"
        )
    agents = config.train.model_copy(update={"num_seeds": len(kinds) * config.train.num_seeds})
    check_memory(
        [config.model_copy(update={"train": agents})]
    )  # one program trains all kinds and seeds
    folder = chosen_folder(args, "out") or rundir.new_run_path(config.data.market, "ablation")
    if args.resume:
        reopen(folder, settings_of(config, kinds, fusions))
    else:
        require_unused(args, folder)
        check_new(folder)
    with screen_of(args) as screen:
        screen.phase("loading", "JAX")
        from jaxtrade.runs.preflight import settle

        settle([config])
        from jaxtrade.ablation.report import table, write
        from jaxtrade.ablation.run import ablate

        keep_programs()
        paths = list[Path]()
        again = f"continue with the same flags, --out {folder} and --resume"
        with interrupt.hint(lambda: again if (folder / BEGIN).is_file() else ""):
            found = ablate(
                config,
                kinds,
                fusions,
                screen.message,
                lambda so_far: paths.extend(write(so_far, folder)),
                folder,
                screen,
            )
        screen.at_end(f"wrote {path}" for path in dict.fromkeys(paths))
    print_result(table(found), screen)
    return 0


def _check_learner(config: RunConfig, fusions: Sequence[str]) -> None:
    """Raises ConfigError for a learner that cannot use advice in every way that is compared, and
    for a shared market.
    """
    if config.shared.on:
        raise ConfigError(
            "shared.on=true: the ablation compares agents that do not meet; leave it out"
        )
    if config.algorithm not in SECTIONS:
        raise ConfigError(
            f"algorithm={config.algorithm}: the ablation compares ways to use advice (advisor.fusion), "
            f"which a learner of your own does not have; set algorithm to one of {', '.join(SECTIONS)}"
        )
    missing = [
        fusion for fusion in fusions if config.algorithm in Q_LEARNERS and fusion not in Q_FUSIONS
    ]
    if missing:
        raise ConfigError(
            f"--fusions {','.join(fusions)}: {config.algorithm} has no distribution that {missing[0]} "
            f"could change; give --fusions {','.join(Q_FUSIONS)}, or set algorithm=ppo"
        )


def with_seeds(config: RunConfig, seeds: int | None) -> RunConfig:
    """The configuration with the requested number of seeds: `seeds`, else its own if above one,
    else `SEEDS`.

    Raises ConfigError.
    """
    if seeds is not None and not 1 <= seeds <= 1024:
        raise ConfigError(f"--seeds {seeds}: expected 1 to 1024")
    chosen = seeds or (config.train.num_seeds if config.train.num_seeds > 1 else SEEDS)
    return config.model_copy(
        update={"train": config.train.model_copy(update={"num_seeds": chosen})}
    )
