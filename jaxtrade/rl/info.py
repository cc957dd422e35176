"""What the console, the health check and the remedies say about each learner (`types.LearnerInfo`).

They are pure functions of the metric rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.running import Precision
from jaxtrade.networks.accelerators import NetworkForm
from jaxtrade.types import Column, HealthCheck, LearnerInfo, Remedies, Row, Warn

# --- What the health checks and warnings share: bounds of a figure over a run, and a rate that is
# too small.

LEAST_RATE = 1e-8  # smaller steps vanish in the rounding of float32 weights
MOST_LOSS = 1e5  # of values, in squared rewards: with rewards of about 1 it is at most about 100


def check_positive(name: str, label: str) -> HealthCheck:
    """Check that the lowest value of a metric in the run is positive."""
    return HealthCheck(
        name,
        label,
        lambda rows: float(np.min([row[name] for row in rows])),
        lambda value: value > 0,
    )


def check_range(
    metric: str, label: str, low: float, high: float, name: str | None = None
) -> HealthCheck:
    """Check that the highest value of a metric in the run is above `low` and at most `high`.

    Updates that were not finite are left to the loop; in others an undefined value fails.

    Args:
        name: of the check.
    """

    def measure(rows: Sequence[Row]) -> float:
        return float(np.max([row[metric] for row in rows if row.get("finite", True)] or [math.nan]))

    def worst(values: Sequence[float]) -> float:
        values = list(values)
        return max(values) if max(values) > high else min(values)

    return HealthCheck(name or metric, label, measure, lambda value: low < value <= high, worst)


# Largest difference between acting and learning before the first gradient step: of a probability
# ratio from 1, about ten times what another order of sums made of trained policies with logits 15 to
# 35 apart (1.0e-5, 2.7e-3, 1.2e-2); of Q values, relative to 1 + |Q|.
ROUNDING: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 0.1}


def rounding(name: str, label: str, precision: Precision) -> HealthCheck:
    """Check that acting and learning agree up to the rounding of matrix products of a precision.

    Args:
        name: of the metric that says how far they are apart.
    """
    return HealthCheck(
        name,
        label,
        lambda rows: max(row[name] for row in rows),
        lambda value: value <= ROUNDING[precision],
        max,
    )


def small_rate(section: str) -> Callable[[Sequence[Row]], str]:
    """Warn about a learning rate that is too small to change any weight.

    Args:
        section: of the learner, "ppo".
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


def halve_rates(hparams: Any, times: int) -> Any:
    """Implement `LearnerInfo.retry`: halve the learning rate for each of the `times` rollbacks.

    This changes the start and the end of its schedule.
    """
    return hparams.replace(
        learning_rate=hparams.learning_rate * 0.5**times,
        learning_rate_end=hparams.learning_rate_end * 0.5**times,
    )


def _info(config: RunConfig, form: NetworkForm, exploration: str, **said: Any) -> LearnerInfo:
    """Build the part that is the same for every learner.

    Args:
        exploration: the hparam that decides how much it explores.
    """
    return LearnerInfo(
        steps_per_update=config.rollout.num_envs * config.rollout.num_steps,
        together=form.agents,
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=(exploration, f"{exploration}_end"),
        retry=halve_rates,
        retry_note="half the learning rate",
        **said,
    )


# --- PPO


LEAST_KL = (
    1e-10  # float32 noise of a policy that does not change; a policy that learns is above 1e-6
)
MOST_KL = 1.0  # an update that learns is below 0.1; with 1 the probability of what was chosen falls to a third or less
LEAST_ENTROPY = 1e-6  # nats; below, no observation leaves a choice to the policy
LAST = 20  # updates that are the end of a run
LEAST_EXPLAINED = -1.0


PPO_LEARNS = (
    check_positive("learning_rate", "lowest learning rate"),
    check_range("approx_kl", "highest KL", 0.0, MOST_KL),
    check_positive("param_delta", "smallest step"),
    HealthCheck(
        "entropy",
        "entropy at the end",
        lambda rows: float(np.max([row["entropy"] for row in rows[-LAST:]])),
        lambda value: value > LEAST_ENTROPY,
    ),
    check_range("value_loss", "highest value loss", -math.inf, MOST_LOSS),
)


PPO_PROGRESS = (
    Column("kl", "approx_kl", ".1e"),
    Column("clip", "clip_fraction", ".3f"),
    Column("entropy", "entropy", ".3f"),
    Column("ev", "explained_variance", ".2f"),
    Column("lr", "learning_rate", ".2e"),
)

PPO_REMEDIES = Remedies(
    no_trades="raise ppo.ent_coef",
    one_action="raise ppo.ent_coef, lower ppo.learning_rate",
    diverged="lower ppo.learning_rate or ppo.max_grad_norm",
)


def frozen_policy(rows: Sequence[Row]) -> str:
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
    """Warn about value estimates that are worse than a constant, or returns that do not vary."""
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


def warn_large_update(rows: Sequence[Row]) -> str:
    """Warn about an update after which little is left of the policy before it."""
    largest = rows[-1]["approx_kl"]
    if not largest > MOST_KL:
        return ""
    return (
        f"KL is {largest:.1e}: one update leaves little of the policy before it, because its steps are too large; "
        "lower ppo.learning_rate, ppo.num_epochs or ppo.clip_eps, or set ppo.target_kl"
    )


PPO_WARNINGS = (
    Warn("learning_rate", small_rate("ppo"), at_once=True),
    Warn("frozen", frozen_policy),
    Warn("jumping", warn_large_update, at_once=True),
    Warn("explained_variance", explained_variance),
)


def ppo(config: RunConfig, form: NetworkForm) -> LearnerInfo:
    """Return the health checks, warnings and remedies of PPO.

    Check `ratio_error`: acting and learning compute the same probabilities up to rounding. Where
    operands are rounded to few bits, two that differ in their last bit of float32 may come to
    differ in the last bit of those few.
    """
    same = rounding("ratio_error", "largest ratio error", config.compute.precision)
    return _info(
        config,
        form,
        "ent_coef",
        health=(*PPO_LEARNS, same),
        warnings=PPO_WARNINGS,
        progress=PPO_PROGRESS,
        remedies=PPO_REMEDIES,
    )


# --- The Q-learners


LEAST_CHANGE = 1e-8  # float32 noise of Q values that do not change
MOST_Q = 1e4  # with scaled rewards returns are about 1; a larger Q is no estimate of them any more


def _not_constant(rows: Sequence[Row]) -> float:
    """Return the largest minus the smallest loss of the run.

    A run of one update counts as varying.
    """
    losses = [row["td_loss"] for row in rows]
    return max(losses) - min(losses) if len(losses) > 1 else 1.0


Q_LEARNS = (
    check_positive("learning_rate", "lowest learning rate"),
    check_range("q_change", "largest change of Q", 0.0, MOST_Q),
    check_range("param_delta", "largest step", 0.0, math.inf),
    HealthCheck("td_loss", "range of the loss", _not_constant, lambda value: value > 0),
    check_range("td_loss", "highest loss", -math.inf, MOST_LOSS, "loss"),
    check_range("q_max", "largest Q", -math.inf, MOST_Q),
)


Q_PROGRESS = (
    Column("td", "td_loss", ".2e"),
    Column("dq", "q_change", ".1e"),
    Column("q", "q_max", ".2g"),
    Column("eps", "epsilon", ".3f"),
    Column("lr", "learning_rate", ".2e"),
)


def q_warnings(section: str) -> tuple[Warn, ...]:
    """Return the warnings of a Q-learner.

    Args:
        section: its own, such as "pqn".
    """

    def warn_frozen(rows: Sequence[Row]) -> str:
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
        Warn("learning_rate", small_rate(section), at_once=True),
        Warn("frozen", warn_frozen),
        Warn("exploding", exploding),
    )


def q_learner(config: RunConfig, form: NetworkForm) -> LearnerInfo:
    """Return the health checks, warnings and remedies of the Q-learner `config.algorithm`.

    Check `q_error`: acting and learning compute the same Q values up to rounding.
    """
    section = config.algorithm
    return _info(
        config,
        form,
        "epsilon",
        health=(*Q_LEARNS, rounding("q_error", "largest error of Q", config.compute.precision)),
        warnings=q_warnings(section),
        progress=Q_PROGRESS,
        remedies=Remedies(
            no_trades=f"raise {section}.epsilon_end or {section}.epsilon_until",
            one_action=f"raise {section}.epsilon_end, lower {section}.learning_rate",
            diverged=f"lower {section}.learning_rate or {section}.max_grad_norm, or set {section}.layer_norm=true",
        ),
    )
