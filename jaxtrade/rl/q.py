"""What all Q-learners share: the policy that acts on Q values, its exploration, its state and its
reports.

A Q-learner's policy takes the legal action with the largest Q; of equal ones that with the lowest
id. While it explores, it takes a random legal action with probability epsilon instead, from the one
uniform number that every learner's `act` draws. An illegal action has probability exactly 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.config.learning import QLearningConfig
from jaxtrade.config.running import Precision
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import ActionValues
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import FLOAT32, DotGeneral, recall
from jaxtrade.parts import Q_NETWORKS
from jaxtrade.rl.acting import ActExtras, advice_terms, chance_of, fused, network_input, ready
from jaxtrade.rl.algorithms import MOST_LOSS, Head, highest, lowest, rounding, small_rate
from jaxtrade.rl.context import Context, contexts_of
from jaxtrade.rl.listening import Fusion
from jaxtrade.rl.rollout import Tally, roll_out
from jaxtrade.rl.state import Policy
from jaxtrade.rl.train_state import (
    TrainState,
    first_state,
    floats_of,
    halved_rates,
    linear,
    progress,
)
from jaxtrade.types import (
    Algorithm,
    Array,
    Column,
    Env,
    HealthCheck,
    PyTree,
    Remedies,
    Row,
    Stage,
    Summary,
    Transition,
    Warn,
)

# --- The static context of a Q-learner, and its network


Q = Context[Any, ActionValues]  # its `config` is a `QLearningConfig`
HEAD = Head("q_head", value="value_head", held=True)
FUSIONS = ("slots", "none")  # the fusions that need no distribution to tilt; a veto works with each


def make_network(
    settings: NetworkConfig,
    learner: QLearningConfig,
    num_actions: int,
    dot_general: DotGeneral = FLOAT32,
) -> ActionValues:
    """The Q-network of a configuration. Raises ConfigError if none is registered under
    `settings.kind`.
    """
    return Q_NETWORKS[settings.kind](
        settings, num_actions, dot_general, dueling=learner.dueling, layer_norm=learner.layer_norm
    )


def first_parameters(network: ActionValues, size: int, key: Array) -> dict[str, PyTree]:
    """Initial parameters of a Q-network. size: length of an observation."""
    return dict(network.init(key, network.first_carry(), jnp.zeros(size))["params"])


def first_policy(
    config: RunConfig,
    num_actions: int,
    observation_size: int,
    key: Array,
    fusion: Fusion | None = None,
) -> Policy:
    """`Learner.first_policy` of every Q-learner. Raises ConfigError as `q_context`."""
    check_fusion(config.algorithm, fusion)
    learner: Any = config.learner
    network = make_network(config.network, learner, num_actions)
    return Policy(
        first_parameters(network, observation_size, key),
        init_stats(observation_size),
        epsilon=jnp.float32(learner.epsilon_end),
    )


def check_fusion(algorithm: str, fusion: Fusion | None) -> None:
    """Raises ConfigError for a fusion that tilts a distribution, which a Q-learner does not
    have.
    """
    if fusion is not None and fusion.config.fusion not in FUSIONS:
        raise ConfigError(
            f"advisor.fusion={fusion.config.fusion}: {algorithm} has no distribution that advice could "
            "change; set advisor.fusion=slots (advice in the observation) or none, or algorithm=ppo"
        )


def q_contexts(
    config: RunConfig,
    env: Env,
    total_updates: int,
    *,
    summarise: Summary | None,
    stage: Stage | None,
    fusion: Fusion | None,
    reduce: Reduce = LOCAL,
    platform: str | None = None,
) -> tuple[Q, Q]:
    """The contexts of acting, which computes float32 products, and of training, in the configured
    precision.

    Raises ConfigError: no such Q-network, or a fusion that needs a distribution.
    """
    check_fusion(config.algorithm, fusion)
    learner: Any = config.learner
    return contexts_of(
        config,
        learner,
        env,
        total_updates,
        partial(make_network, config.network, learner, env.num_actions),
        summarise,
        stage,
        fusion,
        reduce,
        platform,
    )


# --- The tunable floats of a Q-learner, its exploration, and the policy of its state


class QHParams(struct.PyTreeNode):
    """The tunable floats of every Q-learner, each float32[]; meanings as in `QLearningConfig`. A
    learner adds its own.
    """

    learning_rate: Array
    learning_rate_end: Array
    gamma: Array
    max_grad_norm: Array
    epsilon: Array
    epsilon_end: Array
    epsilon_until: Array


def epsilon_at(hparams: QHParams, fraction: Array) -> Array:
    """float32[]: probability of a random action at a fraction of the run. It changes linearly up to
    `epsilon_until`.
    """
    return linear(
        hparams.epsilon, hparams.epsilon_end, jnp.clip(fraction / hparams.epsilon_until, 0.0, 1.0)
    )


def policy_of(state: TrainState) -> Policy:
    """`Algorithm.policy`: the policy of this state, without the trust of an advice fusion."""
    epsilon = epsilon_at(state.hparams, progress(state.update, state.total_updates))
    return Policy(parameters=state.params, normaliser=state.normaliser, epsilon=epsilon)


# --- Q values of references, and acting on them.
#
# All functions but `act` take a policy that `acting.ready` has made.


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
        refs: references [B, ...], in the order of `networks.torso.recall`. first: bool[B].
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


# --- The rollout of a Q-learner: epsilon-greedy acting in all environments


class StepExtras(NamedTuple):
    """`Transition.extras` of a Q-learner, float32[T, N] each: q of the action that was taken,
    value: the largest Q of a legal action. overridden: as of `ActExtras`."""

    q: Array
    value: Array
    overridden: Array | None


def explore_rollout(
    ctx: Q, state: TrainState, policy: Policy, params: PyTree, key: Array
) -> tuple[TrainState, Transition, Tally]:
    """One rollout, as `rollout.roll_out`. policy: from `acting.ready`."""

    def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, StepExtras]:
        carry, action, extras = act_by_chance(ctx, policy, carry, ref, params, chance)
        return (
            carry,
            action,
            StepExtras(of_action(extras.logits, action), extras.value, extras.overridden),
        )

    return roll_out(ctx, explore, state, params, key)


# --- Health checks, warnings and console columns of the Q-learners: pure functions of the metric
# rows.


LEAST_CHANGE = 1e-8  # float32 noise of Q values that do not change
MOST_Q = 1e4  # with scaled rewards returns are about 1; a larger Q is no estimate of them any more


def _not_constant(rows: Sequence[Row]) -> float:
    """Largest minus smallest loss of the run; a run of one update counts as varying."""
    losses = [row["td_loss"] for row in rows]
    return max(losses) - min(losses) if len(losses) > 1 else 1.0


LEARNS = (
    lowest("learning_rate", "lowest learning rate"),
    highest("q_change", "largest change of Q", 0.0, MOST_Q),
    highest("param_delta", "largest step", 0.0, math.inf),
    HealthCheck("td_loss", "range of the loss", _not_constant, lambda value: value > 0),
    highest("td_loss", "highest loss", -math.inf, MOST_LOSS, "loss"),
    highest("q_max", "largest Q", -math.inf, MOST_Q),
)


def health(precision: Precision) -> tuple[HealthCheck, ...]:
    """The checks of a run whose matrix products have a precision. `q_error`: acting and learning
    compute the same Q values up to rounding. For a learner that reports it."""

    return *LEARNS, rounding("q_error", "largest error of Q", precision)


PROGRESS = (
    Column("td", "td_loss", ".2e"),
    Column("dq", "q_change", ".1e"),
    Column("q", "q_max", ".2g"),
    Column("eps", "epsilon", ".3f"),
    Column("lr", "learning_rate", ".2e"),
)


def remedies(section: str) -> Remedies:
    """Advice for the loop's warnings. section: of the learner, such as "pqn"."""
    return Remedies(
        no_trades=f"raise {section}.epsilon_end or {section}.epsilon_until",
        one_action=f"raise {section}.epsilon_end, lower {section}.learning_rate",
        diverged=f"lower {section}.learning_rate or {section}.max_grad_norm, or set {section}.layer_norm=true",
    )


def warnings(section: str) -> tuple[Warn, ...]:
    """The warnings of a Q-learner. section: its own, such as "pqn"."""

    def frozen(rows: Sequence[Row]) -> str:
        if any(row.get("applied") == 0.0 for row in rows):
            return ""  # a replay that is still being filled (dqn.learning_starts)
        most = max(row["q_change"] for row in rows)
        if most > LEAST_CHANGE:
            return ""
        return (
            f"Q has changed by at most {most:.1e} for {len(rows)} updates: nothing is learnt, because all rewards "
            "are equal, the gradient is clipped away or the learning rate is too small; look at the rewards, at "
            f"{section}.max_grad_norm and at {section}.learning_rate"
        )

    def exploding(rows: Sequence[Row]) -> str:
        now = rows[-1]["q_max"]
        if now <= MOST_Q:
            return ""
        return (
            f"the largest Q is {now:.1e}: the estimates feed on themselves, or the rewards are far from 1; lower "
            f"{section}.learning_rate or {section}.gamma, set {section}.layer_norm=true, and keep "
            f"{section}.normalise_rewards=true"
        )

    return (
        Warn("learning_rate", small_rate(section), at_once=True),
        Warn("frozen", frozen),
        Warn("exploding", exploding),
    )


# --- The parts of an `Algorithm` that are the same for every Q-learner


def init(ctx: Q, hparams: type[QHParams], key: Array, params: PyTree) -> TrainState:
    """`Algorithm.init`. hparams: class of the learner's tunable floats. Raises TypeError as
    `first_state`.
    """
    first = partial(first_parameters, ctx.network, ctx.env.observation_size)
    return first_state(ctx, key, params, first, floats_of(hparams, ctx.config))


def q_algorithm(
    config: RunConfig, exact: Q, ctx: Q, init: Callable[..., Any], update: Callable[..., Any]
) -> Algorithm:
    """The `Algorithm` of a Q-learner. exact, ctx: contexts of acting and of training, from
    `q_contexts`.

    init, update: `Algorithm.init` and `Algorithm.update`.
    """
    section, rollout = config.algorithm, ctx.rollout
    return Algorithm(
        init=init,
        update=update,
        act=partial(act, exact),
        policy=policy_of,
        env=ctx.env,
        steps_per_update=rollout.num_envs * rollout.num_steps,
        carry=exact.first_carry,
        health=health(config.compute.precision),
        warnings=warnings(section),
        progress=PROGRESS,
        remedies=remedies(section),
        step_sizes=("learning_rate", "learning_rate_end"),
        exploration=("epsilon", "epsilon_end"),
        retry=halved_rates,
        retry_note="half the learning rate",
        together=ctx.form.agents,
    )
