"""What the site adds to two pages: every command and flag to cli.md, every docstring to api.md.

The wording of the commands is that of the parser's help; the layout is our own, because argparse's differs between
Python versions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from jaxtrade.cli.parser import GROUPS, build_parser

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
NAME = re.compile(r"^- (class )?`(\w+)(.*?)`", re.MULTILINE)  # an entry of api.md
COMMAND = re.compile(r"^\| `(jaxtrade [a-z ]*[a-z])(.*?)` ", re.MULTILINE)  # a row of cli.md


def below(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Map each subcommand to its parser and its line of help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._get_subactions()}
            return {name: (child, helps[name]) for name, child in action.choices.items()}
    return {}


def leaves(
    name: str, parser: argparse.ArgumentParser, said: str
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield (words, parser, line of help) of every command that can be run."""
    children = below(parser)
    if not children:
        yield name, parser, said
    for word, (child, text) in children.items():
        yield from leaves(f"{name} {word}", child, text)


def invocation(action: argparse.Action) -> str:
    """Write a flag or positional as it is typed."""
    value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value}...]", "+": f"{value}..."}.get(
            str(action.nargs), value
        )
    flag = action.option_strings[-1]
    if action.nargs == 0:
        return flag
    return f"{flag} {'{' + '|'.join(map(str, action.choices)) + '}' if action.choices else value}"


def cell(text: str) -> str:
    """Make text fit a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def prose(text: str) -> str:
    """Make a flag's help fit a cell. `[a][b]` would be a link in Markdown."""
    return cell(text.replace("%%", "%").replace("[", "\\["))


def section(words: str, parser: argparse.ArgumentParser, said: str) -> list[str]:
    """Write the heading of a command, with its positionals and required flags, its help and its table."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    needed = [invocation(each) for each in actions if each.required or not each.option_strings]
    rows = [
        f"| `{cell(invocation(action))}` | {prose(action.help or '')}"
        f"{' (required)' if action.required and action.option_strings else ''} |"
        for action in actions
    ]
    table = ["| | |", "|---|---|", *rows, ""] if rows else []
    return [
        f"#### `{' '.join((words, *needed))}` {{#{anchor(words)}}}",
        "",
        f"{said[:1].upper()}{said[1:]}.",
        "",
        *table,
    ]


def anchor(words: str) -> str:
    """Return the anchor of a command."""
    return words.replace(" ", "-")


def add_commands(page: str) -> str:
    """Add every command and flag to cli.md, and lead there from the page's table of commands."""
    page = COMMAND.sub(lambda row: f"| [`{row[1]}{row[2]}`](#{anchor(row[1])}) ", page)
    commands = below(build_parser())
    lines = [page, "## All commands and flags", ""]
    for heading, names in GROUPS.items():
        lines += [f"### {heading.capitalize()}", ""]
        for name in names:
            for leaf in leaves(f"jaxtrade {name}", *commands[name]):
                lines += section(*leaf)
    return "\n".join(lines)


def add_docstrings(page: str) -> str:
    """Add the documentation of each name in api.md, and lead there from its entry."""
    _, *parts = SECTION.split(page)
    lines = [NAME.sub(r"- \1[`\2\3`][jaxtrade.\2]", page)]
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        names = [name for _, name, _ in NAME.findall(text)]
        lines += [f"## {heading} in full", "", *(f"::: jaxtrade.{name}\n" for name in names)]
    return "\n".join(lines)
