"""One finding: what was checked, what was measured, how bad it is, and how to fix it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Status(enum.StrEnum):
    """How bad a finding is."""

    OK = "OK"
    WARN = "WARN"  # a run works, but slower, or without all of the machine's resources
    FAIL = "FAIL"  # a run would not start, would crash, or would be insecure


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    measured: what was found. fix: what the user should do. Raises ValueError if `fix` is empty and
        the verdict is not
    OK.
    """

    name: str
    verdict: Status
    measured: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not Status.OK and not self.fix.strip():
            raise ValueError(f"finding {self.name!r} is {self.verdict} and has no fix")


def ok(name: str, measured: str) -> Finding:
    """A finding that needs no fix."""
    return Finding(name, Status.OK, measured)


def warn(name: str, measured: str, fix: str) -> Finding:
    """A finding that costs speed or resources."""
    return Finding(name, Status.WARN, measured, fix)


def fail(name: str, measured: str, fix: str) -> Finding:
    """A finding that prevents runs."""
    return Finding(name, Status.FAIL, measured, fix)
