"""The static context of PPO."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import NetworkConfig, PPOConfig, RunConfig
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import Network
from jaxtrade.networks.memory import recall
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.torso import FLOAT32, DotGeneral
from jaxtrade.parts import NETWORKS
from jaxtrade.rl.acting import ActExtras, advice_terms, chance_of, fused, network_input, ready
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening.fusion import AdviceTerms, Fused, Fusion
from jaxtrade.rl.schedules import progress
from jaxtrade.rl.state import Policy, opened, opening_at
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree

PPO = Context[PPOConfig, Network]


def gradient_rows(ppo: PPO) -> int:
    """Largest number of rows whose gradient is computed at once."""
    given = ppo.config.gradient_rows
    return ppo.form.gradient_rows if given == "auto" else given


# --- PPO's network and its initial parameters


def make_network(
    config: NetworkConfig, num_actions: int, dot_general: DotGeneral = FLOAT32
) -> Network:
    """The network that `config` describes. dot_general: computes its products.

    Raises ConfigError if no network is registered under `config.kind`.
    """
    return NETWORKS[config.kind](config, num_actions, dot_general)


def first_parameters(
    config: NetworkConfig, num_actions: int, size: int, key: Array, fusion: Fusion | None = None
) -> dict[str, PyTree]:
    """Initial parameters: those of the network, and those that a fusion adds. size: length of an
    observation.
    """
    network = make_network(config, num_actions)
    parameters = dict(network.init(key, network.first_carry(), jnp.zeros(size))["params"])
    return parameters | ({} if fusion is None else fusion.init(jax.random.fold_in(key, 1), size))


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """`Learner.first_policy` of PPO."""
    parameters = first_parameters(config.network, num_actions, observation_size, key, fusion)
    return Policy(parameters, init_stats(observation_size))


# --- PPO's tunable floats, and the policy of its state


class HParams(struct.PyTreeNode):
    """The tunable floats, each float32[]; meanings as in `PPOConfig`. They are leaves, so a sweep
    is a vmap.
    """

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    gae_lambda: Array
    clip_eps: Array
    vf_clip_eps: Array
    ent_coef: Array
    ent_coef_end: Array
    vf_coef: Array
    max_grad_norm: Array
    target_kl: Array
    adapter_freeze: Array


def make_hparams(config: PPOConfig) -> HParams:
    """The tunable floats of `config`. If `ent_coef_end` is None, the entropy bonus stays
    constant.
    """
    values = {name: getattr(config, name) for name in HParams.__dataclass_fields__}
    if values["ent_coef_end"] is None:
        values["ent_coef_end"] = config.ent_coef
    return HParams(**{name: jnp.float32(value) for name, value in values.items()})


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    opening = opening_at(state.opening, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, opening=opening)


# --- PPO's policy: acting on one reference, and the output for the rows of a rollout that the loss
# needs.
#
# All functions but `act` take a policy that `acting.ready` has made.


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
