"""PPO's network and its first parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxtrade.advisor.fusion import Fusion
from jaxtrade.config import PPOConfig
from jaxtrade.networks.heads import ActorCritic
from jaxtrade.types import Array, PyTree


def make_network(config: PPOConfig, num_actions: int, precision: str | None = None) -> ActorCritic:
    """The network that `config` describes."""
    memory = config.rnn_width if config.network == "gru" else 0
    return ActorCritic(num_actions, config.hidden, config.activation, precision, memory, config.adapter)


def first_parameters(config: PPOConfig, num_actions: int, size: int, key: Array,
                     fusion: Fusion | None = None) -> dict[str, PyTree]:
    """The parameters that learning begins with: the network's, and those that a fusion adds."""
    network = make_network(config, num_actions)
    parameters = dict(network.init(key, network.first_carry(), jnp.zeros(size))["params"])
    return parameters | ({} if fusion is None else fusion.init(jax.random.fold_in(key, 1), size))
