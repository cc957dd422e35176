"""Errors that code of a user's own can meet speak of keys and arguments. A flag may follow in
parentheses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.structure import modules

COMMANDS = ("cli", "ablation", "doctor", "launching")  # rooms that only commands reach
# Functions whose callers are commands, or which quote a command to type.
COMMAND_LINES = (
    "runs.evaluate",
    "runs.choosing",
    "runs.advice",
    "config.load",
    "advisor.host.registry",
    "data.guess",
    "runs.resuming",
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def texts(node: ast.Raise) -> str:
    """The literal text of what is raised; a blank stands for each value in it."""
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else " "
        for part in ast.walk(node)
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def outside_parentheses(text: str) -> str:
    """The text without what stands in parentheses, and without commands to type such as `jaxtrade
    train --resume`.
    """
    text = re.sub(r"jaxtrade( [a-z]+)+ --[a-z-]+", "", text)
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    return text


def bare_flags(name: str, tree: ast.Module) -> Iterator[str]:
    """One line for each raised message that names a flag outside parentheses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and (
            found := FLAG.findall(outside_parentheses(texts(node)))
        ):
            yield f"{name}, line {node.lineno}: {', '.join(found)}"


def test_errors_of_the_python_api_name_keys_first() -> None:
    found = [
        line
        for name, tree in modules().items()
        if name.partition(".")[0] not in COMMANDS and name not in COMMAND_LINES
        for line in bare_flags(name, tree)
    ]
    assert found == []


def test_a_planted_flag_is_found() -> None:
    tree = ast.parse(
        "def f(x):\n    raise ValueError(f'no bars; give --data {x}')\n"
        "def g(x):\n    raise ValueError(f'no bars; set data.file (--data {x})')\n"
    )
    assert list(bare_flags("m", tree)) == ["m, line 2: --data"]
