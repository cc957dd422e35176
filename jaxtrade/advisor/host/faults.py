"""Exceptions that may not go further: counted by kind, and told once each."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path


class ContainedFaults:
    """What was contained, of one object. `tell` gets one line per kind; one that raises is counted, and ends nothing.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.untold = 0

    def contain(self, where: str, error: BaseException) -> None:
        """An exception that is a bug, of this package or of what it was given. Its text might hold a secret."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        name = type(error).__name__
        self.trouble(f"{where} {name}", f"advisor: {name} in {where}{place}; contained, please report it")

    def trouble(self, kind: str, line: str) -> None:
        """Anything that is told once and counted each time."""
        with self._lock:
            self._counts[kind] += 1
            first = self._counts[kind] == 1
        if first:
            self.tell(line)

    def tell(self, line: str) -> None:
        try:
            self._tell(line)
        except Exception:
            self.untold += 1

    def counts(self) -> dict[str, int]:
        """Kind -> how often."""
        with self._lock:
            return dict(self._counts)
