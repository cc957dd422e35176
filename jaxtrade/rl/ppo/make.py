"""PPO as an `Algorithm`, with its health checks, warnings and console columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.running import Precision
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import dot_general_of
from jaxtrade.rl import checks
from jaxtrade.rl.context import form_of
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.ppo.act import (
    PPO,
    act,
    first_parameters,
    make_hparams,
    make_network,
    policy_of,
)
from jaxtrade.rl.ppo.update import update
from jaxtrade.rl.train_state import TrainState, first_state, halved_rates
from jaxtrade.types import (
    Algorithm,
    Array,
    Column,
    Env,
    HealthCheck,
    PyTree,
    Remedies,
    Row,
    Stage,
    Summary,
    Warn,
)

# --- PPO's own health checks, warnings and console columns for the training loop: pure functions of
# the metric rows.


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


# --- PPO as an `Algorithm`


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. Raises TypeError if the key is not a typed key."""

    def parameters(key: Array) -> PyTree:
        return first_parameters(
            ppo.settings, ppo.env.num_actions, ppo.env.observation_size, key, ppo.fusion
        )

    return first_state(ppo, key, params, parameters, make_hparams(ppo.config))


def make_ppo(
    config: RunConfig,
    env: Env,
    total_updates: int,
    *,
    summarise: Summary | None = None,
    stage: Stage | None = None,
    fusion: Fusion | None = None,
    reduce: Reduce = LOCAL,
    platform: str | None = None,
) -> Algorithm:
    """Build PPO on `env` for a run of `total_updates` updates. The schedules span this length.

    Args:
        config: the sections `ppo`, `network`, `rollout`, `compute`, `sampler` and `actor` are read.
            They hold static counts and the initial values of the tunable floats.
        summarise: extra metrics, computed from the environment's `info`.
        stage: changes `params` as the run goes on. The whole update uses the changed parameters,
            and the stage's figures become metrics. `act` does not apply the stage.
        fusion: combines the policy with advice. `params.advice` then holds the advice.
        reduce: forms figures over environments that several devices share (`networks.reductions`). The counts of
            `config.rollout` are then those of one device.
        platform: where the program will run, such as "cpu" or "gpu" (`form.form_of`). Default: that
            of this process.
    Returns:
        `Algorithm` whose state is a `TrainState`. All of its functions work under vmap over states with shared
        `params`. Without a fusion, `inputs` of its update is None. With a fusion it is the `AdviceState`
        (`rl.listening.state`) of this update, and the metric `visits` is float32[T bars] (see `fusion.visits`). `act`
        handles one environment and returns `ActExtras`; use vmap for many. Its `explore` is a Python bool: True samples
        an action, False takes the most probable legal action and needs no key. `act` computes float32 products,
        whatever precision the update has.
    Raises:
        ConfigError: the network has a memory, but a minibatch cannot hold whole rollouts of some
            environments.
    """
    rollout, count, precision = config.rollout, config.minibatches, config.compute.precision
    exact = PPO(
        config.ppo,
        count,
        rollout,
        config.network,
        env,
        make_network(config.network, env.num_actions),
        total_updates,
        summarise,
        stage,
        fusion,
        reduce,
        form_of(platform),
        config.sampler,
        config.actor,
    )
    products = dot_general_of(precision, platform)
    ppo = exact.with_products(make_network(config.network, env.num_actions, products), products)
    if ppo.first_carry is not None and rollout.num_envs // rollout.shards % count:
        raise ConfigError(
            f"network.kind={config.network.kind} has a memory: rollout.num_envs/rollout.num_shards "
            f"({rollout.num_envs // rollout.shards}) must be a multiple of ppo.num_minibatches ({count})"
        )
    return Algorithm(
        init=partial(init, ppo),
        update=partial(update, ppo),
        act=partial(act, exact),
        policy=policy_of,
        env=env,
        steps_per_update=rollout.num_envs * rollout.num_steps,
        carry=ppo.first_carry,
        health=health(precision),
        warnings=WARNINGS,
        progress=PROGRESS,
        remedies=REMEDIES,
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=("ent_coef", "ent_coef_end"),
        retry=halved_rates,
        retry_note="half the learning rate",
        together=ppo.form.agents,
    )
