"""Timing that a hostile reader would accept.

Sides take turns in one run, so that whatever else the machine does falls on all of them. Programs
are compiled ahead of time and warmed up, results are blocked on, medians are reported with their
spread. Two clocks: wall seconds, and CPU seconds of the process that does the work and its
children, which other processes disturb little.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax

from . import idle

T = TypeVar("T")


class Sample(NamedTuple):
    """One repeat of one side, in seconds."""

    wall: float
    cpu: float


class Side(NamedTuple):
    """One of the things compared. run: one repeat -> what it took. steps: environment steps in
    it.
    """

    run: Callable[[], Sample]
    steps: int


def clock(work: Callable[[], Any]) -> Sample:
    """What one call took in this process; JAX arrays in its result are waited for."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(work())
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def side(work: Callable[[], Any], steps: int) -> Side:
    """A side that runs in this process. `work` is compiled already and returns everything that it
    computes.
    """
    return Side(lambda: clock(work), steps)


def interleave(sides: Mapping[str, Side], repeats: int) -> dict[str, list[Sample]]:
    """`repeats` samples of each side, taking turns; the order of turns alternates. One more run
    before warms up.
    """
    for each in sides.values():
        each.run()
    return take_turns({name: each.run for name, each in sides.items()}, repeats)


def take_turns(work: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Side -> what its `repeats` calls returned, taking turns; the order of turns alternates. The
    steal time of each side goes to `idle.LEDGER`."""
    idle.LEDGER.begin()
    found: dict[str, list[T]] = {name: [] for name in work}
    for repeat in range(repeats):
        for name in list(work)[:: 1 if repeat % 2 == 0 else -1]:
            with idle.LEDGER.during(name):
                found[name].append(work[name]())
    return found


def summary(samples: Sequence[Sample], steps: int) -> dict[str, Any]:
    """Medians of steps per second by both clocks, and the least and greatest of the repeats."""
    by_clock = {
        "second": [steps / s.wall for s in samples],
        "cpu_second": [steps / s.cpu for s in samples],
    }
    result: dict[str, Any] = {"steps": steps, "repeats": len(samples)}
    for name, rates in by_clock.items():
        result[f"steps_per_{name}"] = rounded(statistics.median(rates))
        result[f"steps_per_{name}_range"] = [rounded(min(rates)), rounded(max(rates))]
    return result


def compare(sides: Mapping[str, Side], repeats: int) -> dict[str, dict[str, Any]]:
    """Side -> `summary`, all interleaved."""
    return {
        name: summary(taken, sides[name].steps)
        for name, taken in interleave(sides, repeats).items()
    }


def ratio(results: Mapping[str, Mapping[str, Any]], ours: str, theirs: str) -> dict[str, float]:
    """How many times as many steps per second `ours` makes, by wall and by CPU seconds (medians
    over medians).
    """
    return {
        name: rounded(results[ours][key] / results[theirs][key])
        for name, key in (("wall", "steps_per_second"), ("cpu", "steps_per_cpu_second"))
    }


def rounded(value: float, digits: int = 4) -> float:
    """To significant digits: more would claim a precision that a shared machine has not."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) >= 10 ** (digits - 1) else short


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
