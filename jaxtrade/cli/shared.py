"""Code that commands share: flags, the configuration made of them, and the program cache.

Imports no heavy library at load time.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from pydantic import ValidationError

from jaxtrade.cli import flags
from jaxtrade.config import RunConfig, apply_overrides, load_config, make_config, origins_of
from jaxtrade.data.contracts import BUNDLED, load_contract
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError
from jaxtrade.progress.screen import Plain, Screen, Warnings, can_show_panel
from jaxtrade.runs.agents import FREE, changes_bits
from jaxtrade.runs.plan import check, check_names
from jaxtrade.text import printable, show

TOLERANCES = ("seconds_tolerance", "quotes_tolerance")
MARKET = (
    "market",
    "contract",
    "data",
    "seconds",
    "quotes",
    *TOLERANCES,
)  # flags that choose the bars
ADVISOR = (
    "the advisor: rules, mock:skilled:0.6, the URL of an OpenAI-compatible server (with --set "
    "advisor.options.model=NAME if it has several models), ollama:NAME, openai:NAME, "
    "vllm:URL, table:FILE, none, ... (docs/advisor.md)"
)
# `--test` takes about a minute on two cores, with compilation.
TEST_OVERRIDES = (
    "data.synthetic_sessions=10",
    "rollout.num_envs=64",
    "rollout.num_steps=32",
    "ppo.num_minibatches=auto",
    "pqn.num_minibatches=auto",
    "train.total_timesteps=200_000",
    "train.chunk_updates=5",
)
# Without jit an update takes seconds to minutes: each is a chunk, and a checkpoint, so that little
# is lost by Ctrl-C.
EAGER_OVERRIDES = ("compute.eager=true", "train.chunk_updates=1", "train.checkpoint_every=1")
FATAL_ONLY = "3"  # of XLA's messages
# Key of `data` -> the flag that sets it as it is.
PATHS = {"file": "data", "seconds": "seconds", "quotes": "quotes", "contract": "contract"}
ABSENT = {
    "config": None,
    "overrides": (),
    **dict.fromkeys((*MARKET, *flags.NAMES)),
    "test": False,
    "advisor": None,
    "modules": (),
    "eager": False,
}
_WRITTEN = {
    "config": "CONFIG",
    "overrides": "--set",
    "source": "--from",
    "onward": "--continue",
    "first_day": "--from",
    "last_day": "--to",
    "modules": "--import",
}


# `--quotes-tolerance` applies to a file with bid and ask as well as to `--quotes`.
TOLERANCE = (
    "--quotes-tolerance FRACTION  largest share of bars that may lack a bid or an ask (default "
    "0.01); these bars are left out, and counted"
)
# `--set` and the flags that name a market.
DATA = f"""
    --set KEY=VALUE ... -> overrides  set a configuration key, e.g. --set rollout.num_envs=1024
        (repeatable)
    --import MODULE ... -> modules  import a module that registers parts of your own (a task, a
        reward term, a feature, a network, ...) before the configuration is read (repeatable); the
        run remembers it
    --market MARKET  contract symbol, e.g. NQ; bars are bundled for {", ".join(BUNDLED)}, synthetic for others
        unless --data is given
    --contract FILE  your own contract instead of --market: a YAML file of its figures, or a
        shipped one such as SPY
    --data FILE  your bars: CSV, CSV.gz or Parquet; state the stamp side with --set
        data.stamp=open (or close), and data.time_zone where stamps carry no offset
    --seconds FILE  second bars of the same instrument, read with the same keys as --data: they
        must rebuild its bars, and allow --set env.intrabar=path
    --quotes FILE  bid and ask bars of the same instrument, read with the same keys as --data:
        fills take the quotes, volume stays that of --data
    --seconds-tolerance FRACTION  largest share of bars that their seconds may fail to rebuild
        (default 0.001); these bars are resolved stop_first, and counted
    {TOLERANCE}
    """
TRUST = """
    --trust-imports  import the modules that a run's configuration names, although they are not
        known to be yours: they are code (docs/run_folder.md)
    """
MODULES = """
    --import MODULE ... -> modules  import a module that registers parts of your own first, and
        trust it: for a run that does not name it (repeatable)
    """
QUIET = "--quiet  show only how long training compiles, warnings, errors and the result"


def refuse(args: Namespace, names: Sequence[str], why: str, hint: str = "") -> None:
    """Raise ConfigError if any of some flags was given.

    names: their attributes in `args`, which may lack some.
    """
    # A flag that was not given is None, False or an empty list; 0 is a value.
    present = [
        name
        for name in names
        if (value := getattr(args, name, None)) is not None and value is not False and value != []
    ]
    if given := [_WRITTEN.get(name, f"--{name.replace('_', '-')}") for name in present]:
        raise ConfigError(f"{why}; drop {', '.join(given)}{hint}")


def refuse_kept(args: Namespace, names: Iterable[str], what: str) -> None:
    """Raise ConfigError if `--resume` of a run comes with one of some flags that its folder keeps.

    `--data` may come, and `--set` of the keys that it may be given anew.

    what: the word for the run.
    """
    refused = changes_bits(args.overrides)
    refuse(
        args,
        [
            name
            for name in dict.fromkeys(names)
            if name != "data" and (refused or name != "overrides")
        ],
        f"--resume {args.resume}: a resumed {what} keeps its configuration"
        f"{', except ' + ', '.join(FREE) if refused else ''}",
    )


def resolve(
    args: Namespace,
    own_files: bool = False,
    training: bool = True,
    later: bool = False,
    **instead: Any,
) -> RunConfig:
    """Resolve the configuration of a command.

    Later sources override earlier ones: the file, then `--test`, then the other flags,
    then `--set`.

    Args:
        args: flags that the command does not have count as absent.
        own_files: whether the command reads its own files instead of the bars that the
            configuration names.
        training: whether the command needs an account and held-out sessions that fit together.
        later: leave the checks to `runs.plan`, which makes them all.
        instead: values that replace those of flags.
        values: the nested values of a run folder, instead of a file.

    Raises:
        ConfigError, DataError: every fault at once.
    """
    values = instead.pop("values", None)
    given = with_absent(args, **instead)
    overrides = [*(override for _, override in flag_overrides(given)), *given.overrides]
    with named_too(given, own_files):
        if values is None:
            config = load_config(given.config or "quickstart", overrides)
        else:
            config = make_config(
                apply_overrides(values, overrides), given.config, origins_of(overrides)
            )
    return (
        _with_paths(config, given) if later else complete_config(config, given, own_files, training)
    )


@contextmanager
def named_too(args: Namespace, own_files: bool = False) -> Iterator[None]:
    """Add unknown names (markets, presets, features, files) to the faults of a configuration.

    It is read inside this block.
    """
    try:
        yield
    except ConfigFaultsError as error:
        others = _faults_of_names(error.rest, args, own_files)
        raise ConfigFaultsError([*error.faults, *others], error.rest) from None


def _faults_of_names(
    rest: Mapping[str, Any], args: Namespace, own_files: bool
) -> list[tuple[str, str]]:
    """Find the unknown names among values that have no fault of their own.

    None are found if these make no configuration.
    """
    try:
        check_names(_with_paths(RunConfig.model_validate(dict(rest)), args), own_files)
    except ConfigFaultsError as error:
        return list(error.faults)
    except (ConfigError, DataError) as error:
        return [("", str(error))]
    except ValidationError:  # it follows from the faults that are reported
        return []
    return []


def with_absent(args: Namespace, **instead: Any) -> Namespace:
    """Return `args` with every flag that `resolve` reads.

    instead: values that replace those of flags.
    """
    return Namespace(**ABSENT | vars(args) | instead)


def flag_overrides(args: Namespace) -> list[tuple[str, str]]:
    """Return (flag, override) of every flag but `--set`, in the order in which they apply.

    `--test` comes first.

    Raises ConfigError if `--contract` and a market are both given.
    """
    return [
        *(("--test", override) for override in (TEST_OVERRIDES if args.test else ())),
        *([("--import", f"imports={json.dumps(list(args.modules))}")] if args.modules else []),
        *data_flags(args),
        *flags.key_flags(args),
        *(
            ("--eager", override)
            for override in (EAGER_OVERRIDES if getattr(args, "eager", False) else ())
        ),
        *(("--advisor", override) for override in advisor_flags(args.advisor)),
    ]


def refuse_both(args: Namespace) -> None:
    """Raise ConfigError if `--market` and `--contract` are both given."""
    if args.market is not None and args.contract is not None:
        raise ConfigError(
            f"--market {args.market} and --contract {args.contract}: the contract's symbol is the "
            "market; give one"
        )


def data_flags(args: Namespace) -> list[tuple[str, str]]:
    """Return `--market`, `--data` and the tolerances as (flag, override).

    Raises ConfigError if `--contract` and a market are both given.
    """
    given = []
    refuse_both(args)
    if args.market is not None:
        symbol = args.market.upper()
        given.append(("--market", f"data.market={symbol}"))
        given.append(("--market", f"data.source={'bundled' if symbol in BUNDLED else 'synthetic'}"))
    if args.data is not None:
        given.append(("--data", "data.source=file"))
    for name in TOLERANCES:
        if (share := getattr(args, name)) is not None:
            given.append((f"--{name.replace('_', '-')}", f"data.{name}={share}"))
    return given


def advisor_flags(advisor: str | None) -> list[str]:
    """Return `--advisor` as overrides.

    The value is quoted, because YAML may misread a path or a URL.
    """
    return [] if advisor is None else [f"advisor.kind={json.dumps(advisor)}"]


def complete_config(
    chosen: RunConfig, args: Namespace, own_files: bool = False, training: bool = True
) -> RunConfig:
    """Complete the configuration with the paths from flags, after all checks that need no JAX.

    Raises ConfigError, DataError.
    """
    chosen = _with_paths(chosen, args)
    if own_files:
        check_names(chosen, own_files)
    else:
        check(chosen, training)
    return chosen


def _with_paths(chosen: RunConfig, args: Namespace) -> RunConfig:
    """Add the paths from flags to the configuration.

    Raises ConfigError if a file is needed and none is given.
    """
    _check_set(chosen, args)
    # Paths are set directly and not as overrides, because YAML could misread them.
    paths = {key: getattr(args, flag) for key, flag in PATHS.items()}
    chosen = chosen.replace(data={key: path for key, path in paths.items() if path is not None})
    _check_market(chosen, args)
    if chosen.data.contract is not None:
        chosen = chosen.replace(data={"market": load_contract(chosen.data.contract).symbol})
    if chosen.data.source == "file" and chosen.data.file is None and not chosen.data.markets:
        raise ConfigError("data.source=file: no file given; use --data FILE or set data.file")
    if chosen.env.intrabar == "path" and chosen.data.seconds is None and not chosen.data.markets:
        raise ConfigError(
            "env.intrabar=path: no second bars given; use --seconds FILE or set data.seconds"
        )
    return chosen


def _check_set(chosen: RunConfig, args: Namespace) -> None:
    """Raise ConfigError if a flag about one symbol meets a configuration that names several."""
    symbols = chosen.data.markets
    given = [f"--{name}" for name in ("market", *PATHS.values()) if getattr(args, name) is not None]
    if symbols and given:
        raise ConfigError(
            f"{', '.join(given)}: the configuration names the symbols {', '.join(symbols)} "
            "(data.markets); drop the flag, or give --set data.markets=[] too for one symbol"
        )


def _check_market(chosen: RunConfig, args: Namespace) -> None:
    """Raise ConfigError if `--market` meets a configuration that names its bars or contract itself.

    The flag alone means bundled or synthetic bars, so it is not clear what is wanted.
    """
    data, market = chosen.data, args.market
    if market is None:
        return
    if data.contract is not None:
        raise ConfigError(
            f"--market {market}: the configuration has data.contract = {data.contract}, whose symbol is "
            f"the market; drop --market, or give --set data.contract=null too"
        )
    if data.file is not None and data.source != "file":
        raise ConfigError(
            f"--market {market}: the configuration reads bars of its own (data.file = '{data.file}'); to "
            f"read them as {market.upper()}, give --set data.market={market.upper()} instead; for bars "
            f"of {market.upper()}, add --data FILE; for those of the package, use a configuration "
            "without data.file"
        )


def open_screen(
    title: str,
    quiet: bool = False,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Screen:
    """Open the screen of a command: a panel where the terminal can show one, else plain lines.

    Args:
        title: of the panel, such as "jaxtrade train".
        quiet: show no progress.
        stream: default: standard error, so that standard output holds the result alone.
    """
    chosen = sys.stderr if stream is None else stream
    if quiet:
        return Warnings(lambda line: print(line, file=chosen, flush=True))
    if can_show_panel(chosen, environ):
        from jaxtrade.progress.panel import PhasePanel  # rich takes a moment to load

        return PhasePanel(title, chosen)
    return Plain(chosen)


def screen_of(args: Namespace, silent: bool = False) -> Screen:
    """Open the screen that shows a command's progress, on standard error.

    Call this once the flags are known to be right.

    silent: show nothing, because another process of the run does.

    XLA's own messages are switched off, unless TF_CPP_MIN_LOG_LEVEL is set: its errors are raised
    as exceptions too, and its warnings (a compilation of two minutes is "very slow") would break
    the panel. A fatal error is still shown.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", FATAL_ONLY)  # XLA reads it when it is loaded
    if silent:
        return Screen()
    return open_screen(f"jaxtrade {args.command}", args.quiet)


@contextmanager
def loading(args: Namespace) -> Iterator[Screen]:
    """Open `screen_of` a command that loads JAX next."""
    with screen_of(args) as screen:
        screen.phase("loading", "JAX")
        keep_programs()
        yield screen


def print_result(text: str, screen: Screen) -> None:
    """Print a command's result on stdout, then on stderr what its screen was given for the end."""
    show(text)
    for line in screen.endings:
        say(line)


def keep_programs() -> None:
    """Keep compiled programs for the next run.

    Prints a note on stderr if that is impossible, and one for each part of JAX or XLA that this
    process has to go without (`internals.list_lost`).
    """
    from jaxtrade.storage import internals
    from jaxtrade.storage.programs import use_cache

    problem = use_cache()
    for each in (*([problem] if problem else ()), *internals.list_lost()):
        print(f"note: {each}", file=sys.stderr)


def say(line: str) -> None:
    """Print a line of progress on stderr. Stdout is for the command's result."""
    print(printable(line), file=sys.stderr, flush=True)
