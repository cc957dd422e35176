"""The Q-network: a torso, a memory, and the head that computes the value of each action."""

from __future__ import annotations

from typing import Any, Protocol

import flax.linen as nn

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.memory import Remembering
from jaxtrade.networks.torso import FLOAT32, MLP, DotGeneral, orthogonal
from jaxtrade.types import Array, PyTree


class ActionValues(Protocol):
    """A Q-network (`parts.Q_NETWORKS`): a flax module with these methods, called through `init` and
    `apply`.

    `QNetwork` documents the methods. With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.memory.GRU`.
    """

    init: Any
    apply: Any

    def first_carry(self) -> PyTree:
        """The carry at the start of an episode."""
        ...

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """The carry after an observation float32[..., D]."""
        ...

    def values(self, carry: PyTree, observation: Array) -> Array:
        """Q float32[..., A] of a carry and its observation."""
        ...

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array]: ...


class QNetwork(Remembering):
    """(carry, float32[..., D]) -> carry, Q float32[..., num_actions].

    layer_norm: as of `torso.MLP`.
    dueling: Q(s, a) = V(s) + A(s, a) - mean of A(s, .) over all actions, legal or not (Wang et al.
        2016, equation 9).
    Value and advantages are linear in the features of one torso.

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
        """Q float32[..., num_actions], before any mask. carry: after `remember`."""
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
    """The network kinds `mlp` and `gru` of a Q-learner. dot_general: computes their products."""
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
