"""What the policy that learns makes of a rollout in which an older policy acted (`actor.delay`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.networks.memory import forget
from jaxtrade.rl import losses
from jaxtrade.rl.ppo.act import decide, log_prob_and_entropy
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree, Transition


class Judged(NamedTuple):
    """A rollout as one policy sees it.

    log_prob, value: float32[T, N], log-probability of the action that was taken, and V of each
        reference. carries:
    float32[T, N, H], the policy's memory after each reference, and last: float32[N, H], after the
    last one; None without a memory.
    """

    log_prob: Array
    value: Array
    carries: PyTree
    last: PyTree


def judged(ppo: PPO, policy: Policy, carry: PyTree, seen: Transition, params: PyTree) -> Judged:
    """The rollout `seen` [T, N, ...] as `policy` sees it, which takes each step as in acting.

    policy: from `acting.ready`. carry: float32[N, H], the memory before the first step; None
        without a memory. It is
    the one that acting left, as for the gradient, whose sequences begin there too.
    """

    def one(carry: PyTree, ref: PyTree, action: Array) -> tuple[PyTree, Array, Array]:
        decided = decide(ppo, policy, carry, ref, params)
        log_prob, _ = log_prob_and_entropy(ppo, decided.logits, decided.mask, action)
        return decided.carry, log_prob, decided.value

    def step(carry: PyTree, now: tuple[PyTree, Array, Array]) -> tuple[PyTree, Any]:
        ref, first, action = now
        carry, log_prob, value = jax.vmap(one)(forget(carry, first), ref, action)
        return carry, (log_prob, value, carry)

    last, (log_prob, value, carries) = jax.lax.scan(
        step, carry, (seen.ref, seen.first, seen.action)
    )
    return Judged(log_prob, value, carries, last)


def delay_metrics(ppo: PPO, seen: Transition, log_prob: Array) -> dict[str, Array]:
    """How far the policy that acted is from the one that learns, before the first gradient step;
    none without a delay.

    `behaviour_kl`: estimate of KL(acted || learns), as `approx_kl`. `rho`: mean weight of a step in
        V-trace, at most
    `actor.rho_clip`; its distance from the mean ratio, 1, is what the clip takes away. log_prob: float32[T, N], of the
    policy that learns.
    """
    if not ppo.actor.delay:
        return {}
    acted, learns = seen.extras.log_prob.reshape(-1), log_prob.reshape(-1)
    rho = jnp.minimum(jnp.exp(learns - acted), ppo.actor.rho_clip)
    return {
        "behaviour_kl": ppo.reduce.mean(losses.approx_kl(learns, acted)),
        "rho": ppo.reduce.mean(rho),
    }
