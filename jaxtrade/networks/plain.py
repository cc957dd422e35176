"""Networks of one's own without knowledge of memory, masks or precision: `register_network`."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn

from jaxtrade.config import NetworkConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.torso import DotGeneral
from jaxtrade.parts import NETWORKS
from jaxtrade.types import Array, PyTree

Heads = Callable[[Array], tuple[Array, Array]]  # observation -> (logits, value)


class _FunctionNetwork(nn.Module):
    """A function as a flax module, so that it may make layers of flax where it uses them."""

    function: Heads

    @nn.compact
    def __call__(self, observation: Array) -> tuple[Array, Array]:
        return self.function(observation)


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


def register_network(name: str, make: Callable[[int], nn.Module | Heads]) -> None:
    """Register a policy and value network for `network.kind=NAME`.

        class Mine(nn.Module):
            num_actions: int

            @nn.compact
            def __call__(self, observation):
                x = nn.tanh(nn.Dense(64)(observation))
                return nn.Dense(self.num_actions)(x), nn.Dense(1)(x)[..., 0]

        jaxtrade.register_network("mine", Mine)

    Args:
        make: (number of actions) -> a flax module, or a function that may make layers of flax in
            its body. It is called with observations float32[..., D], and returns logits [..., A]
            and value [...]. Illegal actions are removed from the logits afterwards. It computes
            its products as it likes: `compute.precision` does not reach it.
    Raises ConfigError if another network has this name.
    """

    def plain(config: NetworkConfig, num_actions: int, dot_general: DotGeneral) -> PlainNetwork:
        del config, dot_general
        own = make(num_actions)
        if isinstance(own, type) or not callable(own):
            raise ConfigError(
                f"network.kind={name}: make({num_actions}) must return a flax module (nn.Module) or a "
                f"function of the observation, but returned {own!r}"
            )
        module = own if isinstance(own, nn.Module) else _FunctionNetwork(own)
        return PlainNetwork(name, num_actions, module)

    NETWORKS.register(name, plain)
