"""A learner's rollout: act in all environments, and add up the figures of their episodes."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.rl.context import Context
from jaxtrade.rl.rollout import ActFn, EpisodeTally, add_step, start_episodes, unroll
from jaxtrade.rl.train_state import TrainState, scaled
from jaxtrade.types import Array, PyTree, Transition


class Tally(NamedTuple):
    """Figures of each environment that a rollout adds up. summary: sums of `Summary.collect`, None
    without one.
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
    """float32[count] in [0, 1): one number for each step of one environment."""
    return jax.random.uniform(key, (count,))


def roll_out(
    ctx: Context, act: ActFn, state: TrainState, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Tally]:
    """Act `num_steps` times in every environment -> (state after the last step, transitions [T, N,
    ...], tally).

    act: as in `unroll`; its random numbers are one uniform number per step. The state's `carry` and
        `first` are those
    after the last step, so the caller keeps those from before the rollout if it needs them.
    """
    start, first_env = _first_tally(ctx, state, params), ctx.first_env

    def unrolled(env_state: PyTree, ref: PyTree, first: Array, carry: PyTree, tally: Tally) -> Any:
        return unroll(
            ctx.env,
            act,
            env_state,
            ref,
            first,
            carry,
            params,
            key,
            ctx.rollout.num_steps,
            draw=uniforms,
            tally=tally,
            add=partial(_add, ctx),
            first_env=first_env,
            keep=ctx.summary and ctx.summary.keep,
        )

    (env_state, ref, first, carry), seen, tally = ctx.reduce.alone(unrolled)(
        state.env_state, state.ref, state.first, state.carry, start
    )
    state = state.replace(
        env_state=env_state, ref=ref, first=first, carry=carry, episodes=tally.episodes.running
    )
    return state, seen, tally


def scaled_rewards(ctx: Context, state: TrainState, seen: Transition) -> tuple[TrainState, Array]:
    """The rewards float32[T, N] of a rollout as the learner uses them, and the state with the
    statistics that divide them (`rl.reward_scale`)."""
    if state.rewards is None:
        return state, seen.reward
    scale, reward, _ = scaled(
        state.rewards,
        seen.reward,
        seen.terminated | seen.truncated,
        state.hparams.gamma,
        ctx.reduce,
    )
    return state.replace(rewards=scale), reward
