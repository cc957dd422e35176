"""One finding: what was looked at, what was measured, how bad it is, and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Status(enum.StrEnum):
    OK = "OK"
    WARN = "WARN"  # runs, but slower, or with less than the machine has
    FAIL = "FAIL"  # a run would not start, would die, or would trust what it must not


@dataclass(frozen=True)
class Finding:
    """Result of one check. `fix` is what the user does next; only OK may leave it empty (ValueError)."""

    name: str
    verdict: Status
    measured: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not Status.OK and not self.fix.strip():
            raise ValueError(f"finding {self.name!r} is {self.verdict} and has no fix")


def ok(name: str, measured: str) -> Finding:
    return Finding(name, Status.OK, measured)


def warn(name: str, measured: str, fix: str) -> Finding:
    return Finding(name, Status.WARN, measured, fix)


def fail(name: str, measured: str, fix: str) -> Finding:
    return Finding(name, Status.FAIL, measured, fix)
