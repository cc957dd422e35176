"""Collect rollouts from many environments, and compute values and counts from the recorded steps.

T is the number of steps, N the number of environments. A rollout stores references instead of observations, which
would take far more memory. `Env.observe` rebuilds an observation from its reference when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.networks.memory import forget
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.state import EpisodeTotals
from jaxtrade.types import Array, Env, PyTree, Transition

# (carry, ref of one environment, random numbers from `draw`) -> (carry, action int32[], extras for `Transition`)
ActFn = Callable[[PyTree, PyTree, Any], tuple[PyTree, Array, PyTree]]


def env_keys(key: Array, num_envs: int, first_env: int | Array = 0) -> Array:
    """key[N]: `fold_in(key, global number of the environment)`.

    An environment draws the same random numbers however the environments are spread over devices.
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first_env + jnp.arange(num_envs))


def reset_all(env: Env, key: Array, params: PyTree, num_envs: int,
              first_env: int | Array = 0) -> tuple[PyTree, PyTree]:
    """Reset N environments -> (state, ref), each with a leading axis N. `first_env` is the first global number."""
    return jax.vmap(env.reset, (0, None))(env_keys(key, num_envs, first_env), params)


def unroll(env: Env, act: ActFn, env_state: PyTree, ref: PyTree, first: Array, carry: PyTree, params: PyTree,
           key: Array, num_steps: int, draw: Callable[[Array, int], Any] = jax.random.split,
           collect: Callable[[Transition], PyTree] | None = None, first_env: int | Array = 0
           ) -> tuple[tuple[PyTree, PyTree, Array, PyTree], Transition]:
    """Act and step T times in N environments. The policy's memory is reset at the start of each episode.

    Args:
        env_state, ref, first, carry: with leading axis N, as returned by `reset_all` or by the previous call.
        draw: (key of one environment, T) -> the random numbers of `act` for each step, [T, ...]. They are drawn before
            the first step, because hashing keys inside the loop would cost as much as the step itself.
        collect: (transitions of one step [N, ...]) -> reduced form of `info` (`Summary.collect`). Default: keep all.
        first_env: global number of this device's first environment.
    Returns:
        (env_state, ref, first, carry) after the last step, and the transitions, [T, N, ...].
    """
    num_envs = first.shape[0]
    keys = env_keys(key, num_envs, first_env)

    def random_of(env_key: Array) -> tuple[Any, Array]:
        key_act, key_step = jax.random.split(env_key)
        return draw(key_act, num_steps), jax.random.split(key_step, num_steps)

    def step(now: tuple[PyTree, PyTree, Array, PyTree], random: tuple[Any, Array]) -> tuple[Any, Transition]:
        env_state, ref, first, carry = now

        def one(random: tuple[Any, Array], env_state: PyTree, ref: PyTree, carry: PyTree) -> tuple[Any, ...]:
            drawn, key_step = random
            carry, action, extras = act(carry, ref, drawn)
            return carry, action, extras, *env.step(key_step, env_state, action, params)

        carry, action, extras, env_state, next_ref, outcome = jax.vmap(one)(random, env_state, ref,
                                                                            forget(carry, first))
        transition = Transition(
            ref=ref, final_ref=outcome.final_ref, first=first, action=action, reward=outcome.reward,
            terminated=outcome.terminated, truncated=outcome.truncated, info=outcome.info, carry=carry,
            extras=extras,
        )
        if collect is not None:
            transition = transition._replace(info=collect(transition))
        return (env_state, next_ref, outcome.terminated | outcome.truncated, carry), transition

    random = jax.vmap(random_of, out_axes=1)(keys)
    return jax.lax.scan(step, (env_state, ref, first, carry), random)


def final_values(value: Callable[[PyTree, PyTree], Array], transitions: Transition) -> Array:
    """V(final_ref) of truncated steps, float32[T, N]; 0 elsewhere.

    The function evaluates one time step at a time, and only steps at which some environment was truncated. It uses the
    memory that the policy had at the end of the episode.

    Args:
        value: (carry before `ref`, ref of one environment) -> float32[].
    """
    needed = transitions.truncated & ~transitions.terminated
    steps = needed.any(axis=1)
    order = jnp.argsort(~steps)  # the steps that need values come first

    # A loop over the needed steps instead of a `lax.cond` in every step: under vmap a cond becomes a select between
    # copies of all its operands, so each agent would get its own copy of the market.
    def at(i: Array, values: Array) -> Array:
        t = order[i]
        final = jax.vmap(value)(*jax.tree.map(lambda x: x[t], (transitions.carry, transitions.final_ref)))
        return values.at[t].set(jnp.where(needed[t], final, 0.0))

    return jax.lax.fori_loop(0, steps.sum(dtype=jnp.int32), at, jnp.zeros(needed.shape))


def count_illegal(env: Env, transitions: Transition, reduce: Reduce = LOCAL) -> Array:
    """int32[]: number of sampled actions that are illegal by the mask of the stored reference."""

    def at(now: tuple[PyTree, Array]) -> Array:
        ref, action = now
        mask = jax.vmap(env.action_mask)(ref)
        return jnp.sum(~jnp.take_along_axis(mask, action[:, None], axis=-1), dtype=jnp.int32)

    return reduce.sum(jax.lax.map(at, (transitions.ref, transitions.action)), dtype=jnp.int32)


def count_episodes(totals: EpisodeTotals, transitions: Transition,
                   reduce: Reduce = LOCAL) -> tuple[EpisodeTotals, dict[str, Array]]:
    """Count the episodes that ended in this rollout. `reduce` forms the metrics over all devices.

    Returns:
        (totals, metrics): the totals of the episodes that are still running, [N]; and `episodes` (int32[] count),
        `episode_reward` and `episode_length` (float32[] means, NaN if no episode ended).
    """

    def step(totals: EpisodeTotals, now: tuple[Array, Array]) -> tuple[EpisodeTotals, EpisodeTotals]:
        reward, done = now
        ended = EpisodeTotals(totals.reward + reward, totals.length + 1)
        running = jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), ended)
        return running, ended

    done = transitions.terminated | transitions.truncated
    totals, ended = jax.lax.scan(step, totals, (transitions.reward, done))
    count = reduce.sum(done, dtype=jnp.int32)
    divisor = jnp.where(count > 0, count.astype(jnp.float32), jnp.nan)
    return totals, {
        "episodes": count,
        "episode_reward": reduce.sum(jnp.where(done, ended.reward, 0.0)) / divisor,
        "episode_length": reduce.sum(jnp.where(done, ended.length, 0)).astype(jnp.float32) / divisor,
    }
