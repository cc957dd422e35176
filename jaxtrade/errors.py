"""Errors that a user can fix, each with its exit code.

A message says what was found, where (file, row, column, key or flag), what was expected and how to
fix it. The command line prints the message alone; a traceback is for bugs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class JaxtradeError(Exception):
    """Base of all errors that the user can fix. `exit_code` is what the command line returns."""

    exit_code = 2


class ConfigError(JaxtradeError):
    """A configuration key or value that cannot be used.

    Names the key and, for an unknown key, the nearest one.
    """


class ConfigFaultsError(ConfigError):
    """Several faults of one configuration, one line each.

    faults: (where, what) of each; `where` may be empty.
    rest: the nested values that have no fault of their own.
    """

    def __init__(
        self, faults: Sequence[tuple[str, str]], rest: Mapping[str, Any] | None = None
    ) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        self.rest = dict(rest or {})
        super().__init__(
            "\n".join(f"{where}: {what}" if where else what for where, what in self.faults)
        )


class DataError(JaxtradeError):
    """Market data that cannot be used. Names file, row and column, and the fix."""


class CheckpointError(JaxtradeError):
    """A checkpoint or policy bundle that cannot be read. Names the file."""


class JournalError(JaxtradeError):
    """An advice journal that cannot be replayed. Names the file and the first bad line."""


class RunLockedError(JaxtradeError):
    """Another process writes to this run directory."""

    exit_code = 73


class DivergedError(JaxtradeError):
    """Training produced a number that is not finite."""

    exit_code = 76


class StorageError(JaxtradeError):
    """Files could not be read or written (disk full, no permission). Names the directory."""

    exit_code = 74


class OutOfMemoryError(JaxtradeError):
    """Memory of the machine or of its accelerator ran out. Says what a run's memory is made of."""

    exit_code = 71


class PreemptedError(JaxtradeError):
    """SIGTERM: the run stopped at a chunk border, saved, and can be resumed.

    A command with nothing to save ends with this code too, at once (`interrupt`).
    """

    exit_code = 75


class InterruptedRunError(JaxtradeError):
    """Ctrl-C: a run stopped at a chunk border, saved, and can be resumed.

    Other commands stop at once.
    """

    exit_code = 130


class ProcessLostError(JaxtradeError):
    """Another process of the run has ended, or does not answer.

    All of them must be started again.
    """

    exit_code = 69


class StoppedTogetherError(JaxtradeError):
    """Process 0 has stopped a run of several processes.

    exit_code: that of its own error.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
