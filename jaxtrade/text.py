"""Text for people: where lines go, and tables."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

NOTE, WARNING = "note: ", "WARNING: "
FORECAST = "compiling takes "  # how the line begins that says how long it will
_NUMBER = re.compile(r"\d[\d.,:-]*")

Log = Callable[[str], None]  # receives one line of text, without its end


def discard_line(line: str) -> None:
    """Log nothing: a `Log` that drops each line."""


def year_runs(years: Sequence[int]) -> str:
    """Format increasing years in short: "2008..2010, 2013"."""
    runs: list[list[int]] = []
    for year in years:
        if runs and year == runs[-1][-1] + 1:
            runs[-1].append(year)
        else:
            runs.append([year])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def printable(text: str) -> str:
    r"""Escape control characters in text for a terminal, which others may have written.

    In a folder's name or a status file they could move the cursor or retitle the window, so they
    stand as `\x1b`. Ends of lines and tabs stay.
    """
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def show(text: str) -> None:
    """Print text of a command's result on stdout, by `printable`.

    Names of files and folders in it may hold control characters.
    """
    print(printable(text), flush=True)


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Format rows of cells as lines, two spaces between the columns.

    left: indices of the columns that are words, aligned to the left; all others are numbers,
        aligned to the right.

    A row with fewer cells than the longest one is a heading or a remark: its cells after the first
    stand as they are, and widen no column.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = max(len(row) for row in rows)
    widths = [max(len(row[i]) for row in rows if len(row) == columns) for i in range(columns)]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        if len(row) < columns:
            cells[1:] = row[1:]
        return "  ".join(cells).rstrip()

    return [line(row) for row in rows]


def underline(lines: Sequence[str]) -> list[str]:
    """Draw a rule under the first of the lines, as long as the longest one."""
    return [lines[0], "-" * max(len(line) for line in lines), *lines[1:]]


REPR_LIMIT = 300  # characters


def short_repr(name: str, *facts: str) -> str:
    """Format `Name(fact, fact, ...)` for a `__repr__`, in at most `REPR_LIMIT` characters.

    Facts that do not fit are counted.
    """
    shown = list(facts)
    while True:
        left = len(facts) - len(shown)
        text = f"{name}({', '.join([*shown, *([f'{left} more'] if left else [])])})"
        if len(text) <= REPR_LIMIT or not shown:
            return text
        shown.pop()


def pairs(text: str) -> dict[str, str]:
    """Parse lines of a name and a text, two spaces between them, into a mapping."""
    lines = (line.strip().partition("  ") for line in text.strip().splitlines())
    return {name: said.strip() for name, _, said in lines}


def did_you_mean(word: str, known: Iterable[str], mark: str = "'") -> str:
    """Suggest the known word that an unknown one resembles, as the end of a message, or nothing.

    Capital letters count as small ones.

    mark: of quotation.
    """
    small = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), small, n=1)
    return f"; did you mean {mark}{small[near[0]]}{mark}?" if near else ""


def several(count: int, noun: str) -> str:
    """Format a count with its noun: `1 trade`, `2,000 trades`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def state_shortfall(least: int, noun: str, found: int) -> str:
    """Return what is missing, in words: `needs 5 days, there is 1`."""
    return f"needs {several(least, noun)}, there {'is' if found == 1 else 'are'} {found:,}"


def join_reasons(reasons: Mapping[str, str]) -> str:
    """Return names with the reasons that hold for them, each reason once: `a, b (why); c (why)`.

    reasons: name -> why.
    """
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(each)} ({why})" for why, each in names.items())


def json_text(document: Any) -> str:
    """Format a document as JSON for people: indented, without NaN, without an end of line."""
    return json.dumps(document, indent=2, allow_nan=False)


def note_line(note: str) -> str:
    """Format a note of a market as a line of a run: `note: EURUSD: ...`.

    One that warns becomes `warning: EURUSD: ...`, which a quiet console shows too.
    """
    return f"warning: {note.replace(WARNING, '', 1)}" if WARNING in note else f"{NOTE}{note}"


def in_short(lines: Sequence[str], where: str) -> list[str]:
    """Replace notes that differ in nothing but their numbers by one line: the first, and how many.

    Lines that do not begin with `note: ` stay as they are.

    where: the file that has all of them.
    """
    kinds: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        kind = _NUMBER.sub("#", line) if line.startswith(NOTE) else f"{number}"
        kinds.setdefault(kind, []).append(line)
    return [
        first
        if not more
        else f"{first} ({len(more) + 1:,} notes of this kind; all of them in {where})"
        for first, *more in kinds.values()
    ]
