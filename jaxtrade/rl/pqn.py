"""PQN, parallelised Q-network (Gallici et al. 2024, "Simplifying Deep Temporal Difference
Learning").

Each update acts epsilon-greedily in all environments, computes Q(lambda) targets over the rollout,
and fits the Q values of the taken actions to them in epochs of minibatches. There is no replay and
no target network: many environments decorrelate the rows, and LayerNorm keeps the bootstrapped
values bounded.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.config import RunConfig
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl import epochs
from jaxtrade.rl.acting import ready
from jaxtrade.rl.algorithms import Learner
from jaxtrade.rl.context import check_sequences
from jaxtrade.rl.epochs import Rows, pick, rows_of
from jaxtrade.rl.listening import AdviceState, Fusion
from jaxtrade.rl.q import (
    HEAD,
    Q,
    QHParams,
    explore_rollout,
    first_policy,
    init,
    of_action,
    policy_of,
    q_algorithm,
    q_contexts,
    value_of,
    values_of_rows,
)
from jaxtrade.rl.returns import explained_variance, next_values, q_lambda
from jaxtrade.rl.rollout import (
    Tally,
    action_metrics,
    advice_metrics,
    advised,
    final_values,
    joined,
    new_statistics,
    scaled_rewards,
    tally_metrics,
)
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState, followed, lag_metrics, linear, progress, staged
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary, Transition

# --- PQN's loss over a minibatch, and its gradient


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H],
    the memory before the first step of each sequence. q: float32[B], Q of the action when it was
    taken. target: float32[B].
    """

    carry: PyTree
    ref: PyTree
    first: Array
    action: Array
    q: Array
    target: Array


def td_loss(
    parameters: PyTree, ctx: Q, policy: Policy, params: PyTree, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    """Half the mean squared difference of Q(s, a) from its target -> (loss, diagnostics).

    `parameters` (packed) replace those of `policy`. The loss and its terms are over the rows of this device.
    """
    q = values_of_rows(
        ctx, policy.replace(parameters=parameters), batch.carry, batch.ref, batch.first, params
    )
    chosen = of_action(q, batch.action)
    loss = 0.5 * jnp.square(chosen - batch.target).mean()
    change = jax.lax.stop_gradient(jnp.abs(chosen - batch.q))
    return loss, {
        "td_loss": loss,
        "q_mean": chosen.mean(),
        "q_change": change.mean(),
        "q_error": (change / (1.0 + jnp.abs(batch.q))).max(),
    }


def gradient(
    ctx: Q, policy: Policy, params: PyTree, rows: Rows, parameters: PyTree, of: Array
) -> tuple[Array, dict[str, Array], PyTree]:
    """Loss, diagnostics and gradient over the rows `of` int32[B] of a rollout on this device."""
    (loss, terms), grads = jax.value_and_grad(td_loss, has_aux=True)(
        parameters, ctx, policy, params, pick(ctx, rows, of)
    )
    return loss, terms, grads


# --- One update of PQN: a rollout, Q(lambda) targets, several epochs of gradient steps over it, and
# metrics.


WORST = ("q_error",)  # the diagnostic of the first gradient step whose largest value counts


class HParams(QHParams, struct.PyTreeNode):
    """The tunable floats of PQN; meanings as in `PQNConfig`."""

    q_lambda: Array


def collect(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout and its targets -> (state after the last step, transitions [T, N, ...],
    rows for the loss, tally). policy: from `acting.ready`."""

    value = partial(value_of, ctx, policy, params=params)

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
    after, reward, _ = scaled_rewards(ctx, after, seen)
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


# --- PQN as an `Algorithm`


def make_pqn(
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
    """Build PQN on `env` for a run of `total_updates` updates. Arguments and result as of
    `rl.ppo.make_ppo`, with the section `pqn` (`config.algorithm` is `pqn`).

    Raises ConfigError: a fusion that needs a distribution, or a network with a memory whose
    minibatches cannot hold whole rollouts of some environments.
    """
    exact, ctx = q_contexts(
        config,
        env,
        total_updates,
        summarise=summarise,
        stage=stage,
        fusion=fusion,
        reduce=reduce,
        platform=platform,
    )
    check_sequences(ctx, "pqn")
    return q_algorithm(config, exact, ctx, partial(init, ctx, HParams), partial(update, ctx))


LEARNER = Learner(make_pqn, first_policy, HEAD, divides=True)

__all__ = ["LEARNER", "make_pqn"]
