"""Contains exceptions that must not propagate. They are counted by kind, and each kind is reported
once.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path


class ContainedFaults:
    """The contained exceptions of one object. `tell` receives one line per kind. If `tell` raises,
    the line is counted in `unreported` and nothing else happens."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.unreported = 0

    def contain(self, where: str, error: BaseException) -> None:
        """Count an exception that is a bug of this package or of an object passed to it.

        The report names the exception's class and place only, because its text might contain a
        secret.
        """
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        name = type(error).__name__
        self.trouble(
            f"{where} {name}", f"advisor: {name} in {where}{place}; contained, please report it"
        )

    def trouble(self, kind: str, line: str) -> None:
        """Count a problem of `kind` and report `line` the first time."""
        with self._lock:
            self._counts[kind] += 1
            first = self._counts[kind] == 1
        if first:
            self.tell(line)

    def tell(self, line: str) -> None:
        """Send one line to the console. An error of the console is counted, not raised."""
        try:
            self._tell(line)
        except Exception:
            self.unreported += 1

    def counts(self) -> dict[str, int]:
        """The number of occurrences by kind."""
        with self._lock:
            return dict(self._counts)
