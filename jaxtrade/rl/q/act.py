"""Q values of references, and acting on them.

All functions but `act` take a policy that `acting.ready` has made.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.networks import distributions
from jaxtrade.networks.memory import recall
from jaxtrade.rl.acting import ActExtras, advice_terms, chance_of, fused, network_input, ready
from jaxtrade.rl.q.context import Q
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree


def largest(q: Array, mask: Array) -> Array:
    """max over the legal actions, float32[...]. q: float32[..., A]. mask: bool[..., A], at least
    one True.
    """
    return jnp.where(mask, q, distributions.ILLEGAL).max(axis=-1)


def of_action(q: Array, action: Array) -> Array:
    """Q of one action each, float32[...]. q: float32[..., A]. action: int32[...]."""
    return jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0).sum(axis=-1)


def epsilon_greedy(chance: Array, q: Array, mask: Array, epsilon: Array) -> Array:
    """int32[...]: a random legal action with probability epsilon, else the legal action with the
    largest Q.

    Args:
        chance: float32[...] in [0, 1). It explores where chance < epsilon; chance / epsilon is then
            uniform in [0, 1) and picks among the legal actions.
        q: float32[..., A]. mask: bool[..., A]. epsilon: float32[].
    """
    legal = mask.sum(axis=-1)
    which = jnp.floor(chance / jnp.where(epsilon > 0.0, epsilon, 1.0) * legal).astype(jnp.int32)
    which = jnp.minimum(which, legal - 1)  # the product may round up to the number of legal actions
    # There are few actions, so a loop over columns is one fused operation (as in
    # `distributions.pick`).
    columns = [mask[..., i] for i in range(mask.shape[-1])]
    picked, before = jnp.zeros_like(which), jnp.zeros_like(which)
    for i, is_legal in enumerate(columns):
        picked = jnp.where(is_legal & (before == which), i, picked)
        before = before + is_legal
    return jnp.where(chance < epsilon, picked, distributions.mode(q, mask))


def epsilon_probs(q: Array, mask: Array, epsilon: Array) -> Array:
    """The distribution of `epsilon_greedy` for a uniform chance, float32[..., A]; exactly 0 where
    illegal.
    """
    greedy = distributions.mode(q, mask)[..., None] == jnp.arange(q.shape[-1])
    share = epsilon / mask.sum(axis=-1, keepdims=True)
    return jnp.where(mask, share + jnp.where(greedy, 1.0 - epsilon, 0.0), 0.0)


def values_and_mask(
    ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree
) -> tuple[PyTree, Array, Array]:
    """(carry after `ref`, Q float32[A], mask bool[A]) of one reference. The mask is that of acting:
    with a veto, what the advice of this reference forbids is illegal here too. carry: memory before
    `ref`."""
    observation = network_input(ctx, policy, ref, params)
    output: Any = ctx.network.apply({"params": policy.parameters}, carry, observation)
    carry, q = output
    mask = ctx.env.action_mask(ref)
    _, mask, _ = fused(ctx, policy, observation, ref, advice_terms(ctx, policy, ref), q, mask)
    return carry, q, mask


def value_of(ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Array:
    """float32[]: the largest Q of a legal action at `ref`. carry: memory before `ref`."""
    _, q, mask = values_and_mask(ctx, policy, carry, ref, params)
    return largest(q, mask)


def values_of_rows(
    ctx: Q, policy: Policy, carry: PyTree, refs: PyTree, first: Array, params: PyTree
) -> Array:
    """Q float32[B, A] of the rows of a batch.

    Args:
        carry: float32[S, H], memory of each of the S sequences before its first row; None without a
            memory.
        refs: references [B, ...], in the order of `networks.memory.recall`. first: bool[B].
    """
    observations = jax.vmap(lambda ref: network_input(ctx, policy, ref, params))(refs)
    carries = recall(ctx.network, policy.parameters, carry, observations, first)
    values = functools.partial(ctx.network.apply, {"params": policy.parameters}, method="values")
    return jax.vmap(values)(carries, observations)


def act_by_chance(
    ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree, chance: Array | None
) -> tuple[PyTree, Array, ActExtras]:
    """Act on one reference -> (carry, action, extras). chance: as of `epsilon_greedy`; None takes
    the largest Q.
    """
    epsilon = (
        jnp.float32(0) if policy.epsilon is None else policy.epsilon
    )  # without one it is the greedy policy
    carry, q, mask = values_and_mask(ctx, policy, carry, ref, params)
    action = (
        distributions.mode(q, mask) if chance is None else epsilon_greedy(chance, q, mask, epsilon)
    )
    overridden = None
    if ctx.fusion is not None and chance is not None:
        overridden = action != epsilon_greedy(chance, q, ctx.env.action_mask(ref), epsilon)
    probs = epsilon_probs(q, mask, epsilon)
    return (
        carry,
        action,
        ActExtras(jnp.log(of_action(probs, action)), largest(q, mask), q, mask, overridden, probs),
    )


def act(
    ctx: Q,
    policy: Policy,
    carry: PyTree,
    ref: PyTree,
    params: PyTree,
    key: Array | None,
    explore: bool,
) -> tuple[PyTree, Array, ActExtras]:
    """`Algorithm.act`. Raises ValueError if `explore` is True and `key` is None."""
    return act_by_chance(
        ctx, ready(ctx, policy), carry, ref, params, chance_of(ctx.env, ref, key, explore)
    )
