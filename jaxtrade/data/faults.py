"""Faults of a data file, collected so that one message shows them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtrade.errors import DataError

SHOWN = 20


@dataclass(frozen=True)
class Fault:
    """One thing wrong: where (line number or None for the whole file), what was found, and the fix."""

    line: int | None
    column: str | None
    value: str | None
    problem: str
    fix: str

    def text(self, source: str) -> str:
        """`source:line: column 'x' = 'value': problem; fix`."""
        where = source if self.line is None else f"{source}:{self.line}"
        what = "" if self.column is None else f" column '{self.column}'"
        what += "" if self.value is None else f" = '{self.value[:60]}'"
        return f"{where}:{what + ':' if what else ''} {self.problem}. Fix: {self.fix}"


@dataclass
class Faults:
    """Collects faults of one source; `line_of` turns a data row (0-based) into the line a user can go to."""

    source: str
    first_line: int = 2
    found: list[Fault] = field(default_factory=list)
    total: int = 0

    def add(self, problem: str, fix: str, row: int | None = None, column: str | None = None,
            value: object = None) -> None:
        """Record a fault of a data row, or of the whole source."""
        self.total += 1
        if len(self.found) < SHOWN:
            line = None if row is None else row + self.first_line
            self.found.append(Fault(line, column, None if value is None else str(value), problem, fix))

    def stop(self) -> None:
        """Raise DataError with everything found so far, if anything was."""
        if not self.total:
            return
        found = sorted(self.found, key=lambda f: (f.line is not None, f.line or 0))
        lines = [fault.text(self.source) for fault in found]
        if self.total > len(lines):
            lines.append(f"{self.source}: ... and {self.total - len(lines)} more faults")
        raise DataError("\n".join(lines))
