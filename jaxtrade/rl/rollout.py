"""Acting in many environments at once, and what follows from the recorded steps.

T steps, N environments. A rollout stores references, never observations: `observe` rebuilds those where needed.
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

# (carry, ref of one environment, what `draw` derived from a key) -> (carry, action int32[], extras for `Transition`)
ActFn = Callable[[PyTree, PyTree, Any], tuple[PyTree, Array, PyTree]]


def env_keys(key: Array, num_envs: int, first_env: int | Array = 0) -> Array:
    """key[N]: `fold_in(key, global_env_id)`, so that environment i draws the same numbers in any layout."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first_env + jnp.arange(num_envs))


def reset_all(env: Env, key: Array, params: PyTree, num_envs: int,
              first_env: int | Array = 0) -> tuple[PyTree, PyTree]:
    """Reset N environments, of global numbers from `first_env` on -> (state, ref), each with a leading axis N."""
    return jax.vmap(env.reset, (0, None))(env_keys(key, num_envs, first_env), params)


def unroll(env: Env, act: ActFn, env_state: PyTree, ref: PyTree, first: Array, carry: PyTree, params: PyTree,
           key: Array, num_steps: int, version: Array, draw: Callable[[Array, int], Any] = jax.random.split,
           tell: Callable[[Transition], PyTree] | None = None, first_env: int | Array = 0
           ) -> tuple[tuple[PyTree, PyTree, Array, PyTree], Transition]:
    """Act and step T times in N environments; the policy's memory is forgotten where an episode begins.

    Args:
        env_state, ref, first, carry: with leading axis N, as `reset_all` or the last call left them.
        version: int32[], update count of the acting weights.
        draw: (key of one environment, T) -> the random numbers that `act` needs in each step, [T, ...]; drawn for all
            steps before the first, because hashing in the loop would cost as much as the step itself.
        tell: transitions of one step [N, ...] -> what is kept of their `info`; all of it by default.
        first_env: global number of the first environment here.
    Returns:
        (env_state, ref, first, carry) after the last step, and the transitions, [T, N, ...].
    """
    num_envs = first.shape[0]
    keys = env_keys(key, num_envs, first_env)
    versions = jnp.full(num_envs, version, jnp.int32)

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
            terminated=outcome.terminated, truncated=outcome.truncated, behaviour_version=versions, info=outcome.info,
            carry=carry, extras=extras,
        )
        if tell is not None:
            transition = transition._replace(info=tell(transition))
        return (env_state, next_ref, outcome.terminated | outcome.truncated, carry), transition

    random = jax.vmap(random_of, out_axes=1)(keys)
    return jax.lax.scan(step, (env_state, ref, first, carry), random)


def final_values(value: Callable[[PyTree, PyTree], Array], transitions: Transition) -> Array:
    """V(final_ref) of truncated steps, float32[T, N]; 0 elsewhere.

    Evaluated one time step at a time, and only at steps where some environment was truncated, with the memory that the
    episode had come to.

    Args:
        value: (carry before it, ref of one environment) -> float32[].
    """
    needed = transitions.truncated & ~transitions.terminated
    steps = needed.any(axis=1)
    order = jnp.argsort(~steps)  # the steps that need values come first

    # A loop of that many rounds, and no `lax.cond`: under vmap a cond selects between copies of all that it reads, and
    # each agent would get its own market.
    def at(i: Array, values: Array) -> Array:
        t = order[i]
        final = jax.vmap(value)(*jax.tree.map(lambda x: x[t], (transitions.carry, transitions.final_ref)))
        return values.at[t].set(jnp.where(needed[t], final, 0.0))

    return jax.lax.fori_loop(0, steps.sum(dtype=jnp.int32), at, jnp.zeros(needed.shape))


def count_illegal(env: Env, transitions: Transition, reduce: Reduce = LOCAL) -> Array:
    """int32[]: sampled actions whose mask bit, rebuilt from the stored reference, is False."""

    def at(now: tuple[PyTree, Array]) -> Array:
        ref, action = now
        mask = jax.vmap(env.action_mask)(ref)
        return jnp.sum(~jnp.take_along_axis(mask, action[:, None], axis=-1), dtype=jnp.int32)

    return reduce.sum(jax.lax.map(at, (transitions.ref, transitions.action)), dtype=jnp.int32)


def count_episodes(totals: EpisodeTotals, transitions: Transition,
                   reduce: Reduce = LOCAL) -> tuple[EpisodeTotals, dict[str, Array]]:
    """Episodes that ended in this rollout, here; with `reduce` the metrics are those of all parts.

    Returns:
        totals of the episodes still running, and `episodes` (int32[] count), `episode_reward`, `episode_length`
        (float32[] means; NaN, undefined, where none ended).
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
