"""Heads: what turns features into logits and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn

from jaxtrade.networks.torso import MLP
from jaxtrade.types import Array


class ActorCritic(nn.Module):
    """Policy and value networks with separate torsos, as Stable-Baselines3's `MlpPolicy`.

    float32[..., D] -> logits float32[..., num_actions], value float32[...]. Output layers are orthogonal with gain 0.01
    (the first policy is nearly uniform) and 1.
    """

    num_actions: int
    hidden: Sequence[int]
    activation: str = "tanh"
    precision: Any = None

    def setup(self) -> None:
        self.policy_torso = MLP(self.hidden, self.activation, self.precision)
        self.value_torso = MLP(self.hidden, self.activation, self.precision)
        self.policy_head = nn.Dense(self.num_actions, kernel_init=nn.initializers.orthogonal(0.01),
                                    precision=self.precision)
        self.value_head = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0), precision=self.precision)

    def __call__(self, observation: Array) -> tuple[Array, Array]:
        return self.logits(observation), self.value(observation)

    def logits(self, observation: Array) -> Array:
        """float32[..., num_actions], before any mask."""
        return self.policy_head(self.policy_torso(observation))

    def value(self, observation: Array) -> Array:
        """float32[...], expected discounted sum of rewards from here on."""
        return self.value_head(self.value_torso(observation))[..., 0]
