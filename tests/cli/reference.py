"""The generated part of docs/cli.md: every command and flag of the parser.

    python -m tests.cli.reference

The wording is that of the parser's help; the layout is our own, because argparse's differs between
Python versions.
"""

import argparse
from pathlib import Path

from jaxtrade.cli.parser import build_parser, group_commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- commands:begin -->\n", "<!-- commands:end -->"


def below(parser):
    """Subcommand -> (its parser, its line of help)."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._get_subactions()}
            return {name: (child, helps[name]) for name, child in action.choices.items()}
    return {}


def leaves(name, parser, said):
    """(words, parser, line of help) of every command that can be run."""
    children = below(parser)
    if not children:
        yield name, parser, said
    for word, (child, text) in children.items():
        yield from leaves(f"{name} {word}", child, text)


def invocation(action):
    """A flag or positional as it is typed."""
    value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value}...]", "+": f"{value}..."}.get(
            str(action.nargs), value
        )
    flag = action.option_strings[-1]
    if action.nargs == 0:
        return flag
    return f"{flag} {'{' + '|'.join(map(str, action.choices)) + '}' if action.choices else value}"


def cell(text):
    """Text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def prose(text):
    """A flag's help in a cell. `[a][b]` would be a link in Markdown."""
    return cell(text.replace("%%", "%").replace("[", "\\["))


def section(words, parser, said):
    """Heading, help and table of one command."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    positional = [invocation(action) for action in actions if not action.option_strings]
    rows = [
        f"| `{cell(invocation(action))}` | {prose(action.help or '')}"
        f"{' (required)' if action.required and action.option_strings else ''} |"
        for action in actions
    ]
    table = ["| | |", "|---|---|", *rows, ""] if rows else []
    return [
        f"#### `{' '.join((words, *positional))}`",
        "",
        f"{said[:1].upper()}{said[1:]}.",
        "",
        *table,
    ]


def generated():
    """The generated part."""
    commands = below(build_parser())
    lines = []
    for heading, names in group_commands(commands).items():
        lines += [f"### {heading.capitalize()}", ""]
        for name in names:
            for leaf in leaves(f"jaxtrade {name}", *commands[name]):
                lines += section(*leaf)
    return "\n".join(lines)


def page(text):
    """The page with its generated part replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{generated()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
