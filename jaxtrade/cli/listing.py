"""`jaxtrade list`: the names that keys and flags take, each with one line about it.

`completion` is a script that completes them in a shell.

Imports no heavy library, unless a module of `--import` does.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.prompts import BLOCKS, RAW_SLOTS
from jaxtrade.cli import descriptions
from jaxtrade.cli.flags import columns, table
from jaxtrade.config.accounts import PRESETS, AccountPreset
from jaxtrade.config.load import all_keys, list_shipped, sections
from jaxtrade.data.contracts import BUNDLED, CONTRACTS, Contract, load_contract
from jaxtrade.env.reward_presets import REWARDS
from jaxtrade.errors import ConfigError
from jaxtrade.formatting import format_number, money
from jaxtrade.parts import ADVISORS, FEATURES, LEARNERS, NETWORKS, REWARD_TERMS, TASKS
from jaxtrade.registry import Registry, import_parts

Rows = list[tuple[str, ...]]  # the first one is the heading
Tables = list[tuple[Rows, tuple[int, ...]]]  # each with its columns of figures
OWN = "your own"


def run(args: argparse.Namespace) -> int:
    """Handle `list`. Return the exit code.

    Raises ConfigError for a module that does not exist.
    """
    import_parts(args.modules)
    if args.what is None:
        rows = [
            ("list", "how to use a name of it"),
            *((what, use) for what, (_, use) in LISTS.items()),
        ]
        print("\n".join([*table(rows, columns()), "", "See one: jaxtrade list markets"]))
        return 0
    print("\n\n".join("\n".join(block) for block in blocks(args.what, columns())))
    return 0


def blocks(what: str, wide: int | None) -> list[list[str]]:
    """Return what `list` prints: one or more tables, and last how to use a name.

    wide: as in `flags.table`.
    """
    made, use = LISTS[what]
    tables = made()
    return [*(table(rows, wide, figures) for rows, figures in tables), [use]]


def _markets() -> Tables:
    rows = [
        (
            symbol,
            descriptions.MARKETS[symbol],
            *_metrics(contract),
            "real, bundled" if symbol in BUNDLED else "synthetic",
        )
        for symbol, contract in CONTRACTS.items()
    ]
    return [
        (
            [
                ("market", "what it is", "tick", "tick value", "commission", "bars without --data"),
                *rows,
            ],
            (2, 3, 4),
        )
    ]


def _metrics(contract: Contract) -> tuple[str, str, str]:
    """Format a contract's tick in points, its value with the currency, and its commission.

    The commission is per side in dollars.
    """
    return (
        f"{contract.tick_size:f}",
        f"{contract.tick_mills / 1000:g} {contract.currency}",
        money(contract.commission_mills / 1000),
    )


def _contracts() -> Tables:
    rows = [
        (path.stem, first_sentence(path), *_metrics(load_contract(str(path))))
        for path in list_shipped("contracts")
    ]
    return [([("contract", "what it is", "tick", "tick value", "commission"), *rows], (2, 3, 4))]


def _presets() -> Tables:
    return [
        (
            [
                ("configuration", "what it does"),
                *((path.stem, first_sentence(path)) for path in list_shipped(".")),
            ],
            (),
        )
    ]


def first_sentence(path: Path) -> str:
    """Read the first sentence of the comment at the top of a shipped YAML file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    return " ".join(comment).partition(". ")[0].rstrip(".")


def _accounts() -> Tables:
    rows = [
        (
            name,
            f"{preset.start_balance:,.0f}",
            format_number(preset.profit_target, "count", none="off"),
            format_number(preset.drawdown, "count", none="off"),
            format_number(preset.daily_loss, "count", none="off"),
            f"{preset.max_contracts:,}",
            _rules(preset),
        )
        for name, preset in PRESETS.items()
    ]
    head = ("account", "balance", "target", "drawdown", "daily loss", "contracts", "rules")
    return [([head, *rows], (1, 2, 3, 4, 5))]


def _rules(preset: AccountPreset) -> str:
    """Describe the rules of an account that have no number, in words."""
    if preset.drawdown is None:
        return "no limits"
    floor = {
        "intraday": "the floor trails live equity",
        "end_of_day": "the floor trails the closing equity of a day",
        "static": "the floor never moves",
    }[preset.trailing]
    stops = {
        "never": "",
        "at_start_plus_100": ", up to the start balance + $100",
        "at_target": ", up to target - drawdown",
    }[preset.freeze]
    daily = (
        {
            "lock_until_next_session": "; the daily loss locks it until the next session",
            "fail": "; the daily loss ends it",
        }[preset.on_daily_loss]
        if preset.daily_loss
        else ""
    )
    return f"{floor}{stops}{daily}"


def _features() -> Tables:
    from jaxtrade.data.features.schema import (
        CONTEXT_FEATURES,
        DUAL_FEATURES,
        SEED_FEATURES,
        feature_spec,
    )

    known = dict.fromkeys((*SEED_FEATURES, *CONTEXT_FEATURES, *DUAL_FEATURES))
    built_in = [name for name in known if name not in FEATURES]
    specs = [feature_spec(name) for name in (*built_in, *FEATURES.names)]
    rows = [(spec.name, spec.unit, str(spec.warm_up), spec.formula) for spec in specs]
    rows += [(name, "", "", text) for name, text in descriptions.PARAMETRIC.items()]
    return [([("feature", "unit", "warm-up", "formula"), *rows], (2,))]


def _rewards() -> Tables:
    presets = [
        (
            name,
            descriptions.REWARDS[name],
            ", ".join(f"{term} {weight:g}" for term, weight in weights.items()),
        )
        for name, weights in REWARDS.items()
    ]
    return [
        ([("preset", "what it is", "terms and weights"), *presets], ()),
        *_list_registered("term", "what it pays for", REWARD_TERMS, descriptions.TERMS),
    ]


def _list_registered(
    head: str, about: str, registry: Registry[Any], known: Mapping[str, str]
) -> Tables:
    """List the built-in parts of a kind, and those that modules have registered."""
    names = dict.fromkeys((*known, *registry.names))
    rows = [
        (name, known[name] if name in known else describe_part(registry[name])) for name in names
    ]
    return [([(head, about), *rows], ())]


def describe_part(part: Any) -> str:
    """Return the first line of a part's own documentation, or of its class.

    `OWN` where neither says anything.
    """
    for owner in (
        part if inspect.isroutine(part) or inspect.isclass(part) else None,
        getattr(part, "make", None),
        type(part),
    ):
        text = inspect.getdoc(owner) if owner is not None else None
        # Classes of Python and NamedTuples without a text have one that says nothing of the part.
        if (
            text
            and getattr(owner, "__module__", "builtins") != "builtins"
            and not text.startswith(f"{_name(owner)}(")
        ):
            return f"{OWN}: {text.splitlines()[0].rstrip('.')}"
    return OWN


def _name(owner: Any) -> str:
    return getattr(owner, "__name__", "")


def _templates() -> Tables:
    rows = [(name, about) for name, about in descriptions.TEMPLATES.items()]
    raw = [(f"{{{name}}}", slot.about) for name, slot in RAW_SLOTS.items()]
    blocks = [(f"{{{name}}}", block.about) for name, block in BLOCKS.items()]
    named = [("{symbol}", "the market"), ("{time}", "the bar's close, ISO with UTC offset")]
    form = ("{answer_format}", "how to answer; it stands for the built-in words")
    return [
        ([("template", "what it shows"), *rows], ()),
        ([("field", "what it is, at a bar's close"), *named, *raw, *blocks, form], ()),
    ]


LISTS = {
    "markets": (
        _markets,
        "Use one: jaxtrade train --market NAME. A market of your own: jaxtrade list contracts.",
    ),
    "contracts": (
        _contracts,
        "Use one: jaxtrade train --contract NAME --data FILE. The same keys in a file of your "
        "own describe another market (docs/data.md).",
    ),
    "accounts": (
        _accounts,
        "Use one: jaxtrade train --account NAME. Change a rule: --set account.drawdown=2000 "
        "(docs/semantics.md).",
    ),
    "features": (
        _features,
        "Choose them: --set 'env.features=[close, volume, rsi]' (docs/features.md).",
    ),
    "rewards": (
        _rewards,
        "Choose a preset: --set reward.preset=NAME. Weigh a term: --set reward.weights.NAME=1 "
        "(docs/features.md).",
    ),
    "presets": (
        _presets,
        "Use one: jaxtrade train NAME (curriculum: jaxtrade curriculum; advisor_ablation: jaxtrade "
        "ablate advisor). See its keys: jaxtrade config show NAME.",
    ),
    "tasks": (
        lambda: _list_registered("task", "what the agent does", TASKS, descriptions.TASKS),
        "Choose one: --set env.task=NAME (docs/semantics.md).",
    ),
    "networks": (
        lambda: _list_registered("network", "what it is", NETWORKS, descriptions.NETWORKS),
        "Choose one: --set network.kind=NAME (docs/training.md).",
    ),
    "learners": (
        lambda: _list_registered("learner", "what it is", LEARNERS, descriptions.LEARNERS),
        "Choose one: --set algorithm=NAME (docs/training.md).",
    ),
    "advisors": (
        lambda: _list_registered("advisor", "what it is", ADVISORS, descriptions.ADVISORS),
        "Choose one: jaxtrade train advised --advisor NAME (docs/advisor.md).",
    ),
    "templates": (
        _templates,
        "Choose one: --set advisor.template=NAME. A text file of your own with such fields: "
        "--set advisor.template=FILE.txt (docs/advisor.md).",
    ),
}


LIST = (
    "the known markets, accounts, features, rewards, presets, ...",
    f"""
    WHAT? : {" or ".join(LISTS)}  one of {", ".join(LISTS)}; without it, what can be listed
    --import MODULE ... -> modules  import a module that registers parts of your own, to list
        them too (repeatable)
    """,
)

# `jaxtrade completion SHELL`: prints a script that completes commands, flags and names in a shell.
#
# shtab makes the script from the parser. The script holds all words, so completing starts no
# Python. Imports shtab only when the command runs; nothing heavy.

SHELLS = ("bash", "zsh", "fish")
FILES = ("data", "seconds", "quotes", "files")
FOLDERS = ("run", "runs", "folder", "run_dir", "source", "onward", "resume")
# bash adds a space after a word that it has completed, but none belongs between KEY= and its value.
_BASH_END = """
_jaxtrade_complete() {
  _shtab_jaxtrade
  [[ ${#COMPREPLY[@]} = 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o bashdefault -F _jaxtrade_complete jaxtrade
"""


COMPLETION = (
    "print a script that completes commands, flags and keys in a shell",
    f"SHELL : {' or '.join(SHELLS)}  one of {', '.join(SHELLS)}",
)


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Write the completion script for a shell of `SHELLS`.

    parser: that of `jaxtrade`; it is changed.

    Raises ConfigError if shtab is not installed.
    """
    try:
        shtab: Any = importlib.import_module(
            "shtab"
        )  # of an extra: not every check of types has it
    except ImportError:
        raise ConfigError(
            "the package shtab, which makes the script, is not installed: pip install shtab (or pip "
            "install 'jaxtrade[completion]')"
        ) from None
    for each in _parsers(parser):
        for action in each._actions:
            if (words := _words(each.prog, action)) is not None:
                action.complete = words  # type: ignore[attr-defined]
            elif action.dest in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest in FOLDERS or action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell) + (_BASH_END if shell == "bash" else "")


def _parsers(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """Yield the parser and those of all its commands, each once."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from _parsers(below)


def _words(prog: str, action: argparse.Action) -> Mapping[str, Any] | None:
    """Return how shells complete an action that takes names; None for other actions.

    prog: its command, "jaxtrade train".
    """
    match action.dest:
        case "overrides":
            return words_of("keys", [f"{name}=" for name in all_keys()])
        case "market":
            return words_of("markets", CONTRACTS)
        case "account":
            return words_of("accounts", PRESETS)
        case "contract":
            return words_and_files("contracts", [path.stem for path in list_shipped("contracts")])
        case "config":
            return words_and_files("configurations", [path.stem for path in list_shipped(".")])
        case "key" | "prefix":
            return words_of("names", [*sections(), *all_keys()])
        case "advisor":
            return words_of("advisors", ["none", "rules", "mock:skilled:0.6", "mock:random"])
    return None


def words_of(name: str, words: Iterable[str]) -> dict[str, Any]:
    """Describe to each shell how to complete one of some words.

    A word that ends in `=` is followed by no space.

    name: of the function in the script.
    """
    return _function(f"_jaxtrade_{name}", list(words), bash=(), zsh=(), fish=())


def words_and_files(name: str, words: Iterable[str]) -> dict[str, Any]:
    """Describe to each shell how to complete one of some words, or a YAML file."""
    # shtab lets bash treat the results of a function whose name has `_file` as paths.
    return _function(
        f"_jaxtrade_{name}_or_file",
        list(words),
        bash=('compgen -f -X "!*.y*ml" -- "$1"', 'compgen -d -- "$1"'),
        zsh=("_files -g '*.(yaml|yml)'",),
        fish=("__fish_complete_suffix .yaml",),
    )


def _function(
    name: str, words: list[str], bash: Iterable[str], zsh: Iterable[str], fish: Iterable[str]
) -> dict[str, Any]:
    """Make shtab's description of a completion, with its function for each shell.

    The function has the words, then further lines.
    """
    joined, lines = " ".join(words), "\\n".join(words)
    suffix = "-S '' " if any(word.endswith("=") for word in words) else ""
    return {
        "bash": name,
        "zsh": name,
        "fish": f"({name})",
        "preamble": {
            "bash": "\n  ".join((f"{name}() {{", f'compgen -W "{joined}" -- "$1"', *bash)) + "\n}",
            "zsh": "\n  ".join((f"{name}() {{", f"compadd {suffix}-- {joined}", *zsh)) + "\n}",
            "fish": "\n  ".join((f"function {name}", f"printf '{lines}\\n'", *fish)) + "\nend",
        },
    }
