"""The journal of paper trading: what came in and what was done, in the lines of a hash chain.

After a kill the inputs are run through the engine again. While recorded lines are left, `add`
compares what the engine does with them; after the last one it writes. So recovery is the same code
as trading, and every state is checked against the recorded one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.journal import append_line, chain_line, read_chain
from jaxtrade.advisor.host.types import canonical
from jaxtrade.paper.broker import HaltError

FORMAT = 1
Line = dict[str, Any]


class PaperJournal:
    """Reads what is recorded, then appends.

    A killed process leaves at most one torn line, which is cut. Raises HaltError where a line was
    changed, removed, inserted or moved, or where the file lacks what `position` knows of it.

    recorded: the lines that are not yet run again.
    """

    def __init__(self, path: Path, position: Mapping[str, Any] | None = None) -> None:
        self.path, self.count, self.digest = path, 0, ""
        self._file = path.open("a+b", buffering=0)
        self._file.seek(0)
        *whole, torn = self._file.read().split(b"\n")
        chain = list(read_chain(whole, self._fault, "a paper journal"))
        self.recorded = deque(line for _, line, _ in chain)
        if position:
            at = position["lines"]
            if at > len(chain) or chain[at - 1][2] != position["sha256"]:
                raise self._fault(min(at, len(chain) + 1), "not the line that status.json knows")
        self.torn = len(torn)
        if torn:
            os.truncate(self._file.fileno(), sum(len(line) + 1 for line in whole))
        if chain:
            self.count, self.digest = len(chain), chain[-1][2]

    def _fault(self, number: int, why: str) -> HaltError:
        return HaltError(
            f"{self.path}: line {number}: {why}. Restore the file from a copy, or begin another session "
            "(--name)"
        )

    def add(self, kind: str, **fields: Any) -> None:
        """Append a line, or compare it with the recorded one. Raises HaltError where they differ."""
        line = {"kind": kind, **fields}
        if self.recorded:
            known = self.recorded.popleft()
            if canonical(known) != canonical(line):
                number = self.count - len(self.recorded)
                differ = [key for key in {**known, **line} if known.get(key) != line.get(key)]
                found = ", ".join(
                    f"{key}: recorded {known.get(key)!r}, now {line.get(key)!r}" for key in differ
                )
                raise self._fault(number, f"what is computed again differs ({found})")
            return
        data, self.digest = chain_line(self.digest, canonical(line))
        append_line(self._file, data)
        self.count += 1

    def sync(self) -> None:
        """Wait until the journal is on disk."""
        if not self.recorded:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
