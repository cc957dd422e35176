"""Heads: what turns features into logits and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import flax.linen as nn
import jax.numpy as jnp

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.initializers import orthogonal
from jaxtrade.networks.memory import GRU
from jaxtrade.networks.torso import MLP
from jaxtrade.types import Array, PyTree


class Network(Protocol):
    """A policy and value network (`network.kind`): a flax module with these methods, called through `init` and `apply`.

    `ActorCritic` says what they do. One without a memory returns None from `first_carry` and the carry from `remember`;
    one with a memory has `read` and `step` too, as `networks.memory.GRU`.
    """

    init: Any
    apply: Any

    def first_carry(self) -> PyTree: ...

    def remember(self, carry: PyTree, observation: Array) -> PyTree: ...

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]: ...

    def value(self, carry: PyTree, observation: Array) -> Array: ...

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]: ...


class ActorCritic(nn.Module):
    """Policy and value networks with separate torsos, as Stable-Baselines3's `MlpPolicy`.

    (carry, float32[..., D]) -> carry, logits float32[..., num_actions], value float32[...]. With `memory` H > 0 one GRU
    of that width reads the observations, and both torsos read its carry float32[..., H] beside the observation;
    otherwise the carry is None. With `adapter_width` K > 0 a linear layer float32[..., D] -> float32[..., K] comes
    first, and everything else reads its output in place of the observation. Output layers are orthogonal with gain 0.01
    (the first policy is nearly uniform) and 1.
    """

    num_actions: int
    hidden: Sequence[int]
    activation: str = "tanh"
    precision: Any = None
    memory: int = 0
    adapter_width: int = 0

    def setup(self) -> None:
        if self.adapter_width:
            self.adapter = nn.Dense(self.adapter_width, precision=self.precision)
        if self.memory:
            self.gru = GRU(self.memory, self.precision)
        self.policy_torso = MLP(self.hidden, self.activation, self.precision)
        self.value_torso = MLP(self.hidden, self.activation, self.precision)
        self.policy_head = nn.Dense(self.num_actions, kernel_init=orthogonal(0.01),
                                    precision=self.precision)
        self.value_head = nn.Dense(1, kernel_init=orthogonal(1.0), precision=self.precision)

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]:
        carry = self.remember(carry, observation)
        return carry, *self.heads(carry, observation)

    def first_carry(self) -> PyTree:
        """Before an episode's first observation: float32[H] of zeros, or None."""
        return jnp.zeros(self.memory) if self.memory else None

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """The carry with `observation` taken in."""
        return self.gru(carry, self._adapted(observation)) if self.memory else carry

    def read(self, observation: Array) -> Array:
        """As `GRU.read`."""
        return self.gru.read(self._adapted(observation))

    def step(self, carry: Array, gates: Array) -> Array:
        """As `GRU.step`."""
        return self.gru.step(carry, gates)

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Logits float32[..., num_actions], before any mask, and value float32[...]; `carry` knows `observation`."""
        features = self._features(carry, observation)
        return self.policy_head(self.policy_torso(features)), self._value(features)

    def value(self, carry: PyTree, observation: Array) -> Array:
        """float32[...], expected discounted sum of rewards from here on; `carry` knows `observation`."""
        return self._value(self._features(carry, observation))

    def _adapted(self, observation: Array) -> Array:
        return self.adapter(observation) if self.adapter_width else observation

    def _features(self, carry: PyTree, observation: Array) -> Array:
        observation = self._adapted(observation)
        return jnp.concatenate([observation, carry], axis=-1) if self.memory else observation

    def _value(self, features: Array) -> Array:
        return self.value_head(self.value_torso(features))[..., 0]


def make_actor_critic(config: NetworkConfig, num_actions: int, precision: Any = None) -> ActorCritic:
    """The network kinds `mlp` and `gru`."""
    memory = config.rnn_width if config.kind == "gru" else 0
    return ActorCritic(num_actions, config.hidden, config.activation, precision, memory, config.adapter)
