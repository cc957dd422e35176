"""Flags and arguments of a command, written as its help shows them. Imports no heavy library."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any

from jaxtrade.text import aligned

_HEAD = re.compile(
    r"(?:(?P<short>-\w), )?(?P<name>[^\s?*+]+)(?P<nargs>[?*+]?)"
    r"(?: (?P<value>[^\s\[]\S*?))?(?P<many> \.\.\.)?(?: \[(?P<default>.+)\])?(?: -> (?P<dest>\w+))?"
)


def add_flags(parser: Any, text: str, **settings: Any) -> None:
    """Add the flags and arguments that `text` lists, one on a line; indented lines go on with its
    help, which two spaces begin:

        config?              an argument that may be missing; FILE+ is a list of at least one
        --quiet              a flag without a value
        --run-dir DIR        a flag with a value
        --set KEY=VALUE ...  a flag that may be repeated: a list
        --from RUN -> source with the name of its attribute, where that is another one
        --split {test,all}   a flag with one of some values
        --port N [0]         a flag with a default, which is read as a value is

    settings: attribute -> the function that reads its value, or further settings of `add_argument`.
    """
    for option in re.split(r"\n(?! )", inspect.cleandoc(text)):
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
            if found["many"]:
                given |= {"action": "append", "default": []}
        else:
            dest = found["dest"] or name.lower()
            names = [dest]
            given |= {"nargs": found["nargs"]} if found["nargs"] else {}
            given |= {"metavar": name} if name != dest else {}
        given |= {"default": found["default"]} if found["default"] else {}
        more = settings.pop(dest, {})
        parser.add_argument(*names, **given | ({"type": more} if callable(more) else more))
    assert not settings, settings


def add_command(commands: Any, name: str, about: str, text: str = "", **settings: Any) -> Any:
    """Add a command with what `add_flags` adds to it -> its parser. about: its line in the help."""
    parser = commands.add_parser(name, help=about)
    if text:
        add_flags(parser, text, **settings)
    return parser


# Tables that commands print: as wide as the terminal, or whole if the output goes elsewhere.

_CUT = "..."


def columns() -> int | None:
    """Columns of the terminal; None if the output is no terminal, where lines may have any
    length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Sequence[Sequence[str]], wide: int | None, figures: Collection[int] = ()
) -> list[str]:
    """Rows of cells as lines; the first row is the heading.

    wide: lines are cut at this length; None: never. figures: columns that are aligned to the right.
    """
    left = [i for i in range(len(rows[0])) if i not in figures]
    return [
        line if wide is None or len(line) <= wide else f"{line[: wide - len(_CUT)]}{_CUT}"
        for line in aligned(rows, left)
    ]
