"""Collect rollouts from many environments; compute values, counts and metrics from the steps.

T is the number of steps, N the number of environments. A rollout stores references instead of
observations, which would take far more memory. `Env.observe` rebuilds an observation from its
reference when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import forget
from jaxtrade.rl.acting import prepare_policy, update_statistics
from jaxtrade.rl.context import Context
from jaxtrade.rl.packing import Packed, Packing, packing_of
from jaxtrade.rl.returns import next_values
from jaxtrade.rl.state import EpisodeTotals, Policy, acting, env_keys
from jaxtrade.rl.train_state import TrainState, scale_rewards
from jaxtrade.types import Array, Env, Metrics, PyTree, Transition

# (carry, ref of one environment, random numbers from `draw`) -> (carry, action int32[], extras for
# `Transition`)
ActFn = Callable[[PyTree, PyTree, Any], tuple[PyTree, Array, PyTree]]


class PackedSteps(struct.PyTreeNode):
    """Packed transitions.

    words: of the reference and whether it is the first, then of the result.
    same, others: the parts of both that are not packed.
    packing: of the result.
    """

    words: Array
    same: tuple[Array, ...]
    others: tuple[Array, ...]
    packing: Packing = struct.field(pytree_node=False)


def unroll(
    env: Env,
    act: ActFn,
    env_state: PyTree,
    ref: PyTree,
    first: Array,
    carry: PyTree,
    tally: PyTree = None,
    *,
    params: PyTree,
    key: Array,
    num_steps: int,
    draw: Callable[[Array, int], Any] = jax.random.split,
    add: Callable[[PyTree, Transition], PyTree] | None = None,
    first_env: int | Array = 0,
    keep: Callable[[Transition], PyTree] | None = None,
) -> tuple[tuple[PyTree, PyTree, Array, PyTree], Transition, PyTree]:
    """Act and step T times in N environments.

    The policy's memory is reset at the start of each episode.

    Args:
        env_state, ref, first, carry: with leading axis N, as returned by `reset_all` or by the
            previous call.
        tally: metrics of each environment before the first step, a tree of arrays
            with leading axis N.
        draw: (key of one environment, T) -> the random numbers of `act` for each step, [T, ...].
            They are drawn before the first step, because hashing keys inside the loop would cost as
            much as the step itself.
        add: (tally, transitions of one step [N, ...]) -> the tally after the step.
            Default: no tally.
        first_env: global number of this device's first environment.
        keep: transitions of one step [N, ...] -> what stays of their `info` where a tally is
            added (`Summary.keep`).

    Returns:
        (env_state, ref, first, carry) after the last step, the transitions [T, N, ...], and the
        tally. With `add`, the transitions hold no `info`, or what `keep` returned: all of it would
        take far more memory than a tally.
    """
    worlds, seen = packing_of((env_state, ref, first, tally)), packing_of((ref, first))

    def step(
        now: tuple[Packed, PyTree], random: tuple[Any, Array]
    ) -> tuple[Any, tuple[PackedSteps, PyTree]]:
        env_state, ref, first, tally = worlds.unpack(now[0])

        def one(
            random: tuple[Any, Array], env_state: PyTree, ref: PyTree, carry: PyTree
        ) -> tuple[Any, ...]:
            drawn, key_step = random
            carry, action, extras = act(carry, ref, drawn)
            return carry, action, extras, *env.step(key_step, env_state, action, params)

        carry, action, extras, env_state, next_ref, outcome = jax.vmap(one)(
            random, env_state, ref, forget(now[1], first)
        )
        transition = Transition(
            ref=ref,
            final_ref=outcome.final_ref,
            first=first,
            action=action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            info=outcome.info,
            extras=extras,
        )
        if add is not None:
            tally, transition = (
                add(tally, transition),
                transition._replace(info=keep and keep(transition)),
            )
        result = transition._replace(ref=None, first=None)
        packing = packing_of(result)
        done = outcome.terminated | outcome.truncated
        # What computes the words stays out of the programs that join them: a compiler would repeat
        # it for each word.
        behind: Any = jax.lax.optimization_barrier(
            (worlds.split((env_state, next_ref, done, tally)), packing.split(result))
        )
        (after, rest), (made, others) = behind
        given, same = seen.split((ref, first))
        packed = Packed(jnp.stack(after), rest)
        return (packed, carry), (PackedSteps(jnp.stack(given + made), same, others, packing), carry)

    random = _random(env_keys(key, first.shape[0], first_env), num_steps, draw)
    start = worlds.pack((env_state, ref, first, tally))
    (packed, carry), (steps, carries) = jax.lax.scan(step, (start, carry), random)
    env_state, next_ref, next_first, tally = worlds.unpack(packed)
    ref, first = seen.unpack(Packed(steps.words, steps.same), axis=1)
    transitions = steps.packing.unpack(Packed(steps.words[:, seen.count :], steps.others), axis=1)
    transitions = transitions._replace(ref=ref, first=first, carry=carries)
    return (env_state, next_ref, next_first, carry), transitions, tally


def _random(keys: Array, num_steps: int, draw: Callable[[Array, int], Any]) -> tuple[Any, Array]:
    """Draw the random numbers of `act` and the keys of `Env.step` for all steps, [T, N, ...].

    Args:
        keys: key[N].
    """

    def of(env_key: Array) -> tuple[Any, Array]:
        key_act, key_step = jax.random.split(env_key)
        return draw(key_act, num_steps), jax.random.split(key_step, num_steps)

    return jax.vmap(of, out_axes=1)(keys)


def final_values(value: Callable[[PyTree, PyTree], Array], transitions: Transition) -> Array:
    """Return V(final_ref) of truncated steps, 0 elsewhere (float32[T, N]).

    The function evaluates one time step at a time, and only steps at which some environment was
    truncated. It uses the memory that the policy had at the end of the episode.

    Args:
        value: (carry before `ref`, ref of one environment) -> float32[].
    """
    needed = transitions.truncated & ~transitions.terminated
    steps = needed.any(axis=1)
    order = jnp.argsort(~steps)  # the steps that need values come first

    # A loop over the needed steps instead of a `lax.cond` in every step: under vmap a cond becomes
    # a select between copies of all its operands, so each agent would get its own copy of the
    # market.
    def at(i: Array, values: Array) -> Array:
        t = order[i]
        final = jax.vmap(value)(
            *jax.tree.map(lambda x: x[t], (transitions.carry, transitions.final_ref))
        )
        return values.at[t].set(jnp.where(needed[t], final, 0.0))

    return jax.lax.fori_loop(0, steps.sum(dtype=jnp.int32), at, jnp.zeros(needed.shape))


def following_values(
    value: Callable[[PyTree, PyTree], Array],
    own: Array,
    carry: PyTree,
    ref: PyTree,
    seen: Transition,
) -> Array:
    """Return the value of what follows each step of a rollout (float32[T, N]).

    See `returns.next_values`.

    Args:
        value: as of `final_values`.
        own: float32[T, N], V of `seen.ref`.
        carry, ref: memory and references after the last step. The carry is not reset: where an
            episode has just ended, no target reads the value of `ref`.
    """
    last = jax.vmap(value)(carry, ref)
    return next_values(own, last, final_values(value, seen), seen.truncated)


def count_illegal(env: Env, transitions: Transition, reduce: Reduce = LOCAL) -> Array:
    """Count the sampled actions that are illegal by the mask of the stored reference (int32[])."""
    masks = jax.vmap(jax.vmap(env.action_mask))(transitions.ref)
    legal = (masks & (transitions.action[..., None] == jnp.arange(masks.shape[-1]))).any(axis=-1)
    return reduce.sum(~legal, dtype=jnp.int32)


class EpisodeTally(struct.PyTreeNode):
    """Metrics of the episodes of each environment, all [N].

    running: totals of the running episode.
    ended: int32, episodes that ended in this rollout.
    reward: float32 and length: int32, sums over these episodes.
    """

    running: EpisodeTotals
    ended: Array
    reward: Array
    length: Array


def start_episodes(running: EpisodeTotals) -> EpisodeTally:
    """Return the tally before the first step of a rollout.

    Args:
        running: totals of the running episodes, [N].
    """
    none = jnp.zeros_like(running.length)
    return EpisodeTally(running, none, jnp.zeros_like(running.reward), none)


def add_step(tally: EpisodeTally, reward: Array, done: Array) -> EpisodeTally:
    """Add one step to the tally.

    Args:
        reward: float32[N].
        done: bool[N], True where the step ended an episode.
    """
    total = EpisodeTotals(tally.running.reward + reward, tally.running.length + 1)
    return EpisodeTally(
        running=jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), total),
        ended=tally.ended + done,
        reward=tally.reward + jnp.where(done, total.reward, 0.0),
        length=tally.length + jnp.where(done, total.length, 0),
    )


def episode_metrics(tally: EpisodeTally, reduce: Reduce = LOCAL) -> Metrics:
    """Compute the metrics of the episodes that ended in a rollout, over all devices.

    `episodes` (int32[] count), `episode_reward` and `episode_length` (float32[] means, NaN if no
    episode ended).
    """
    count = reduce.sum(tally.ended, dtype=jnp.int32)
    divisor = jnp.where(count > 0, count.astype(jnp.float32), jnp.nan)
    return {
        "episodes": count,
        "episode_reward": reduce.sum(tally.reward) / divisor,
        "episode_length": reduce.sum(tally.length).astype(jnp.float32) / divisor,
    }


# A learner's rollout: act in all environments, and add up the figures of their episodes.


class Tally(NamedTuple):
    """Metrics of each environment that a rollout adds up.

    summary: sums of `Summary.collect`, None without one.
    """

    episodes: EpisodeTally
    summary: PyTree


def _first_tally(ctx: Context, state: TrainState, params: PyTree) -> Tally:
    summary = ctx.summary and jax.tree.map(
        lambda x: jnp.broadcast_to(x, (ctx.rollout.num_envs, *jnp.shape(x))),
        ctx.summary.start(params),
    )
    return Tally(start_episodes(state.episodes), summary)


def _add(ctx: Context, tally: Tally, seen: Transition) -> Tally:
    summary = ctx.summary and jax.tree.map(jnp.add, tally.summary, ctx.summary.collect(seen))
    return Tally(add_step(tally.episodes, seen.reward, seen.terminated | seen.truncated), summary)


def uniforms(key: Array, count: int) -> Array:
    """Draw one number in [0, 1) for each step of one environment (float32[count])."""
    return jax.random.uniform(key, (count,))


class Rollout(NamedTuple):
    """A rollout of a learner.

    state: after the last step.
    seen: the transitions [T, N, ...].
    tally: of its episodes.
    policy, behaviour: the one that learns and the one that acted, from `acting.prepare_policy`; the same one
        unless an older one acts (`state.acting`).
    version: int32[], of the one that acted.
    """

    state: TrainState
    seen: Transition
    tally: Tally
    policy: Policy
    behaviour: Policy
    version: Array


def roll_out(
    ctx: Context,
    explorer: Callable[[Any, Policy, PyTree], ActFn],
    state: TrainState,
    policy: Policy,
    params: PyTree,
    key: Array,
) -> Rollout:
    """Act `num_steps` times in every environment.

    The state's `carry` and `first` are those after the last step, so the caller keeps those from
    before the rollout if it needs them.

    Args:
        explorer: (ctx, the policy that acts, params) -> how it acts by one uniform number per step.
        policy: the one that learns, not packed.
    """
    acts = acting(state.actor, policy, state.update)
    policy = prepare_policy(ctx, policy)
    behaviour = policy if acts.kept is None else prepare_policy(ctx, acts.policy)
    start = _first_tally(ctx, state, params)
    unrolled = partial(
        unroll,
        ctx.env,
        explorer(ctx, behaviour, params),
        params=params,
        key=key,
        num_steps=ctx.rollout.num_steps,
        draw=uniforms,
        add=partial(_add, ctx),
        first_env=ctx.first_env,
        keep=ctx.summary and ctx.summary.keep,
    )
    (env_state, ref, first, carry), seen, tally = ctx.reduce.alone(unrolled)(
        state.env_state, state.ref, state.first, state.carry, start
    )
    state = state.replace(
        env_state=env_state,
        ref=ref,
        first=first,
        carry=carry,
        episodes=tally.episodes.running,
        actor=acts.kept,
    )
    return Rollout(state, seen, tally, policy, behaviour, acts.version)


def scaled_rewards(
    ctx: Context, state: TrainState, seen: Transition
) -> tuple[TrainState, Array, Array]:
    """Scale a rollout's rewards as the learner uses them.

    Returns:
        (state with the statistics of the rewards, the scaled rewards float32[T, N], what they are
        divided by float32[]).
    """
    if state.rewards is None:
        return state, seen.reward, jnp.float32(1.0)
    scale, reward, divisor = scale_rewards(
        state.rewards,
        seen.reward,
        seen.terminated | seen.truncated,
        state.hparams.gamma,
        ctx.reduce,
    )
    return state.replace(rewards=scale), reward, divisor


# Parts of an update that every learner shares: observation statistics, learning rates, and
# metrics.


def after_update(ctx: Context, learnt: TrainState, refs: PyTree, params: PyTree) -> TrainState:
    """Return the state of the next update.

    The rollout's references [T, N, ...] enter the observation statistics, if the configuration
    normalises observations.

    They do so only after the gradient steps: acting and learning must normalise in the same way.
    """
    stats = learnt.normaliser
    if ctx.settings.normalise_observations:
        rows = ctx.form.statistics_rows
        stats = update_statistics(ctx.env, stats, refs, params, ctx.reduce, rows)
    return learnt.replace(normaliser=stats, update=learnt.update + 1)


def learning_rates(
    ctx: Context, parameters: PyTree, learning_rate: Array, fraction: Array, adapter_freeze: Array
) -> PyTree:
    """Return the learning rate of each number of `parameters`: float32[] or arrays of their shapes.

    With an adapter, all other parameters are frozen (rate 0) until the fraction `adapter_freeze` of
    the run.
    """
    if not ctx.settings.adapter:
        return learning_rate
    base = jnp.where(fraction < adapter_freeze, 0.0, learning_rate)
    return {
        name: jax.tree.map(
            lambda x, rate=learning_rate if name == "adapter" else base: jnp.broadcast_to(
                rate, x.shape
            ),
            part,
        )
        for name, part in parameters.items()
    }


def rollout_metrics(ctx: Context, rollout: Rollout, params: PyTree) -> Metrics:
    """Compute the metrics of the episodes that ended in a rollout, and those of `ctx.summary`.

    Args:
        params: the parameters of the environment in this update.
    """
    episodes = episode_metrics(rollout.tally.episodes, ctx.reduce)
    if ctx.summary is None:
        return episodes
    sums = jax.tree.map(lambda x: ctx.reduce.sum(x, 0, x.dtype), rollout.tally.summary)
    close = ctx.summary.close
    closing = {} if close is None else dict(close(rollout.seen, params, ctx.reduce))
    figures = dict(ctx.summary.figures(sums, ctx.steps_per_update))
    return merge_metrics(episodes, figures, closing)


def action_metrics(ctx: Context, seen: Transition) -> Metrics:
    """Count the illegal actions in a rollout, and compute the share of each action (float32[A])."""
    chosen = seen.action[..., None] == jnp.arange(ctx.env.num_actions)
    return {
        "illegal": count_illegal(ctx.env, seen, ctx.reduce),
        "action_share": ctx.reduce.mean(chosen, (0, 1)),
    }


def merge_metrics(metrics: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """Merge metrics. Raises ValueError if a name occurs twice."""
    for other in others:
        if clash := metrics.keys() & other.keys():
            raise ValueError(
                f"summarise or stage returned metrics that are reported already: {sorted(clash)}"
            )
        metrics = metrics | other
    return metrics
