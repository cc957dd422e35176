"""The static context of a Q-learner, and its network."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.config.q_learning import QLearningConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.precision import FLOAT32, DotGeneral, dot_general_of
from jaxtrade.networks.q_heads import ActionValues
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.parts import Q_NETWORKS
from jaxtrade.rl.algorithms import Head
from jaxtrade.rl.context import Context
from jaxtrade.rl.form import form_of
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, Env, PyTree, Stage, Summary

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
    products = dot_general_of(config.compute.precision, platform)
    network = make_network(config.network, learner, env.num_actions)
    exact: Q = Context(
        learner,
        config.minibatches,
        config.rollout,
        config.network,
        env,
        network,
        total_updates,
        summarise,
        stage,
        fusion,
        reduce,
        form_of(platform),
        config.sampler,
        config.actor,
    )
    return exact, exact.with_products(
        make_network(config.network, learner, env.num_actions, products), products
    )


def parameters_of(ctx: Q, key: Array) -> PyTree:
    """The initial parameters of a context's network."""
    return first_parameters(ctx.network, ctx.env.observation_size, key)
