"""One update of PPO: a rollout, several epochs of gradient steps over it, and metrics."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax

from jaxtrade.rl import epochs, losses
from jaxtrade.rl.acting import ready
from jaxtrade.rl.actor import acting, lag_metrics
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
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.judged import delay_metrics
from jaxtrade.rl.ppo.loss import Batch, Objective, gradient, rows_of
from jaxtrade.rl.ppo.rollout import collect
from jaxtrade.rl.ppo.state import policy_of
from jaxtrade.rl.schedules import linear, progress
from jaxtrade.rl.symbols import followed
from jaxtrade.rl.train_state import TrainState, staged
from jaxtrade.types import Array, PyTree

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
        return picked, losses.standardised(
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
            "explained_variance": losses.explained_variance(batch.value, batch.target, ppo.reduce),
            "learning_rate": learning_rate,
            "ent_coef": ent_coef,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        }
    )
    metrics |= lag_metrics(state.update, acts.version) | delay_metrics(ppo, seen, batch.log_prob)
    metrics |= advice_metrics(ppo, seen, -seen.extras.log_prob, policy, inputs)
    return new, joined(metrics, figures, summary)
