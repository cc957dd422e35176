"""The journal of paper trading: what came in and what was done, in the lines of a hash chain.

After a kill the inputs are run through the engine again. While recorded lines are left, `add`
compares what the engine does with them; after the last one it writes. So recovery is the same code
as trading, and every state is checked against the recorded one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from io import FileIO
from typing import Any

from jaxtrade.advisor.host.journal import append_line, chain_line, read_chain
from jaxtrade.advisor.host.types import canonical
from jaxtrade.paper.broker import HaltError

FORMAT = 1


class PaperJournal:
    """Reads what is recorded, then appends.

    A killed process leaves at most one torn line, which is cut. Raises HaltError where a line was
    changed, removed, inserted or moved, or where the file lacks what `position` knows of it.

    file: unbuffered, of mode a+b.
    recorded: the lines that are not yet run again.
    lines, digest: how many there are, and the digest of the last.
    """

    def __init__(self, file: FileIO, position: Mapping[str, Any] | None = None) -> None:
        self._file = file
        file.seek(0)
        whole = file.read().split(b"\n")[:-1]
        chain = list(read_chain(whole, self.fault, "a paper journal"))
        self.recorded = deque(line for _, line, _ in chain)
        digests = ["", *(digest for *_, digest in chain)]
        self.lines, self.digest = len(chain), digests[-1]
        at = position["lines"] if position else 0
        if position and digests[at : at + 1] != [position["sha256"]]:
            raise self.fault(min(at, len(digests)), "not the line that status.json knows")
        file.truncate(sum(len(line) + 1 for line in whole))

    def fault(self, number: int, why: str) -> HaltError:
        """Make the error of a line, to raise."""
        return HaltError(
            f"{self._file.name}: line {number}: {why}. Restore the file from a copy, or begin another session "
            "(--name)"
        )

    def add(self, kind: str, **fields: Any) -> bool:
        """Append a line, or compare it with the recorded one. Return whether it was recorded.

        Raises HaltError where they differ.
        """
        text = canonical({"kind": kind, **fields})
        if self.recorded:
            known = canonical(self.recorded.popleft())
            if known != text:
                why = f"what is computed again differs: recorded {known}, now {text}"
                raise self.fault(self.lines - len(self.recorded), why)
            return True
        data, self.digest = chain_line(self.digest, text)
        append_line(self._file, data)
        self.lines += 1
        return False

    def sync(self) -> None:
        """Wait until the journal is on disk."""
        if not self.recorded:
            os.fsync(self._file.fileno())
