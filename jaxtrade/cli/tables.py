"""Tables that commands print: as wide as the terminal, or whole if the output goes elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from jaxtrade.text import aligned

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
