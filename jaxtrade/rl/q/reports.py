"""Health checks, warnings and console columns of the Q-learners: pure functions of the metric rows."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.config.compute import Precision
from jaxtrade.types import Column, HealthCheck, Remedies, Row, Warn

LEAST_RATE = 1e-8  # smaller steps vanish in the rounding of float32 weights
LEAST_CHANGE = 1e-8  # float32 noise of Q values that do not change
MOST_Q = 1e4  # with scaled rewards returns are about 1; a larger Q is no estimate of them any more
# Largest difference, relative to 1 + |Q|, of the Q values of acting and of learning before the first gradient step.
Q_ERROR: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


def _positive(value: float) -> bool:
    return value > 0


def _not_constant(rows: Sequence[Row]) -> float:
    """Largest minus smallest loss of the run; a run of one update counts as varying."""
    losses = [row["td_loss"] for row in rows]
    return max(losses) - min(losses) if len(losses) > 1 else 1.0


LEARNS = (
    HealthCheck("learning_rate", "lowest learning rate", lambda rows: min(row["learning_rate"] for row in rows),
                _positive),
    HealthCheck("q_change", "largest change of Q", lambda rows: max(row["q_change"] for row in rows), _positive),
    HealthCheck("param_delta", "largest step", lambda rows: max(row["param_delta"] for row in rows), _positive),
    HealthCheck("td_loss", "range of the loss", _not_constant, _positive),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision. `q_error`: acting and learning compute the same Q
    values up to rounding. For a learner that reports it."""
    def small(value: float) -> bool:
        return value <= Q_ERROR[precision]

    return (*LEARNS, HealthCheck("q_error", "largest error of Q", lambda rows: max(row["q_error"] for row in rows),
                                 small, max))


PROGRESS = (Column("td", "td_loss", ".2e"), Column("dq", "q_change", ".1e"), Column("q", "q_max", ".2g"),
            Column("eps", "epsilon", ".3f"), Column("lr", "learning_rate", ".2e"))


def remedies(section: str) -> Remedies:
    """Advice for the loop's warnings. section: of the learner, such as "pqn"."""
    return Remedies(
        no_trades=f"raise {section}.epsilon_end or {section}.epsilon_until",
        one_action=f"raise {section}.epsilon_end, lower {section}.learning_rate",
        diverged=f"lower {section}.learning_rate or {section}.max_grad_norm, or set {section}.layer_norm=true",
    )


def warnings(section: str) -> tuple[Warn, ...]:
    """The warnings of a Q-learner. section: its own, such as "pqn"."""

    def learning_rate(rows: Sequence[Row]) -> str:
        rate, update = rows[-1]["learning_rate"], rows[-1].get("update")
        if rate >= LEAST_RATE:
            return ""
        at = "" if update is None else f" at update {update}"
        return (f"the learning rate is {rate:.1e}{at}: nothing is learnt from here on, because its schedule ends too "
                f"low or something set it to 0; raise {section}.learning_rate and {section}.learning_rate_end")

    def frozen(rows: Sequence[Row]) -> str:
        if any(row.get("applied") == 0.0 for row in rows):
            return ""  # a replay that is still being filled (dqn.learning_starts)
        most = max(row["q_change"] for row in rows)
        if most > LEAST_CHANGE:
            return ""
        return (f"Q has changed by at most {most:.1e} for {len(rows)} updates: nothing is learnt, because all rewards "
                "are equal, the gradient is clipped away or the learning rate is too small; look at the rewards, at "
                f"{section}.max_grad_norm and at {section}.learning_rate")

    def exploding(rows: Sequence[Row]) -> str:
        now = rows[-1]["q_max"]
        if now <= MOST_Q:
            return ""
        return (f"the largest Q is {now:.1e}: the estimates feed on themselves, or the rewards are far from 1; lower "
                f"{section}.learning_rate or {section}.gamma, set {section}.layer_norm=true, and keep "
                f"{section}.normalise_rewards=true")

    return Warn("learning_rate", learning_rate, at_once=True), Warn("frozen", frozen), Warn("exploding", exploding)
