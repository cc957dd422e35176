"""PPO's policy: acting on one reference, and the output for the rows of a rollout that the loss
needs.

All functions but `act` take a policy that `acting.ready` has made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from jaxtrade.networks import distributions
from jaxtrade.networks.memory import recall
from jaxtrade.rl.acting import ActExtras, advice_terms, chance_of, fused, network_input, ready
from jaxtrade.rl.listening.fusion import AdviceTerms, Fused
from jaxtrade.rl.opening import opened
from jaxtrade.rl.ppo.context import PPO
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree


class PolicyOutput(NamedTuple):
    """The policy's output for B references.

    logits: float32[B, A]. value: float32[B]. mask: bool[B, A]. cost: float32[B], extra loss of a
        fusion; None without
    a fusion.
    """

    logits: Array
    value: Array
    mask: Array
    cost: Array | None


def forward(
    ppo: PPO,
    policy: Policy,
    carry: PyTree,
    refs: PyTree,
    first: Array,
    terms: PyTree,
    params: PyTree,
) -> PolicyOutput:
    """The policy's output for the rows of a `Batch`.

    Args:
        carry: float32[S, H], memory of each of the S sequences before its first row; None without a
            memory.
        refs: references [B, ...]. first: bool[B]. terms: advice terms [B, ...], or None.
    """
    observations = jax.vmap(lambda ref: network_input(ppo, policy, ref, params))(refs)
    carries = recall(ppo.network, policy.parameters, carry, observations, first)

    def heads(carry: PyTree, observation: Array) -> Any:
        return ppo.network.apply({"params": policy.parameters}, carry, observation, method="heads")

    def with_advice(
        observation: Array, ref: PyTree, terms: AdviceTerms | None, logits: Array, mask: Array
    ) -> Fused:
        return fused(ppo, policy, observation, ref, terms, logits, mask)

    logits, values = jax.vmap(heads)(carries, observations)
    logits, masks = opened(policy.opening, logits, jax.vmap(ppo.env.action_mask)(refs))
    logits, masks, costs = jax.vmap(with_advice)(observations, refs, terms, logits, masks)
    return PolicyOutput(logits, values, masks, costs)


def log_prob_and_entropy(
    ppo: PPO, logits: Array, mask: Array, action: Array
) -> tuple[Array, Array]:
    """Log-probability of the action and entropy, float32[...] each, in the form for the platform.
    Acting and learning use the same one, so that the ratio is exactly 1 before the first gradient
    step."""
    if ppo.form.columns:
        return distributions.log_prob_and_entropy(logits, mask, action)
    return distributions.log_prob(logits, mask, action), distributions.entropy(logits, mask)


def value_of(ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Any:
    """float32[]: the value of `ref`. `carry` is the memory before `ref`."""
    variables, observation = {"params": policy.parameters}, network_input(ppo, policy, ref, params)
    carry = ppo.network.apply(variables, carry, observation, method="remember")
    return ppo.network.apply(variables, carry, observation, method="value")


class Decided(NamedTuple):
    """What the policy makes of one reference. carry: its memory after it. value: float32[]. own,
    legal: logits float32[A] and mask bool[A] without advice. logits, mask: with it."""

    carry: PyTree
    value: Array
    own: Array
    legal: Array
    logits: Array
    mask: Array


def decide(ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Decided:
    """The policy's output for one reference. `carry` is the memory before `ref`."""
    observation = network_input(ppo, policy, ref, params)
    output: Any = ppo.network.apply({"params": policy.parameters}, carry, observation)
    carry, own, value = output
    own, legal = opened(policy.opening, own, ppo.env.action_mask(ref))
    logits, mask, _ = fused(
        ppo, policy, observation, ref, advice_terms(ppo, policy, ref), own, legal
    )
    return Decided(carry, value, own, legal, logits, mask)


def act_by_chance(
    ppo: PPO, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree, chance: Array | None
) -> tuple[PyTree, Array, ActExtras]:
    """Act on one reference -> (carry, action, extras).

    chance: float32[] in [0, 1) selects the action by the inverse of the cumulative distribution.
        None selects the most
    probable action.
    """
    carry, value, own, legal, logits, mask = decide(ppo, policy, carry, ref, params)
    action = (
        distributions.mode(logits, mask)
        if chance is None
        else distributions.pick(chance, logits, mask)
    )
    # The same `chance` with and without advice: the comparison shows the effect of advice, not of
    # chance.
    overridden = None
    if ppo.fusion is not None and chance is not None:
        overridden = action != distributions.pick(chance, own, legal)
    return (
        carry,
        action,
        ActExtras(
            log_prob_and_entropy(ppo, logits, mask, action)[0], value, logits, mask, overridden
        ),
    )


def act(
    ppo: PPO,
    policy: Policy,
    carry: PyTree,
    ref: PyTree,
    params: PyTree,
    key: Array | None,
    explore: bool,
) -> tuple[PyTree, Array, ActExtras]:
    """`Algorithm.act`. Raises ValueError if `explore` is True and `key` is None."""
    return act_by_chance(
        ppo, ready(ppo, policy), carry, ref, params, chance_of(ppo.env, ref, key, explore)
    )
