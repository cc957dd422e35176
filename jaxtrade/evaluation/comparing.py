"""Runs against each other, paired by day: on the same day the market did the same to all of them.

Of a run with several policies the mean over its policies counts. Where two runs have the same
policies (seeds), their differences are paired by policy too. Loads no JAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.evaluation.run_days import RunDays
from jaxtrade.evaluation.statistics import (
    MIN_DAYS,
    Comparison,
    Interval,
    IntervalEstimate,
    SuperiorAbility,
    compare,
    probability_of_improvement,
    spa,
)
from jaxtrade.text import aligned, several

NOT_AVAILABLE = "n/a"


@dataclass(frozen=True)
class Against:
    """A run against the first one.

    paired: the differences by day. interval: 95 % of their mean, with days and policies resampled
        where both runs have
    the same policies and enough of them, else with days resampled; None with `why`. resampled:
    which, in words.
    improvement: probability that a policy of the run makes more than one of the first run.
    """

    paired: Comparison
    interval: Interval | None
    resampled: str | None
    why: str | None
    improvement: IntervalEstimate


@dataclass(frozen=True)
class RunComparison:
    """Runs on the same days. mean: dollars per day of each, over policies and days. against: of
    each but the first.

    best: index of the run with the largest mean. spa: p of the hypothesis that some other run is
        beaten by none
    (`best_of`).
    """

    runs: tuple[RunDays, ...]
    mean: tuple[float, ...]
    against: tuple[Against, ...]
    best: int
    spa: SuperiorAbility


def compared(runs: Sequence[RunDays]) -> RunComparison:
    """Compare runs on the same days (`run_days.on_shared_days`), two or more."""
    mean = tuple(float(each.net.mean()) for each in runs)
    daily = np.stack([each.net.mean(axis=0) for each in runs], axis=1)
    return RunComparison(
        tuple(runs),
        mean,
        tuple(_against(each, runs[0]) for each in runs[1:]),
        int(np.argmax(mean)),
        best_of(daily),
    )


def best_of(daily: np.ndarray) -> SuperiorAbility:
    """Whether the best of several runs is better than each of the others, or was only picked from
    many.

    daily: float64[D, R] dollars by day and run. For each run but the best: Hansen's test with this
        run as the baseline
    and all others as the policies, so that having picked the best of them is accounted for. The
    largest p counts: the best has to beat every one. Small p: it is better than all others.
    """
    best = int(daily.mean(axis=0).argmax())
    found = [
        spa(np.delete(daily, rival, axis=1), daily[:, rival])
        for rival in range(daily.shape[1])
        if rival != best
    ]
    return next((each for each in found if each.consistent is None), None) or max(
        found, key=lambda each: each.consistent or 0.0
    )


def _against(run: RunDays, base: RunDays) -> Against:
    alike = run.policies == base.policies
    nets = (
        (run.net, base.net)
        if alike
        else (run.net.mean(axis=0, keepdims=True), base.net.mean(axis=0, keepdims=True))
    )
    paired = compare(*nets)
    held = paired.interval or paired.days_only
    resampled = None if held is None else "days" if paired.interval is None else "days and policies"
    why = None if held is not None else f"it needs {MIN_DAYS} days, there are {paired.days}"
    return Against(paired, held, resampled, why, probability_of_improvement(run.net, base.net))


def to_json(found: RunComparison) -> dict[str, Any]:
    """Plain data for JSON; what is undefined is None, with the reason."""
    first = found.runs[0]
    return {
        "data_sha256": first.data,
        "splits": [each.split for each in found.runs],
        "days": len(first.dates),
        "first_day": str(first.dates[0]),
        "last_day": str(first.dates[-1]),
        "unit": "dollars per day, account rules off",
        "best": found.runs[found.best].name,
        "spa": found.spa._asdict(),
        "runs": [
            {
                "run": each.name,
                "policies": len(each.policies),
                "mean": mean,
                "against_first": None if number == 0 else _row(found.against[number - 1]),
            }
            for number, (each, mean) in enumerate(zip(found.runs, found.mean, strict=True))
        ],
    }


def _row(each: Against) -> dict[str, Any]:
    low, high = (None, None) if each.interval is None else each.interval
    return {
        "difference": each.paired.mean,
        "low": low,
        "high": high,
        "why": each.why,
        "resampled": each.resampled,
        "days_above": each.paired.days_above,
        "days": each.paired.days,
        "improvement": each.improvement._asdict(),
    }


def table(found: RunComparison) -> list[str]:
    """The comparison as lines of text."""
    first, days = found.runs[0], len(found.runs[0].dates)
    head = [
        "run",
        "policies",
        "net/day ($)",
        "difference ($)",
        "95 % interval",
        "days above",
        "P(better)",
    ]
    rows = [
        head,
        [first.name, str(len(first.policies)), f"{found.mean[0]:,.2f}", *["" for _ in head[3:]]],
    ]
    for run, mean, each in zip(found.runs[1:], found.mean[1:], found.against, strict=True):
        held = (
            NOT_AVAILABLE
            if each.interval is None
            else f"{each.interval.low:,.2f} .. {each.interval.high:,.2f}"
        )
        rows.append(
            [
                run.name,
                str(len(run.policies)),
                f"{mean:,.2f}",
                f"{each.paired.mean:+,.2f}",
                held,
                f"{each.paired.days_above} of {each.paired.days}",
                _probability(each.improvement),
            ]
        )
    splits = " and ".join(dict.fromkeys(each.split for each in found.runs))
    return [
        f"{several(days, 'day')} ({splits}, {first.dates[0]} .. {first.dates[-1]}) on the same bars; dollars per "
        "day, account rules off",
        "",
        *aligned(rows),
        "",
        f"differences are from {first.name}, paired by day",
        *dict.fromkeys(_notes(found)),
        _best_line(found),
    ]


def _probability(of: IntervalEstimate) -> str:
    """A probability with its interval; `n/a` without one, because one policy against one gives 0 or
    1.
    """
    if of.value is None or of.low is None or of.high is None:
        return NOT_AVAILABLE
    return f"{of.value:.2f} ({of.low:.2f} .. {of.high:.2f})"


def _notes(found: RunComparison) -> Iterator[str]:
    """What was resampled, and why a figure has no interval."""
    for each in found.against:
        yield (
            f"intervals: {each.resampled} resampled, days in blocks of neighbours"
            if each.why is None
            else f"interval n/a: {each.why}"
        )
        if each.improvement.why is not None:
            yield f"P(better) n/a: {each.improvement.why}"


def _best_line(found: RunComparison) -> str:
    """The best run against the rest."""
    name = found.runs[found.best].name
    if found.spa.consistent is None:
        return f"best: {name}; against the rest n/a (SPA): {found.spa.why}"
    return (
        f"best: {name}; p = {found.spa.consistent:.3f} of looking so much better if another run were at least as "
        "good (SPA)"
    )
