"""The policy and value network: torsos, memory, and the heads that compute logits and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import flax.linen as nn
import jax.numpy as jnp

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.initializers import orthogonal
from jaxtrade.networks.memory import GRU
from jaxtrade.networks.pair import PAIR, apply_pair, apply_value, pack, unpack
from jaxtrade.networks.precision import FLOAT32, DotGeneral
from jaxtrade.networks.torso import ACTIVATIONS, MLP
from jaxtrade.types import Array, PyTree


class Network(Protocol):
    """A policy and value network (`network.kind`): a flax module with these methods, called through
    `init` and `apply`.

    `ActorCritic` documents the methods. Without a memory, `first_carry` returns None and `remember` returns its carry.
    With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.memory.GRU`. A network may have `pack` and `unpack`, as `ActorCritic`: training then uses the packed form
    of its parameters.
    """

    init: Any
    apply: Any

    def first_carry(self) -> PyTree:
        """The carry at the start of an episode."""
        ...

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """The carry after an observation float32[..., D]."""
        ...

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Logits float32[..., A] and value float32[...] of a carry and its observation."""
        ...

    def value(self, carry: PyTree, observation: Array) -> Array:
        """The value alone, float32[...]."""
        ...

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]: ...


class ActorCritic(nn.Module):
    """Policy and value networks with separate torsos, as `MlpPolicy` of Stable-Baselines3.

    (carry, float32[..., D]) -> carry, logits float32[..., num_actions], value float32[...].

    memory: width H of a GRU that reads the observations. Both torsos then read its carry
        float32[..., H] together with
    the observation. With 0 there is no GRU, and the carry is None.
    adapter_width: K > 0 adds a first linear layer float32[..., D] -> float32[..., K]. All other
        parts then read its
    output instead of the observation.

    The output layers are orthogonal. The policy's gain 0.01 makes its first distribution nearly
    uniform (recommended by Andrychowicz et al. 2021); the value's gain is 1.
    """

    num_actions: int
    hidden: Sequence[int]
    activation: str = "tanh"
    dot_general: DotGeneral = FLOAT32
    memory: int = 0
    adapter_width: int = 0

    def setup(self) -> None:
        if self.adapter_width:
            self.adapter = nn.Dense(self.adapter_width, dot_general=self.dot_general)
        if self.memory:
            self.gru = GRU(self.memory, self.dot_general)
        self.policy_torso = MLP(self.hidden, self.activation, self.dot_general)
        self.value_torso = MLP(self.hidden, self.activation, self.dot_general)
        self.policy_head = nn.Dense(
            self.num_actions, kernel_init=orthogonal(0.01), dot_general=self.dot_general
        )
        self.value_head = nn.Dense(1, kernel_init=orthogonal(1.0), dot_general=self.dot_general)

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]:
        carry = self.remember(carry, observation)
        return carry, *self.heads(carry, observation)

    @staticmethod
    def pack(parameters: PyTree) -> PyTree:
        """As `networks.pair.pack`. The methods above accept packed parameters too."""
        return pack(parameters)

    @staticmethod
    def unpack(packed: PyTree, like: PyTree) -> PyTree:
        """As `networks.pair.unpack`."""
        return unpack(packed, like)

    def first_carry(self) -> PyTree:
        """The carry before the first observation of an episode: float32[H] of zeros, or None
        without a memory.
        """
        return jnp.zeros(self.memory) if self.memory else None

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """The carry after the network has read `observation`."""
        return self.gru(carry, self._adapted(observation)) if self.memory else carry

    def read(self, observation: Array) -> Array:
        """As `GRU.read`."""
        return self.gru.read(self._adapted(observation))

    def step(self, carry: Array, gates: Array) -> Array:
        """As `GRU.step`."""
        return self.gru.step(carry, gates)

    def run(self, carry: Array, gates: Array, first: Array) -> Array:
        """As `GRU.run`."""
        return self.gru.run(carry, gates, first)

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """(logits float32[..., num_actions] before any mask, value float32[...]). carry: after
        `remember`.
        """
        features = self._features(carry, observation)
        if self.has_variable("params", PAIR):
            both = apply_pair(
                self.get_variable("params", PAIR),
                features,
                ACTIVATIONS[self.activation],
                self.dot_general,
            )
            return both[0], both[1, 0]
        return self.policy_head(self.policy_torso(features)), self._value(features)

    def value(self, carry: PyTree, observation: Array) -> Array:
        """float32[...]: estimate of the expected discounted sum of future rewards. carry: after
        `remember`.
        """
        return self._value(self._features(carry, observation))

    def _adapted(self, observation: Array) -> Array:
        return self.adapter(observation) if self.adapter_width else observation

    def _features(self, carry: PyTree, observation: Array) -> Array:
        observation = self._adapted(observation)
        return jnp.concatenate([observation, carry], axis=-1) if self.memory else observation

    def _value(self, features: Array) -> Array:
        if self.has_variable("params", PAIR):
            return apply_value(
                self.get_variable("params", PAIR),
                features,
                ACTIVATIONS[self.activation],
                self.dot_general,
            )
        return self.value_head(self.value_torso(features))[..., 0]


def make_actor_critic(
    config: NetworkConfig, num_actions: int, dot_general: DotGeneral = FLOAT32
) -> ActorCritic:
    """The network kinds `mlp` and `gru`. dot_general: computes their products, in a stated
    precision.
    """
    memory = config.rnn_width if config.kind == "gru" else 0
    return ActorCritic(
        num_actions, config.hidden, config.activation, dot_general, memory, config.adapter
    )
