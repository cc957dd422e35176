"""What the tested days of a walk-forward prove: whether baselines are beaten, and what a Sharpe
ratio of so few days is worth. The same functions as in the report of a run (docs/statistics.md).
Loads no JAX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxtrade.evaluation.statistics import (
    LEVEL,
    ONE_POLICY,
    IntervalEstimate,
    min_trl,
    probability_of_improvement,
    psr,
    spa,
)
from jaxtrade.evaluation.walk_days import WalkDays
from jaxtrade.text import several


def evidence_of(days: WalkDays) -> dict[str, Any]:
    """Keys of `pooled` in `walkforward.json`, all of dollars per trade date, account rules off.

    spa: p-value (`p`) of the hypothesis that some baseline is beaten by no seed, with Hansen's
        bounds. improvement: by
    baseline, the probability that a seed earns more; None where there is one seed. psr, min_trl: of
    the mean over the seeds (`of_mean`), the record of an account that follows all of them in equal
    parts, and of each seed (`by_seed`, in the order of the seeds). Where a figure or its interval
    is None, `why` says the reason.
    """
    net, rules = days.by_date(days.net)[0], days.by_date(days.baseline_net)[0]
    names = [str(name) for name in days.baselines]
    tested = spa(net.T, rules.T, names=names)
    return {
        "spa": {
            "p": tested.consistent,
            "lower": tested.lower,
            "upper": tested.upper,
            "why": tested.why,
        },
        "improvement": {
            name: _plain(_improvement(net, rule)) for name, rule in zip(names, rules, strict=True)
        },
        **{
            name: {
                "of_mean": _plain(figure(net.mean(axis=0))),
                "by_seed": [_plain(figure(own)) for own in net],
            }
            for name, figure in (("psr", psr), ("min_trl", min_trl))
        },
    }


def _improvement(net: np.ndarray, rule: np.ndarray) -> IntervalEstimate:
    if len(net) == 1:
        return IntervalEstimate(None, None, None, ONE_POLICY)
    return probability_of_improvement(net, rule[None], rule=True)


def _plain(found: IntervalEstimate) -> dict[str, Any]:
    return found._asdict() | {"level": LEVEL}


def evidence_lines(pooled: dict[str, Any]) -> Iterator[str]:
    """The lines below the printed table. pooled: as in `walkforward.json`."""
    tested, days = pooled["spa"], pooled["independent_days"]
    yield (
        "p-value of the hypothesis that some baseline is beaten by no seed (SPA; small is good): "
        + (f"n/a ({tested['why']})" if tested["p"] is None else f"{tested['p']:.3f}")
    )
    yield f"probability that a seed earns more than {_improvements(pooled['improvement'])}"
    figures = (
        ("psr", "probability that the true Sharpe ratio is above 0 (PSR)", ".2f"),
        (
            "min_trl",
            f"days after which such a record shows that (MinTRL; there are {days})",
            ",.0f",
        ),
    )
    for key, what, form in figures:
        yield f"{what}, of the mean over the seeds: {_shown(pooled[key]['of_mean'], form)}{_seeds(pooled[key], form)}"


def _improvements(found: dict[str, dict[str, Any]]) -> str:
    """Each baseline with its probability. A reason that all have in common is told once."""
    reasons = {each["why"] for each in found.values()}
    if len(reasons) != 1 or None in reasons:
        return ", ".join(f"{name}: {_shown(each, '.2f')}" for name, each in found.items())
    [why] = reasons
    if all(each["value"] is None for each in found.values()):
        return f"{', '.join(found)}: n/a ({why})"
    return (
        ", ".join(f"{name}: {each['value']:.2f}" for name, each in found.items())
        + f"; interval n/a ({why})"
    )


def _shown(each: dict[str, Any], form: str) -> str:
    """A figure with its interval, or `n/a` and why."""
    if each["value"] is None:
        return f"n/a ({each['why']})"
    value, low = (
        f"{each[name]:{form}}" if each[name] is not None else "" for name in ("value", "low")
    )
    if each["low"] is None:
        return f"{value}, interval n/a ({each['why']})"
    if each["high"] is None:
        return f"{value}, {each['level']:.0%} interval from {low} on ({each['why']})"
    return f"{value}, {each['level']:.0%} interval {low} to {each['high']:{form}}"


def _seeds(found: dict[str, Any], form: str) -> str:
    """How single seeds differ; empty where the mean is that of one seed, or where no seed has the
    figure.
    """
    values = [each["value"] for each in found["by_seed"] if each["value"] is not None]
    if len(found["by_seed"]) == 1 or not values:
        return ""
    without = len(found["by_seed"]) - len(values)
    rest = f", n/a of {several(without, 'seed')}" if without else ""
    return f"; one seed {min(values):{form}} to {max(values):{form}}{rest}"
