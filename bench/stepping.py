"""The environment's compiled loop under random legal actions, for `env_step`; also as a side
confined to one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams

from . import setting
from .harness import rounded

# What becomes of the observations of a step.
WRITTEN = "written"  # float32[N, D] is written to memory and read by a matrix product, as a network's first layer does
SUMMED = (
    "summed"  # every slot is computed and enters a sum, and a compiler need not write it to memory
)
UNSEEN = "unseen"  # not built: state, mask and reward only


def choose(mask: jax.Array, chance: jax.Array) -> jax.Array:
    """int32[] a legal action, all equally likely, from mask bool[A] and chance float32[] in [0, 1).

    Written out action by action: a prefix sum over seven booleans would cost as much as the step.
    """
    legal = [mask[i].astype(jnp.int32) for i in range(mask.shape[0])]
    wanted = (chance * sum(legal)).astype(jnp.int32)
    action, before = jnp.int32(0), jnp.int32(0)
    for i, is_legal in enumerate(legal):
        action = jnp.where((is_legal == 1) & (before == wanted), i, action)
        before += is_legal
    return action


Carry = tuple[Any, Any, jax.Array]  # states, refs, random key


def look(env: TradingEnv, refs: Any, params: EnvParams, observations: str) -> jax.Array:
    """float32[] of all that is seen at `refs` of N environments."""
    if observations == UNSEEN:
        return jnp.float32(0)
    seen = jax.vmap(env.observe, (0, None))(refs, params)
    if observations == SUMMED:
        return jnp.sum(seen)
    weights = jnp.linspace(-1.0, 1.0, seen.shape[1])[:, None]
    return jnp.sum(seen @ weights)


def step(
    env: TradingEnv, params: EnvParams, carry: Carry, chances: jax.Array, observations: str
) -> tuple[Carry, jax.Array]:
    """One step of N environments with auto-reset -> what is carried on, a sum of all that was seen.
    chances: float32[N] in [0, 1), which pick the actions."""
    states, refs, key = carry
    seen = look(env, refs, params, observations)
    actions = jax.vmap(choose)(refs.mask, chances)
    states, refs, outcome = jax.vmap(env.step, (None, 0, 0, None))(key, states, actions, params)
    return (states, refs, key), seen + jnp.sum(outcome.reward)


def started(env: TradingEnv, params: EnvParams, num_envs: int) -> Carry:
    """N environments at drawn starts."""
    states, refs = jax.vmap(env.reset, (0, None))(
        jax.random.split(jax.random.key(0), num_envs), params
    )
    return states, refs, jax.random.key(1)


class Loop:
    """Compiled: each call goes on for `num_steps` steps of `num_envs` environments and returns the
    sum of what was seen. cost: operations and bytes per environment step, as XLA's analysis counts
    them (the body of a loop once; integer operations too; what several fusions compute again, once
    more each; bytes whether from a cache or not)."""

    def __init__(
        self, env: TradingEnv, params: EnvParams, num_envs: int, num_steps: int, observations: str
    ) -> None:
        self._params = params
        self._carry = jax.jit(started, static_argnums=(0, 2))(env, params, num_envs)

        def run(params: EnvParams, carry: Carry) -> tuple[Carry, jax.Array]:
            *rest, key = carry
            key, key_act = jax.random.split(key)
            chances = jax.random.uniform(key_act, (num_steps, num_envs))
            carry, sums = jax.lax.scan(
                lambda carry, chances: step(env, params, carry, chances, observations),
                (*rest, key),
                chances,
            )
            return carry, jnp.sum(sums)

        self._program = jax.jit(run, donate_argnums=1).lower(params, self._carry).compile()
        counted: Any = self._program.cost_analysis()
        self.cost = {
            name: rounded(counted[key] / num_envs)
            for name, key in (("operations", "flops"), ("bytes", "bytes accessed"))
        }

    def __call__(self) -> jax.Array:
        self._carry, total = self._program(self._params, self._carry)
        return total


def confined_to_one_core() -> None:
    """Let this process use one core and one compute thread. Call it before JAX starts."""
    core = min(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    os.environ["NPROC"] = "1"  # XLA's own count of threads


def one_core(
    sessions: int, num_envs: int, num_steps: int, observations: str
) -> Callable[[], float]:
    """For `Worker`: a `Loop` in a process that may use one core."""
    confined_to_one_core()
    world = setting.world(sessions)
    work = Loop(world.env, world.params, num_envs, num_steps, observations)
    return lambda: work().item()
