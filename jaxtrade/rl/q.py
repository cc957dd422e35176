"""What all Q-learners share: the policy that acts on Q values, its exploration and its state.

A Q-learner's policy takes the legal action with the largest Q; of equal ones that with the lowest
id. While it explores, it takes a random legal action with probability epsilon instead, from the one
uniform number that every learner's `act` draws. An illegal action has probability exactly 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.config.learning import QLearningConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import ActionValues
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.torso import FLOAT32, DotGeneral, recall
from jaxtrade.parts import Q_NETWORKS
from jaxtrade.rl import info, wrappers
from jaxtrade.rl.acting import (
    ActExtras,
    act,
    advice_terms,
    apply_unlock_and_advice,
    first_parameters,
    network_input,
)
from jaxtrade.rl.advice import Fusion
from jaxtrade.rl.algorithms import OutputLayer
from jaxtrade.rl.context import Context, MakeOptions, contexts_of, require_env
from jaxtrade.rl.optim import linear, progress
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import TrainState, first_state, floats_of
from jaxtrade.types import Array, Env, Learner, PyTree

# --- The static context of a Q-learner, and its network


Q = Context[Any, ActionValues]  # its `config` is a `QLearningConfig`
HEAD = OutputLayer("q_head", value="value_head", held=True)
FUSIONS = ("slots", "none")  # the fusions that need no distribution to tilt; a veto works with each


def make_network(
    settings: NetworkConfig,
    learner: QLearningConfig,
    num_actions: int,
    dot_general: DotGeneral = FLOAT32,
) -> ActionValues:
    """Build the Q-network of a configuration.

    Raises ConfigError if none is registered under `settings.kind`.
    """
    return Q_NETWORKS[settings.kind](
        settings, num_actions, dot_general, dueling=learner.dueling, layer_norm=learner.layer_norm
    )


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """Implement `Learner.first_policy` of every Q-learner. Raises ConfigError as `q_context`."""
    check_fusion(config.algorithm, fusion)
    learner: Any = config.learner
    network = make_network(config.network, learner, num_actions)
    return Policy(
        first_parameters(network, observation_size, key),
        init_stats(observation_size),
        epsilon=jnp.float32(learner.epsilon_end),
    )


def check_fusion(algorithm: str, fusion: Fusion | None) -> None:
    """Raise ConfigError for a fusion that tilts a distribution, which a Q-learner does not have."""
    if fusion is not None and fusion.config.fusion not in FUSIONS:
        raise ConfigError(
            f"advisor.fusion={fusion.config.fusion}: {algorithm} has no distribution that advice could "
            "change; set advisor.fusion=slots (advice in the observation) or none, or algorithm=ppo"
        )


def q_contexts(
    config: RunConfig,
    env: Env,
    total_updates: int,
    **around: Unpack[MakeOptions],
) -> tuple[Q, Q]:
    """Return the contexts of acting and of training.

    Acting computes float32 products, training those of the configured precision.

    Raises ConfigError: no such Q-network, a fusion that needs a distribution, or `env` is no
    `types.Env`.
    """
    require_env(env)
    check_fusion(config.algorithm, around.get("fusion"))
    learner: Any = config.learner
    return contexts_of(
        config,
        learner,
        env,
        total_updates,
        partial(make_network, config.network, learner, env.num_actions),
        **around,
    )


# --- The tunable floats of a Q-learner, its exploration, and the policy of its state


class QHParams(struct.PyTreeNode):
    """The tunable floats of every Q-learner, each float32[]; meanings as in `QLearningConfig`.

    A learner adds its own.
    """

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    max_grad_norm: Array
    epsilon: Array
    epsilon_end: Array
    epsilon_until: Array


def epsilon_at(hparams: QHParams, fraction: Array) -> Array:
    """Return the probability of a random action at a fraction of the run (float32[]).

    It changes linearly up to `epsilon_until`.
    """
    return linear(
        hparams.epsilon, hparams.epsilon_end, jnp.clip(fraction / hparams.epsilon_until, 0.0, 1.0)
    )


def policy_of(state: TrainState) -> Policy:
    """Implement `Learner.policy`: this state's policy, without the trust of an advice fusion."""
    epsilon = epsilon_at(state.hparams, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, epsilon=epsilon)


# --- Q values of references, and acting on them.
#
# All functions but `act` take a policy that `acting.prepare_policy` has made.


def largest(q: Array, mask: Array) -> Array:
    """Return the maximum over the legal actions (float32[...]).

    Args:
        q: float32[..., A].
        mask: bool[..., A], at least one True.
    """
    return jnp.where(mask, q, distributions.ILLEGAL).max(axis=-1)


def of_action(q: Array, action: Array) -> Array:
    """Return Q of one action each (float32[...]).

    Args:
        q: float32[..., A].
        action: int32[...].
    """
    return jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0).sum(axis=-1)


def epsilon_greedy(chance: Array, q: Array, mask: Array, epsilon: Array) -> Array:
    """Select a random legal action with probability epsilon, else that of largest Q (int32[...]).

    Args:
        chance: float32[...] in [0, 1). It explores where chance < epsilon; chance / epsilon is then
            uniform in [0, 1) and picks among the legal actions.
        q: float32[..., A].
        mask: bool[..., A].
        epsilon: float32[].
    """
    legal = mask.sum(axis=-1)
    which = jnp.floor(chance / jnp.where(epsilon > 0.0, epsilon, 1.0) * legal).astype(jnp.int32)
    which = jnp.minimum(which, legal - 1)  # the product may round up to the number of legal actions
    # There are few actions, so a loop over columns is one fused operation (as in
    # `distributions.sample_by_inverse_cdf`).
    columns = [mask[..., i] for i in range(mask.shape[-1])]
    picked, before = jnp.zeros_like(which), jnp.zeros_like(which)
    for i, is_legal in enumerate(columns):
        picked = jnp.where(is_legal & (before == which), i, picked)
        before = before + is_legal
    return jnp.where(chance < epsilon, picked, distributions.mode(q, mask))


def epsilon_probs(q: Array, mask: Array, epsilon: Array) -> Array:
    """Return the distribution of `epsilon_greedy` for a uniform chance (float32[..., A]).

    It is exactly 0 where illegal.
    """
    greedy = distributions.mode(q, mask)[..., None] == jnp.arange(q.shape[-1])
    share = epsilon / mask.sum(axis=-1, keepdims=True)
    return jnp.where(mask, share + jnp.where(greedy, 1.0 - epsilon, 0.0), 0.0)


class QDecision(NamedTuple):
    """Q and mask of one reference.

    carry: memory after a reference.
    q: float32[A].
    mask: bool[A], that of acting: with a veto, what the advice of this reference forbids is illegal
        here too.
    """

    carry: PyTree
    q: Array
    mask: Array


def evaluate_actions(
    ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree
) -> QDecision:
    """Compute Q and mask of one reference. `carry` is the memory before `ref`."""
    observation = network_input(ctx, policy, ref, params)
    output: Any = ctx.network.apply({"params": policy.parameters}, carry, observation)
    carry, q = output
    mask, terms = ctx.env.action_mask(ref), advice_terms(ctx, policy, ref)
    return QDecision(
        carry, q, apply_unlock_and_advice(ctx, policy, observation, ref, terms, q, mask).mask
    )


def value_of(ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree) -> Array:
    """Return the largest Q of a legal action at `ref` (float32[]).

    `carry` is the memory before `ref`.
    """
    found = evaluate_actions(ctx, policy, carry, ref, params)
    return largest(found.q, found.mask)


def values_of_rows(
    ctx: Q, policy: Policy, carry: PyTree, refs: PyTree, first: Array, params: PyTree
) -> Array:
    """Return Q of the rows of a batch (float32[B, A]).

    Args:
        carry: float32[S, H], memory of each of the S sequences before its first row; None
            without a memory.
        refs: references [B, ...], in the order of `networks.torso.recall`.
        first: bool[B].
    """
    observations = jax.vmap(lambda ref: network_input(ctx, policy, ref, params))(refs)
    carries = recall(ctx.network, policy.parameters, carry, observations, first)
    values = functools.partial(ctx.network.apply, {"params": policy.parameters}, method="values")
    return jax.vmap(values)(carries, observations)


def act_by_chance(
    ctx: Q, policy: Policy, carry: PyTree, ref: PyTree, params: PyTree, chance: Array | None
) -> tuple[PyTree, Array, ActExtras]:
    """Act on one reference and return (carry, action, extras).

    Args:
        chance: as of `epsilon_greedy`; None takes the largest Q.
    """
    epsilon = (
        jnp.float32(0) if policy.epsilon is None else policy.epsilon
    )  # without one it is the greedy policy
    carry, q, mask = evaluate_actions(ctx, policy, carry, ref, params)
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


# --- The rollout of a Q-learner: epsilon-greedy acting in all environments


class QStepExtras(NamedTuple):
    """`Transition.extras` of a Q-learner, float32[T, N] each.

    q: of the action that was taken.
    value: the largest Q of a legal action.
    overridden: as of `ActExtras`.
    """

    q: Array
    value: Array
    overridden: Array | None


def explorer(ctx: Q, policy: Policy, params: PyTree) -> Callable[..., Any]:
    """Return the act function of a rollout (`rollout.ActFn`) by `policy`."""

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, QStepExtras]:
        carry, action, extras = act_by_chance(ctx, policy, carry, ref, params, chance)
        taken = of_action(extras.logits, action)
        return carry, action, QStepExtras(taken, extras.value, extras.overridden)

    return explore


# --- The parts of a `Learner` that are the same for every Q-learner


def init(ctx: Q, hparams: type[QHParams], key: Array, params: PyTree) -> TrainState:
    """Implement `Learner.init`. Raises TypeError as `first_state`.

    Args:
        hparams: class of the learner's tunable floats.
    """
    first = partial(first_parameters, ctx.network, ctx.env.observation_size)
    return first_state(ctx, key, params, first, floats_of(hparams, ctx.config))


def make_q_learner(
    config: RunConfig, exact: Q, ctx: Q, init: Callable[..., Any], update: wrappers.Update
) -> Learner:
    """Build the `Learner` of a Q-learner.

    Args:
        exact, ctx: contexts of acting and of training, from `q_contexts`.
        init, update: as of `wrappers.compose`.
    """
    init, composed = wrappers.compose(ctx, init, update, policy_of)
    return Learner(
        init=init,
        update=composed,
        act=partial(act, act_by_chance, exact),
        policy=policy_of,
        info=info.q_learner(config, ctx.form),
        carry=exact.first_carry,
    )
