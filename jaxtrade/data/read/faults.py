"""Collects the faults of a data file, so that one short message shows them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtrade.errors import DataError

LINES = 5  # faults listed in one message


@dataclass
class Fault:
    """One kind of fault, described at the first row that has it: the row, what was found there, and
    the fix.

    row: 0-based; None if the fault concerns the whole source. rows: all data rows that have the
        fault.
    """

    row: int | None
    column: str | None
    value: str | None
    problem: str
    fix: str
    rows: set[int] = field(default_factory=set)

    def text(self, source: str, first_line: int | None) -> str:
        """The fault as text: `source:line: column 'x' = 'value': problem. Fix: fix`.

        If the source has no lines, the text begins with `source: row n (0-based): ...`.
        """
        parts = [source]
        if self.row is not None and first_line is not None:
            parts = [f"{source}:{self.row + first_line}"]
        elif self.row is not None:
            parts.append(f"row {self.row} (0-based)")
        if self.column is not None:
            value = "" if self.value is None else f" = '{self.value[:60]}'"
            parts.append(f"column '{self.column}'{value}")
        more = len(self.rows) - 1
        like = f" (... and {more} more row{'s' if more > 1 else ''} like it)" if more > 0 else ""
        return f"{': '.join(parts)}: {self.problem}. Fix: {self.fix}{like}"


@dataclass
class Faults:
    """Collects the faults of one source. Faults with the same problem text are counted as one.

    first_line: the line of data row 0; None if the source has no lines (Parquet, a frame).
    """

    source: str
    first_line: int | None = 2
    found: dict[str, Fault] = field(default_factory=dict)
    total: int = 0

    def add(
        self,
        problem: str,
        fix: str,
        row: int | None = None,
        column: str | None = None,
        value: object = None,
    ) -> None:
        """Record a fault in a data row, or in the whole source (row=None)."""
        self.total += 1
        fault = self.found.get(problem)
        if fault is None or (row is not None and fault.row is not None and row < fault.row):
            rows = set() if fault is None else fault.rows
            fault = self.found[problem] = Fault(
                row, column, None if value is None else str(value), problem, fix, rows
            )
        if row is not None:
            fault.rows.add(row)

    def stop(self) -> None:
        """Raise DataError if any fault was recorded. The message lists at most LINES of them, and
        the exact total.
        """
        if not self.total:
            return
        found = sorted(self.found.values(), key=lambda f: -1 if f.row is None else f.row)
        lines = [fault.text(self.source, self.first_line) for fault in found]
        if self.total > len(lines) or len(lines) > LINES:
            hidden = len(lines) - (LINES - 1)
            kinds = (
                f", {hidden} more kind{'s' if hidden > 1 else ''} of them not shown"
                if hidden > 0
                else ""
            )
            lines = [*lines[: LINES - 1], f"{self.source}: {self.total} faults in all{kinds}"]
        raise DataError("\n".join(lines))
