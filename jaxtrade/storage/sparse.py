"""Which chunks of a long run get a line of progress, where lines cannot replace each other (files,
notebooks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtrade.types import Row

MOST_LINES = 100  # chunks of a run with a line; `metrics.jsonl` and `run.log` keep all of them


def worth_a_line(rows: Sequence[Row], most: int = MOST_LINES) -> bool:
    """Whether the chunk of these rows is one of at most `most` chunks, evenly spread over the run,
    or its last one.

    rows: those of one chunk, with `update` and `total_updates`.
    """
    last, total = rows[-1]["update"], rows[-1]["total_updates"]
    before = rows[0]["update"] - 1
    return last >= total or last * most // total > before * most // total
