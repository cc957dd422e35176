"""Collects the faults of a data file, so that one short message shows them together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from jaxtrade.errors import DataError

LINES = 5  # faults listed in one message


@dataclass
class Fault:
    """One kind of fault: the data rows that have it, what was found at the first of them, and the
    fix.

    rows: 0-based; empty if the fault concerns the whole source.
    """

    rows: set[int]
    column: str | None
    value: str | None
    problem: str
    fix: str

    @property
    def row(self) -> int:
        """The first row; -1 for the whole source."""
        return min(self.rows, default=-1)

    def text(self, source: str, first_line: int | None) -> str:
        """The fault as text: `source:line: column 'x' = 'value': problem. Fix: fix`.

        If the source has no lines, the text begins with `source: row n (0-based): ...`.
        """
        parts = [source]
        if self.rows and first_line is not None:
            parts = [f"{source}:{self.row + first_line}"]
        elif self.rows:
            parts.append(f"row {self.row} (0-based)")
        if self.column is not None:
            value = "" if self.value is None else f" = '{self.value[:60]}'"
            parts.append(f"column '{self.column}'{value}")
        more = len(self.rows) - 1
        like = f" (... and {more} more row{'s' if more > 1 else ''} like it)" if more > 0 else ""
        return f"{': '.join(parts)}: {self.problem}. Fix: {self.fix}{like}"


@dataclass
class Faults:
    """Collects the faults of one source. Faults with the same problem text are counted as one."""

    found: dict[str, Fault] = field(default_factory=dict)
    total: int = 0

    def add(
        self,
        problem: str,
        fix: str,
        rows: Collection[int] = (),
        column: str | None = None,
        value: object = None,
    ) -> None:
        """Record a fault in some data rows, or in the whole source. value: of the first row."""
        self.total += len(rows) or 1
        fault = Fault(set(rows), column, None if value is None else str(value), problem, fix)
        known = self.found.setdefault(problem, fault)
        rows = known.rows | fault.rows
        self.found[problem] = fault if fault.row < known.row else known
        self.found[problem].rows = rows

    def stop(self, source: str, first_line: int | None) -> None:
        """Raise DataError if any fault was recorded. The message lists at most LINES of them, and
        the exact total.

        first_line: the line of data row 0; None if the source has no lines (Parquet, a frame).
        """
        if not self.total:
            return
        found = sorted(self.found.values(), key=lambda fault: fault.row)
        lines = [fault.text(source, first_line) for fault in found]
        if self.total > len(lines) or len(lines) > LINES:
            hidden = len(lines) - (LINES - 1)
            kinds = (
                f", {hidden} more kind{'s' if hidden > 1 else ''} of them not shown"
                if hidden > 0
                else ""
            )
            lines = [*lines[: LINES - 1], f"{source}: {self.total} faults in all{kinds}"]
        raise DataError("\n".join(lines))
