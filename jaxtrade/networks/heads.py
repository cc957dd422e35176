"""The networks of the learners: torsos, memory, and the heads that compute logits and values, or the
value of each action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.config import NetworkConfig
from jaxtrade.networks.torso import (
    ACTIVATIONS,
    FLOAT32,
    MLP,
    DotGeneral,
    Remembering,
    orthogonal,
    product,
    products,
)
from jaxtrade.types import Array, PyTree

# --- Two networks of equal widths on the same input, computed together.
#
# A product of a batch of two matrices is one program of a device, as is a product of one. Training
# therefore packs the layers of both networks in pairs, and unpacks them at the end of an update.
# The public parameters are never packed.


PAIR = "pair"  # key of the packed layers in the parameters
TORSOS, HEADS = ("policy_torso", "value_torso"), ("policy_head", "value_head")
_PARTS = {*TORSOS, *HEADS}


def pack(parameters: PyTree) -> PyTree:
    """Parameters of an `ActorCritic` in which `pair` takes the place of both torsos and heads.

    pair: by layer {"kernel", "bias"}. The first layers stand side by side, float32[D, 2 O] and
        float32[2 O], the
    policy's first. The later ones are stacked, float32[2, I, O] and float32[2, O]. The last layer
    has as many outputs as there are actions; zeros fill those that the value does not have, and no
    gradient reaches them. Networks without hidden layers stay as they are.
    """
    if TORSOS[0] not in parameters:
        return parameters
    first, *later = _layers(parameters).items()
    pair = {first[0]: jax.tree.map(lambda *both: jnp.concatenate(both, axis=-1), *first[1])}
    pair |= {name: jax.tree.map(_stacked, *both) for name, both in later}
    return {name: part for name, part in parameters.items() if name not in _PARTS} | {PAIR: pair}


def unpack(packed: PyTree, like: PyTree) -> PyTree:
    """The inverse of `pack`. like: parameters, or their shapes, as `pack` was given."""
    if PAIR not in packed:
        return packed
    parameters = {name: part for name, part in packed.items() if name != PAIR} | {
        name: {} for name in _PARTS
    }
    for name, shapes in _layers(like).items():
        layers = _torn(packed[PAIR][name], shapes)
        for torso, head, layer in zip(TORSOS, HEADS, layers, strict=True):
            if name == HEADS[0]:
                parameters[head] = layer
            else:
                parameters[torso][name] = layer
    return {name: parameters[name] for name in like}


def apply_pair(
    pair: PyTree, x: Array, activation: Callable[[Array], Array], dot_general: DotGeneral = FLOAT32
) -> Array:
    """The outputs of both networks, float32[2, A].

    Args:
        pair: as `pack` makes it. x: float32[D], input of both. activation: after each layer but the
            last.
        dot_general: as of `networks.torso.MLP`.
    """
    first, *middle, last = _in_order(pair)
    x = activation(product(dot_general, x, first["kernel"]) + first["bias"]).reshape(2, -1)
    for layer in middle:
        x = activation(products(dot_general, x, layer["kernel"]) + layer["bias"])
    return products(dot_general, x, last["kernel"]) + last["bias"]


def apply_value(
    pair: PyTree, x: Array, activation: Callable[[Array], Array], dot_general: DotGeneral = FLOAT32
) -> Array:
    """The value alone, float32[]. Arguments as `apply_pair`."""
    first, *later = _in_order(pair)
    width = first["bias"].shape[0] // 2
    x = product(dot_general, x, first["kernel"][:, width:]) + first["bias"][width:]
    for layer in later:
        x = product(dot_general, activation(x), layer["kernel"][1]) + layer["bias"][1]
    return x[0]


def _in_order(pair: PyTree) -> list[PyTree]:
    """The layers, first layer first. JAX sorts keys as text, where Dense_10 stands before
    Dense_2.
    """
    return [*(pair[f"Dense_{i}"] for i in range(len(pair) - 1)), pair[HEADS[0]]]


def _layers(parameters: PyTree) -> dict[str, tuple[PyTree, PyTree]]:
    """Name -> (layer of the policy, layer of the value), first layer first."""
    policy, value = (parameters[name] for name in TORSOS)
    torso = {f"Dense_{i}": (policy[f"Dense_{i}"], value[f"Dense_{i}"]) for i in range(len(policy))}
    return torso | {HEADS[0]: (parameters[HEADS[0]], parameters[HEADS[1]])}


def _stacked(policy: Array, value: Array) -> Array:
    missing = policy.shape[-1] - value.shape[-1]
    return jnp.stack([policy, jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, missing)])])


def _torn(layer: PyTree, shapes: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """The layers of the policy and of the value. shapes: layers of the sizes that they have."""

    def policy(x: Array, like: Array) -> Array:
        return x[..., : like.shape[-1]] if x.ndim == like.ndim else x[0]

    def value(x: Array, like: Array) -> Array:
        return x[..., -like.shape[-1] :] if x.ndim == like.ndim else x[1, ..., : like.shape[-1]]

    return jax.tree.map(policy, layer, shapes[0]), jax.tree.map(value, layer, shapes[1])


# --- The policy and value network: torsos, memory, and the heads that compute logits and values


class Module(Protocol):
    """What the flax modules of all learners have, with or without a memory."""

    init: Any
    apply: Any

    def first_carry(self) -> PyTree:
        """The carry at the start of an episode."""
        ...

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """The carry after an observation float32[..., D]."""
        ...


class Network(Module, Protocol):
    """A policy and value network (`network.kind`): a flax module with these methods, called through
    `init` and `apply`.

    `ActorCritic` documents the methods. Without a memory, `first_carry` returns None and `remember` returns its carry.
    With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.torso.GRU`. A network may have `pack` and `unpack`, as `ActorCritic`: training then uses the packed form
    of its parameters.
    """

    def heads(self, carry: PyTree, observation: Array) -> tuple[Array, Array]:
        """Logits float32[..., A] and value float32[...] of a carry and its observation."""
        ...

    def value(self, carry: PyTree, observation: Array) -> Array:
        """The value alone, float32[...]."""
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


# The Q-network: a torso, a memory, and the head that computes the value of each action.


class ActionValues(Module, Protocol):
    """A Q-network (`parts.Q_NETWORKS`): a flax module with these methods, called through `init` and
    `apply`.

    `QNetwork` documents the methods. With a memory, the network also has `read` and `step`, and it may have `run`, as
    `networks.torso.GRU`.
    """

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
