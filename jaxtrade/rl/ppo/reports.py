"""PPO's own health checks, warnings and console columns for the training loop: pure functions of the metric rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxtrade.config.compute import Precision
from jaxtrade.types import Column, HealthCheck, Remedies, Row, Warn

LEAST_RATE = 1e-8  # smaller steps vanish in the rounding of float32 weights
LEAST_KL = 1e-10  # float32 noise of a policy that does not change; a policy that learns is above 1e-6
LEAST_EXPLAINED = -1.0
# Largest difference from 1 of a probability ratio before the first gradient step: about ten times what another order of
# sums made of trained policies with logits 15 to 35 apart (1.0e-5, 2.7e-3, 1.2e-2).
RATIO_ERROR: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


def _positive(value: float) -> bool:
    return value > 0


LEARNS = (
    HealthCheck("learning_rate", "lowest learning rate", lambda rows: min(row["learning_rate"] for row in rows),
                _positive),
    HealthCheck("approx_kl", "highest KL", lambda rows: max(row["approx_kl"] for row in rows), _positive),
    HealthCheck("param_delta", "smallest step", lambda rows: min(row["param_delta"] for row in rows), _positive),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision.

    `ratio_error`: acting and learning compute the same probabilities up to rounding. Where operands are rounded to few
    bits, two that differ in their last bit of float32 may come to differ in the last bit of those few.
    """
    def small(value: float) -> bool:
        return value <= RATIO_ERROR[precision]

    return (*LEARNS, HealthCheck("ratio_error", "largest ratio error",
                                 lambda rows: max(row["ratio_error"] for row in rows), small, max))


PROGRESS = (Column("kl", "approx_kl", ".1e"), Column("clip", "clip_fraction", ".3f"),
            Column("entropy", "entropy", ".3f"), Column("ev", "explained_variance", ".2f"),
            Column("lr", "learning_rate", ".2e"))

REMEDIES = Remedies(
    no_trades="raise ppo.ent_coef",
    one_action="raise ppo.ent_coef, lower ppo.learning_rate",
    diverged="lower ppo.learning_rate or ppo.max_grad_norm",
)


def learning_rate(rows: Sequence[Row]) -> str:
    """Warn about a learning rate that is too small to change any weight."""
    rate, update = rows[-1]["learning_rate"], rows[-1].get("update")
    if rate >= LEAST_RATE:
        return ""
    at = "" if update is None else f" at update {update}"
    return (f"the learning rate is {rate:.1e}{at}: nothing is learnt from here on, because its schedule ends too low "
            "or something set it to 0; raise ppo.learning_rate and ppo.learning_rate_end")


def frozen(rows: Sequence[Row]) -> str:
    """Warn about a policy that does not change."""
    largest = max(row["approx_kl"] for row in rows)
    if largest > LEAST_KL:
        return ""
    return (f"KL has been at most {largest:.1e} for {len(rows)} updates: the policy does not move, because its "
            "gradient is zero (one legal action, equal rewards), clipped away (ppo.max_grad_norm), or the learning "
            "rate is too small; look at ppo.learning_rate and at the rewards")


def explained_variance(rows: Sequence[Row]) -> str:
    """Warn about value estimates that are worse than a constant, and about returns that do not vary."""
    values: list[Any] = [row["explained_variance"] for row in rows]
    if not any(math.isfinite(value) for value in values):
        return (f"explained variance is undefined in {len(rows)} updates: the returns do not vary, because all rewards "
                "are equal (nothing is traded, or the reward has no term that trading changes); look at reward.preset "
                "and reward.weights")
    if all(value < LEAST_EXPLAINED for value in values):
        return (f"explained variance is below {LEAST_EXPLAINED:g} in {len(rows)} updates (now {values[-1]:.1f}): the "
                "value estimates are worse than a constant, because the rewards are very large or very small or the "
                "learning rate is too large; bring the rewards to about 1 (reward.weights), lower ppo.learning_rate "
                "or raise ppo.vf_coef")
    return ""


WARNINGS = (Warn("learning_rate", learning_rate, at_once=True), Warn("frozen", frozen),
            Warn("explained_variance", explained_variance))
