"""The policy of an actor-critic: network, acting on one reference, and the output for rollout rows.

A loss reads that output.

The distribution is that of `acting.apply_unlock_and_advice`: the network's, as unlocked actions and advice
change it. All functions but `act` take a policy that `acting.prepare_policy` has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import Network
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.torso import FLOAT32, DotGeneral, recall
from jaxtrade.parts import NETWORKS
from jaxtrade.rl.acting import (
    ActExtras,
    advice_terms,
    apply_unlock_and_advice,
    first_parameters,
    network_input,
)
from jaxtrade.rl.advice import AdviceTerms, Fusion
from jaxtrade.rl.context import Context
from jaxtrade.rl.optim import progress
from jaxtrade.rl.state import Policy, unlock_at
from jaxtrade.types import Array, PyTree

ActorCritic = Context[Any, Network]


def make_network(
    config: NetworkConfig, num_actions: int, dot_general: DotGeneral = FLOAT32
) -> Network:
    """Build the network that `config` describes.

    Args:
        dot_general: computes its products.

    Raises:
        ConfigError: no network is registered under `config.kind`.
    """
    return NETWORKS[config.kind](config, num_actions, dot_general)


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """Implement `LearnerKind.first_policy` for an actor-critic."""
    network = make_network(config.network, num_actions)
    parameters = first_parameters(network, observation_size, key, fusion)
    return Policy(parameters, init_stats(observation_size))


def policy_of(state: Any) -> Policy:
    """Implement `Learner.policy`: this state's policy, without the trust of an advice fusion."""
    opening = unlock_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)


class PolicyOutput(NamedTuple):
    """The policy's output for B references.

    logits: float32[B, A].
    value: float32[B].
    mask: bool[B, A].
    cost: float32[B], extra loss of a fusion; None without a fusion.
    """

    logits: Array
    value: Array
    mask: Array
    cost: Array | None


def forward(
    ac: ActorCritic,
    policy: Policy,
    carry: PyTree,
    refs: PyTree,
    first: Array,
    terms: PyTree,
    params: PyTree,
) -> PolicyOutput:
    """Compute the policy's output for the rows of a batch.

    Args:
        carry: float32[S, H], memory of each of the S sequences before its first row; None
            without a memory.
        refs: references [B, ...].
        first: bool[B].
        terms: advice terms [B, ...], or None.
    """
    observations = jax.vmap(lambda ref: network_input(ac, policy, ref, params))(refs)
    carries = recall(ac.network, policy.parameters, carry, observations, first)

    def heads(carry: PyTree, observation: Array) -> Any:
        return ac.network.apply({"params": policy.parameters}, carry, observation, method="heads")

    def of_row(
        observation: Array, ref: PyTree, terms: AdviceTerms | None, logits: Array, mask: Array
    ) -> Any:
        logits, mask, cost, _ = apply_unlock_and_advice(
            ac, policy, observation, ref, terms, logits, mask
        )
        return logits, mask, cost

    logits, values = jax.vmap(heads)(carries, observations)
    masks = jax.vmap(ac.env.action_mask)(refs)
    logits, masks, costs = jax.vmap(of_row)(observations, refs, terms, logits, masks)
    return PolicyOutput(logits, values, masks, costs)


def value_of(ac: ActorCritic, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Any:
    """Return the value of `ref` (float32[]). `carry` is the memory before `ref`."""
    variables, observation = {"params": policy.parameters}, network_input(ac, policy, ref, params)
    carry = ac.network.apply(variables, carry, observation, method="remember")
    return ac.network.apply(variables, carry, observation, method="value")


class PolicyDecision(NamedTuple):
    """What the policy makes of one reference.

    carry: its memory after it.
    value: float32[].
    logits: float32[A] and mask: bool[A].
    unadvised: (logits, mask) without advice.
    """

    carry: PyTree
    value: Array
    logits: Array
    mask: Array
    unadvised: tuple[Array, Array]


def decide(
    ac: ActorCritic, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree
) -> PolicyDecision:
    """Compute the policy's output for one reference. `carry` is the memory before `ref`."""
    observation = network_input(ac, policy, ref, params)
    output: Any = ac.network.apply({"params": policy.parameters}, carry, observation)
    carry, logits, value = output
    mask, terms = ac.env.action_mask(ref), advice_terms(ac, policy, ref)
    logits, mask, _, unadvised = apply_unlock_and_advice(
        ac, policy, observation, ref, terms, logits, mask
    )
    return PolicyDecision(carry, value, logits, mask, unadvised)


def act_by_chance(
    ac: ActorCritic,
    policy: Policy,
    carry: PyTree,
    ref: PyTree,
    params: PyTree,
    chance: Array | None,
) -> tuple[PyTree, Array, ActExtras]:
    """Act on one reference and return (carry, action, extras).

    Args:
        chance: float32[] in [0, 1) selects the action by the inverse of the cumulative
            distribution. None selects the most probable action.
    """
    carry, value, logits, mask, unadvised = decide(ac, policy, carry, ref, params)
    action = (
        distributions.mode(logits, mask)
        if chance is None
        else distributions.sample_by_inverse_cdf(chance, logits, mask)
    )
    # The same `chance` with and without advice: the comparison shows the effect of advice, not of
    # chance.
    overridden = None
    if ac.fusion is not None and chance is not None:
        overridden = action != distributions.sample_by_inverse_cdf(chance, *unadvised)
    log_prob, _ = ac.form.log_prob_and_entropy(logits, mask, action)
    return carry, action, ActExtras(log_prob, value, logits, mask, overridden)


class StepExtras(NamedTuple):
    """`Transition.extras` of an actor-critic: the part of `ActExtras` that an update reads.

    Logits and masks are recomputed.
    """

    log_prob: Array
    value: Array
    overridden: Array | None


def explorer(ac: ActorCritic, policy: Policy, params: PyTree) -> Callable[..., Any]:
    """Return the act function of a rollout (`rollout.ActFn`) by `policy`."""

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ac, policy, carry, ref, params, chance)
        return carry, action, StepExtras(extras.log_prob, extras.value, extras.overridden)

    return explore
