"""DQN with action masks (Mnih et al. 2015), returns of n steps, uniform or prioritised replay.

It is double (van Hasselt et al. 2016) and dueling (Wang et al. 2016); prioritised replay is that of
Schaul et al. 2016.

Each update acts epsilon-greedily in all environments, writes the rollout into a replay on the
device, and takes `replay_ratio` x environment steps / `batch_size` gradient steps on samples from
it. The replay holds references: observations are rebuilt from them, as PPO does, and normalised by
today's statistics.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple, Unpack

import chex
import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxtrade.config import RunConfig
from jaxtrade.config.learning import DQNConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.networks.accelerators import SteppedTree
from jaxtrade.rl import q
from jaxtrade.rl.acting import network_input
from jaxtrade.rl.algorithms import LearnerKind
from jaxtrade.rl.context import MakeOptions
from jaxtrade.rl.epochs import MetricVector
from jaxtrade.rl.optim import linear, progress, step
from jaxtrade.rl.q import (
    HEAD,
    Q,
    QHParams,
    evaluate_actions,
    explorer,
    first_policy,
    make_q_learner,
    of_action,
    q_contexts,
    value_of,
)
from jaxtrade.rl.replay import (
    DrawnRows,
    Priorities,
    Replay,
    Ring,
    Sample,
    add,
    draw,
    draw_chances,
    draw_uniform,
    empty_replay,
    importance_weights,
    no_priorities,
    renew_priorities,
    ring_of,
    sample,
    starts,
    td_priorities,
    update_priorities,
)
from jaxtrade.rl.rollout import (
    Rollout,
    action_metrics,
    after_update,
    following_values,
    merge_metrics,
    roll_out,
    rollout_metrics,
    scaled_rewards,
)
from jaxtrade.rl.state import Policy, strong_types
from jaxtrade.rl.train_state import Kind, TrainState, all_of
from jaxtrade.rl.wrappers import Experience
from jaxtrade.types import Array, Env, Learner, Metrics, PyTree, Transition

# --- What DQN carries from update to update besides the state that all learners share


class DQNHParams(QHParams, struct.PyTreeNode):
    """The tunable floats of DQN; meanings as in `DQNConfig`.

    They are leaves, so a sweep is a vmap.
    """

    tau: Array
    priority_alpha: Array
    priority_beta: Array
    priority_beta_end: Array


class DQNState(struct.PyTreeNode):
    """`TrainState.own` of DQN.

    target: parameters of the target network.
    replay: the newest transitions.
    priorities: of the replay's starts; None for a uniform replay.
    since: int32[], environment steps since the last multiple of `target_every`, times the gradient
        steps of an update.

    inherited: the fields that an agent takes over when it continues from another one (`rl.evolve`).
    """

    inherited: ClassVar[tuple[str, ...]] = ("target",)

    target: PyTree
    replay: Replay
    priorities: Priorities | None
    since: Array

    def kinds(self) -> DQNState:
        """Return how these arrays divide between devices (`rl.train_state`)."""
        whole = all_of(self, Kind.WHOLE)
        priorities = (
            None
            if self.priorities is None
            else whole.priorities.replace(trees=all_of(self.priorities.trees, Kind.LANES))
        )
        return whole.replace(
            replay=whole.replay.replace(rows=all_of(self.replay.rows, Kind.RING)),
            priorities=priorities,
        )


def make_ring(ctx: Q, refs: PyTree) -> Ring:
    """Return the static part of the replay.

    Args:
        refs: references [N, ...], or their shapes.
    """
    config: DQNConfig = ctx.config
    return ring_of(
        refs,
        ctx.env.num_actions,
        config.rows(ctx.rollout),
        ctx.rollout.num_envs,
        ctx.rollout.num_steps,
        ctx.rollout.shards,
        config.n_steps,
    )


def first_own(ctx: Q, parameters: PyTree, refs: PyTree) -> DQNState:
    """Return the state before the first update.

    The target network has memory of its own, because a run donates its state.
    """
    of = make_ring(ctx, refs)
    return DQNState(
        jax.tree.map(jnp.copy, parameters),
        empty_replay(of),
        no_priorities(of) if ctx.config.replay == "prioritised" else None,
        jnp.int32(0),
    )


# --- DQN's targets and its loss. B samples, A actions


def bootstrap(reward: Array, discount: Array, value: Array) -> Array:
    """Return reward + discount * value (float32[B]).

    Where the discount is 0, the value is not read: a network may return anything for a reference
    that no agent acts on.
    """
    chex.assert_equal_shape([reward, discount, value])
    return reward + jnp.where(discount > 0.0, discount * value, 0.0)


def final_value(target: Array, online: Array | None, mask: Array) -> Array:
    """Return the value of a reference by the target network, over its legal actions (float32[B]).

        max over legal a of Q_target(s, a)                  without `online` (Mnih et al. 2015)
        Q_target(s, argmax over legal a of Q_online(s, a))  with `online` (van Hasselt et al. 2016)

    Args:
        target, online: float32[B, A].
        mask: bool[B, A], legal actions.
    """
    chosen = distributions.mode(target if online is None else online, mask)
    return jax.lax.stop_gradient(of_action(target, chosen))


# --- The gradient steps of one update of DQN: draw from the replay, move the parameters, the target
# and the priorities.


OLDEST = "sample_age_max"  # a figure of a gradient step: the largest age of its samples


class Objective(NamedTuple):
    """What stays the same in all gradient steps of an update.

    policy: the policy that acted, from `acting.prepare_policy`; its parameters are not read.
    params: of the environment.
    hparams: of the learner.
    divisor: float32[], of rewards.
    rate: learning rate, float32[] or as the parameters.
    beta: float32[], power of the importance weights.
    active: bool[], False before `learning_starts` or without a complete sample: then no
        step is applied.
    update: int32[], its number.
    """

    policy: Policy
    params: PyTree
    hparams: DQNHParams
    divisor: Array
    rate: PyTree
    beta: Array
    active: Array
    update: Array


class SteppedDQN(NamedTuple):
    """What the gradient steps change.

    parameters, opt_state, target: in the form of the layout.
    """

    parameters: PyTree
    opt_state: PyTree
    target: PyTree
    priorities: Priorities | None
    since: Array


class ReplayBatch(NamedTuple):
    """The drawn samples, their importance weights, and what was drawn by priority.

    The weights are float32[B] (None for ones).
    """

    sample: Sample
    weight: Array | None
    drawn: DrawnRows | None


def draw_randoms(ctx: Q, ring: Ring, replay: Replay, key: Array) -> PyTree:
    """Draw the random numbers of all gradient steps, [K, ...].

    They are starts (row, lane) of a uniform replay, or uniform numbers of a prioritised one. They
    are drawn at once, because a device would start several programs for each step.
    """
    config: DQNConfig = ctx.config
    uniform = config.replay == "uniform"
    one = partial(draw_uniform, ring, replay) if uniform else partial(draw_chances, ring)
    keys = jax.random.split(key, config.gradient_steps(ctx.rollout))
    first_group = ctx.reduce.offset(ring.groups)
    return jax.vmap(partial(one, batch=config.batch_size, first_group=first_group))(keys)


def batch_of(
    ring: Ring,
    replay: Replay,
    priorities: Priorities | None,
    random: PyTree,
    hparams: DQNHParams,
    beta: Array,
) -> ReplayBatch:
    """Return the samples of one gradient step on this device.

    `gradient_step` still divides their weights by the largest.

    Args:
        random: its part of `draw_randoms`.
    """
    if priorities is None:
        row, lane = random
        return ReplayBatch(sample(ring, replay, row, lane, hparams.gamma), None, None)
    drawn = draw(ring, priorities, random)
    weight = importance_weights(ring, replay, drawn, beta)
    return ReplayBatch(sample(ring, replay, drawn.row, drawn.lane, hparams.gamma), weight, drawn)


def values_of(ctx: Q, policy: Policy, refs: PyTree, params: PyTree) -> Array:
    """Return Q of references [B, ...] (float32[B, A]).

    Args:
        policy: from `acting.prepare_policy`, of a network without a memory.
    """
    observations = jax.vmap(lambda ref: network_input(ctx, policy, ref, params))(refs)
    return ctx.network.apply(
        {"params": policy.parameters}, ctx.first_carry, observations, method="values"
    )


def gradient(
    ctx: Q, objective: Objective, parameters: PyTree, target: PyTree, batch: ReplayBatch
) -> tuple[Array, Metrics, Array, PyTree]:
    """Return (loss float32[], diagnostics, TD errors float32[B], gradient by `parameters`)."""
    policy, found = objective.policy, batch.sample

    def final(parameters: PyTree) -> tuple[Array, Array]:
        own = policy.replace(parameters=parameters)
        valued = jax.vmap(lambda ref: evaluate_actions(ctx, own, None, ref, objective.params))(
            found.final_ref
        )
        return valued.q, valued.mask

    by_target, mask = final(target)
    online = final(parameters)[0] if ctx.config.double else None
    goal = bootstrap(
        found.reward / objective.divisor, found.discount, final_value(by_target, online, mask)
    )

    def objective_of(parameters: PyTree) -> tuple[Array, tuple[Array, Array]]:
        values = values_of(ctx, policy.replace(parameters=parameters), found.ref, objective.params)
        own = of_action(values, found.action)
        error = own - goal
        # Huber's loss with delta 1: error^2 / 2 up to 1, |error| - 1/2 beyond.
        loss = optax.losses.huber_loss(error)
        return (loss if batch.weight is None else batch.weight * loss).mean(), (own, error)

    (total, (own, error)), grads = jax.value_and_grad(objective_of, has_aux=True)(parameters)
    age = (objective.update - found.version).astype(jnp.float32)
    # All rows of figures are reduced together. On a device each reduction would be two programs of
    # its own.
    means = jnp.stack([jnp.abs(error), own, goal, age]).mean(axis=1)
    terms = dict(zip(("td_error", "q_mean", "target_mean", "sample_age"), means, strict=True))
    return total, terms | {OLDEST: age.max()}, error, grads


def update_target(
    ctx: Q, objective: Objective, now: SteppedDQN, parameters: PyTree, applied: Array
) -> tuple[PyTree, Array, Array]:
    """Return the target network after a gradient step.

    The environment steps of an update are spread evenly over its gradient steps. The target network
    becomes the online one in each gradient step in which they cross a multiple of `target_every`. A
    test "steps modulo target_every is 0" would miss multiples inside an update.

    Returns:
        (target parameters, `Own.since`, bool[]: it became the online network).
    """
    config: DQNConfig = ctx.config
    if config.tau > 0.0:
        share = jnp.where(applied, objective.hparams.tau, 0.0)
        return (
            jax.tree.map(lambda old, new: old + share * (new - old), now.target, parameters),
            now.since,
            applied,
        )
    count = config.gradient_steps(ctx.rollout)
    since, every = now.since + ctx.steps_per_update, config.target_every * count
    crossed = since >= every
    return (
        jax.tree.map(lambda old, new: jnp.where(crossed, new, old), now.target, parameters),
        since % every,
        crossed,
    )


def gradient_step(
    ctx: Q,
    ring: Ring,
    replay: Replay,
    objective: Objective,
    form: SteppedTree,
    now: SteppedDQN,
    random: PyTree,
) -> tuple[SteppedDQN, MetricVector]:
    """Run one gradient step and return (what it changed, its metrics)."""
    hparams, reduce = objective.hparams, ctx.reduce
    batch = reduce.alone(partial(batch_of, ring))(
        replay, now.priorities, random, hparams, objective.beta
    )
    if batch.weight is not None:
        batch = batch._replace(weight=batch.weight / reduce.max_of_parts(batch.weight.max()))
    total, terms, error, grads = reduce.alone(partial(gradient, ctx))(
        objective, form.layout.tree(now.parameters), form.layout.tree(now.target), batch
    )
    found = reduce.alone(td_priorities)(error, hparams.priority_alpha)
    most = {OLDEST: terms.pop(OLDEST)} | (
        {} if now.priorities is None else {"highest": found.max()}
    )
    (total, terms, grads), most = reduce.reduce_mean_and_max(
        (total, terms, form.layout.flat(grads)), most
    )
    norm = optax.tree.norm(grads)
    finite = jnp.isfinite(total) & jnp.isfinite(norm)
    # `where` instead of `lax.cond`: under vmap a cond selects between copies of its operands, the
    # replay among them.
    applied = finite & objective.active
    parameters, opt_state = step(
        now.parameters,
        now.opt_state,
        grads,
        norm,
        objective.rate,
        hparams.max_grad_norm,
        applied,
    )
    target, since, copied = update_target(ctx, objective, now, parameters, applied)
    priorities = now.priorities
    if priorities is not None:
        assert batch.drawn is not None
        priorities = update_priorities(priorities, batch.drawn, found, most["highest"], applied)
    figures = {
        "td_loss": total,
        **terms,
        OLDEST: most[OLDEST],
        "grad_norm": norm,
        "finite": finite | ~objective.active,
        "applied": applied,
        "target_updates": copied,
    }
    return SteppedDQN(parameters, opt_state, target, priorities, since), MetricVector.of(figures)


def learn(
    ctx: Q, ring: Ring, state: TrainState, objective: Objective, key: Array
) -> tuple[TrainState, Metrics]:
    """Run all gradient steps of an update.

    Returns:
        (state, metrics of every step, float32[K] by name; 1 is True).
    """
    own: DQNState = state.own
    form = SteppedTree.of(ctx.network, ctx.form, state.params)
    rate = objective.rate
    objective = objective._replace(
        rate=form.enter(rate) if isinstance(rate, dict) else rate,
        active=objective.active & (starts(ring, own.replay) > 0),
    )
    # A run that begins from another run's policy changes the parameters of its first state alone.
    target = jax.tree.map(
        lambda new, old: jnp.where(state.update == 0, new, old), state.params, own.target
    )
    run_step: Any = partial(gradient_step, ctx, ring, own.replay, objective, form)
    start = SteppedDQN(
        form.enter(state.params),
        form.enter_moments(state.opt_state),
        form.enter(target),
        own.priorities,
        own.since,
    )
    end, history = jax.lax.scan(run_step, start, draw_randoms(ctx, ring, own.replay, key))
    own = own.replace(target=form.leave(end.target), priorities=end.priorities, since=end.since)
    learnt = state.replace(
        params=form.leave(end.parameters),
        own=own,
        opt_state=form.leave_moments(state.opt_state, end.opt_state),
    )
    return learnt, history.by_name()


# --- One update of DQN: a rollout, into the replay, gradient steps on samples from it, and metrics


def store_rollout(of: Ring, state: TrainState, seen: Transition, version: Array) -> TrainState:
    """Add a rollout to the replay, with rewards as they are, because the divisor changes.

    Args:
        version: int32[], of the policy that acted (`rl.state`).
    """
    own: DQNState = state.own
    stored = add(of, own.replay, seen, version)
    priorities = None if own.priorities is None else renew_priorities(of, own.priorities, stored)
    return state.replace(own=own.replace(replay=stored, priorities=priorities))


def td_errors(ctx: Q, rollout: Rollout, params: PyTree, divisor: Array) -> Array:
    """Return the sizes of the one-step TD errors of a rollout (float32[T, N])."""
    value = partial(value_of, ctx, rollout.behaviour, params=params)
    gamma = rollout.state.hparams.gamma

    def errors(carry: PyTree, ref: PyTree, seen: Transition) -> Array:
        following = following_values(value, seen.extras.value, carry, ref, seen)
        target = seen.reward / divisor + gamma * jnp.where(seen.terminated, 0.0, following)
        return jnp.abs(target - seen.extras.q)

    return ctx.reduce.alone(errors)(rollout.state.carry, rollout.state.ref, rollout.seen)


def step_metrics(ctx: Q, history: Metrics) -> Metrics:
    """Compute the metrics of the gradient steps.

    `gradient_steps` and `replay_ratio` (samples trained per environment step) count the steps that
    were applied. `sample_age_max` is the largest of these steps, and the other metrics are means
    over them.

    Args:
        history: float32[K] by name; 1 is True.
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


def value_metrics(ctx: Q, rollout: Rollout, parameters: PyTree, params: PyTree) -> Metrics:
    """Compute metrics of Q at the rollout's last step, before and after learning (to `parameters`).

    Returns:
        q_error: largest difference of the Q that acted from what learning computes for the same
            policy, relative to 1 + |Q|.
        q_change: mean change by the update.
        q_max: largest |Q| of the rollout.
    """
    policy, behaviour, seen = rollout.policy, rollout.behaviour, rollout.seen
    learnt = policy.replace(parameters=ctx.pack(parameters))

    def compare(ref: PyTree, action: Array, acted: Array) -> tuple[Array, Array]:
        def values(policy: Policy) -> Array:
            return of_action(values_of(ctx, policy, ref, params), action)

        before, after = values(policy), values(learnt)
        again = before if behaviour is policy else values(behaviour)
        return (jnp.abs(again - acted) / (1.0 + jnp.abs(acted))).max(), jnp.abs(
            after - before
        ).mean()

    error, change = ctx.reduce.alone(compare)(
        *jax.tree.map(lambda x: x[-1], (seen.ref, seen.action, seen.extras.q))
    )
    error, most = ctx.reduce.max_of_parts((error, jnp.abs(seen.extras.value).max()))
    return {"q_error": error, "q_change": ctx.reduce.mean_of_parts(change), "q_max": most}


def update(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree
) -> tuple[TrainState, Metrics, Experience]:
    """Run one update (`wrappers.Update`)."""
    hparams: DQNHParams = state.hparams
    key_rollout, key_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
    fraction = progress(state.update, state.total_updates)
    learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
    beta = linear(hparams.priority_beta, hparams.priority_beta_end, fraction)

    of = make_ring(ctx, state.ref)
    rollout = roll_out(ctx, explorer, state, policy, params, key_rollout)
    policy, seen = rollout.policy, rollout.seen
    after = store_rollout(of, rollout.state, seen, rollout.version)
    after, _, divisor = scaled_rewards(ctx, after, seen)  # of all samples
    # Counted in updates, because int32 does not hold the steps of a long run.
    quiet = -(-ctx.config.learning_starts // ctx.steps_per_update)
    objective = Objective(
        policy,
        params,
        hparams,
        divisor,
        learning_rate,
        beta,
        (state.update + 1) >= quiet,
        state.update,
    )
    learnt, history = learn(ctx, of, after, objective, key_learn)
    new = after_update(ctx, learnt, seen.ref, params)
    metrics = merge_metrics(
        rollout_metrics(ctx, rollout, params),
        step_metrics(ctx, history),
        action_metrics(ctx, seen),
        value_metrics(ctx, rollout, new.params, params),
        {
            "replay_size": new.own.replay.filled.astype(jnp.float32)  # transitions
            * ctx.reduce.count(ctx.rollout.num_envs),
            "learning_rate": learning_rate,
            "epsilon": policy.epsilon,
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
        },
    )
    if new.own.priorities is not None:
        metrics |= {"priority_beta": beta, "priority_highest": new.own.priorities.highest}
    # Every step at a bar counts alike: a Q-learner has no entropy that tells where it is undecided.
    return (
        new,
        metrics,
        Experience(
            rollout,
            lambda: jnp.ones_like(seen.reward),
            lambda: td_errors(ctx, rollout, params, divisor),
        ),
    )


# --- DQN as a `Learner`


def init(ctx: Q, key: Array, params: PyTree) -> TrainState:
    """Implement `Learner.init`, with an empty replay and the target network.

    Raises TypeError as `first_state`.
    """
    state = q.init(ctx, DQNHParams, key, params)
    return state.replace(own=strong_types(first_own(ctx, state.params, state.ref)))


def make_dqn(
    config: RunConfig,
    env: Env,
    total_updates: int,
    **around: Unpack[MakeOptions],
) -> Learner:
    """Build DQN on `env` for a run of `total_updates` updates.

    Arguments and result are those of `rl.ppo.make_ppo`, with the section `dqn` (`config.algorithm`
    is `dqn`).

    Raises ConfigError: counts that do not fit each other (`DQNConfig.check`), a network with a
    memory, or a fusion that needs a distribution.
    """
    try:
        config.dqn.check(config.rollout)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    exact, ctx = q_contexts(config, env, total_updates, **around)
    if ctx.first_carry is not None:
        raise ConfigError(
            f"network.kind={config.network.kind} has a memory, and a sample of DQN's replay is too short "
            "to rebuild it: set algorithm=pqn, which learns from whole rollouts, or network.kind=mlp"
        )
    return make_q_learner(config, exact, ctx, partial(init, ctx), partial(update, ctx))


LEARNER = LearnerKind(make_dqn, first_policy, HEAD, divides=True)
