"""`nulls.jsonl`: the statistics of finished null markets, so that a test that was killed goes on.

The first line says what the draws belong to, every further line is one draw. A line is on the disk
before the next draw begins. A last line that is cut off was being written when the process was
killed: it is dropped, and its draw is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import ConfigError

NULLS = "nulls.jsonl"
FORMAT = 1


class NullJournal:
    """The journal of one test. `known[i]` holds the statistics of draw i by name, for all draws
    that are finished.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        """Open the journal, or begin it.

        facts: what the draws depend on, besides their number: kind, seed, digests of configuration
            and data; JSON
        values. Raises ConfigError if the file belongs to other facts, or is damaged before its last
        line.
        """
        self.path, self._facts = path, {"format": FORMAT, **facts}
        self.known: list[dict[str, float]] = []
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        rows = [self._row(number, line) for number, line in enumerate(lines, start=1)]
        if rows:
            self._check_facts(rows[0])
        for number, row in enumerate(rows[1:], start=2):
            if row.get("draw") != len(self.known) or not isinstance(row.get("statistics"), dict):
                raise self._damaged(
                    number, f"expected draw {len(self.known)} and its statistics, found {row}"
                )
            self.known.append(row["statistics"])
        if lines:
            os.truncate(path, sum(map(len, lines)))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._write(self._facts)

    def append(self, statistics: Mapping[str, float]) -> None:
        """Record the next draw. On return it is on the disk."""
        self._write({"draw": len(self.known), "statistics": dict(statistics)})
        self.known.append(dict(statistics))

    def _write(self, row: Mapping[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            raise self._damaged(number, "no JSON") from None
        if not isinstance(row, dict):
            raise self._damaged(number, f"expected an object, found {row!r}")
        return row

    def _check_facts(self, found: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(self._facts))
        differ = [
            name for name in sorted(set(found) | set(wanted)) if found.get(name) != wanted.get(name)
        ]
        if differ:
            parts = "; ".join(
                f"{name}: found {found.get(name)}, expected {wanted.get(name)}" for name in differ
            )
            raise ConfigError(
                f"{self.path}: holds the null markets of another test ({parts}). Fix: ask for that test "
                "again, or move the file away to begin this one"
            )

    def _damaged(self, number: int, what: str) -> ConfigError:
        return ConfigError(
            f"{self.path}: line {number}: {what}. Fix: remove that line and all after it; their draws "
            "are then made again"
        )
