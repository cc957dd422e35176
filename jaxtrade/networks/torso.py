"""Torsos: the layers that compute features from an observation; initial weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxtrade.networks.precision import FLOAT32, DotGeneral
from jaxtrade.types import Array


def orthogonal(gain: float = 1.0) -> Any:
    """Orthogonal initialisation (Saxe et al. 2014): (key, shape, dtype) -> matrix W with W^T W =
    gain^2 I (or W W^T).

    It is `flax.linen.initializers.orthogonal(gain)`, but under `vmap` (several agents, several
    gates) it computes one matrix after the other. jaxlib 0.10 computes a batch of QR decompositions
    inside a worker of the CPU's thread pool, and waits there for other workers. Two such calls on
    two cores then wait for each other forever (a deadlock).
    """
    init = nn.initializers.orthogonal(gain)

    def make(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.custom_batching.sequential_vmap(lambda key: init(key, shape, dtype))(key)

    return make


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Dense layers with an activation after each: float32[..., D] -> float32[..., widths[-1]].

    Weights are orthogonal with gain sqrt(2), biases are 0, as in Stable-Baselines3 (see
    Andrychowicz et al. 2021).
    dot_general: computes its products, in a stated precision (`networks.precision`). layer_norm:
        each layer's outputs
    are normalised over its units before the activation (Ba, Kiros & Hinton 2016), with a learned
    scale and offset.
    """

    widths: Sequence[int]
    activation: str = "tanh"
    dot_general: DotGeneral = FLOAT32
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in self.widths:
            x = nn.Dense(width, kernel_init=orthogonal(2.0**0.5), dot_general=self.dot_general)(x)
            if self.layer_norm:
                x = nn.LayerNorm(use_fast_variance=False)(x)
            x = ACTIVATIONS[self.activation](x)
        return x
