"""`jaxtrade advise`, its flags and where each action is handled, and `jaxtrade ablate advisor`.

Imports no heavy library at load time.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from jaxtrade import interrupt
from jaxtrade.advisor.host.openai import list_models
from jaxtrade.cli.flags import (
    COMMON,
    chosen_folder,
    key_flags,
    name_flag,
    require_unused,
)
from jaxtrade.cli.shared import (
    DATA,
    MARKET,
    QUIET,
    TRUST,
    keep_programs,
    print_result,
    resolve,
    screen_of,
)
from jaxtrade.config import RunConfig
from jaxtrade.config.learners import Q_FUSIONS, Q_LEARNERS, SECTIONS
from jaxtrade.config.service import base_url
from jaxtrade.data.members import require_one
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.runs.memory import check_memory
from jaxtrade.runs.plan import run_all
from jaxtrade.text import align, show

# `jaxtrade advise models`: list the models that a server offers.


def _models(args: Namespace) -> int:
    """List the models that a server offers. Return 0, or 1 if there is none.

    Raises ConfigError where the server cannot be asked.
    """
    try:
        url, options = base_url(args.server)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    key_env = args.key_env
    if key_env is None and args.key_file is None and "key_env" in options:
        key_env = str(options["key_env"])
    found = list_models(url, key_env, args.key_file, args.ca_file)
    if not found:
        show(f"{url} offers no model; load one into the server")
        return 1
    show("\n".join(align([[model.name, model.owner] for model in found], left=(0, 1))))
    return 0


ASKED = (
    "the advisor, instead of advisor.kind: rules, mock:KIND[:NUMBER], recorded:FILE, ollama:NAME, openai:NAME, "
    "vllm:URL, or the URL of a server (with --set advisor.options.model=NAME if it has several models)"
)


MODELS = (
    "list the models that a server offers",
    """
    URL -> server  the server's base URL, such as http://127.0.0.1:8080/v1, or ollama, openai,
        vllm:URL
    --key-env NAME  environment variable that holds the server's key
    --key-file FILE  file that holds the key (mode 0600)
    --ca-file FILE  PEM file of certificates to trust instead of the system's
    """,
)


ASK = (
    "ask about one bar now, and show prompt, answer, verdict and cost; exit 1 if "
    "the answer is no advice",
    "config?  a YAML file or a shipped configuration (default: advised)",
    DATA,
    f"""
    --advisor KIND|URL  {ASKED}
    --at TIME  the bar: an ISO time, in the exchange's zone if it names none (the last bar
        closed then), or a bar's index (default: the last one in training that may be asked
        about)
    --repeat N [1] : count  ask the same question N times (default: 1)
    --json  print JSON instead of text
    """,
)


PRECOMPUTE = (
    "ask about every bar of a split and write a snapshot, usable with advisor.kind=table:FILE",
    "config?  a YAML file or a shipped configuration (default: quickstart)",
    DATA,
    f"""
    --advisor KIND|URL  {ASKED}
    --out FILE.npz ! : Path  the snapshot; a server's answers are kept beside it, and running again
        goes on from them
    --split {{train,validation,test,all}} [all]  sessions whose bars are asked about (default: all)
    --every N [1] : count  every N-th of those bars (default: 1)
    --plan  print what it would ask and cost at most, and stop
    --yes  confirm the plan's cost; required if prices are set
    """,
)


INSPECT = (
    "rows, directions and confidence of a snapshot, a journal or a run",
    """
    PATH : Path  a snapshot (.npz), a journal (.jsonl) or a run
    config?  configuration of the snapshot's market, to print hit rates too (or name the
        market by the flags)
    """,
    DATA,
    "--json  print JSON instead of the table",
)


LOG = (
    "one line per answered bar of a run: direction, confidence, reason, and what followed",
    "RUN : Path  the run's folder",
    TRUST,
    """
    --last N : count  only the last N lines (default: all)
    --data FILE : Path  the run's own bars at another place
    --json  print JSON instead of text
    """,
)


REPLAY = (
    "train a run again from its journal, without an advisor; exit 1 if "
    "any bit of the last state or any figure of the report differs",
    "RUN : Path  the run's folder",
    TRUST,
    "--run-dir DIR : Path  folder of the replay (default: RUN-replay)",
)


ADVISE = (
    "ask an advisor about one bar or many, look at what was answered, or replay a run",
    "action",
    {
        "models": MODELS,
        "ask": ASK,
        "precompute": PRECOMPUTE,
        "inspect": INSPECT,
        "log": LOG,
        "replay": REPLAY,
    },
)


def run(args: Namespace) -> int:
    """Handle `advise`. Return the exit code."""
    actions = {
        "models": _models,
        "ask": _ask,
        "precompute": _precompute,
        "inspect": _inspect,
        "log": _log,
        "replay": _replay,
    }
    return actions[args.action](args)


def _ask(args: Namespace) -> int:
    config = resolve(args, config=args.config or "advised")
    from jaxtrade.cli.ask import ask

    return ask(config, args.at, args.repeat, args.json)


def _inspect(args: Namespace) -> int:
    from jaxtrade.cli.inspection import inspect

    chosen = any(getattr(args, name) for name in ("config", "overrides", *MARKET))
    show(inspect(args.path, resolve(args) if chosen else None, args.json))
    return 0


def _log(args: Namespace) -> int:
    from jaxtrade.cli.inspection import format_journal

    show(format_journal(args.run, args.last, args.data, args.json))
    return 0


def _replay(args: Namespace) -> int:
    from jaxtrade.cli.inspection import replay

    return replay(args.run, args.run_dir or args.run.with_name(f"{args.run.name}-replay"))


def _precompute(args: Namespace) -> int:
    _, config = run_all([lambda: _check_out(args.out), lambda: resolve(args)])
    from jaxtrade.cli.precompute import precompute

    return precompute(config, args)


def _check_out(out: Path) -> None:
    """Check the output file before anything is paid for. Raises ConfigError, StorageError."""
    if out.suffix != ".npz" or out.is_dir():
        raise ConfigError(f"--out {out}: expected a file whose name ends in .npz")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it first")
    rundir.check_place(out.parent, f"--out {out}")


# `jaxtrade ablate advisor`: its flags and its handler. Imports no heavy library at load time.

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


ABLATE = (
    "train the same agents with and without a part, and compare them",
    "part",
    {
        "advisor": (
            "advisors x fusions x seeds, compared day by day with no advice and "
            "with the same advice of other days",
            "config?  a YAML file or a shipped configuration (default: advisor_ablation)",
            DATA,
            COMMON,
            name_flag("ablation"),
            f"""
        --kinds A,B,...  advisors: rules, mock:KIND[:NUMBER][/OTHER], turn[:Q], recorded:FILE,
            table:FILE; none is always among them (default: a matrix of known skill)
        --fusions A,B,...  how the policy uses advice: trust, slots, gate, rules, none (default:
            trust,slots)
        --seeds N : int -> repeats  agents of each kind and fusion (default: train.num_seeds, or {SEEDS}
            where it is 1)
        """,
            QUIET,
            """
        --out DIR : Path  folder of ablation.json, .txt and .png (default: runs/<market-ablation-utc-id>)
        --resume  go on with the ablation in --out (or --name), which was killed; give the other
            flags again
        --test  a small matrix on synthetic bars, to see that everything works
        """,
        )
    },
)


def run_ablation(args: Namespace) -> int:
    """Handle `ablate`.

    Returns 0 for every outcome, because a market may simply offer nothing to gain.

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
    # One program trains all kinds and seeds.
    check_memory([config.replace(train={"num_seeds": len(kinds) * config.train.num_seeds})])
    folder = chosen_folder(args, "out") or rundir.new_run_path(config.data.market, "ablation")
    if args.resume:
        reopen(folder, settings_of(config, kinds, fusions))
    else:
        require_unused(args, folder)
        check_new(folder)
    with screen_of(args) as screen:
        screen.phase("loading", "JAX")
        from jaxtrade.runs.xla_settings import apply_xla_settings

        apply_xla_settings([config])
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
                folder,
                lambda so_far: paths.extend(write(so_far, folder)),
                screen,
            )
        screen.at_end(f"wrote {path}" for path in dict.fromkeys(paths))
    print_result(table(found), screen)
    return 0


def _check_learner(config: RunConfig, fusions: Sequence[str]) -> None:
    """Check that the learner can use advice in every way that is compared, on a single market.

    Raises ConfigError where it cannot, and for a shared market.
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
    """Set the number of seeds: `seeds`, else the configuration's own if above one, else `SEEDS`.

    Raises ConfigError.
    """
    if seeds is not None and not 1 <= seeds <= 1024:
        raise ConfigError(f"--seeds {seeds}: expected 1 to 1024")
    chosen = seeds or (config.train.num_seeds if config.train.num_seeds > 1 else SEEDS)
    return config.replace(train={"num_seeds": chosen})
