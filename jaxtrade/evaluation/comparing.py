"""Runs against each other, paired by day: on the same day the market did the same to all of them.

Of a run with several policies the mean over its policies counts. Where two runs have the same policies (seeds), their
differences are paired by policy too. Loads no JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxtrade.evaluation.run_days import RunDays
from jaxtrade.text import aligned, several

LEAST_SEEDS = 5  # on each side; with fewer the share of pairs is too coarse to be called a probability
NOT_AVAILABLE = "n/a"


class Paired(Protocol):
    """Paired differences, as `Comparison` of the day-block bootstrap: their mean, 95 % intervals (`low`, `high`) with
    days and policies resampled and with the days alone, None where there are too few; and counts of days."""

    @property
    def mean(self) -> float: ...
    @property
    def interval(self) -> Any: ...
    @property
    def days_only(self) -> Any: ...
    @property
    def days_above(self) -> int: ...
    @property
    def days(self) -> int: ...


PairedBy = Callable[[np.ndarray, np.ndarray], Paired]  # (net, base), float64[S, D] each -> their differences


@dataclass(frozen=True)
class Against:
    """A run against the first one.

    difference: dollars per day, mean. low, high: its 95 % interval, None with `why`. resampled: what was drawn again
    for it, in words. days_above: days on which it made more, of `days`. improvement: probability that a policy of the
    run makes more than one of the first run, None with `improvement_why`.
    """

    difference: float
    low: float | None
    high: float | None
    why: str | None
    resampled: str | None
    days_above: int
    days: int
    improvement: float | None
    improvement_why: str | None


@dataclass(frozen=True)
class RunComparison:
    """Runs on the same days. mean: dollars per day of each, over policies and days. against: of each but the first."""

    runs: tuple[RunDays, ...]
    mean: tuple[float, ...]
    against: tuple[Against, ...]


def compared(runs: Sequence[RunDays], paired_by: PairedBy) -> RunComparison:
    """Compare runs on the same days (`run_days.on_shared_days`). paired_by: the day-block bootstrap of differences."""
    return RunComparison(tuple(runs), tuple(float(each.net.mean()) for each in runs),
                         tuple(_against(each, runs[0], paired_by) for each in runs[1:]))


def _against(run: RunDays, base: RunDays, paired_by: PairedBy) -> Against:
    alike = run.policies == base.policies
    nets = (run.net, base.net) if alike else (run.net.mean(axis=0, keepdims=True), base.net.mean(axis=0, keepdims=True))
    found = paired_by(*nets)
    held, resampled = (found.interval, "days and policies") if found.interval is not None else (found.days_only, "days")
    why = None if held is not None else f"{several(found.days, 'day')}: too few for an interval"
    improvement = _improvement(run.net.sum(axis=1), base.net.sum(axis=1))
    few = f"at least {LEAST_SEEDS} policies of each run are needed" if improvement is None else None
    low, high, resampled = (None, None, None) if held is None else (held.low, held.high, resampled)
    return Against(found.mean, low, high, why, resampled, found.days_above, found.days, improvement, few)


def _improvement(own: np.ndarray, base: np.ndarray) -> float | None:
    """P(X > Y) + P(X = Y) / 2 for a policy X of one run and a policy Y of the other, over all pairs (Agarwal et al.
    2021; the U statistic of Mann and Whitney). own, base: float64[S] totals. None below `LEAST_SEEDS` on a side."""
    if min(len(own), len(base)) < LEAST_SEEDS:
        return None
    return float(np.mean((own[:, None] > base[None]) + 0.5 * (own[:, None] == base[None])))


def to_json(found: RunComparison) -> dict[str, Any]:
    """Plain data for JSON; what is undefined is None, with the reason."""
    first = found.runs[0]
    return {
        "data_sha256": first.data, "splits": [each.split for each in found.runs], "days": len(first.dates),
        "first_day": str(first.dates[0]), "last_day": str(first.dates[-1]),
        "unit": "dollars per day, account rules off",
        "runs": [{"run": each.name, "policies": len(each.policies), "mean": mean,
                  "against_first": None if number == 0 else vars(found.against[number - 1])}
                 for number, (each, mean) in enumerate(zip(found.runs, found.mean, strict=True))],
    }


def table(found: RunComparison) -> list[str]:
    """The comparison as lines of text."""
    first = found.runs[0]
    days = len(first.dates)
    head = ["run", "policies", "net/day ($)", "difference ($)", "95 % interval", "days above", "P(better)"]
    rows = [head, [first.name, str(len(first.policies)), f"{found.mean[0]:,.2f}", *["" for _ in head[3:]]]]
    for run, mean, each in zip(found.runs[1:], found.mean[1:], found.against, strict=True):
        held = NOT_AVAILABLE if each.low is None else f"{each.low:,.2f} .. {each.high:,.2f}"
        better = NOT_AVAILABLE if each.improvement is None else f"{each.improvement:.2f}"
        rows.append([run.name, str(len(run.policies)), f"{mean:,.2f}", f"{each.difference:+,.2f}", held,
                     f"{each.days_above} of {each.days}", better])
    splits = " and ".join(dict.fromkeys(each.split for each in found.runs))
    whys = dict.fromkeys(why for each in found.against for why in (
        each.why and f"interval n/a: {each.why}", each.improvement_why and f"P(better) n/a: {each.improvement_why}")
        if why)
    drawn = dict.fromkeys(each.resampled for each in found.against if each.resampled)
    return [f"{several(days, 'day')} ({splits}, {first.dates[0]} .. {first.dates[-1]}) of the same data; dollars per "
            "day, account rules off", "", *aligned(rows), "",
            f"differences are from {first.name}, paired by day",
            *(f"intervals: {each} resampled, days in blocks of neighbours" for each in drawn), *whys]
