"""PPO's own health checks, warnings and console columns for the training loop: pure functions of
the metric rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtrade.config.compute import Precision
from jaxtrade.rl import checks
from jaxtrade.types import Column, HealthCheck, Remedies, Row, Warn

LEAST_KL = (
    1e-10  # float32 noise of a policy that does not change; a policy that learns is above 1e-6
)
MOST_KL = 1.0  # an update that learns is below 0.1; with 1 the probability of what was chosen falls to a third or less
LEAST_ENTROPY = 1e-6  # nats; below, no observation leaves a choice to the policy
LAST = 20  # updates that are the end of a run
LEAST_EXPLAINED = -1.0
# Largest difference from 1 of a probability ratio before the first gradient step: about ten times
# what another order of sums made of trained policies with logits 15 to 35 apart (1.0e-5, 2.7e-3,
# 1.2e-2).
RATIO_ERROR: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


LEARNS = (
    checks.lowest("learning_rate", "lowest learning rate"),
    checks.highest("approx_kl", "highest KL", 0.0, MOST_KL),
    checks.lowest("param_delta", "smallest step"),
    HealthCheck(
        "entropy",
        "entropy at the end",
        lambda rows: float(np.max([row["entropy"] for row in rows[-LAST:]])),
        lambda value: value > LEAST_ENTROPY,
    ),
    checks.highest("value_loss", "highest value loss", -math.inf, checks.MOST_LOSS),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision.

    `ratio_error`: acting and learning compute the same probabilities up to rounding. Where operands
        are rounded to few
    bits, two that differ in their last bit of float32 may come to differ in the last bit of those
    few.
    """

    def small(value: float) -> bool:
        return value <= RATIO_ERROR[precision]

    return (
        *LEARNS,
        HealthCheck(
            "ratio_error",
            "largest ratio error",
            lambda rows: max(row["ratio_error"] for row in rows),
            small,
            max,
        ),
    )


PROGRESS = (
    Column("kl", "approx_kl", ".1e"),
    Column("clip", "clip_fraction", ".3f"),
    Column("entropy", "entropy", ".3f"),
    Column("ev", "explained_variance", ".2f"),
    Column("lr", "learning_rate", ".2e"),
)

REMEDIES = Remedies(
    no_trades="raise ppo.ent_coef",
    one_action="raise ppo.ent_coef, lower ppo.learning_rate",
    diverged="lower ppo.learning_rate or ppo.max_grad_norm",
)


def frozen(rows: Sequence[Row]) -> str:
    """Warn about a policy that does not change."""
    largest = max(row["approx_kl"] for row in rows)
    if largest > LEAST_KL:
        return ""
    return (
        f"KL has been at most {largest:.1e} for {len(rows)} updates: the policy does not move, because its "
        "gradient is zero (one legal action, equal rewards), clipped away (ppo.max_grad_norm), or the learning "
        "rate is too small; look at ppo.learning_rate and at the rewards"
    )


def explained_variance(rows: Sequence[Row]) -> str:
    """Warn about value estimates that are worse than a constant, and about returns that do not
    vary.
    """
    values: list[Any] = [row["explained_variance"] for row in rows]
    if not any(math.isfinite(value) for value in values):
        return (
            f"explained variance is undefined in {len(rows)} updates: the returns do not vary, because all rewards "
            "are equal (nothing is traded, or the reward has no term that trading changes); look at reward.preset "
            "and reward.weights"
        )
    if all(value < LEAST_EXPLAINED for value in values):
        return (
            f"explained variance is below {LEAST_EXPLAINED:g} in {len(rows)} updates (now {values[-1]:.1f}): the "
            "value estimates are worse than a constant, because the rewards are very large or very small or the "
            "learning rate is too large; bring the rewards to about 1 (reward.weights), lower ppo.learning_rate "
            "or raise ppo.vf_coef"
        )
    return ""


def jumping(rows: Sequence[Row]) -> str:
    """Warn about an update after which little is left of the policy before it."""
    largest = rows[-1]["approx_kl"]
    if not largest > MOST_KL:
        return ""
    return (
        f"KL is {largest:.1e}: one update leaves little of the policy before it, because its steps are too large; "
        "lower ppo.learning_rate, ppo.num_epochs or ppo.clip_eps, or set ppo.target_kl"
    )


WARNINGS = (
    Warn("learning_rate", checks.learning_rate("ppo"), at_once=True),
    Warn("frozen", frozen),
    Warn("jumping", jumping, at_once=True),
    Warn("explained_variance", explained_variance),
)
