"""Torsos: what turns an observation into features."""

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

    Weights orthogonal with gain sqrt(2), biases 0 (as Stable-Baselines3 does, Andrychowicz et al. 2021).
    `precision` is the matrix-product precision (None: the platform's default, which on a GPU may be TF32).
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
