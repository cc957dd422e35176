"""One update of PQN: a rollout, Q(lambda) targets, several epochs of gradient steps over it, and
metrics.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.rl import epochs
from jaxtrade.rl.acting import ready
from jaxtrade.rl.actor import lag_metrics
from jaxtrade.rl.batches import rows_of
from jaxtrade.rl.collecting import Tally, scaled_rewards
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.losses import explained_variance
from jaxtrade.rl.metrics import (
    action_metrics,
    advice_metrics,
    advised,
    joined,
    new_statistics,
    tally_metrics,
)
from jaxtrade.rl.pqn.loss import Batch, gradient
from jaxtrade.rl.q.act import value_of
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.q.rollout import explore_rollout
from jaxtrade.rl.q.state import QHParams, policy_of
from jaxtrade.rl.returns import next_values, q_lambda
from jaxtrade.rl.rollout import final_values
from jaxtrade.rl.schedules import linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.symbols import followed
from jaxtrade.rl.train_state import TrainState, staged
from jaxtrade.types import Array, PyTree, Transition

WORST = ("q_error",)  # the diagnostic of the first gradient step whose largest value counts


class HParams(QHParams, struct.PyTreeNode):
    """The tunable floats of PQN; meanings as in `PQNConfig`."""

    q_lambda: Array


def collect(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout and its targets -> (state after the last step, transitions [T, N, ...],
    rows for the loss, tally). policy: from `acting.ready`."""

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ctx, policy, carry, ref, params)

    def targets(reward: Array, carry: PyTree, ref: PyTree, seen: Transition) -> Array:
        # The carry is not reset here. Where an episode has just ended, `q_lambda` does not read the
        # value of `ref`.
        last = jax.vmap(value)(carry, ref)
        following = next_values(seen.extras.value, last, final_values(value, seen), seen.truncated)
        return q_lambda(
            reward,
            following,
            seen.terminated,
            seen.truncated,
            state.hparams.gamma,
            state.hparams.q_lambda,
        )

    after, seen, tally = explore_rollout(ctx, state, policy, params, key)
    after, reward = scaled_rewards(ctx, after, seen)
    target = ctx.reduce.alone(targets)(reward, after.carry, after.ref, seen)
    return (
        after,
        seen,
        Batch(state.carry, seen.ref, seen.first, seen.action, seen.extras.q, target),
        tally,
    )


def update(
    ctx: Q, state: TrainState, params: PyTree, inputs: AdviceState | None = None
) -> tuple[TrainState, dict[str, Array]]:
    """`Algorithm.update`. Raises ValueError if `inputs` are given but there is no fusion that uses
    them.
    """
    hparams = state.hparams
    policy, params = advised(ctx, policy_of(state), params, inputs)
    key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    params, figures = staged(ctx, params, fraction, state.errors)

    policy = ready(ctx, policy)
    collected, seen, batch, tally = collect(ctx, state, policy, params, key_rollout)
    learnt, history = epochs.learn(
        ctx,
        collected,
        partial(gradient, ctx, policy, params, rows_of(batch)),
        lambda picked: (picked,),
        key_epochs,
        learning_rate,
        largest=WORST,
    )
    new = learnt.replace(
        normaliser=new_statistics(ctx, state.normaliser, seen.ref, params),
        update=state.update + 1,
        errors=followed(ctx, state.errors, jnp.abs(batch.target - batch.q), seen, params),
    )
    episodes, summary = tally_metrics(ctx, tally, seen, params)
    metrics = (
        episodes
        | epochs.step_metrics(history, first=WORST)
        | action_metrics(ctx, seen)
        | {
            "explained_variance": explained_variance(batch.q, batch.target, ctx.reduce),
            "q_max": ctx.reduce.max_of_parts(jnp.abs(seen.extras.value).max()),
            "learning_rate": learning_rate,
            "epsilon": policy.epsilon,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        }
    )
    metrics |= lag_metrics(
        state.update, state.update
    )  # the policy that learns is the one that acted
    # Every step at a bar counts alike: a Q-learner has no entropy that tells where it is undecided.
    metrics |= advice_metrics(ctx, seen, jnp.ones_like(seen.reward), policy, inputs)
    return new, joined(metrics, figures, summary)
