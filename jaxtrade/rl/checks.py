"""What the learners' health checks and warnings share: bounds of a figure over a run, and a rate
that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxtrade.types import HealthCheck, Row

LEAST_RATE = 1e-8  # smaller steps vanish in the rounding of float32 weights
MOST_LOSS = 1e5  # of values, in squared rewards: with rewards of about 1 it is at most about 100


def lowest(name: str, label: str) -> HealthCheck:
    """The lowest value of a metric in the run must be positive."""
    return HealthCheck(
        name,
        label,
        lambda rows: float(np.min([row[name] for row in rows])),
        lambda value: value > 0,
    )


def highest(
    metric: str, label: str, low: float, high: float, name: str | None = None
) -> HealthCheck:
    """The highest value of a metric in the run must be above `low` and at most `high`. name: of the
    check.

    Updates that were not finite are the loop's to judge; in others an undefined value fails.
    """

    def measure(rows: Sequence[Row]) -> float:
        return float(np.max([row[metric] for row in rows if row.get("finite", True)] or [math.nan]))

    def worst(values: Sequence[float]) -> float:
        values = list(values)
        return max(values) if max(values) > high else min(values)

    return HealthCheck(name or metric, label, measure, lambda value: low < value <= high, worst)


def small_rate(section: str) -> Callable[[Sequence[Row]], str]:
    """The warning about a learning rate that is too small to change any weight. section: of the
    learner, "ppo".
    """

    def look(rows: Sequence[Row]) -> str:
        rate, update = rows[-1]["learning_rate"], rows[-1].get("update")
        if rate >= LEAST_RATE:
            return ""
        at = "" if update is None else f" at update {update}"
        return (
            f"the learning rate is {rate:.1e}{at}: nothing is learnt from here on, because its schedule ends too "
            f"low or something set it to 0; raise {section}.learning_rate and {section}.learning_rate_end"
        )

    return look
