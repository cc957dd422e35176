"""PPO's rollout: acting, advantages and targets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxtrade.rl import epochs, returns
from jaxtrade.rl.acting import advice_terms, ready
from jaxtrade.rl.actor import acting, lag_metrics
from jaxtrade.rl.collecting import Tally, roll_out, scaled_rewards
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.metrics import (
    action_metrics,
    advice_metrics,
    advised,
    joined,
    learning_rates,
    new_statistics,
    tally_metrics,
)
from jaxtrade.rl.ppo.act import (
    PPO,
    Batch,
    Judged,
    Objective,
    act_by_chance,
    delay_metrics,
    gradient,
    judged,
    policy_of,
    rows_of,
    value_of,
)
from jaxtrade.rl.returns import gae, next_values, vtrace
from jaxtrade.rl.rollout import final_values
from jaxtrade.rl.schedules import linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.symbols import followed
from jaxtrade.rl.train_state import TrainState, staged
from jaxtrade.types import Array, PyTree, Transition


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

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ppo, policy, carry, ref, params)

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
    after, reward = scaled_rewards(ppo, after, seen)
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
