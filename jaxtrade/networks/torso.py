"""Torsos: the layers that compute features from an observation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax.numpy as jnp

from jaxtrade.networks.initializers import orthogonal
from jaxtrade.networks.precision import FLOAT32, DotGeneral
from jaxtrade.types import Array

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
