"""The list of seeded faults, `mutations.yaml`, as data."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

LIST = Path(__file__).with_name("mutations.yaml")
SYMBOLS = re.compile(
    r'"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\#[^\n]*|\w+|[^\w\s]'
)


class Symbol(NamedTuple):
    text: str
    start: int
    end: int


def _symbols(text):
    """Words, strings and signs of a piece of Python, which need not be whole.

    Layout, comments and the comma before a closing bracket are left out: a formatter may change
    them.
    """
    found = [
        Symbol(match[0], *match.span()) for match in SYMBOLS.finditer(text) if match[0][0] != "#"
    ]
    return [
        symbol
        for symbol, after in zip(found, [*found[1:], None], strict=True)
        if not (symbol.text == "," and after and after.text in ")]}")
    ]


def _functions(node, prefix=""):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _span(text, name):
    """Where the function or class `name` (dotted where nested) stands. Raises ValueError where it
    does not.
    """
    found = [node for dotted, node in _functions(ast.parse(text)) if dotted == name]
    if len(found) != 1:
        raise ValueError(f"{len(found)} functions or classes are called {name}")
    starts = [0]  # in characters; ast counts columns in bytes, but whole lines are enough
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts[found[0].lineno - 1], starts[found[0].end_lineno]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Fault:
    """Replace the expression `old` by `new` in one function.

    path: the file, from the repository's root. function: where `old` stands once; None: anywhere in
        the file.
    caught_by: test files or node ids. oracle: the configuration in which the comparison with the
        oracle must show it.
    """

    id: str
    package: str
    path: str
    function: str | None
    old: str
    new: str
    caught_by: tuple[str, ...]
    oracle: str | None

    def applied(self, root):
        """The text of the file with the fault in it. Raises ValueError where `old` does not stand
        there once.
        """
        text = (root / self.path).read_text()
        try:
            first, last = _span(text, self.function) if self.function else (0, len(text))
        except ValueError as error:
            raise ValueError(f"{self.id}: {self.path}: {error}") from None
        old = [symbol.text for symbol in _symbols(self.old)]
        here = [symbol for symbol in _symbols(text) if first <= symbol.start < last]
        places = [
            here[i : i + len(old)]
            for i in range(len(here) - len(old) + 1)
            if here[i].text == old[0] and [symbol.text for symbol in here[i : i + len(old)]] == old
        ]
        if len(places) != 1:
            raise ValueError(
                f"{self.id}: '{self.old}' occurs {len(places)} times in {self.path}"
                f"{f', {self.function}' if self.function else ''}, expected once"
            )
        return text[: places[0][0].start] + self.new + text[places[0][-1].end :]


def read_faults(path=LIST):
    """Every fault of the list, in its order."""
    files = yaml.safe_load(path.read_text())
    return tuple(
        Fault(
            fault["id"],
            file["package"],
            file["path"],
            fault.get("function"),
            fault["old"],
            fault["new"],
            tuple(fault.get("caught_by", ())),
            fault.get("oracle"),
        )
        for file in files
        for fault in file["faults"]
    )
