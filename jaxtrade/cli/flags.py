"""How a command's flags and tables are written, and the flags for the keys that everybody sets.

These are --seed, --timesteps, --envs, --account, --algorithm, --devices, those of agents
(--population, --sweep, --seeds, --random, --optuna), and --name for the run's folder.

Each but --name is short for one key. Later sources override earlier ones: the file, `--test`, the
flags, then `--set`. Imports no heavy library at load time.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import reprlib
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from jaxtrade.config.base import UNITS
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.errors import ConfigError
from jaxtrade.runs import rundir
from jaxtrade.text import align, pairs

# Flags and arguments of a command, written as its help shows them. Imports no heavy library.

_HEAD = re.compile(
    r"(?:(?P<short>-\w), )?(?P<name>[^\s?*+]+)(?P<nargs>[?*+]?)"
    r"(?: (?P<value>[^\s\[!]\S*?))?(?P<many> \.\.\.)?(?: \[(?P<default>.+)\])?(?P<required> !)?"
    r"(?: : (?P<kind>\w+(?: or \w+)*))?(?: -> (?P<dest>\w+))?"
)


def add_flags(parser: Any, *texts: str) -> None:
    """Add the flags and arguments that the texts list, one on a line.

    Indented lines go on with a flag's help, which two spaces begin.

        config?              an argument that may be missing; FILE+ is a list of at least one
        --quiet              a flag without a value
        --run-dir DIR        a flag with a value
        --set KEY=VALUE ...  a flag that may be repeated: a list
        --session DATE !     a flag that must be given
        --from RUN -> source with the name of its attribute, where that is another one
        --split {test,all}   a flag with one of some values
        --port N [0]         a flag with a default, which is read as a value is
        --envs N : count or auto  a flag whose value a function of `KINDS` reads, or is that word
        --sort BY : age or name   a flag with one of some values
    """
    for option in re.split(r"\n(?! )", "\n".join(map(inspect.cleandoc, texts))):
        head, _, said = re.sub(r"\n +", " ", option).partition("  ")
        found = _HEAD.fullmatch(head)
        assert found is not None, head
        name, value = found["name"], found["value"]
        given: dict[str, Any] = {"help": said.strip()}
        if name.startswith("-"):
            names = [each for each in (found["short"], name) if each]
            dest = found["dest"] or name.strip("-").replace("-", "_")
            given["dest"] = dest
            if value is None:
                given["action"] = "store_true"
            elif value.startswith("{"):
                given["choices"] = tuple(value.strip("{}").split(","))
            else:
                given["metavar"] = value
            given |= {"required": True} if found["required"] else {}
            if found["many"]:
                given |= {"action": "append", "default": []}
        else:
            dest = found["dest"] or name.lower()
            names = [dest]
            given |= {"nargs": found["nargs"]} if found["nargs"] else {}
            given |= {"metavar": name} if name != dest else {}
        given |= {"default": found["default"]} if found["default"] else {}
        if found["kind"]:
            kind, *words = found["kind"].split(" or ")
            if words and kind not in KINDS:
                given["choices"] = (kind, *words)
            else:
                given["type"] = _reads(KINDS[kind], words)
        parser.add_argument(*names, **given)


Commands = Mapping[str, Sequence[Any]]


def add_commands(commands: Any, known: Commands) -> None:
    """Add commands by name: each as its line in the help and then the texts of `add_flags`.

    Or it is what its actions are called and the actions, which are commands of their own.
    """
    for name, (about, *rest) in known.items():
        parser = commands.add_parser(name, help=about)
        match rest:
            case [str(dest), Mapping() as actions]:
                metavar = dest.upper()
                add_commands(
                    parser.add_subparsers(dest=dest, required=True, metavar=metavar), actions
                )
            case texts:
                add_flags(parser, *texts)


# Tables that commands print: as wide as the terminal, or whole if the output goes elsewhere.

_CUT = "..."


def columns() -> int | None:
    """Count the columns of the terminal.

    None if the output is no terminal, where lines may have any length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Sequence[Sequence[str]], wide: int | None, figures: Collection[int] = ()
) -> list[str]:
    """Format rows of cells as lines. The first row is the heading.

    wide: lines are cut at this length; None: never.
    figures: columns that are aligned to the right.
    """
    left = [i for i in range(len(rows[0])) if i not in figures]
    return [
        line if wide is None or len(line) <= wide else f"{line[: wide - len(_CUT)]}{_CUT}"
        for line in align(rows, left)
    ]


MOST_DIGITS = 40  # of a number on a command line
_SHORT = reprlib.Repr()
_SHORT.maxstring = MOST_DIGITS
_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e\+?[0-9]{1,2})?)([kmgb]?)", re.IGNORECASE)


# Flag -> the configuration key that it is short for.
KEY_FLAGS = pairs(
    """
    seed  seed
    timesteps  train.total_timesteps
    envs  rollout.num_envs
    account  account.preset
    algorithm  algorithm
    population  train.num_seeds
    seeds  sweep.seeds
    random  sweep.random
    optuna  sweep.optuna
    devices  parallel.devices
    """
)
# Attributes of the parsed arguments that a resumed run refuses.
NAMES = (*(flag for flag in KEY_FLAGS if flag != "devices"), "name", "sweep")


def count(text: str) -> int:
    """Parse a whole number of at least 1, for argparse.

    Forms: `1000000`, `1_000_000`, `1,000,000`, `1M`, `250k`, `1.5M`, `1e6`.

    Raises ArgumentTypeError for any other text.
    """
    found = _COUNT.fullmatch(text) if len(text) <= MOST_DIGITS else None
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{_SHORT.repr(text)} is not a whole number of at least 1, such as 8, "
            "1000000, 1M, 250k or 1e6"
        )
    digits, suffix = found.groups()
    # A fraction is exact: a float would round large counts.
    value = Fraction(re.sub("[_,]", "", digits)) * UNITS.get(suffix.lower(), 1)
    if value.denominator > 1 or value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(value)


def whole(text: str) -> int:
    """Parse a whole number of at least 0, for argparse.

    Raises ArgumentTypeError for any other text.
    """
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{_SHORT.repr(text)} is not a whole number of at least 0")
    return int(text)


# What a flag's value is in `add_flags` -> the function that reads it.
KINDS: dict[str, Callable[[str], Any]] = {
    each.__name__: each for each in (int, float, Path, count, whole)
}


def _reads(read: Callable[[str], Any], words: Sequence[str]) -> Callable[[str], Any]:
    """Extend the function to take some words as they are."""

    def read_either(text: str) -> Any:
        if text in words:
            return text
        try:
            return read(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}; or {', or '.join(words)}") from None

    return read_either if words else read


SEED = "--seed N : whole  seed of everything random (key seed)"
COMMON = """
    --timesteps N : count  environment steps to train, e.g. 250k, 1M, 1e6 (key train.total_timesteps)
    --envs N : count or auto  environments in parallel, or auto: as many as train fastest here,
        measured first (key rollout.num_envs)
    --account PRESET  account rules; `jaxtrade list accounts` shows them (key account.preset)
    --algorithm NAME  the learner; `jaxtrade list learners` shows them (key algorithm)
    """
# Which agents a run trains side by side.
AGENTS = """
    --population N : count  agents trained side by side, from seed, seed+1, ... (key
        train.num_seeds); with --optuna: agents of a batch
    --sweep KEY=V1,V2 ...  agents with different values of a key, e.g. --sweep
        ppo.learning_rate=1e-3,3e-4 (repeatable: every combination; key sweep.keys)
    --seeds N : count  of a sweep: agents per setting (key sweep.seeds)
    --random N : count  of a sweep: draw N settings at random; --sweep then also takes ranges,
        KEY=1e-4..1e-2 or KEY=log:1e-4..1e-2 (key sweep.random)
    --optuna N : count  of a sweep: N settings proposed by Optuna, in batches of --population agents
        (key sweep.optuna)
    """


def name_flag(what: str) -> str:
    """Return the text of `--name`, which names the folder of `what`."""
    return f"--name NAME  folder of the {what}: runs/NAME, which must not exist"


def sweep_flags(written: Sequence[str]) -> list[tuple[str, str]]:
    """Return `--sweep` as (flag, override): all of them are one override of `sweep.keys`.

    Raises ConfigError for a flag that is not KEY=V1,V2 or repeats a key.
    """
    keys: dict[str, Any] = {}
    for text in written:
        key, sign, values = text.partition("=")
        key = key.strip()
        if not sign or not key or not values.strip():
            raise ConfigError(
                f"--sweep {text}: expected --sweep KEY=V1,V2, such as ppo.learning_rate=1e-3,3e-4"
            )
        if key in keys:
            raise ConfigError(
                f"--sweep {text}: '{key}' is given twice; list all its values in one flag"
            )
        keys[key] = parse_yaml(f"[{values}]", f"--sweep {text}")
    return [("--sweep", f"sweep.keys={json.dumps(keys)}")] if keys else []


def key_flags(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return (flag, override) for each of these flags that was given.

    Flags that the command lacks count as absent.
    """
    return [
        *(
            (f"--{flag}", f"{key}={json.dumps(value)}")
            for flag, key in KEY_FLAGS.items()
            if (value := getattr(args, flag, None)) is not None
        ),
        *sweep_flags(getattr(args, "sweep", None) or ()),
    ]


def chosen_folder(args: argparse.Namespace, flag: str = "run_dir") -> Path | None:
    """Return the folder that `--name` or the flag of the attribute `flag` names.

    None if neither was given.

    Raises ConfigError if both were given, or for a name that is no name of a folder.
    """
    given, written = getattr(args, flag), f"--{flag.replace('_', '-')}"
    if args.name is None:
        return Path(given) if given else None
    if given:
        raise ConfigError(
            f"--name {args.name} and {written} {given}: both name the folder; give one"
        )
    return rundir.named_folder(args.name, other=written)


def require_unused(args: argparse.Namespace, folder: Path) -> None:
    """Raise ConfigError if `--name` names a folder that exists."""
    if args.name is not None and folder.exists():
        from jaxtrade.runs.inventory import failed_unsaved

        hint = (
            "its run failed before it saved anything; delete it, or "
            if failed_unsaved(folder)
            else ""
        )
        raise ConfigError(f"--name {args.name}: {folder} exists; {hint}choose another name")


def new_folder(args: argparse.Namespace, market: str, kind: str) -> Path:
    """Return the folder of a new run.

    It is that of `--name`, of `--run-dir`, or one named after the market, `kind` and the time.

    Raises ConfigError as `chosen_folder`, or if the folder cannot be a new run.
    """
    path = chosen_folder(args) or rundir.new_run_path(market, kind)
    require_unused(args, path)
    rundir.check_new(path)
    return path
