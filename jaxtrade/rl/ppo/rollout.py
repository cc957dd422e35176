"""PPO's rollout: acting, advantages and targets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.rl.ppo.act import act_by_chance, advice_terms, value_of
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.ppo.loss import Batch
from jaxtrade.rl.ppo.state import TrainState
from jaxtrade.rl.returns import gae, next_values
from jaxtrade.rl.reward_scale import scaled
from jaxtrade.rl.rollout import EpisodeTally, add_step, final_values, start_episodes, unroll
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree, Transition


class StepExtras(NamedTuple):
    """`Transition.extras` of PPO: the part of `ActExtras` that the update reads. Logits and masks are recomputed."""

    log_prob: Array
    value: Array
    overridden: Array | None


class Tally(NamedTuple):
    """Figures of each environment that a rollout adds up. summary: sums of `Summary.collect`, None without one."""

    episodes: EpisodeTally
    summary: PyTree


def _first_tally(ppo: PPO, state: TrainState, params: PyTree) -> Tally:
    summary = ppo.summary and jax.tree.map(lambda x: jnp.broadcast_to(x, (ppo.rollout.num_envs, *jnp.shape(x))),
                                           ppo.summary.start(params))
    return Tally(start_episodes(state.episodes), summary)


def _add(ppo: PPO, tally: Tally, seen: Transition) -> Tally:
    summary = ppo.summary and jax.tree.map(jnp.add, tally.summary, ppo.summary.collect(seen))
    return Tally(add_step(tally.episodes, seen.reward, seen.terminated | seen.truncated), summary)


def uniforms(key: Array, count: int) -> Array:
    """float32[count] in [0, 1): one number for each step of one environment."""
    return jax.random.uniform(key, (count,))


def collect(ppo: PPO, state: TrainState, policy: Policy, params: PyTree,
            key: Array) -> tuple[TrainState, Transition, Batch, Tally]:
    """Collect one rollout, advantages and value targets. policy: from `act.ready`.

    Returns:
        (state after the last step, transitions [T, N, ...], rows for the loss, tally). The value target is advantage +
        value, the TD(lambda) return.
    """

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ppo, policy, carry, ref, params, chance)
        return carry, action, StepExtras(extras.log_prob, extras.value, extras.overridden)

    def value(carry: PyTree, ref: PyTree) -> Array:
        return value_of(ppo, policy, carry, ref, params)

    (env_state, ref, first, carry), seen, tally = unroll(
        ppo.env, explore, state.env_state, state.ref, state.first, state.carry, params, key, ppo.rollout.num_steps,
        draw=uniforms, tally=_first_tally(ppo, state, params), add=partial(_add, ppo), first_env=ppo.first_env,
        keep=ppo.summary and ppo.summary.keep)
    values = seen.extras.value
    # `carry` is not reset here. Where an episode has just ended, `gae` does not read the value of `ref`.
    following = next_values(values, jax.vmap(value)(carry, ref), final_values(value, seen), seen.truncated)
    scale, reward = state.rewards, seen.reward
    if scale is not None:
        scale, reward, _ = scaled(scale, reward, seen.terminated | seen.truncated, state.hparams.gamma, ppo.reduce)
    advantage = gae(reward, values, following, seen.terminated, seen.truncated, state.hparams.gamma,
                    state.hparams.gae_lambda)
    terms = jax.vmap(jax.vmap(partial(advice_terms, ppo, policy)))(seen.ref)
    batch = Batch(state.carry, seen.ref, seen.first, terms, seen.action, seen.extras.log_prob, values, advantage,
                  advantage + values)
    state = state.replace(env_state=env_state, ref=ref, first=first, carry=carry, episodes=tally.episodes.running,
                          rewards=scale)
    return state, seen, batch, tally
