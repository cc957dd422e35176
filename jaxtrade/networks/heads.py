"""The networks of the learners: torsos, memory, and the heads.

The heads compute logits and values, or the value of each action.
"""

from __future__ import annotations

from typing import Any, Protocol

import flax.linen as nn

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.accelerators import PAIR, apply_pair, apply_value, pack, unpack
from jaxtrade.networks.torso import (
    ACTIVATIONS,
    FLOAT32,
    MLP,
    DotGeneral,
    Remembering,
    orthogonal,
)
from jaxtrade.types import Array, PyTree

# --- The policy and value network: torsos, memory, and the heads that compute logits and values


class Module(Protocol):
    """What the flax modules of all learners have, with or without a memory."""

    init: Any
    apply: Any

    def first_carry(self) -> PyTree:
        """Return the carry at the start of an episode."""
        ...

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """Compute the carry after an observation float32[..., D]."""
        ...


class Network(Module, Protocol):
    """A policy and value network (`network.kind`).

    It is a flax module with these methods, called through `init` and `apply`.

    `ActorCritic` documents the methods. Without a memory, `first_carry` returns None and `remember` returns its carry.
    With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.torso.GRU`. A network may have `pack` and `unpack`, as `ActorCritic`: training then uses the packed form
    of its parameters.
    """

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Compute logits float32[..., A] and value float32[...] of a carry and its observation."""
        ...

    def value(self, carry: PyTree, observation: Array) -> Array:
        """Compute the value alone, float32[...]."""
        ...

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]: ...


class ActorCritic(Remembering):
    """Policy and value networks with separate torsos, as `MlpPolicy` of Stable-Baselines3.

    (carry, float32[..., D]) -> carry, logits float32[..., num_actions], value float32[...].

    The output layers are orthogonal. The policy's gain 0.01 makes its first distribution nearly
    uniform (recommended by Andrychowicz et al. 2021); the value's gain is 1.
    """

    def setup(self) -> None:
        super().setup()
        self.policy_torso = MLP(self.hidden, self.activation, self.dot_general)
        self.value_torso = MLP(self.hidden, self.activation, self.dot_general)
        self.policy_head = nn.Dense(
            self.num_actions, kernel_init=orthogonal(0.01), dot_general=self.dot_general
        )
        self.value_head = nn.Dense(1, kernel_init=orthogonal(1.0), dot_general=self.dot_general)

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]:
        carry = self.remember(carry, observation)
        return carry, *self.heads(carry, observation)

    pack, unpack = staticmethod(pack), staticmethod(unpack)  # the methods accept packed ones too

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Compute logits float32[..., num_actions] before any mask, and value float32[...].

        carry: after `remember`.
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
        """Estimate the expected discounted sum of future rewards (float32[...]).

        carry: after `remember`.
        """
        return self._value(self._features(carry, observation))

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
    """Make the network kinds `mlp` and `gru`.

    dot_general: computes their products, in a stated precision.
    """
    memory = config.rnn_width if config.kind == "gru" else 0
    return ActorCritic(
        num_actions, config.hidden, config.activation, dot_general, memory, config.adapter
    )


# The Q-network: a torso, a memory, and the head that computes the value of each action.


class ActionValues(Module, Protocol):
    """A Q-network (`parts.Q_NETWORKS`).

    It is a flax module with these methods, called through `init` and `apply`.

    `QNetwork` documents the methods. With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.torso.GRU`.
    """

    def values(self, carry: PyTree, observation: Array) -> Array:
        """Compute Q float32[..., A] of a carry and its observation."""
        ...

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array]: ...


class QNetwork(Remembering):
    """(carry, float32[..., D]) -> carry, Q float32[..., num_actions].

    layer_norm: as of `torso.MLP`.
    dueling: Q(s, a) = V(s) + A(s, a) - mean of A(s, .) over all actions, legal or not (Wang et al.
        2016, equation 9). Value and advantages are linear in the features of one torso.

    The heads are orthogonal with gain 0.01: all actions start with nearly the same value, 0, so
    that the first choices and targets say nothing that was not seen.
    """

    dueling: bool = False
    layer_norm: bool = False

    def setup(self) -> None:
        super().setup()
        self.q_torso = MLP(self.hidden, self.activation, self.dot_general, self.layer_norm)
        self.q_head = nn.Dense(
            self.num_actions, kernel_init=orthogonal(0.01), dot_general=self.dot_general
        )
        if self.dueling:
            self.value_head = nn.Dense(
                1, kernel_init=orthogonal(0.01), dot_general=self.dot_general
            )

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array]:
        carry = self.remember(carry, observation)
        return carry, self.values(carry, observation)

    def values(self, carry: PyTree, observation: Array) -> Array:
        """Compute Q float32[..., num_actions], before any mask.

        carry: after `remember`.
        """
        features = self.q_torso(self._features(carry, observation))
        own = self.q_head(features)
        if not self.dueling:
            return own
        return self.value_head(features) + own - own.mean(axis=-1, keepdims=True)


def make_q_network(
    config: NetworkConfig,
    num_actions: int,
    dot_general: DotGeneral = FLOAT32,
    *,
    dueling: bool = False,
    layer_norm: bool = False,
) -> QNetwork:
    """Make the network kinds `mlp` and `gru` of a Q-learner.

    dot_general: computes their products.
    """
    memory = config.rnn_width if config.kind == "gru" else 0
    return QNetwork(
        num_actions,
        config.hidden,
        config.activation,
        dot_general,
        memory,
        config.adapter,
        dueling,
        layer_norm,
    )
