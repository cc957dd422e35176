"""One update of DQN: a rollout, into the replay, gradient steps on samples from it, and metrics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrade.config.dqn import DQNConfig
from jaxtrade.rl import prioritised, replay
from jaxtrade.rl.acting import ready
from jaxtrade.rl.actor import acting, lag_metrics
from jaxtrade.rl.dqn.learn import OLDEST, Objective, learn, values_of
from jaxtrade.rl.dqn.state import HParams, Own, ring
from jaxtrade.rl.listening.state import AdviceState
from jaxtrade.rl.metrics import (
    action_metrics,
    advice_metrics,
    advised,
    joined,
    new_statistics,
    tally_metrics,
)
from jaxtrade.rl.q.act import of_action, value_of
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.q.rollout import explore_rollout
from jaxtrade.rl.q.state import policy_of
from jaxtrade.rl.replay import Ring
from jaxtrade.rl.returns import next_values
from jaxtrade.rl.reward_scale import scaled
from jaxtrade.rl.rollout import final_values
from jaxtrade.rl.schedules import linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.symbols import followed
from jaxtrade.rl.train_state import TrainState, staged
from jaxtrade.types import Array, PyTree, Transition


def remembered(of: Ring, state: TrainState, seen: Transition, version: Array) -> TrainState:
    """The state after a rollout went into the replay. Rewards are stored as they are: the divisor
    changes.

    version: int32[], of the policy that acted (`rl.actor`)."""
    own: Own = state.own
    stored = replay.add(of, own.replay, seen, version)
    priorities = None if own.priorities is None else prioritised.renewed(of, own.priorities, stored)
    return state.replace(own=own.replace(replay=stored, priorities=priorities))


def with_rewards(ctx: Q, state: TrainState, seen: Transition) -> tuple[TrainState, Array]:
    """(state with the statistics of a rollout's rewards, what the rewards of all samples are
    divided by float32[]).
    """
    if state.rewards is None:
        return state, jnp.float32(1.0)
    scale, _, divisor = scaled(
        state.rewards,
        seen.reward,
        seen.terminated | seen.truncated,
        state.hparams.gamma,
        ctx.reduce,
    )
    return state.replace(rewards=scale), divisor


def followed_errors(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree, seen: Transition, divisor: Array
) -> Array | None:
    """`TrainState.errors` after a rollout: the sizes of its one-step TD errors, by symbol. None
    where the sampler reads none. state: after the rollout."""
    if state.errors is None:
        return None

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ctx, policy, carry, ref, params)

    def errors(carry: PyTree, ref: PyTree, seen: Transition) -> Array:
        last = jax.vmap(value)(carry, ref)
        following = next_values(seen.extras.value, last, final_values(value, seen), seen.truncated)
        target = seen.reward / divisor + state.hparams.gamma * jnp.where(
            seen.terminated, 0.0, following
        )
        return jnp.abs(target - seen.extras.q)

    sizes = ctx.reduce.alone(errors)(state.carry, state.ref, seen)
    return followed(ctx, state.errors, sizes, seen, params)


def is_active(ctx: Q, update: Array) -> Array:
    """bool[]: whether `learning_starts` environment steps have been taken, the rollout of this
    update among them. Counted in updates, because int32 does not hold the steps of a long run."""
    config: DQNConfig = ctx.config
    return (update + 1) >= -(-config.learning_starts // ctx.steps_per_update)


def step_metrics(ctx: Q, history: dict[str, Array]) -> dict[str, Array]:
    """Metrics of the gradient steps. history: float32[K] by name; 1 is True.

    `gradient_steps` and `replay_ratio` (samples trained per environment step) count the steps that were applied.
    `sample_age_max` is the largest of these steps, and the other figures are means over them.
    """
    config: DQNConfig = ctx.config
    applied = history["applied"]
    count = applied.sum()
    means = {
        name: jnp.where(applied > 0, values, 0.0).sum() / jnp.maximum(count, 1.0)
        for name, values in history.items()
        if name not in ("finite", "applied", "target_updates", OLDEST)
    }
    return means | {
        "finite": (history["finite"] > 0).all(),
        "applied": applied.mean(),
        "gradient_steps": count,
        "replay_ratio": count * ctx.reduce.count(config.batch_size) / ctx.steps_per_update,
        "target_updates": history["target_updates"].sum(),
        OLDEST: jnp.where(applied > 0, history[OLDEST], 0.0).max(),
    }


def value_metrics(
    ctx: Q, seen: Transition, policy: Policy, behaviour: Policy, parameters: PyTree, params: PyTree
) -> dict[str, Array]:
    """Metrics of Q at the last step of the rollout, before and after learning (to `parameters`).

    policy, behaviour: the one that learns and the one that acted, from `ready`; the same one
        without a delay.

    q_error: largest difference of the Q that acted from what learning computes for the same policy,
        relative to 1 +
    |Q|. q_change: mean change by the update. q_max: largest |Q| of the rollout.
    """
    learnt = policy.replace(parameters=ctx.packed(parameters))

    def compared(ref: PyTree, action: Array, acted: Array) -> tuple[Array, Array]:
        def values(policy: Policy) -> Array:
            return of_action(values_of(ctx, policy, ref, params), action)

        before, after = values(policy), values(learnt)
        again = before if behaviour is policy else values(behaviour)
        return (jnp.abs(again - acted) / (1.0 + jnp.abs(acted))).max(), jnp.abs(
            after - before
        ).mean()

    error, change = ctx.reduce.alone(compared)(
        *jax.tree.map(lambda x: x[-1], (seen.ref, seen.action, seen.extras.q))
    )
    error, most = ctx.reduce.max_of_parts((error, jnp.abs(seen.extras.value).max()))
    return {"q_error": error, "q_change": ctx.reduce.mean_of_parts(change), "q_max": most}


def replay_metrics(ctx: Q, own: Own) -> dict[str, Array]:
    """`replay_size`: transitions in the replay, float32[]."""
    return {
        "replay_size": own.replay.filled.astype(jnp.float32)
        * ctx.reduce.count(ctx.rollout.num_envs)
    }


def update(
    ctx: Q, state: TrainState, params: PyTree, inputs: AdviceState | None = None
) -> tuple[TrainState, dict[str, Array]]:
    """`Algorithm.update`. Raises ValueError if `inputs` are given but there is no fusion that uses
    them.
    """
    hparams: HParams = state.hparams
    policy, params = advised(ctx, policy_of(state), params, inputs)
    key_rollout, key_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    beta = linear(hparams.priority_beta, hparams.priority_beta_end, fraction)
    params, figures = staged(ctx, params, fraction, state.errors)

    acts = acting(state.actor, policy, state.update)
    policy, of = ready(ctx, policy), ring(ctx, state.ref)
    behaviour = policy if acts.kept is None else ready(ctx, acts.policy)
    collected, seen, tally = explore_rollout(ctx, state, behaviour, params, key_rollout)
    collected, divisor = with_rewards(ctx, remembered(of, collected, seen, acts.version), seen)
    objective = Objective(
        policy,
        params,
        hparams,
        divisor,
        learning_rate,
        beta,
        is_active(ctx, state.update),
        state.update,
    )
    learnt, history = learn(ctx, of, collected, objective, key_learn)
    new = learnt.replace(
        normaliser=new_statistics(ctx, state.normaliser, seen.ref, params),
        update=state.update + 1,
        errors=followed_errors(ctx, collected, behaviour, params, seen, divisor),
        actor=acts.kept,
    )
    episodes, summary = tally_metrics(ctx, tally, seen, params)
    metrics: dict[str, Any] = episodes | step_metrics(ctx, history) | action_metrics(ctx, seen)
    metrics |= value_metrics(ctx, seen, policy, behaviour, new.params, params) | replay_metrics(
        ctx, new.own
    )
    metrics |= lag_metrics(state.update, acts.version) | {
        "learning_rate": learning_rate,
        "epsilon": policy.epsilon,
        "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
    }
    if new.own.priorities is not None:
        metrics |= {"priority_beta": beta, "priority_highest": new.own.priorities.highest}
    # Every step at a bar counts alike: a Q-learner has no entropy that tells where it is undecided.
    metrics |= advice_metrics(ctx, seen, jnp.ones_like(seen.reward), policy, inputs)
    return new, joined(metrics, figures, summary)
