"""Faults of a data file, collected so that one short message shows them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtrade.errors import DataError

LINES = 5  # of a message


@dataclass
class Fault:
    """One kind of thing wrong, at its first place: row (0-based, None for the whole source), what was found, the fix.

    rows: the data rows that have it.
    """

    row: int | None
    column: str | None
    value: str | None
    problem: str
    fix: str
    rows: set[int] = field(default_factory=set)

    def text(self, source: str, first_line: int | None) -> str:
        """`source:line: column 'x' = 'value': problem. Fix: fix`; without lines, `source: row n (0-based): ...`."""
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
    """Collects faults of one source, those of one problem text as one. first_line: the line of data row 0, None where
    the source has rows but no lines (Parquet, a frame)."""

    source: str
    first_line: int | None = 2
    found: dict[str, Fault] = field(default_factory=dict)
    total: int = 0

    def add(self, problem: str, fix: str, row: int | None = None, column: str | None = None,
            value: object = None) -> None:
        """Record a fault of a data row, or of the whole source."""
        self.total += 1
        fault = self.found.get(problem)
        if fault is None or (row is not None and fault.row is not None and row < fault.row):
            rows = set() if fault is None else fault.rows
            fault = self.found[problem] = Fault(row, column, None if value is None else str(value), problem, fix, rows)
        if row is not None:
            fault.rows.add(row)

    def stop(self) -> None:
        """Raise DataError with what was found so far, if anything was: at most LINES lines, and the exact total."""
        if not self.total:
            return
        found = sorted(self.found.values(), key=lambda f: -1 if f.row is None else f.row)
        lines = [fault.text(self.source, self.first_line) for fault in found]
        if self.total > len(lines) or len(lines) > LINES:
            hidden = len(lines) - (LINES - 1)
            kinds = f", {hidden} more kind{'s' if hidden > 1 else ''} of them not shown" if hidden > 0 else ""
            lines = [*lines[:LINES - 1], f"{self.source}: {self.total} faults in all{kinds}"]
        raise DataError("\n".join(lines))
