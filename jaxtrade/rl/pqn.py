"""PQN, parallelised Q-network (Gallici et al. 2024).

The paper is "Simplifying Deep Temporal Difference Learning".

Each update acts epsilon-greedily in all environments, computes Q(lambda) targets over the rollout,
and fits the Q values of the taken actions to them in epochs of minibatches. There is no replay and
no target network: many environments decorrelate the rows, and LayerNorm keeps the bootstrapped
values bounded.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.config import RunConfig
from jaxtrade.rl import epochs
from jaxtrade.rl.algorithms import LearnerKind
from jaxtrade.rl.context import MakeOptions, check_sequences
from jaxtrade.rl.optim import linear, progress
from jaxtrade.rl.q import (
    HEAD,
    Q,
    QHParams,
    explorer,
    first_policy,
    init,
    make_q_learner,
    of_action,
    q_contexts,
    value_of,
    values_of_rows,
)
from jaxtrade.rl.returns import explained_variance, q_lambda
from jaxtrade.rl.rollout import (
    action_metrics,
    after_update,
    following_values,
    merge_metrics,
    roll_out,
    rollout_metrics,
    scaled_rewards,
)
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.rl.wrappers import Experience
from jaxtrade.types import Array, Env, Learner, Metrics, PyTree, Transition

# --- PQN's loss over a minibatch, and its gradient


class QBatch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...].

    With a memory, the rows are the steps of S sequences, time first, and `carry` is float32[S, H],
    the memory before the first step of each sequence.

    q: float32[B], Q of the action when it was taken.
    target: float32[B].
    """

    carry: PyTree
    ref: PyTree
    first: Array
    action: Array
    q: Array
    target: Array


def td_loss(
    ctx: Q, policy: Policy, params: PyTree, parameters: PyTree, batch: QBatch
) -> tuple[Array, Metrics]:
    """Return (half the mean squared difference of Q(s, a) from its target, diagnostics).

    `parameters` (packed) replace those of `policy`. The loss and its terms are over the rows of
    this device.
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


# --- One update of PQN: a rollout, Q(lambda) targets, several epochs of gradient steps over it, and
# metrics.


WORST = ("q_error",)  # the diagnostic of the first gradient step whose largest value counts


class PQNHParams(QHParams, struct.PyTreeNode):
    """The tunable floats of PQN; meanings as in `PQNConfig`."""

    q_lambda: Array


def targets(
    ctx: Q,
    policy: Policy,
    params: PyTree,
    hparams: PQNHParams,
    reward: Array,
    carry: PyTree,
    ref: PyTree,
    seen: Transition,
) -> Array:
    """Compute the targets of a rollout (float32[T, N]).

    Args:
        carry, ref: memory and reference after it.
    """
    value = partial(value_of, ctx, policy, params=params)
    following = following_values(value, seen.extras.value, carry, ref, seen)
    return q_lambda(
        reward, following, seen.terminated, seen.truncated, hparams.gamma, hparams.q_lambda
    )


def update(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree
) -> tuple[TrainState, Metrics, Experience]:
    """Run one update (`wrappers.Update`)."""
    hparams = state.hparams
    key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)

    rollout = roll_out(ctx, explorer, state, policy, params, key_rollout)
    policy, seen = rollout.policy, rollout.seen
    after, reward, _ = scaled_rewards(ctx, rollout.state, seen)
    target = ctx.reduce.alone(partial(targets, ctx, policy, params, hparams))(
        reward, after.carry, after.ref, seen
    )
    batch = QBatch(state.carry, seen.ref, seen.first, seen.action, seen.extras.q, target)
    learnt, history = epochs.learn(
        ctx,
        after,
        partial(td_loss, ctx, policy, params),
        epochs.rows_of(batch),
        key_epochs,
        learning_rate,
        largest=WORST,
    )
    new = after_update(ctx, learnt, seen.ref, params)
    metrics = merge_metrics(
        rollout_metrics(ctx, rollout, params),
        epochs.step_metrics(history, first=WORST),
        action_metrics(ctx, seen),
        {
            "explained_variance": explained_variance(batch.q, batch.target, ctx.reduce),
            "q_max": ctx.reduce.max_of_parts(jnp.abs(seen.extras.value).max()),
            "learning_rate": learning_rate,
            "epsilon": policy.epsilon,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        },
    )
    # Every step at a bar counts alike: a Q-learner has no entropy that tells where it is undecided.
    return (
        new,
        metrics,
        Experience(rollout, lambda: jnp.ones_like(seen.reward), lambda: jnp.abs(target - batch.q)),
    )


# --- PQN as a `Learner`


def make_pqn(
    config: RunConfig,
    env: Env,
    total_updates: int,
    **around: Unpack[MakeOptions],
) -> Learner:
    """Build PQN on `env` for a run of `total_updates` updates.

    Arguments and result are those of `rl.ppo.make_ppo`, with the section `pqn` (`config.algorithm`
    is `pqn`).

    Raises ConfigError: a fusion that needs a distribution, or a network with a memory whose
    minibatches cannot hold whole rollouts of some environments.
    """
    exact, ctx = q_contexts(config, env, total_updates, **around)
    check_sequences(ctx, "pqn")
    return make_q_learner(config, exact, ctx, partial(init, ctx, PQNHParams), partial(update, ctx))


LEARNER = LearnerKind(make_pqn, first_policy, HEAD, divides=True)
