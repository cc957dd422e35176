"""`jaxtrade completion SHELL`: prints a script that completes commands, flags and names in a shell.

shtab makes the script from the parser. The script holds all words, so completing starts no Python.
Imports shtab only when the command runs; nothing heavy.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtrade.cli.flags import add_command
from jaxtrade.config.accounts import PRESETS
from jaxtrade.config.load import all_keys, sections, shipped
from jaxtrade.data.contracts import CONTRACTS
from jaxtrade.errors import ConfigError

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


def add_completion(commands: Any) -> None:
    """Add the parser of `completion`."""
    add_command(
        commands,
        "completion",
        "print a script that completes commands, flags and keys in a shell",
        f"SHELL  one of {', '.join(SHELLS)}",
        shell={"choices": SHELLS},
    )


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The completion script for a shell of `SHELLS`. parser: that of `jaxtrade`; it is changed.

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
    """The parser and those of all its commands, each once."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from _parsers(below)


def _words(prog: str, action: argparse.Action) -> Mapping[str, Any] | None:
    """How shells complete an action that takes names; None for other actions. prog: its command,
    "jaxtrade train".
    """
    match action.dest:
        case "overrides":
            return words_of("keys", [f"{name}=" for name in all_keys()])
        case "market":
            return words_of("markets", CONTRACTS)
        case "account":
            return words_of("accounts", PRESETS)
        case "contract":
            return words_and_files("contracts", [path.stem for path in shipped("contracts")])
        case "config":
            return words_and_files("configurations", [path.stem for path in shipped(".")])
        case "key" | "prefix":
            return words_of("names", [*sections(), *all_keys()])
        case "advisor":
            return words_of("advisors", ["none", "rules", "mock:skilled:0.6", "mock:random"])
    return None


def words_of(name: str, words: Iterable[str]) -> dict[str, Any]:
    """How each shell completes one of some words. name: of the function in the script. A word that
    ends in `=` is followed by no space."""
    return _function(f"_jaxtrade_{name}", list(words), bash=(), zsh=(), fish=())


def words_and_files(name: str, words: Iterable[str]) -> dict[str, Any]:
    """How each shell completes one of some words, or a YAML file."""
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
    """shtab's description of a completion, with its function for each shell: the words, then
    further lines.
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
