"""The correction for an actor that is older than the policy that learns (`actor.delay`).

V-trace corrects for the policy that acted, and the rows of a batch hold the values and the
log-probabilities of the policy that learns: the loss clips the ratio to that policy, and the
advantages carry V-trace's weight from the one that acted. This is the decoupled objective of Hilton
et al. 2022 ("Batch size-invariance for policy optimization"), as in RLlib's APPO, whose target
network is here the policy before the first gradient step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.networks.torso import forget
from jaxtrade.rl.actor_critic import ActorCritic, decide, value_of
from jaxtrade.rl.returns import vtrace
from jaxtrade.rl.rollout import following_values
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree, Transition


class Reevaluated(NamedTuple):
    """A rollout as one policy sees it.

    log_prob, value: float32[T, N], log-probability of the action that was taken, and V of each
        reference.
    carries: float32[T, N, H], the policy's memory after each reference, and last: float32[N, H],
        after the last one; None without a memory.
    """

    log_prob: Array
    value: Array
    carries: PyTree
    last: PyTree


def reevaluate(
    ac: ActorCritic, policy: Policy, carry: PyTree, seen: Transition, params: PyTree
) -> Reevaluated:
    """Evaluate a rollout [T, N, ...] of another policy under `policy`, which takes each step as in
    acting.

    policy: from `acting.ready`. carry: float32[N, H], the memory stored at the start of the
        rollout, from which training sequences begin too; None without a memory.
    """

    def one(carry: PyTree, ref: PyTree, action: Array) -> tuple[PyTree, Array, Array]:
        decided = decide(ac, policy, carry, ref, params)
        log_prob, _ = ac.form.log_prob_and_entropy(decided.logits, decided.mask, action)
        return decided.carry, log_prob, decided.value

    def step(carry: PyTree, now: tuple[PyTree, Array, Array]) -> tuple[PyTree, Any]:
        ref, first, action = now
        carry, log_prob, value = jax.vmap(one)(forget(carry, first), ref, action)
        return carry, (log_prob, value, carry)

    last, (log_prob, value, carries) = jax.lax.scan(
        step, carry, (seen.ref, seen.first, seen.action)
    )
    return Reevaluated(log_prob, value, carries, last)


def vtrace_targets(
    ac: ActorCritic,
    policy: Policy,
    params: PyTree,
    hparams: Any,
    reward: Array,
    before: PyTree,
    after: PyTree,
    ref: PyTree,
    seen: Transition,
) -> tuple[Array, Array, Array, Array]:
    """`ppo.Targets` of an older actor: advantages and targets by V-trace."""
    del after
    own = reevaluate(ac, policy, before, seen, params)
    value = partial(value_of, ac, policy, params=params)
    rollout = seen._replace(carry=own.carries)
    target, advantage = vtrace(
        reward,
        own.value,
        following_values(value, own.value, own.last, ref, rollout),
        seen.terminated,
        seen.truncated,
        jnp.exp(own.log_prob - seen.extras.log_prob),
        hparams.gamma,
        hparams.gae_lambda,
        ac.actor.rho_clip,
        ac.actor.c_clip,
    )
    return own.log_prob, own.value, advantage, target
