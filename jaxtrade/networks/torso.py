"""Torsos: the layers that compute features from an observation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxtrade.networks.initializers import orthogonal
from jaxtrade.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Dense layers with an activation after each: float32[..., D] -> float32[..., widths[-1]].

    Weights are orthogonal with gain sqrt(2), biases are 0, as in Stable-Baselines3 (see Andrychowicz et al. 2021).
    precision: that of matrix products. None means the platform's default, which may be TF32 on a GPU.
    """

    widths: Sequence[int]
    activation: str = "tanh"
    precision: Any = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in self.widths:
            x = nn.Dense(width, kernel_init=orthogonal(2.0**0.5), precision=self.precision)(x)
            x = ACTIVATIONS[self.activation](x)
        return x
