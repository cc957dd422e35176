"""Networks of one's own without knowledge of memory, masks or precision: `register_network`."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn

from jaxtrade.config import NetworkConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.torso import DotGeneral
from jaxtrade.parts import NETWORKS
from jaxtrade.types import Array, PyTree


class PlainNetwork(nn.Module):
    """A flax module `observation -> (logits, value)` as a `heads.Network` without a memory."""

    kind: str
    num_actions: int
    own: nn.Module

    def first_carry(self) -> PyTree:
        """No memory."""
        return None

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """Return the carry as it is."""
        del observation
        return carry

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Logits float32[..., A] and value float32[...]. Raises ConfigError for other shapes."""
        del carry
        made = self.own(observation)  # pyright: ignore[reportCallIssue]
        batch = observation.shape[:-1]
        wanted = (*batch, self.num_actions), batch
        found = tuple(getattr(each, "shape", None) for each in made)
        if found != wanted:
            raise ConfigError(
                f"network.kind={self.kind}: for observations of shape {observation.shape} the network "
                f"must return (logits, value) of the shapes {wanted[0]} and {wanted[1]}, but returned "
                f"{found}; take the last axis of a value away with value[..., 0]"
            )
        return made

    def value(self, carry: PyTree, observation: Array) -> Array:
        """Return the value alone, float32[...]."""
        return self.heads(carry, observation)[1]

    def __call__(self, carry: PyTree, observation: Array) -> tuple[PyTree, Array, Array]:
        return carry, *self.heads(carry, observation)


def register_network(name: str, make: Callable[[int], nn.Module]) -> None:
    """Register a policy and value network for `network.kind=NAME`.

        class Mine(nn.Module):
            num_actions: int

            @nn.compact
            def __call__(self, observation):
                x = nn.tanh(nn.Dense(64)(observation))
                return nn.Dense(self.num_actions)(x), nn.Dense(1)(x)[..., 0]

        jaxtrade.register_network("mine", Mine)

    Args:
        make: (number of actions) -> a flax module, called with observations float32[..., D], which
            returns logits [..., A] and value [...]. Illegal actions are removed from the logits
            afterwards. The module computes its products as it likes: `compute.precision` does not
            reach it.
    Raises ConfigError if another network has this name.
    """

    def plain(config: NetworkConfig, num_actions: int, dot_general: DotGeneral) -> PlainNetwork:
        del config, dot_general
        return PlainNetwork(name, num_actions, make(num_actions))

    NETWORKS.register(name, plain)
