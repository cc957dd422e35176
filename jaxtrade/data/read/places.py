"""Where each bar stands in its source, so that a finding about a bar can name its line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Places:
    """The places of T bars in one source.

    rows: int32[T], the data row of each bar, counted from 0. first_line: the line of data row 0;
        None if the source has
    no lines (Parquet, a frame).
    """

    source: str
    rows: np.ndarray
    first_line: int | None

    def chosen(self, keep: np.ndarray | slice) -> Places:
        """The places of the selected bars."""
        return replace(self, rows=self.rows[keep])

    def text(self, bar: int) -> str:
        """The place of one bar: `file.csv:12`, or `frame: row 10 (0-based)`."""
        row = int(self.rows[bar])
        if self.first_line is None:
            return f"{self.source}: row {row} (0-based)"
        return f"{self.source}:{row + self.first_line}"
