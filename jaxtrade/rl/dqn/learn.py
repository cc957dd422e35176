"""The gradient steps of one update of DQN: draw from the replay, move the parameters, the target
and the priorities.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxtrade.config.dqn import DQNConfig
from jaxtrade.rl import prioritised
from jaxtrade.rl.acting import network_input
from jaxtrade.rl.dqn import loss
from jaxtrade.rl.dqn.state import HParams, Own
from jaxtrade.rl.flat import Layout, Unchanged, layout_of, map_parts
from jaxtrade.rl.prioritised import Priorities
from jaxtrade.rl.q.act import of_action, values_and_mask
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.replay import Replay, Ring, Sample, draw_uniform, sample, starts
from jaxtrade.rl.schedules import clipped_adam
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree

OLDEST = "sample_age_max"  # a figure of a gradient step: the largest age of its samples


class Objective(NamedTuple):
    """What stays the same in all gradient steps of an update.

    policy: the policy that acted, from `ready`; its parameters are not read. params: of the
        environment. hparams.
    divisor: float32[], of rewards. rate: learning rate, float32[] or as the parameters. beta:
        float32[], power of the
    importance weights. active: bool[], False before `learning_starts` or without a complete sample:
    then no step is applied. update: int32[], its number.
    """

    policy: Policy
    params: PyTree
    hparams: HParams
    divisor: Array
    rate: PyTree
    beta: Array
    active: Array
    update: Array


class Moving(NamedTuple):
    """What the gradient steps change. parameters, opt_state, target: in the form of the layout."""

    parameters: PyTree
    opt_state: PyTree
    target: PyTree
    priorities: Priorities | None
    since: Array


class Batch(NamedTuple):
    """The drawn samples, their importance weights float32[B] (None for ones) and what was drawn by
    priority.
    """

    sample: Sample
    weight: Array | None
    drawn: prioritised.Drawn | None


def draws(ctx: Q, ring: Ring, replay: Replay, key: Array) -> PyTree:
    """The random numbers of all gradient steps, [K, ...]: starts (row, lane) of a uniform replay,
    uniform numbers of a prioritised one. They are drawn at once, because a device would start
    several programs for each step."""
    config: DQNConfig = ctx.config
    keys, first_group = (
        jax.random.split(key, config.gradient_steps(ctx.rollout)),
        ctx.reduce.offset(ring.groups),
    )
    if config.replay == "uniform":
        return jax.vmap(
            partial(draw_uniform, ring, replay, batch=config.batch_size, first_group=first_group)
        )(keys)
    return jax.vmap(
        partial(prioritised.chances, ring, batch=config.batch_size, first_group=first_group)
    )(keys)


def batch_of(
    ring: Ring,
    replay: Replay,
    priorities: Priorities | None,
    random: PyTree,
    hparams: HParams,
    beta: Array,
) -> Batch:
    """The samples of one gradient step on this device, with weights that `gradient_step` still
    divides by the largest.
    random: its part of `draws`."""
    if priorities is None:
        row, lane = random
        return Batch(sample(ring, replay, row, lane, hparams.gamma), None, None)
    drawn = prioritised.draw(ring, priorities, random)
    weight = prioritised.importance_weights(ring, replay, drawn, beta)
    return Batch(sample(ring, replay, drawn.row, drawn.lane, hparams.gamma), weight, drawn)


def values_of(ctx: Q, policy: Policy, refs: PyTree, params: PyTree) -> Array:
    """Q float32[B, A] of references [B, ...]. policy: from `acting.ready`, of a network without a
    memory.
    """
    observations = jax.vmap(lambda ref: network_input(ctx, policy, ref, params))(refs)
    return ctx.network.apply(
        {"params": policy.parameters}, ctx.first_carry, observations, method="values"
    )


def gradient(
    ctx: Q, objective: Objective, parameters: PyTree, target: PyTree, batch: Batch
) -> tuple[Array, dict[str, Array], Array, PyTree]:
    """-> (loss float32[], diagnostics, TD errors float32[B], gradient by `parameters`)."""
    policy, found = objective.policy, batch.sample

    def final(parameters: PyTree) -> tuple[Array, Array]:
        own = policy.replace(parameters=parameters)
        _, values, mask = jax.vmap(
            lambda ref: values_and_mask(ctx, own, None, ref, objective.params)
        )(found.final_ref)
        return values, mask

    by_target, mask = final(target)
    online = final(parameters)[0] if ctx.config.double else None
    goal = loss.bootstrapped(
        found.reward / objective.divisor, found.discount, loss.final_value(by_target, online, mask)
    )

    def objective_of(parameters: PyTree) -> tuple[Array, tuple[Array, Array]]:
        values = values_of(ctx, policy.replace(parameters=parameters), found.ref, objective.params)
        own = of_action(values, found.action)
        error = own - goal
        return loss.weighted_huber(error, batch.weight), (own, error)

    (total, (own, error)), grads = jax.value_and_grad(objective_of, has_aux=True)(parameters)
    age = (objective.update - found.version).astype(jnp.float32)
    # All rows of figures are reduced together. On a device each reduction would be two programs of
    # its own.
    means = jnp.stack([jnp.abs(error), own, goal, age]).mean(axis=1)
    terms = dict(zip(("td_error", "q_mean", "target_mean", "sample_age"), means, strict=True))
    return total, terms | {OLDEST: age.max()}, error, grads


def moved_target(
    ctx: Q, objective: Objective, now: Moving, parameters: PyTree, applied: Array
) -> tuple[PyTree, Array, Array]:
    """(target parameters, `Own.since`, bool[]: it became the online network) after a gradient step.

    The environment steps of an update are spread evenly over its gradient steps. The target network
    becomes the online one in each gradient step in which they cross a multiple of `target_every`. A
    test "steps modulo target_every is 0" would miss multiples inside an update.
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
    layout: Layout | Unchanged,
    names: list[str],
    now: Moving,
    random: PyTree,
) -> tuple[Moving, Array]:
    """One gradient step -> (what it changed, its figures float32[F]). names: gets their names."""
    hparams, reduce = objective.hparams, ctx.reduce
    batch = reduce.alone(partial(batch_of, ring))(
        replay, now.priorities, random, hparams, objective.beta
    )
    if batch.weight is not None:
        batch = batch._replace(weight=batch.weight / reduce.max_of_parts(batch.weight.max()))
    total, terms, error, grads = reduce.alone(partial(gradient, ctx))(
        objective, layout.tree(now.parameters), layout.tree(now.target), batch
    )
    found = reduce.alone(prioritised.found_priorities)(error, hparams.priority_alpha)
    most = {OLDEST: terms.pop(OLDEST)} | (
        {} if now.priorities is None else {"highest": found.max()}
    )
    (total, terms, grads), most = reduce.joined((total, terms, layout.flat(grads)), most)
    norm = optax.tree.norm(grads)
    finite = jnp.isfinite(total) & jnp.isfinite(norm)
    # `where` instead of `lax.cond`: under vmap a cond selects between copies of its operands, the
    # replay among them.
    applied = finite & objective.active
    direction, opt_state = clipped_adam(grads, norm, now.opt_state, hparams.max_grad_norm)
    moved = optax.tree.sub(
        now.parameters, optax.tree.mul(jax.tree.broadcast(objective.rate, direction), direction)
    )
    parameters, opt_state = jax.tree.map(
        lambda new, old: jnp.where(applied, new, old),
        (moved, opt_state),
        (now.parameters, now.opt_state),
    )
    target, since, copied = moved_target(ctx, objective, now, parameters, applied)
    priorities = now.priorities
    if priorities is not None:
        assert batch.drawn is not None
        priorities = prioritised.learned(priorities, batch.drawn, found, most["highest"], applied)
    figures = {
        "td_loss": total,
        **terms,
        OLDEST: most[OLDEST],
        "grad_norm": norm,
        "finite": finite | ~objective.active,
        "applied": applied,
        "target_updates": copied,
    }
    names[:] = figures
    # One row instead of an array for each figure: a device stores each array by a program of its
    # own.
    return (
        Moving(parameters, opt_state, target, priorities, since),
        jnp.stack([x.astype(jnp.float32) for x in figures.values()]),
    )


def learn(
    ctx: Q, ring: Ring, state: TrainState, objective: Objective, key: Array
) -> tuple[TrainState, dict[str, Array]]:
    """All gradient steps of an update -> (state, figures of every step, float32[K] by name; 1 is
    True).

    The steps work on the parameters and moments as `ctx.form` says: as vectors (`rl.flat`), or as
    they are.
    """
    own: Own = state.own
    layout = layout_of(ctx.packed(state.params)) if ctx.form.vectors else Unchanged()

    def flat(tree: PyTree) -> PyTree:
        return layout.flat(ctx.packed(tree))

    def restored(old: PyTree, flattened: PyTree) -> PyTree:
        return ctx.unpacked(layout.tree(flattened), old)

    rate = objective.rate
    objective = objective._replace(
        rate=flat(rate) if isinstance(rate, dict) else rate,
        active=objective.active & (starts(ring, own.replay) > 0),
    )
    # A run that begins from another run's policy changes the parameters of its first state alone.
    target = jax.tree.map(
        lambda new, old: jnp.where(state.update == 0, new, old), state.params, own.target
    )
    names: list[str] = []  # of the figures, known when the step is traced
    step: Any = partial(gradient_step, ctx, ring, own.replay, objective, layout, names)
    start = Moving(
        flat(state.params),
        map_parts(flat, state.opt_state, state.params),
        flat(target),
        own.priorities,
        own.since,
    )
    end, history = jax.lax.scan(step, start, draws(ctx, ring, own.replay, key))
    own = own.replace(
        target=restored(own.target, end.target), priorities=end.priorities, since=end.since
    )
    learnt = state.replace(
        params=restored(state.params, end.parameters),
        own=own,
        opt_state=map_parts(restored, state.opt_state, state.params, end.opt_state),
    )
    return learnt, dict(zip(names, jnp.moveaxis(history, -1, 0), strict=True))
