"""Health checks, warnings and console columns of the Q-learners: pure functions of the metric
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxtrade.config.compute import Precision
from jaxtrade.rl import checks
from jaxtrade.types import Column, HealthCheck, Remedies, Row, Warn

LEAST_CHANGE = 1e-8  # float32 noise of Q values that do not change
MOST_Q = 1e4  # with scaled rewards returns are about 1; a larger Q is no estimate of them any more
# Largest difference, relative to 1 + |Q|, of the Q values of acting and of learning before the
# first gradient step.
Q_ERROR: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


def _not_constant(rows: Sequence[Row]) -> float:
    """Largest minus smallest loss of the run; a run of one update counts as varying."""
    losses = [row["td_loss"] for row in rows]
    return max(losses) - min(losses) if len(losses) > 1 else 1.0


LEARNS = (
    checks.lowest("learning_rate", "lowest learning rate"),
    checks.highest("q_change", "largest change of Q", 0.0, MOST_Q),
    checks.highest("param_delta", "largest step", 0.0, math.inf),
    HealthCheck("td_loss", "range of the loss", _not_constant, lambda value: value > 0),
    checks.highest("td_loss", "highest loss", -math.inf, checks.MOST_LOSS, "loss"),
    checks.highest("q_max", "largest Q", -math.inf, MOST_Q),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision. `q_error`: acting and learning
    compute the same Q values up to rounding. For a learner that reports it."""

    def small(value: float) -> bool:
        return value <= Q_ERROR[precision]

    return (
        *LEARNS,
        HealthCheck(
            "q_error",
            "largest error of Q",
            lambda rows: max(row["q_error"] for row in rows),
            small,
            max,
        ),
    )


PROGRESS = (
    Column("td", "td_loss", ".2e"),
    Column("dq", "q_change", ".1e"),
    Column("q", "q_max", ".2g"),
    Column("eps", "epsilon", ".3f"),
    Column("lr", "learning_rate", ".2e"),
)


def remedies(section: str) -> Remedies:
    """Advice for the loop's warnings. section: of the learner, such as "pqn"."""
    return Remedies(
        no_trades=f"raise {section}.epsilon_end or {section}.epsilon_until",
        one_action=f"raise {section}.epsilon_end, lower {section}.learning_rate",
        diverged=f"lower {section}.learning_rate or {section}.max_grad_norm, or set {section}.layer_norm=true",
    )


def warnings(section: str) -> tuple[Warn, ...]:
    """The warnings of a Q-learner. section: its own, such as "pqn"."""

    def frozen(rows: Sequence[Row]) -> str:
        if any(row.get("applied") == 0.0 for row in rows):
            return ""  # a replay that is still being filled (dqn.learning_starts)
        most = max(row["q_change"] for row in rows)
        if most > LEAST_CHANGE:
            return ""
        return (
            f"Q has changed by at most {most:.1e} for {len(rows)} updates: nothing is learnt, because all rewards "
            "are equal, the gradient is clipped away or the learning rate is too small; look at the rewards, at "
            f"{section}.max_grad_norm and at {section}.learning_rate"
        )

    def exploding(rows: Sequence[Row]) -> str:
        now = rows[-1]["q_max"]
        if now <= MOST_Q:
            return ""
        return (
            f"the largest Q is {now:.1e}: the estimates feed on themselves, or the rewards are far from 1; lower "
            f"{section}.learning_rate or {section}.gamma, set {section}.layer_norm=true, and keep "
            f"{section}.normalise_rewards=true"
        )

    return (
        Warn("learning_rate", checks.learning_rate(section), at_once=True),
        Warn("frozen", frozen),
        Warn("exploding", exploding),
    )
