"""PPO's network and its initial parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.networks.heads import Network
from jaxtrade.networks.normalize import init_stats
from jaxtrade.networks.precision import FLOAT32, DotGeneral
from jaxtrade.parts import NETWORKS
from jaxtrade.rl.listening.fusion import Fusion
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, PyTree


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
