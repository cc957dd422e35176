"""Proximal policy optimisation (Schulman et al. 2017) with action masks, as pure functions of a
static context.

The rollout stores references. Each minibatch rebuilds observations and masks from them, with the
function and the observation statistics that were used for acting. The probability ratio is
therefore 1 until the first gradient step (metric `ratio_error`). The memory of a recurrent policy
is rebuilt too. It starts from its value at the beginning of the rollout, runs through all steps,
and is reset at the start of each episode. Gradients flow through these steps.

`ppo.act` has the context, tunable floats and network; acting; the loss and its gradient; the
rollout of an older policy, as the one that learns sees it. This module has one update (rollout,
advantages, targets, epochs, metrics), `make_ppo`, and health checks, warnings and console columns.

What other learners share is one level up: `rl.acting`, `rl.rollout`, `rl.epochs`, `rl.context`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxtrade.config import RunConfig
from jaxtrade.config.running import Precision
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl import epochs, returns
from jaxtrade.rl.acting import advice_terms, ready
from jaxtrade.rl.algorithms import (
    MOST_LOSS,
    Head,
    Learner,
    highest,
    lowest,
    rounding,
    small_rate,
)
from jaxtrade.rl.context import check_sequences, contexts_of
from jaxtrade.rl.listening import AdviceState, Fusion
from jaxtrade.rl.ppo.act import (
    PPO,
    Batch,
    Judged,
    Objective,
    act,
    act_by_chance,
    delay_metrics,
    first_parameters,
    first_policy,
    gradient,
    judged,
    make_hparams,
    make_network,
    policy_of,
    rows_of,
    value_of,
)
from jaxtrade.rl.returns import gae, next_values, vtrace
from jaxtrade.rl.rollout import (
    Tally,
    action_metrics,
    advice_metrics,
    advised,
    final_values,
    joined,
    learning_rates,
    new_statistics,
    roll_out,
    scaled_rewards,
    tally_metrics,
)
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import (
    TrainState,
    acting,
    first_state,
    followed,
    halved_rates,
    lag_metrics,
    linear,
    progress,
    staged,
)
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
    Transition,
    Warn,
)

# PPO as an `Algorithm`, with its health checks, warnings and console columns.

# PPO's rollout: acting, advantages and targets.


class StepExtras(NamedTuple):
    """`Transition.extras` of PPO: the part of `ActExtras` that the update reads. Logits and masks
    are recomputed.
    """

    log_prob: Array
    value: Array
    overridden: Array | None


def collect(
    ppo: PPO, state: TrainState, policy: Policy, behaviour: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout, advantages and value targets. policy, behaviour: the one that learns and
    the one that acts, from `acting.ready`; the same one without a delay.

    With a delay, V-trace corrects for the policy that acted, and the rows hold the values and the
    log-probabilities of the policy that learns: the loss clips the ratio to that policy, and the
    advantages carry V-trace's weight from the one that acted. This is the decoupled objective of
    Hilton et al. 2022 ("Batch size-invariance for policy optimization"), as in RLlib's APPO, whose
    target network is here the policy before the first gradient step.

    Returns:
        (state after the last step, transitions [T, N, ...], rows for the loss, tally). The value
        target is advantage + value, the TD(lambda) return, or that of V-trace.
    """

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ppo, behaviour, carry, ref, params, chance)
        return carry, action, StepExtras(extras.log_prob, extras.value, extras.overridden)

    value = partial(value_of, ppo, policy, params=params)

    def advantages(
        reward: Array, before: PyTree, after: PyTree, ref: PyTree, seen: Transition
    ) -> tuple[Array, ...]:
        """Log-probabilities and values of the policy that learns, advantages and targets. before,
        after: memory of each environment before the first step and after the last one."""
        own, hparams = (
            Judged(seen.extras.log_prob, seen.extras.value, seen.carry, after),
            state.hparams,
        )
        if ppo.actor.delay:
            own = judged(ppo, policy, before, seen, params)
        # The carry is not reset here. Where an episode has just ended, `gae` does not read the
        # value of `ref`.
        following = next_values(
            own.value,
            jax.vmap(value)(own.last, ref),
            final_values(value, seen._replace(carry=own.carries)),
            seen.truncated,
        )
        if ppo.actor.delay:
            target, advantage = vtrace(
                reward,
                own.value,
                following,
                seen.terminated,
                seen.truncated,
                jnp.exp(own.log_prob - seen.extras.log_prob),
                hparams.gamma,
                hparams.gae_lambda,
                ppo.actor.rho_clip,
                ppo.actor.c_clip,
            )
        else:
            advantage = gae(
                reward,
                own.value,
                following,
                seen.terminated,
                seen.truncated,
                hparams.gamma,
                hparams.gae_lambda,
            )
            target = advantage + own.value
        return own.log_prob, own.value, advantage, target

    after, seen, tally = roll_out(ppo, explore, state, params, key)
    after, reward, _ = scaled_rewards(ppo, after, seen)
    log_prob, values, advantage, target = ppo.reduce.alone(advantages)(
        reward, state.carry, after.carry, after.ref, seen
    )
    terms = ppo.reduce.alone(jax.vmap(jax.vmap(partial(advice_terms, ppo, policy))))(seen.ref)
    batch = Batch(
        state.carry, seen.ref, seen.first, terms, seen.action, log_prob, values, advantage, target
    )
    return after, seen, batch, tally


# --- One update of PPO: a rollout, several epochs of gradient steps over it, and metrics


WORST = ("ratio_error",)  # the diagnostic of the first gradient step whose largest value counts


def learn(
    ppo: PPO,
    state: TrainState,
    objective: Objective,
    batch: Batch,
    key: Array,
    learning_rate: Array,
    fraction: Array,
) -> tuple[TrainState, dict[str, Array]]:
    """Run all epochs over one rollout -> (state, diagnostics of every gradient step, [epochs,
    minibatches]).

    Once the approximate KL of a minibatch exceeds `target_kl` (> 0), no further step of this update
    is applied.
    """
    hparams, advantages = state.hparams, batch.advantage.reshape(-1)

    def prepared(picked: Array) -> tuple[Array, Array]:
        chosen = advantages[picked]
        return picked, returns.standardised(
            chosen, ppo.reduce
        ) if ppo.config.normalise_advantages else chosen

    def stops(terms: dict[str, Array]) -> Array:
        return (hparams.target_kl > 0.0) & (terms["approx_kl"] > hparams.target_kl)

    rows = rows_of(batch)
    rates = learning_rates(ppo, state.params, learning_rate, fraction, hparams.adapter_freeze)
    return epochs.learn(
        ppo,
        state,
        lambda parameters, *now: gradient(ppo, objective, parameters, rows, *now),
        prepared,
        key,
        rates,
        stops,
        largest=WORST,
    )


step_metrics = partial(epochs.step_metrics, first=WORST)


def update(
    ppo: PPO, state: TrainState, params: PyTree, inputs: AdviceState | None = None
) -> tuple[TrainState, dict[str, Array]]:
    """`Algorithm.update`. Raises ValueError if `inputs` are given but there is no fusion that uses
    them.
    """
    hparams = state.hparams
    policy, params = advised(ppo, policy_of(state), params, inputs)
    key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    ent_coef = linear(hparams.ent_coef, hparams.ent_coef_end, fraction)
    params, figures = staged(ppo, params, fraction, state.errors)

    acts = acting(state.actor, policy, state.update)
    policy = ready(ppo, policy)
    behaviour = policy if acts.kept is None else ready(ppo, acts.policy)
    collected, seen, batch, tally = collect(ppo, state, policy, behaviour, params, key_rollout)
    objective = Objective(policy, params, hparams, ent_coef)
    learnt, history = learn(ppo, collected, objective, batch, key_epochs, learning_rate, fraction)
    new = learnt.replace(
        normaliser=new_statistics(ppo, state.normaliser, seen.ref, params),
        update=state.update + 1,
        errors=followed(ppo, state.errors, jnp.abs(batch.advantage), seen, params),
        actor=acts.kept,
    )
    episodes, summary = tally_metrics(ppo, tally, seen, params)
    metrics = (
        episodes
        | step_metrics(history)
        | action_metrics(ppo, seen)
        | {
            "explained_variance": returns.explained_variance(batch.value, batch.target, ppo.reduce),
            "learning_rate": learning_rate,
            "ent_coef": ent_coef,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        }
    )
    metrics |= lag_metrics(state.update, acts.version) | delay_metrics(ppo, seen, batch.log_prob)
    metrics |= advice_metrics(ppo, seen, -seen.extras.log_prob, policy, inputs)
    return new, joined(metrics, figures, summary)


# --- PPO's own health checks, warnings and console columns for the training loop: pure functions of
# the metric rows.


LEAST_KL = (
    1e-10  # float32 noise of a policy that does not change; a policy that learns is above 1e-6
)
MOST_KL = 1.0  # an update that learns is below 0.1; with 1 the probability of what was chosen falls to a third or less
LEAST_ENTROPY = 1e-6  # nats; below, no observation leaves a choice to the policy
LAST = 20  # updates that are the end of a run
LEAST_EXPLAINED = -1.0


LEARNS = (
    lowest("learning_rate", "lowest learning rate"),
    highest("approx_kl", "highest KL", 0.0, MOST_KL),
    lowest("param_delta", "smallest step"),
    HealthCheck(
        "entropy",
        "entropy at the end",
        lambda rows: float(np.max([row["entropy"] for row in rows[-LAST:]])),
        lambda value: value > LEAST_ENTROPY,
    ),
    highest("value_loss", "highest value loss", -math.inf, MOST_LOSS),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision.

    `ratio_error`: acting and learning compute the same probabilities up to rounding. Where operands
        are rounded to few
    bits, two that differ in their last bit of float32 may come to differ in the last bit of those
    few.
    """

    return *LEARNS, rounding("ratio_error", "largest ratio error", precision)


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
    Warn("learning_rate", small_rate("ppo"), at_once=True),
    Warn("frozen", frozen),
    Warn("jumping", jumping, at_once=True),
    Warn("explained_variance", explained_variance),
)


# --- PPO as an `Algorithm`


def init(ppo: PPO, key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. Raises TypeError if the key is not a typed key."""
    env = ppo.env
    first = partial(
        first_parameters, ppo.settings, env.num_actions, env.observation_size, fusion=ppo.fusion
    )
    return first_state(ppo, key, params, first, make_hparams(ppo.config))


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
        (`rl.listening`) of this update, and the metric `visits` is float32[T bars] (see `rollout.visits`). `act`
        handles one environment and returns `ActExtras`; use vmap for many. Its `explore` is a Python bool: True samples
        an action, False takes the most probable legal action and needs no key. `act` computes float32 products,
        whatever precision the update has.
    Raises:
        ConfigError: the network has a memory, but a minibatch cannot hold whole rollouts of some
            environments.
    """
    rollout = config.rollout
    exact, ppo = contexts_of(
        config,
        config.ppo,
        env,
        total_updates,
        partial(make_network, config.network, env.num_actions),
        summarise,
        stage,
        fusion,
        reduce,
        platform,
    )
    check_sequences(ppo, "ppo")
    return Algorithm(
        init=partial(init, ppo),
        update=partial(update, ppo),
        act=partial(act, exact),
        policy=policy_of,
        env=env,
        steps_per_update=rollout.num_envs * rollout.num_steps,
        carry=ppo.first_carry,
        health=health(config.compute.precision),
        warnings=WARNINGS,
        progress=PROGRESS,
        remedies=REMEDIES,
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=("ent_coef", "ent_coef_end"),
        retry=halved_rates,
        retry_note="half the learning rate",
        together=ppo.form.agents,
    )


LEARNER = Learner(make_ppo, first_policy, Head("policy_head"), divides=True)

__all__ = ["LEARNER", "make_ppo"]
